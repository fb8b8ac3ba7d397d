#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL, SIGSTOP and a link that goes down, at every named point of a transfer (tests/README.md).

A producer and three agents in a chain; one of them is struck at the point. Its neighbours name it, and nobody else, within
the configured time; whoever is left has every frame (unless the producer is gone), and every slot comes back everywhere. A
stopped one is woken when the others are in the next refit: what it still writes spoils nothing, and it gives its slots back.

transfer_points_test.py [all]: on loopback, killed and stopped; inside a rig of netns.py (--hosts 16): links go down.
"""

import concurrent.futures
import os
import queue
import subprocess
import sys
import time
import unittest

from transfer_nodes import NAMES, Chain, Failed, expect, on_host

PROVIDERS = ("net", "tcp;ofi_rxm")
FRAMES = 60
HALF = FRAMES // 2
PAYLOAD_BYTES = 200_000
LOST_MS, CONNECT_MS = 2000, 3000
SLACK_MS = 3000  # of a busy machine
AT_ONCE = 4
ALL_SLOTS = "closed in_time 32/32"
P, UPPER, MIDDLE, LOWER = range(4)  # the chain

# name: who is struck, when (support/trap_fabric.hpp), while what goes on.
POINTS = {
    "before its range is registered": (MIDDLE, "registering 1", "enter"),
    "before its hello": (MIDDLE, "sending-hello 1", "enter"),
    "hello sent": (MIDDLE, "sent-hello 1", "enter"),
    "hello of its child has come": (MIDDLE, "heard-hello 1", "enter"),
    "answer to the hello sent": (MIDDLE, "sent-written 1", "enter"),
    "first grant table has come": (UPPER, "heard-grants 1", "enter"),
    "the producer is about to post the first frame": (P, "posting-write 1", "stream"),
    "the producer has posted the first frame": (P, "posted-write 1", "stream"),
    "first doorbell": (MIDDLE, "doorbell 1", "stream"),
    "first frame taken, not forwarded": (MIDDLE, "posting-write 1", "stream"),
    "first frame forwarded, not completed": (MIDDLE, "posted-write 1", "stream"),
    "first forward completed": (MIDDLE, "completed-write 1", "stream"),
    "half of the frames have come": (MIDDLE, f"doorbell {HALF}", "stream"),
    "half of the frames forwarded": (MIDDLE, f"posted-write {HALF}", "stream"),
    "half of the frames taken by a leaf": (LOWER, f"doorbell {HALF}", "stream"),
    "the producer is half through": (P, f"posted-write {HALF}", "stream"),
    "credits returned": (MIDDLE, "sent-grants 4", "stream"),
    "write table sent": (UPPER, "sent-written 2", "stream"),
    "last doorbell": (MIDDLE, f"doorbell {FRAMES}", "stream"),
    "last frame forwarded": (MIDDLE, f"posted-write {FRAMES}", "stream"),
    "last forward completed": (UPPER, f"completed-write {FRAMES}", "stream"),
    "gap seen, request not sent": (LOWER, "sending-request 1", "repair"),
    "request sent": (LOWER, "sent-request 1", "repair"),
    "request has come to the holder": (UPPER, "heard-request 1", "repair"),
    "offer sent by the holder": (UPPER, "sent-offer 1", "repair"),
    "offer has come": (LOWER, "heard-offer 1", "repair"),
    "repair read posted": (LOWER, "posted-read 1", "repair"),
    "repair read completed": (LOWER, "completed-read 1", "repair"),
    "the reader is done with the offer": (UPPER, "heard-done 1", "repair"),
    "close sent": (MIDDLE, "sent-close 1", "leave"),
    "close of its child has come": (MIDDLE, "heard-close 1", "leave"),
    "closed sent": (MIDDLE, "sent-closed 1", "leave"),
    "closed of its parent has come": (MIDDLE, "heard-closed 1", "leave"),
}
# With the link down this node has a view of its own: these say enough, the others are for `all`.
DOWN_IN_SHORT = ("hello sent", "first frame taken, not forwarded", "half of the frames forwarded",
                 "half of the frames taken by a leaf", "last doorbell", "offer sent by the holder", "repair read posted",
                 "close sent")  # fmt: skip


class Case:
    """One transfer in which one node is struck at one point. `replanned`: the coordinator's part is played too."""

    def __init__(self, action, provider, name, replanned):
        self.action, self.provider, self.name, self.replanned = action, provider, name, replanned
        self.place, self.trap, self.phase = POINTS[name]

    def run(self, hosts=None):
        """None, or what is wrong. `hosts`: (name, address) of each node's, else all are on loopback."""
        chain = None
        try:
            chain = Chain(self.provider, (LOST_MS, CONNECT_MS), hosts)
            self._run(chain)
        except Failed as failed:
            said = f"{self.name}: {self.action} of {NAMES[self.place]} on {self.provider}"
            return f"{said}{', replanned' if self.replanned else ''}: {failed}"
        finally:
            if chain:
                chain.end()
        return None

    def _run(self, chain):
        self.victim = chain.nodes[self.place]
        self.left = [node for node in chain.nodes if node is not self.victim]
        self._transfer(chain)
        struck_at = time.monotonic()
        if self.phase != "leave":
            self._expect_named(chain, struck_at)
            if self.action == "down":
                self._expect_all_named_by_victim(chain)
        if self.place != P:
            self._expect_whole()
        for node in self.left:
            if self.phase != "leave":
                expect(f"{node.name} leaves", node.ask("leave"), "left")
        if self.action == "stop":
            self._wake_in_next_refit(chain)
        self._expect_slots()

    def _transfer(self, chain):
        """Until the victim is struck."""
        producer, lower = chain.nodes[P], chain.nodes[LOWER]
        expect("the trap", self.victim.ask(f"trap {self.action} {self.trap}"), "armed")
        chain.enter(1)
        for node in chain.nodes:
            if self.phase != "enter" or node is not self.victim:  # else it may be gone, or say it later
                expect(f"{node.name} enters", node.hear(), "entered")
        producer.tell(f"send {FRAMES} {PAYLOAD_BYTES}")
        if self.phase in ("repair", "leave"):
            self._all_have(chain, producer)
        if self.phase == "repair":
            # The others lack nothing: only this reader and its holder are at work.
            expect("the reader", lower.ask("refetch 7") if self.victim is not lower else self._tell(lower), "asked")
        if self.phase == "leave":
            for node in chain.nodes:
                node.tell("leave")
            for node in self.left:
                expect(f"{node.name} leaves", node.hear(), "left")
        self.victim.hear_until("struck")

    def _tell(self, node):
        node.tell("refetch 7")  # its answer may come before or after it is struck
        return "asked"

    def _all_have(self, chain, producer):
        expect("the producer", producer.hear(), f"sent {FRAMES}")
        for node in chain.nodes[UPPER:]:
            expect(f"{node.name} has", node.ask(f"whole {FRAMES} 20000"), f"whole {FRAMES} bad=0")
        for node in chain.nodes:
            expect(f"{node.name} is", node.ask("drain 10000"), "drained")

    def _expect_named(self, chain, struck_at):
        """By its neighbours in time, by nobody else, and nobody else by anybody."""
        if self.place != P and self.phase != "repair":
            expect("the producer", chain.nodes[P].hear(), f"sent {FRAMES}")
        neighbours = self._neighbours(chain)
        limit_ms = (CONNECT_MS if self.phase == "enter" else LOST_MS) + SLACK_MS
        for node in neighbours:
            expect(f"{node.name} names", node.ask(f"waitlost {limit_ms}"), f"lost {self.victim.name} peer_lost")
            took_ms = (time.monotonic() - struck_at) * 1000
            if took_ms > limit_ms:
                raise Failed(f"{node.name} named it after {took_ms:.0f} ms, at most {limit_ms} are allowed")
        if self.replanned and self.place != P:
            for node in self.left:
                expect(f"{node.name} takes a new place", node.ask(f"replan {self.place}"), "entered")
        for node in self.left:
            if node not in neighbours:
                expect(f"{node.name} names", node.ask("waitlost 0"), "lost")

    def _expect_all_named_by_victim(self, chain):
        """It has the same time to see that it is alone."""
        neighbours = self._neighbours(chain)
        limit_ms = (CONNECT_MS if self.phase == "enter" else LOST_MS) + SLACK_MS
        self.victim.tell(f"waitlost {limit_ms} {len(neighbours)}")
        lost = self.victim.hear_until("lost").split()[1:]
        expect("the one whose link is down names", sorted(lost[::2]), sorted(node.name for node in neighbours))
        expect("the one whose link is down says", set(lost[1::2]), {"peer_lost"})

    def _neighbours(self, chain):
        return [chain.nodes[i] for i in (self.place - 1, self.place + 1) if 0 <= i < len(chain.nodes)]

    def _expect_whole(self):
        for node in self.left[1:]:
            expect(f"{node.name} has", node.ask(f"whole {FRAMES} 20000"), f"whole {FRAMES} bad=0")
        for node in self.left:
            lost = node.ask("waitlost 0")
            if lost not in ("lost", f"lost {self.victim.name} peer_lost"):
                raise Failed(f"{node.name} has {lost}")

    def _wake_in_next_refit(self, chain):
        """Slots that the lost one could write to are in use again."""
        if self.place != P:
            chain.enter(2, self.left)
            for node in self.left:
                expect(f"{node.name} enters the next refit", node.hear(), "entered")
        self.victim.wake()
        if self.place != P:
            producer = self.left[0]
            expect("the producer, next refit", producer.ask(f"send {FRAMES} {PAYLOAD_BYTES}"), f"sent {FRAMES}")
            for node in self.left[1:]:
                expect(f"{node.name}, next refit", node.ask(f"whole {FRAMES} 20000"), f"whole {FRAMES} bad=0")

    def _expect_slots(self):
        ended = self.left if self.action == "kill" else [*self.left, self.victim]
        for node in ended:
            node.tell("quit")
        for node in ended:
            if self.action == "down" and self.provider == "tcp;ofi_rxm":
                self._expect_closed_or_crashed(node)
                continue
            expect(f"{node.name} at the end", node.hear_until("closed"), ALL_SLOTS)
            expect(f"{node.name}'s exit code", node.process.wait(10), 0)

    def _expect_closed_or_crashed(self, node):
        """libfabric 1.17's rxm may crash when an endpoint is closed over a connection that is cut off (fabric-wire.md,
        "What a rail cannot survive"). By then everything that this test claims but the slots has been shown."""
        line = node.hear()
        while not line.startswith("closed") and line not in ("gone", "timeout"):
            line = node.hear()
        if line == "gone" and node.process.wait(10) != 0:
            print(f"{self.name}: {node.name} ended in rxm's crash on closing", file=sys.stderr)
            return
        expect(f"{node.name} at the end", line, ALL_SLOTS)


