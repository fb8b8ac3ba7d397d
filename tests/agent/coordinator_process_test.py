#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`weft coordinator` as a process: start, taken ports, signals, restart with the same log, a second one."""

import json
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

WEFT = sys.argv.pop()
SECONDS_MAX = 60
BUSY, CONFIG, PEER_LOST = 31, 30, 23


def weft(*arguments):
    return subprocess.run([WEFT, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX,
                          check=False)  # fmt: skip


class Coordinator:
    """A running coordinator and the lines of its log."""

    def __init__(self, directory, extra=""):
        self.config = pathlib.Path(directory) / "coordinator.toml"
        self.config.write_text(
            f'fleet.listen = "127.0.0.1:0"\nstate.dir = "{directory}/state"\n{extra}',
            encoding="utf-8",
        )
        self.lines = []
        self.process = subprocess.Popen(
            [WEFT, "coordinator", "--config", str(self.config)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.incoming = queue.Queue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.incoming.put(line)
        self.incoming.put("")

    def line(self, event):
        """The first line of this event, waited for."""
        while True:
            for line in self.lines:
                if f" {event}" in line:
                    return line
            line = self.incoming.get(timeout=SECONDS_MAX)
            if not line:
                raise AssertionError(f"never logged: {event}; log: {self.lines}")
            self.lines.append(line)

    def address(self, event="coordinator_serves"):
        return re.search(r"address=(\S+)", self.line(event)).group(1)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(SECONDS_MAX)
        self.reader.join(SECONDS_MAX)
        self.process.stderr.close()
        return code

    def drop(self):
        if self.process.poll() is None:
            self.end(signal.SIGKILL)


class CoordinatorProcessTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def start(self, extra=""):
        coordinator = Coordinator(self.directory, extra)
        self.addCleanup(coordinator.drop)
        return coordinator

    def test_serves_and_ends_on_term_and_int(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            coordinator = self.start()
            coordinator.address()
            self.assertEqual(coordinator.end(number), 0)

    def test_hangup_and_broken_pipe_do_not_end_it(self):
        coordinator = self.start()
        address = coordinator.address()
        coordinator.process.send_signal(signal.SIGHUP)
        coordinator.process.send_signal(signal.SIGPIPE)
        self.assertEqual(weft("status", "--fleet", address).returncode, 0)
        self.assertEqual(coordinator.end(), 0)

    def test_restart_keeps_the_fleet_and_takes_a_higher_epoch(self):
        seen = []
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            coordinator = self.start()
            status = json.loads(weft("status", "--fleet", coordinator.address(), "--json").stdout)
            seen.append((status["fleet"], status["epoch"]))
            coordinator.end(number)
        self.assertEqual(len({fleet for fleet, _ in seen}), 1)
        self.assertEqual([epoch for _, epoch in seen], [1, 2, 3])

    def test_second_one_in_the_directory_is_busy(self):
        coordinator = self.start()
        coordinator.address()
        second = weft("coordinator", "--config", str(coordinator.config), "--json")
        self.assertEqual(second.returncode, BUSY)
        self.assertEqual(json.loads(second.stdout)["error"]["code"], "busy")
        self.assertIn(self.directory, second.stdout)
        self.assertEqual(coordinator.end(), 0)

    def test_taken_port_is_a_config_error_and_costs_no_epoch(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            config = pathlib.Path(self.directory) / "taken.toml"
            config.write_text(f'fleet.listen = "127.0.0.1:{port}"\nstate.dir = "{self.directory}/state"\n',
                              encoding="utf-8")  # fmt: skip
            failed = weft("coordinator", "--config", str(config))
        self.assertEqual(failed.returncode, CONFIG)
        self.assertIn(f"127.0.0.1:{port}", failed.stderr)
        coordinator = self.start()
        self.assertIn("epoch=1", coordinator.line("coordinator_serves"))
        self.assertEqual(coordinator.end(), 0)

    def test_taken_metrics_port_is_said_and_stops_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            coordinator = self.start(f'http.listen = "127.0.0.1:{port}"\n')
            self.assertIn(str(port), coordinator.line("http_not_listening"))
            self.assertEqual(weft("status", "--fleet", coordinator.address()).returncode, 0)
            self.assertEqual(coordinator.end(), 0)

    def test_pages_answer(self):
        coordinator = self.start('http.listen = "127.0.0.1:0"\n')
        base = f"http://{coordinator.address('http_listens')}"
        pages = {}
        for page in ("metrics", "healthz", "readyz", "status.json", ""):
            with urllib.request.urlopen(f"{base}/{page}", timeout=SECONDS_MAX) as answer:
                pages[page] = answer.read().decode()
        self.assertIn("weft_epoch_number 1\n", pages["metrics"])
        self.assertIn("weft_http_listening 1\n", pages["metrics"])
        self.assertEqual(json.loads(pages["status.json"])["members"], [])
        self.assertIn("<title>weft</title>", pages[""])
        self.assertEqual(coordinator.end(), 0)

    def test_effective_config_is_logged_once(self):
        coordinator = self.start("commit.quorum = 0.75\n")
        coordinator.address()
        self.assertIn("commit.quorum=0.75", coordinator.line("config"))
        self.assertEqual(coordinator.end(), 0)

    def test_wrong_config_ends_it_with_file_and_line(self):
        config = pathlib.Path(self.directory) / "wrong.toml"
        config.write_text('state.dir = "s"\ncommit.qorum = 1\n', encoding="utf-8")
        for more in ([], ["--check-config"]):
            failed = weft("coordinator", "--config", str(config), *more)
            self.assertEqual(failed.returncode, CONFIG)
            self.assertIn(f"{config}:2: commit.qorum: unknown key", failed.stderr)

    def test_status_and_resolve_without_it_are_peer_lost(self):
        with socket.create_server(("127.0.0.1", 0)) as once:
            address = f"127.0.0.1:{once.getsockname()[1]}"
        self.assertEqual(weft("status", "--fleet", address).returncode, PEER_LOST)
        config = pathlib.Path(self.directory) / "c.toml"
        config.write_text(f'fleet.listen = "{address}"\nstate.dir = "s"\n', encoding="utf-8")
        told = weft("coordinator", "--config", str(config), "--resolve", "e1-00000000000000aa-a1", "abort")
        self.assertEqual(told.returncode, PEER_LOST)


if __name__ == "__main__":
    unittest.main()
