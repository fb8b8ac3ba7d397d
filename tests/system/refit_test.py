# SPDX-License-Identifier: Apache-2.0
"""The main job, for real: real checkpoints, separate processes, libfabric, io_uring, two phases."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from fleet import DATA, Fleet, same_bytes, wait_until

GRADIENT = DATA / "policy-gradient-lr3e-6"
STEPS = [GRADIENT / f"step-{n}" for n in (10, 11, 12)]


class SystemTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="weft-system-")
        self.addCleanup(self.temporary.cleanup)
        self.work = pathlib.Path(self.temporary.name)
        self.fleet = None

    def tearDown(self):
        if self.fleet is not None:
            self.fleet.stop_all()
        result = self._outcome.result
        if any(test is self for test, _ in result.errors + result.failures):
            for log in sorted(self.work.glob("*/*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}")

    def start_fleet(self, **arguments):
        arguments.setdefault("base", STEPS[0])
        self.fleet = Fleet(self.work / "fleet", **arguments)
        self.fleet.start()
        return self.fleet

    def publish(self, base, target, version, *more, **arguments):
        result = self.fleet.publish(base, target, version, *more, **arguments)
        self.assertEqual(result.returncode, 0, f"{result.stdout}\n{result.stderr}")
        return json.loads(result.stdout)

    def refuse(self, code, base, target, version, *more, **arguments):
        result = self.fleet.publish(base, target, version, *more, **arguments)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        error = json.loads(result.stdout)["error"]
        self.assertEqual(error["code"], code, result.stdout)
        return error


class LateLeaves(SystemTest):
    def test_member_that_still_applies_the_base_keeps_the_next_refits_frames_and_votes_yes(self):
        gate = self.work / "gate"
        script = self.work / "hook.sh"
        script.write_text(f"#!/bin/sh\nwhile [ \"$1\" = 2 ] && [ ! -e {gate} ]; do sleep 0.05; done\n")
        script.chmod(0o755)
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2,
                                   coordinator_toml="commit.late_leaves = true")
        fleet.start_coordinator()
        fleet.start_agent(0)
        fleet.start_agent(1, extra_toml=f'hook.before_apply = ["run {script} {{version}}"]\nhook.timeout = "2min"')
        fleet.wait_joined(range(2))
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean([0], 2)
        before = {path.name for path in (fleet.state(1) / "spool").iterdir()}
        outcome = []
        publisher = threading.Thread(target=lambda: outcome.append(fleet.publish(STEPS[1], STEPS[2], 3)))
        publisher.start()
        try:
            def kept():
                new = [path for path in (fleet.state(1) / "spool").iterdir() if path.name not in before]
                return sum(file.stat().st_size for path in new for file in path.iterdir())
            wait_until("the late leaf has frames", kept)
            # Its own base is not there yet, and it has not voted.
            refit = wait_until("the other one has voted", lambda: (fleet.status()["refit"] or {}).get("yes") and
                               fleet.status()["refit"], 60)
            self.assertEqual((refit["planned"], refit["yes"], refit["no"]), (2, 1, 0))
            self.assertTrue(same_bytes(fleet.weights(1), STEPS[0]))
        finally:
            gate.touch()
            publisher.join(timeout=120)
        self.assertEqual(outcome[0].returncode, 0, outcome[0].stdout + outcome[0].stderr)
        fleet.wait_clean(range(2), 3)
        fleet.assert_bytes(range(2), STEPS[2])
        last = fleet.status()["last"]
        self.assertEqual((last["planned"], last["prepared"]), (2, 2))


class RealCheckpoints(SystemTest):
    def publish_steps(self, steps):
        fleet = self.start_fleet(base=steps[0], agent_count=7)
        everyone = range(7)
        for number, (base, target) in enumerate(zip(steps, steps[1:]), start=2):
            self.publish(base, target, number)
            members = fleet.wait_clean(everyone, number)
            self.assertEqual(len({m["root"] for m in members}), 1)
            fleet.assert_bytes(everyone, target)
            for i in everyone:
                for path in fleet.weights(i).glob("*.safetensors"):
                    self.assertEqual(path.stat().st_mode & 0o777, 0o640, path)

    def test_policy_gradient_3e_6_reaches_seven_agents_bit_by_bit(self):
        self.publish_steps(STEPS)

    def test_policy_gradient_1e_6_reaches_seven_agents_bit_by_bit(self):
        folder = DATA / "policy-gradient-lr1e-6"
        self.publish_steps([folder / "step-10", folder / "step-11"])

    def test_fine_tuning_1e_5_reaches_seven_agents_bit_by_bit(self):
        folder = DATA / "fine-tuning-lr1e-5"
        self.publish_steps([folder / "step-10", folder / "step-11"])


class Shapes(SystemTest):
    def test_every_shape_brings_every_agent_to_the_target(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=6, shape="auto")
        fleet.start_coordinator()
        for index in range(6):
            fleet.start_agent(index, extra_toml=f'agent.region = "{"east" if index < 3 else "west"}"')
        fleet.wait_joined(range(6))
        shapes = ["striped(3)", "pipeline", "binomial", "regional(kary(2), chain)", "auto"]
        for number, shape in enumerate(shapes, start=2):
            base, target = (STEPS[0], STEPS[1]) if number % 2 == 0 else (STEPS[1], STEPS[0])
            with self.subTest(shape):
                self.publish(base, target, number, "--shape", shape)
                fleet.wait_clean(range(6), number)
                fleet.assert_bytes(range(6), target)


class Versions(SystemTest):
    def test_same_version_and_root_again_is_success_without_effect(self):
        fleet = self.start_fleet()
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean(range(3), 2)
        stamps = [p.stat().st_mtime_ns for p in sorted(fleet.weights(0).glob("*.safetensors"))]
        answer = self.publish(STEPS[0], STEPS[1], 2)
        self.assertTrue(answer["already_committed"])
        again = [p.stat().st_mtime_ns for p in sorted(fleet.weights(0).glob("*.safetensors"))]
        self.assertEqual(stamps, again)

    def test_same_version_with_another_root_is_payload_conflict(self):
        fleet = self.start_fleet()
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean(range(3), 2)
        self.refuse("payload_conflict", STEPS[0], STEPS[2], 2)
        fleet.assert_bytes(range(3), STEPS[1])

    def test_old_or_skipped_base_is_version_order(self):
        fleet = self.start_fleet()
        self.publish(STEPS[0], STEPS[1], 6)
        fleet.wait_clean(range(3), 6)
        self.refuse("version_order", STEPS[1], STEPS[2], 5)
        self.refuse("version_order", STEPS[1], STEPS[2], 9, "--base-version", 7)
        self.publish(STEPS[1], STEPS[2], 7)
        fleet.wait_clean(range(3), 7)
        fleet.assert_bytes(range(3), STEPS[2])

    def test_equal_number_over_other_bytes_is_base_mismatch(self):
        fleet = self.start_fleet()
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean(range(3), 2)
        self.refuse("base_mismatch", STEPS[0], STEPS[2], 3)
        fleet.assert_bytes(range(3), STEPS[1])

    def test_identical_checkpoints_send_no_frames_and_still_commit(self):
        fleet = self.start_fleet()
        answer = self.publish(STEPS[0], STEPS[0], 2)
        self.assertEqual(answer["frames"], 0)
        self.assertEqual(answer["changed_elements"], 0)
        fleet.wait_clean(range(3), 2)
        fleet.assert_bytes(range(3), STEPS[0])
        self.publish(STEPS[0], STEPS[1], 3)
        fleet.wait_clean(range(3), 3)
        fleet.assert_bytes(range(3), STEPS[1])

    def test_another_schema_is_refused_with_names(self):
        fleet = self.start_fleet()
        renamed = self.work / "renamed"
        shutil.copytree(DATA / "policy-gradient-lr1e-6" / "step-10", self.work / "one-file")
        shutil.copytree(self.work / "one-file", renamed)
        path = renamed / "model.safetensors"
        path.chmod(0o644)
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        name = next(key for key in header if key != "__metadata__")
        other = ("X" + name[1:]).encode()
        path.write_bytes(content.replace(b'"' + name.encode() + b'"', b'"' + other + b'"', 1))
        error = self.refuse("schema_changed", self.work / "one-file", renamed, 2)
        self.assertIn(other.decode(), error["detail"])
        for index in range(3):
            self.assertTrue(same_bytes(fleet.weights(index), STEPS[0]))


class WholeCheckpoint(SystemTest):
    def test_full_publish_sends_every_byte_and_commits(self):
        fleet = self.start_fleet(shape="chain")
        answer = self.publish(STEPS[0], STEPS[1], 2, "--full")
        fleet.wait_clean(range(3), 2)
        fleet.assert_bytes(range(3), STEPS[1])
        size = sum(p.stat().st_size for p in STEPS[1].glob("*.safetensors"))
        self.assertGreater(answer["wire_bytes"], size * 0.5)


class Failures(SystemTest):
    """End states of each failure: everybody clean at N or N+1, cause shown, next publish succeeds."""

    def finish(self, indices, base=STEPS[0], target=STEPS[1], version=2):
        self.publish(base, target, version)
        self.fleet.wait_clean(indices, version)
        self.fleet.assert_bytes(indices, target)

    def test_damaged_frame_aborts_with_everyone_at_the_base(self):
        fleet = self.start_fleet()
        error = self.refuse("corrupt_payload", STEPS[0], STEPS[1], 2,
                            environment={"WEFT_TEST_CORRUPT_FRAME": "0"})
        self.assertIn("chunk", error["detail"])
        fleet.assert_bytes(range(3), STEPS[0])
        self.finish(range(3))

    def test_wrong_base_on_one_agent_makes_it_need_a_reseed(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=3)
        fleet.prepare_agent(1)
        path = sorted(fleet.weights(1).glob("*.safetensors"))[0]
        damaged = bytearray(path.read_bytes())
        damaged[-1] ^= 1
        path.write_bytes(bytes(damaged))
        fleet.start()
        self.finish([0, 2])
        member = fleet.wait_state(1, "needs_reseed")
        self.assertTrue(member["cause"])
        self.assertEqual(path.read_bytes(), bytes(damaged))
        self.finish([0, 2], STEPS[1], STEPS[2], 3)

    def test_base_that_changed_under_a_running_agent_is_found_before_any_write(self):
        fleet = self.start_fleet()
        path = sorted(fleet.weights(1).glob("*.safetensors"))[0]
        with open(path, "r+b") as file:
            file.seek(-64, 2)
            tail = file.read(64)
            file.seek(-64, 2)
            file.write(bytes(b ^ 0x40 for b in tail))
        changed = path.read_bytes()
        self.finish([0, 2])
        member = fleet.members()["node-1"]
        self.assertIn(member["state"], ("needs_reseed", "lagging"))
        self.assertTrue(member["cause"])
        self.assertEqual(path.read_bytes(), changed)
        self.finish([0, 2], STEPS[1], STEPS[2], 3)

    def test_full_disk_on_one_agent_stops_one_attempt_not_the_training(self):
        fleet = self.start_fleet(agent_count=2)
        small = self.work / "small-disk"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", small], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", small], check=True)
        fleet.state_dirs[2] = small / "state"
        fleet.start_agent(2)
        fleet.wait_joined([2])
        self.finish([0, 1])
        member = fleet.wait_state(2, "lagging")
        self.assertIn("no_space", json.dumps(member["cause"]))
        self.assertTrue(same_bytes(fleet.weights(2), STEPS[0]))
        self.finish([0, 1], STEPS[1], STEPS[2], 3)

    def test_agent_killed_before_its_vote_is_left_out(self):
        fleet = self.start_fleet(agent_count=2)
        fleet.start_agent(2, environment={"WEFT_TEST_KILL_AT": "agent.before_vote"})
        fleet.wait_joined([2])
        self.finish([0, 1])
        self.assertEqual(fleet.wait_exit("node-2"), -signal.SIGKILL)
        self.assertTrue(same_bytes(fleet.weights(2), STEPS[0]))
        fleet.start_agent(2)
        fleet.wait_state(2, "lagging")
        self.assertTrue(same_bytes(fleet.weights(2), STEPS[0]))
        self.finish([0, 1], STEPS[1], STEPS[2], 3)

    def test_agent_killed_between_prepared_and_decision_commits_after_restart(self):
        fleet = self.start_fleet(agent_count=2)
        fleet.start_agent(2, environment={"WEFT_TEST_KILL_AT": "agent.decision"})
        fleet.wait_joined([2])
        self.publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("node-2"), -signal.SIGKILL)
        self.assertTrue(same_bytes(fleet.weights(2), STEPS[0]))
        fleet.start_agent(2)
        fleet.wait_clean(range(3), 2)
        fleet.assert_bytes(range(3), STEPS[1])

    def test_agent_killed_while_it_applies_finishes_after_restart(self):
        fleet = self.start_fleet(agent_count=2)
        fleet.start_agent(2, environment={"WEFT_TEST_KILL_AT": "agent.applying"})
        fleet.wait_joined([2])
        self.publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("node-2"), -signal.SIGKILL)
        fleet.start_agent(2)
        fleet.wait_clean(range(3), 2)
        fleet.assert_bytes(range(3), STEPS[1])
        self.finish(range(3), STEPS[1], STEPS[2], 3)

    def test_coordinator_killed_before_the_decision_leaves_everyone_at_the_base(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=3)
        fleet.start_coordinator(environment={"WEFT_TEST_KILL_AT": "coordinator.before_decision"})
        for index in range(3):
            fleet.start_agent(index)
        fleet.wait_joined(range(3))
        publisher = fleet.start_publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("coordinator"), -signal.SIGKILL)
        for index in range(3):
            self.assertTrue(same_bytes(fleet.weights(index), STEPS[0]))
        fleet.start_coordinator()
        publisher.wait(timeout=90)
        # The publisher's retry may have committed by now; without one everybody is at the base.
        if publisher.returncode == 0:
            fleet.wait_clean(range(3), 2)
            fleet.assert_bytes(range(3), STEPS[1])
        else:
            for index in range(3):
                self.assertTrue(same_bytes(fleet.weights(index), STEPS[0]))
            fleet.wait_joined(range(3))
            self.finish(range(3))
        self.finish(range(3), STEPS[1], STEPS[2], 3)

    def test_coordinator_killed_after_the_decision_still_brings_everyone_to_the_target(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=3)
        fleet.start_coordinator(environment={"WEFT_TEST_KILL_AT": "coordinator.after_decision"})
        for index in range(3):
            fleet.start_agent(index)
        fleet.wait_joined(range(3))
        publisher = fleet.start_publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("coordinator"), -signal.SIGKILL)
        fleet.start_coordinator()
        fleet.wait_clean(range(3), 2)
        fleet.assert_bytes(range(3), STEPS[1])
        publisher.wait(timeout=90)
        self.assertEqual(publisher.returncode, 0, fleet.log_text("publisher"))
        self.finish(range(3), STEPS[1], STEPS[2], 3)

    def test_publisher_killed_in_mid_stream_leaves_everyone_at_the_base(self):
        fleet = self.start_fleet()
        result = fleet.publish(STEPS[0], STEPS[1], 2,
                               environment={"WEFT_TEST_KILL_AT": "publisher.mid_stream"})
        self.assertEqual(result.returncode, -signal.SIGKILL)
        fleet.wait_joined(range(3))
        for index in range(3):
            self.assertTrue(same_bytes(fleet.weights(index), STEPS[0]))
        self.finish(range(3))

    def relay_killed(self, shape, agent_count, relay, *more):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=agent_count,
                                   shape=shape)
        fleet.start_coordinator()
        for index in range(agent_count):
            fleet.start_agent(index, environment={"WEFT_TEST_KILL_AT": "agent.first_frame"}
                              if index == relay else None)
        fleet.wait_joined(range(agent_count))
        answer = self.publish(STEPS[0], STEPS[1], 2, *more)
        self.assertEqual(fleet.wait_exit(fleet.name(relay)), -signal.SIGKILL)
        self.assertEqual(answer["attempts"], 1, answer)
        survivors = [i for i in range(agent_count) if i != relay]
        fleet.wait_clean(survivors, 2)
        fleet.assert_bytes(survivors, STEPS[1])
        self.assertTrue(same_bytes(fleet.weights(relay), STEPS[0]))
        return survivors

    def test_interior_relay_killed_in_mid_stream_commits_on_all_survivors(self):
        survivors = self.relay_killed("chain", 4, 0)
        self.publish(STEPS[1], STEPS[2], 3)
        self.fleet.wait_clean(survivors, 3)
        self.fleet.assert_bytes(survivors, STEPS[2])

    def test_interior_relay_killed_under_a_whole_checkpoint_commits_on_all_survivors(self):
        self.relay_killed("kary(2)", 7, 1, "--full")

    def test_node_killed_while_it_is_in_three_trees_of_a_producer_commits_on_all_survivors(self):
        self.relay_killed("striped(3)", 6, 1, "--full")

    def test_relay_killed_and_restarted_takes_part_again_or_is_told(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=4, shape="chain")
        fleet.start_coordinator()
        for index in range(4):
            fleet.start_agent(index, environment={"WEFT_TEST_KILL_AT": "agent.first_frame"}
                              if index == 1 else None)
        fleet.wait_joined(range(4))
        publisher = fleet.start_publish(STEPS[0], STEPS[1], 2, "--full")
        self.assertEqual(fleet.wait_exit("node-1"), -signal.SIGKILL)
        fleet.start_agent(1)
        publisher.wait(timeout=90)
        self.assertEqual(publisher.returncode, 0, fleet.log_text("publisher"))
        fleet.wait_clean([0, 2, 3], 2)
        fleet.assert_bytes([0, 2, 3], STEPS[1])
        # Back before the seal it has the new version, else it waits to be brought up to it.
        member = wait_until("node-1 has settled", lambda: self.settled(1))
        self.assertTrue(same_bytes(fleet.weights(1), STEPS[1 if member["state"] == "clean" else 0]))

    def settled(self, index):
        member = self.fleet.members().get(self.fleet.name(index), {})
        at_target = member.get("state") == "clean" and member["version"] == 2
        return member if at_target or member.get("state") == "lagging" else None

    def test_frame_spoiled_by_a_relay_is_fetched_from_somebody_else(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=4, shape="chain")
        fleet.start_coordinator()
        for index in range(4):
            fleet.start_agent(index, environment={"WEFT_TEST_SPOIL_FRAME": "0"}
                              if index == 1 else None)
        fleet.wait_joined(range(4))
        answer = self.publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(answer["attempts"], 1, answer)
        fleet.wait_clean(range(4), 2)
        fleet.assert_bytes(range(4), STEPS[1])
        for index in (1, 2, 3):
            self.assertIn("frame_fetched_again", fleet.log_text(fleet.name(index)))

    def test_leaf_killed_in_mid_stream_commits_on_the_survivors(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=3, shape="star")
        fleet.start_coordinator()
        for index in range(3):
            fleet.start_agent(index, environment={"WEFT_TEST_KILL_AT": "agent.first_frame"}
                              if index == 2 else None)
        fleet.wait_joined(range(3))
        self.publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("node-2"), -signal.SIGKILL)
        fleet.wait_clean([0, 1], 2)
        fleet.assert_bytes([0, 1], STEPS[1])
        self.assertTrue(same_bytes(fleet.weights(2), STEPS[0]))

    def test_agent_restarted_at_the_committed_version_serves_again_at_once(self):
        fleet = self.start_fleet()
        self.finish(range(3))
        fleet.kill("node-1", signal.SIGTERM)
        fleet.start_agent(1)
        fleet.wait_clean(range(3), 2)
        self.finish(range(3), STEPS[1], STEPS[2], 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