def run_all(cases):
    """What is wrong with them, several at a time."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return [wrong for wrong in pool.map(lambda case: case.run(), cases) if wrong]


def run_all_on_hosts(cases):
    """The same, each on four hosts of the rig, whose links are up again afterwards."""
    hosts = list(zip(os.environ["WEFT_HOSTS"].split(), os.environ["WEFT_HOST_ADDRESSES"].split()))
    groups = queue.SimpleQueue()
    count = len(hosts) // len(NAMES)
    for i in range(count):
        groups.put(hosts[i * len(NAMES) : (i + 1) * len(NAMES)])

    def run(case):
        group = groups.get()
        try:
            return case.run(group)
        finally:
            host = group[case.place][0]
            subprocess.run(on_host(host, ["ip", "link", "set", "eth0", "up"]), check=True)
            groups.put(group)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [wrong for wrong in pool.map(run, cases) if wrong]


class Points(unittest.TestCase):
    everything = False
    maxDiff = None

    def strike(self, action, run=run_all, names=tuple(POINTS)):
        """`all`: every point on both providers, orphans with a new parent and orphans that read on their own. Else each point
        in one of these ways, which differ from point to point."""
        short = [Case(action, PROVIDERS[i // 2 % 2], name, i // 4 % 2 == 0) for i, name in enumerate(names)]
        every = [Case(action, provider, name, replanned)
                 for name in names for provider in PROVIDERS for replanned in (False, True)]  # fmt: skip
        cases = every if self.everything else short
        wrong = run(cases)
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(cases)}")

    def half(self, odd):
        """One action strikes the even points, the other one the odd ones, `all` both."""
        return tuple(name for i, name in enumerate(POINTS) if self.everything or i % 2 == odd)


class OnLoopback(Points):
    def test_there_are_at_least_twenty(self):
        self.assertGreaterEqual(len(POINTS), 20)

    def test_killed(self):
        self.strike("kill", names=self.half(0))

    def test_stopped(self):
        self.strike("stop", names=self.half(1))


class OnHosts(Points):
    def test_link_down(self):
        self.strike("down", run_all_on_hosts, tuple(POINTS) if self.everything else DOWN_IN_SHORT)


if __name__ == "__main__":
    Points.everything = "all" in sys.argv[1:]
    unittest.main(argv=[sys.argv[0], "OnHosts" if "WEFT_HOSTS" in os.environ else "OnLoopback"])
