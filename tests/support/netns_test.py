#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rig of netns.py: hosts reach each other, links have the asked rate, nothing is left behind."""

import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
import unittest

import netns

RIG = [sys.executable, "-B", str(pathlib.Path(netns.__file__).resolve())]
RATE_MBIT = 200
PORT = 7000
# What a TCP stream carries of a link: 1448 bytes of 1514.
NEAR = (0.85 * RATE_MBIT, 1.02 * RATE_MBIT)
SECONDS_MAX = 30


def rig(*arguments, **options):
    return subprocess.run([*RIG, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX,
                          check=False, **options)  # fmt: skip


def serve(seconds):
    """Takes one stream and prints its rate in Mbit/s, the first quarter of the time left out."""
    listener = socket.create_server(("", PORT))
    print("ready", flush=True)
    stream, _ = listener.accept()
    begin = time.monotonic()
    counted_from, count = begin + seconds / 4, 0
    while (now := time.monotonic()) < begin + seconds:
        got = len(stream.recv(1 << 20))
        count += got if now >= counted_from else 0
    print(count * 8 / 1e6 / (now - counted_from))


def send(address):
    block = bytes(1 << 20)
    with socket.create_connection((address, PORT), timeout=5) as stream:
        try:
            while True:
                stream.sendall(block)
        except OSError:  # the other side has seen enough
            return


def measure(pairs, seconds):
    """Inside a rig: the rate of every (source, target) stream, all at the same time."""
    addresses = dict(zip(os.environ["WEFT_HOSTS"].split(), os.environ["WEFT_HOST_ADDRESSES"].split()))
    me = [sys.executable, "-B", __file__]
    servers = [subprocess.Popen(netns.on_host(target, [*me, "serve", str(seconds)]), stdout=subprocess.PIPE, text=True)
               for _, target in pairs]  # fmt: skip
    for server in servers:
        server.stdout.readline()
    senders = [subprocess.Popen(netns.on_host(source, [*me, "send", addresses[target]])) for source, target in pairs]
    for server in servers:
        print(server.stdout.read().strip())
    for process in [*servers, *senders]:
        process.wait()


def measured(hosts, rate, *pairs):
    """Mbit/s of streams such as "h0:h1" in a rig of its own."""
    command = ["--hosts", str(hosts), "--rate", rate, "--", sys.executable, "-B", __file__, "measure", *pairs]
    done = rig(*command)
    if done.returncode != 0:
        raise AssertionError(f"the rig ended with {done.returncode}: {done.stderr}")
    return [float(line) for line in done.stdout.split()]


class Links(unittest.TestCase):
    def test_stream_gets_the_asked_rate(self):
        (rate,) = measured(3, f"{RATE_MBIT}mbit", "h0:h2")
        self.assertGreater(rate, NEAR[0])
        self.assertLess(rate, NEAR[1])

    def test_each_direction_of_each_link_has_the_rate_for_itself(self):
        # A chain: the middle host receives and sends at the same time.
        rates = measured(3, f"{RATE_MBIT}mbit", "h0:h1", "h1:h2")
        for rate in rates:
            self.assertGreater(rate, NEAR[0])
            self.assertLess(rate, NEAR[1])

    def test_links_without_a_rate_are_not_shaped(self):
        done = rig("--", *netns.on_host("h1", ["tc", "qdisc", "show", "dev", "eth0"]))
        self.assertNotIn("tbf", done.stdout)
        self.assertEqual(done.returncode, 0)


class Rig(unittest.TestCase):
    def test_names_its_hosts_and_passes_the_exit_code_on(self):
        done = rig("--hosts", "3", "--", "sh", "-c", "echo $WEFT_HOSTS $WEFT_HOST_ADDRESSES; exit 7")
        self.assertEqual(done.stdout.split(), ["h0", "h1", "h2", "10.77.0.1", "10.77.0.2", "10.77.0.3"])
        self.assertEqual(done.returncode, 7)

    def test_refuses_a_rate_it_does_not_know(self):
        done = rig("--rate", "200mb", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("200mb", done.stderr)

    def test_leaves_no_interface_and_no_namespace(self):
        def seen():
            links = pathlib.Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()[2:]
            names = sorted(line.split(":")[0].strip() for line in links)
            return names, subprocess.run(["ip", "netns", "list"], capture_output=True, check=True).stdout

        before = seen()
        self.assertEqual(rig("--hosts", "4", "--rate", "100mbit", "--", "true").returncode, 0)
        self.assertEqual(seen(), before)

    def test_ends_every_process_inside_whatever_ends_it(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            with self.subTest(signal=number):
                read_end, write_end = os.pipe()
                # A process that left its parent and does not care for signals keeps the pipe open.
                script = 'trap "" TERM INT HUP; ip netns exec h0 setsid sh -c "echo up; exec sleep 1000" & wait'
                started = subprocess.Popen([*RIG, "--", "sh", "-c", script], stdout=write_end)
                os.close(write_end)
                with os.fdopen(read_end) as pipe:
                    self.assertEqual(pipe.readline(), "up\n")
                    started.send_signal(number)
                    started.wait(timeout=SECONDS_MAX)
                    readable, _, _ = select.select([pipe], [], [], SECONDS_MAX)
                    self.assertTrue(readable, "a process inside is still alive")
                    self.assertEqual(pipe.read(), "")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(float(sys.argv[2]))
    elif sys.argv[1:2] == ["send"]:
        send(sys.argv[2])
    elif sys.argv[1:2] == ["measure"]:
        measure([pair.split(":") for pair in sys.argv[2:]], seconds=2.0)
    else:
        unittest.main()
