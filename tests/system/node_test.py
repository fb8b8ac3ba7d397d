# SPDX-License-Identifier: Apache-2.0
"""What a node shows and tells: its pages, its hooks, its scrubber. Real processes, a real HTTP server as the runtime."""

import http.server
import json
import pathlib
import signal
import threading
import unittest
import urllib.error
import urllib.request

import numpy

from fleet import Fleet, free_port, same_bytes, wait_until
from publisher_model import write_checkpoint
from refit_test import STEPS, SystemTest


class Runtime:
    """Stands for a runtime that pauses, loads weights from disk and goes on, all by HTTP."""

    def __init__(self, **refuse):
        self.calls = []
        self.refuse = refuse  # so many calls of that name are answered 503 first
        runtime = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                runtime.calls.append((self.path, json.loads(body or b"{}"), runtime.look(body)))
                left = runtime.refuse.get(self.path[1:], 0)
                busy = left > 0
                runtime.refuse[self.path[1:]] = left - busy
                self.send_response(503 if busy else 200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def look(self, body):
        """Which step the files are that it is told to load."""
        path = json.loads(body or b"{}").get("model_path")
        if path is None:
            return None
        return next((n for n, step in enumerate(STEPS) if same_bytes(path, step)), "mixture")

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def hooks(self, timeout="10s", give_up="10min"):
        body = r'{\"model_path\": \"{path}\", \"weight_version\": \"{version}\"}'
        return (f'[hook]\nbefore_apply = ["POST {self.address}/pause {{}}"]\n'
                f'after_apply = ["POST {self.address}/load {body}", "POST {self.address}/resume {{}}"]\n'
                f'timeout = "{timeout}"\ngive_up = "{give_up}"\n')


class NodeTest(SystemTest):
    def start_node(self, toml, environment=None, double_buffer=False, base=STEPS[0]):
        self.port = free_port()
        self.fleet = fleet = Fleet(self.work / "fleet", base=base, agent_count=1,
                                   double_buffer=double_buffer)
        fleet.start_coordinator()
        self.toml = f'http.listen = "127.0.0.1:{self.port}"\n{toml}'
        fleet.start_agent(0, environment=environment, extra_toml=self.toml)
        fleet.wait_joined([0])
        return fleet

    def get(self, page):
        """Status and text; status 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{page}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def runtime(self, **arguments):
        runtime = Runtime(**arguments)
        self.addCleanup(runtime.close)
        return runtime


class Pages(NodeTest):
    def ended_link(self):
        (link,) = json.loads(self.get("/status.json")[1])["node"]["links"]
        return link if link["phase"] == "ended" else None

    def test_node_is_ready_only_when_it_is_level_with_the_fleet(self):
        fleet = self.start_node("")
        self.assertEqual(self.get("/healthz"), (200, "ok\n"))
        self.assertEqual(self.get("/readyz")[0], 503)  # no version yet
        self.publish(STEPS[0], STEPS[1], 2)
        wait_until("the node is ready", lambda: self.get("/readyz")[0] == 200)
        status = json.loads(self.get("/status.json")[1])
        self.assertEqual(status["members"][0]["version"], 2)
        self.assertEqual(status["members"][0]["state"], "clean")
        self.assertEqual(status["node"]["applies"], 1)
        rail = status["node"]["rail"]
        self.assertTrue(rail["provider"] and rail["device"] and rail["libfabric"], rail)
        self.assertIn("127.0.0.1", rail["address"])
        self.assertEqual((rail["slots"], rail["numa_node"]), (64, None))
        self.assertGreater(rail["protocol"], 0)
        link = wait_until("the link has ended", self.ended_link)
        self.assertEqual((link["demotions"], link["waiting"]), (0, 0), link)
        self.assertGreater(link["frames"], 0)
        self.assertGreater(link["bytes"], 100 * link["frames"])
        self.assertGreaterEqual(link["slots"], 3)
        text = fleet.run("status", "--node", f"127.0.0.1:{self.port}").stdout
        for word in (rail["provider"], f"protocol {rail['protocol']}", f"from {link['parent']}", str(link["bytes"])):
            self.assertIn(word, text)
        metrics = self.get("/metrics")[1]
        self.assertIn(f'weft_link_bytes{{parent="{link["parent"]}",tree="0"}} {link["bytes"]}\n', metrics)
        for line in ("weft_node_ready 1", "weft_node_version 2", "weft_node_lag_versions 0",
                     'weft_node_state{state="clean"} 1', "weft_http_listening 1"):
            self.assertIn(line + "\n", metrics)
        self.assertIn("<table>", self.get("/")[1])

    def test_restarted_node_is_never_ready_below_the_committed_version(self):
        fleet = self.start_node("")
        self.publish(STEPS[0], STEPS[1], 2)
        wait_until("the node is ready", lambda: self.get("/readyz")[0] == 200)
        fleet.kill("node-0", signal.SIGTERM)
        fleet.kill("coordinator", signal.SIGTERM)
        fleet.start_agent(0, extra_toml=self.toml)
        wait_until("the pages answer", lambda: self.get("/healthz")[0] == 200)
        # Nobody has told it yet what the fleet has committed.
        self.assertEqual(self.get("/readyz")[0], 503)
        fleet.start_coordinator()
        wait_until("the node is ready", lambda: self.get("/readyz")[0] == 200)


class HttpHooks(NodeTest):
    def expect_refit(self, calls, step, version):
        self.assertEqual([path for path, _, _ in calls], ["/pause", "/load", "/resume"])
        self.assertEqual(calls[1][1]["weight_version"], str(version))
        self.assertEqual(calls[1][2], step)  # what lay there when it was told to load

    def run_two_refits(self, double_buffer):
        runtime = self.runtime()
        fleet = self.start_node(runtime.hooks(), double_buffer=double_buffer)
        for step in (1, 2):
            runtime.calls.clear()
            self.publish(STEPS[step - 1], STEPS[step], step + 1)
            fleet.wait_clean([0], step + 1)
            wait_until("the runtime goes on", lambda: len(runtime.calls) >= 3)
            self.expect_refit(runtime.calls, step, step + 1)
        return runtime

    def test_runtime_pauses_loads_and_goes_on_in_place(self):
        self.run_two_refits(False)

    def test_runtime_loads_the_other_set_from_its_resolved_path(self):
        runtime = self.run_two_refits(True)
        path = pathlib.Path(runtime.calls[1][1]["model_path"])
        self.assertEqual(path, self.fleet.weights_dir(0) / "a")

    def test_runtime_that_refuses_to_pause_postpones_the_apply(self):
        runtime = self.runtime(pause=1)
        fleet = self.start_node(runtime.hooks())
        self.publish(STEPS[0], STEPS[1], 2)
        member = fleet.wait_state(0, "lagging")
        self.assertIn("before_apply", json.dumps(member["cause"]))
        fleet.wait_clean([0], 2)
        wait_until("the runtime goes on", lambda: len(runtime.calls) >= 4)
        self.expect_refit(runtime.calls[1:], 1, 2)
        fleet.assert_bytes([0], STEPS[1])

    def test_runtime_that_fails_to_load_is_told_again_and_then_takes_the_node_out(self):
        runtime = self.runtime()
        fleet = self.start_node(runtime.hooks(give_up="1s"), double_buffer=True)
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean([0], 2)
        wait_until("the node is ready", lambda: self.get("/readyz")[0] == 200)
        wait_until("the runtime goes on", lambda: len(runtime.calls) >= 3)
        runtime.refuse["load"] = 2
        # Readers of two sets stay ready through an apply: what makes it not ready is the hook.
        self.publish(STEPS[1], STEPS[2], 3)
        wait_until("the node is taken out", lambda: self.get("/readyz")[0] == 503, 60)
        wait_until("the node is back", lambda: self.get("/readyz")[0] == 200, 120)
        self.assertEqual([path for path, _, _ in runtime.calls[3:]],
                         ["/pause", "/load", "/load", "/load", "/resume"])
        self.assertEqual(runtime.calls[-2][2], 2)

    def test_hook_that_was_not_recorded_is_called_again_after_a_restart(self):
        runtime = self.runtime()
        fleet = self.start_node(runtime.hooks(), environment={"WEFT_TEST_KILL_AT": "agent.before_hooked"})
        self.publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("node-0"), -signal.SIGKILL)
        self.expect_refit(runtime.calls, 1, 2)
        runtime.calls.clear()
        fleet.start_agent(0, extra_toml=self.toml)
        fleet.wait_clean([0], 2)
        wait_until("the runtime is told again", lambda: len(runtime.calls) >= 2)
        self.assertEqual([path for path, _, _ in runtime.calls], ["/load", "/resume"])


class CommandHooks(NodeTest):
    def test_command_runs_with_path_and_version(self):
        script = self.work / "hook.sh"
        told = self.work / "told"
        script.write_text(f'#!/bin/sh\necho "$WEFT_EVENT $1 $WEFT_PATH" >> {told}\n')
        script.chmod(0o755)
        fleet = self.start_node(f'hook.before_apply = ["run {script} {{version}}"]\n'
                                f'hook.after_apply = ["run {script} {{version}}"]\n')
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean([0], 2)
        path = fleet.weights(0)
        expected = f"before_apply 2 {path}\nafter_apply 2 {path}\n"
        wait_until("both hooks have run", lambda: told.exists() and told.read_text() == expected)
        fleet.kill("node-0", signal.SIGKILL)  # its child ends with it: nothing holds the lock
        fleet.start_agent(0, extra_toml=self.toml)
        fleet.wait_clean([0], 2)


class Scrubbing(NodeTest):
    def test_flipped_bit_is_found_named_and_takes_the_node_out(self):
        fleet = self.start_node('scrub.period = "1s"\nscrub.bytes_per_second = "1GiB"\n')
        self.publish(STEPS[0], STEPS[1], 2)
        wait_until("the node is ready", lambda: self.get("/readyz")[0] == 200)

        def scrubbed():
            return json.loads(self.get("/status.json")[1])["node"]["scrub"]["passes"] >= 2
        wait_until("two passes have found nothing", scrubbed, 60)
        self.assertEqual(self.get("/readyz")[0], 200)

        def told():
            scrub = fleet.status()["members"][0]["scrub"]
            return scrub and scrub["passes"] >= 2 and scrub
        self.assertLess(wait_until("the fleet is told", told)["last_pass_seconds_ago"], 60)
        path = sorted(fleet.weights(0).glob("*.safetensors"))[0]
        with open(path, "r+b") as file:
            file.seek(-1000, 2)
            byte = file.read(1)
            file.seek(-1000, 2)
            file.write(bytes([byte[0] ^ 4]))
        member = fleet.wait_state(0, "needs_reseed", seconds=60)
        self.assertIn("tensor ", member["cause"]["detail"])
        self.assertIn(path.name, member["cause"]["detail"])
        self.assertEqual(self.get("/readyz")[0], 503)
        self.assertIn("weft_scrub_damaged_chunks 1\n", self.get("/metrics")[1])

    def test_files_of_an_apply_that_was_cut_off_are_not_taken_for_damage(self):
        """At each start the files are neither version until the journal has been applied again."""
        steps = [write_checkpoint(self.work / f"small-{n}", {"w": numpy.full((200, 300), n, numpy.uint16)})
                 for n in range(3)]  # every element of every block changes
        fleet = self.start_node("", base=steps[0])
        self.publish(steps[0], steps[1], 2)
        fleet.wait_clean([0], 2)
        fleet.kill("node-0", signal.SIGTERM)
        cut_off = {"WEFT_TEST_KILL_AT": "agent.applying"}
        fleet.start_agent(0, cut_off, self.toml)
        fleet.wait_clean([0], 2)
        self.publish(steps[1], steps[2], 3)
        self.assertEqual(fleet.wait_exit("node-0"), -signal.SIGKILL)
        for _ in range(6):
            fleet.start_agent(0, cut_off, self.toml)
            self.assertEqual(fleet.wait_exit("node-0"), -signal.SIGKILL)
        fleet.start_agent(0, extra_toml=self.toml)
        fleet.wait_clean([0], 3)
        fleet.assert_bytes([0], steps[2])
        self.assertNotIn("scrub:", fleet.log_text("node-0"))

if __name__ == "__main__":
    unittest.main(verbosity=2)
