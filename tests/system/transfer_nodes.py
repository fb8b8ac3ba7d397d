# SPDX-License-Identifier: Apache-2.0
"""Relays in processes of their own (support/relay_node.cpp): a producer and three agents in a chain."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time

ANSWER_SECONDS = 30
NAMES = ("producer", "agent-0", "agent-1", "agent-2")


class Failed(Exception):
    """A claim of a case that does not hold."""


def expect(claim, got, wanted):
    if got != wanted:
        raise Failed(f"{claim}: {got!r}, expected {wanted!r}")


def on_host(host, command):
    """The command line that runs a command on a host of the rig of support/netns.py."""
    return ["ip", "netns", "exec", host, *command]


class Node:
    """One process and the pipes to it. `host`: a network namespace of the rig, with its address."""

    def __init__(self, name, provider, times, work, host=None):
        self.name = name
        self.heard = b""
        lost_ms, connect_ms = times
        address = "127.0.0.1" if host is None else host[1]
        command = [os.environ["WEFT_RELAY_NODE"], name, provider, str(lost_ms), "0", address, str(connect_ms)]
        self.process = subprocess.Popen(command if host is None else on_host(host[0], command), cwd=work,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip

    def tell(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name} is gone") from None

    def hear(self, seconds=ANSWER_SECONDS):
        """The next line, or why there is none."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return "timeout"
            part = os.read(self.process.stdout.fileno(), 4096)
            if not part:
                return "gone"
            self.heard += part
        line, self.heard = self.heard.split(b"\n", 1)
        return line.decode()

    def hear_until(self, start, seconds=ANSWER_SECONDS):
        """The first line that starts so; lines before it are dropped."""
        while not (line := self.hear(seconds)).startswith(start):
            if line in ("timeout", "gone"):
                raise Failed(f"{self.name} said {line!r}, not {start!r}")
        return line

    def ask(self, line, seconds=ANSWER_SECONDS):
        self.tell(line)
        return self.hear(seconds)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        """However it is: gone after this."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has not read what it was told
        self.process.stdout.close()


class Chain:
    """producer -> agent-0 -> agent-1 -> agent-2."""

    def __init__(self, provider, times, hosts=None):
        self.nodes, self.endpoints = [], []
        self.work = tempfile.TemporaryDirectory(prefix="weft-transfer-")  # where libfabric leaves what it knows of a crash
        try:
            for i, name in enumerate(NAMES):
                self.nodes.append(Node(name, provider, times, self.work.name, hosts and hosts[i]))
            for node in self.nodes:
                ready = node.hear()
                if not ready.startswith("ready "):
                    raise Failed(f"{node.name} did not start: {ready}")
                self.endpoints.append(f"{node.name} {ready[6:]}")
        except BaseException:
            self.end()
            raise

    def enter(self, attempt, nodes=None):
        """The producer first; told to all, answered by nobody yet."""
        places = [self.nodes.index(node) for node in nodes or self.nodes]
        for place, index in enumerate(places):
            self.nodes[index].tell(f"enter {attempt} chain 1 {len(places) - 1} {place} "
                                   + " ".join(self.endpoints[i] for i in places))  # fmt: skip

    def end(self):
        for node in self.nodes:
            try:
                node.end()
            except OSError as error:
                print(f"{node.name}: {error}", file=sys.stderr)
        self.work.cleanup()
