#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: network namespaces on one bridge, each behind a link of a chosen rate.

netns.py [--hosts K] [--rate RATE] [--mtu BYTES] -- COMMAND...

COMMAND runs beside the hosts, with WEFT_HOSTS ("h0 h1 ...") and WEFT_HOST_ADDRESSES ("10.77.0.1 10.77.0.2 ...") in its
environment. `ip netns exec h1 PROGRAM` runs a program on host h1. Every host has lo and eth0; RATE (tc's way to write it,
200mbit) holds in each direction of each link on its own. Without --rate links are as fast as the kernel.

Everything lives in a network, mount and process namespace of this run alone: nothing can meet the machine's own
interfaces, and when this program ends, even by SIGKILL, the kernel ends every process inside and takes down every link.
Needs root, or a kernel that lets users make namespaces. Exit code: the command's; 125 when the rig cannot be made.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys

HOSTS_MAX = 200
RIG_FAILED = 125
BURST_BYTES_MIN = 64 * 1024
UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def host_names(count):
    return [f"h{number}" for number in range(count)]


def host_addresses(count):
    return [f"10.77.0.{number + 1}" for number in range(count)]


def on_host(host, command):
    """The command line that runs a command on a host; inside the rig only."""
    return ["ip", "netns", "exec", host, *command]


def bits_per_second(rate):
    """Of tc's "200mbit"."""
    number = rate.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = rate[len(number) :]
    if unit not in UNITS or not number:
        raise ValueError(f"rate {rate!r}: write a number and bit, kbit, mbit or gbit")
    return float(number) * UNITS[unit]


def _run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _shape(prefix, device, rate):
    # The bucket must hold what passes between two ticks of the kernel (10 ms is more than enough).
    burst = max(BURST_BYTES_MIN, int(bits_per_second(rate) / 8 / 100))
    _run(*prefix, "tc", "qdisc", "add", "dev", device, "root", "tbf",
         "rate", rate, "burst", str(burst), "latency", "50ms")  # fmt: skip


def _make_host(name, address, options):
    inside = on_host(name, [])
    port = f"port-{name}"
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", port, "mtu", str(options.mtu), "type", "veth",
         "peer", "name", "eth0", "mtu", str(options.mtu), "netns", name)  # fmt: skip
    _run("ip", "link", "set", port, "master", "bridge0", "up")
    _run(*inside, "ip", "address", "add", f"{address}/24", "dev", "eth0")
    _run(*inside, "ip", "link", "set", "lo", "up")
    _run(*inside, "ip", "link", "set", "eth0", "up")
    if options.rate:
        _shape([], port, options.rate)
        _shape(inside, "eth0", options.rate)


def _run_inside(options):
    """In the new namespaces, as their first process."""
    names, addresses = host_names(options.hosts), host_addresses(options.hosts)
    try:
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")  # for /run/netns, also without write access to the machine's
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge0", "mtu", str(options.mtu), "type", "bridge", "mcast_snooping", "0")
        _run("ip", "link", "set", "bridge0", "up")
        for name, address in zip(names, addresses):
            _make_host(name, address, options)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"netns: cannot make the rig: {error}", file=sys.stderr)
        return RIG_FAILED
    environment = dict(os.environ, WEFT_HOSTS=" ".join(names), WEFT_HOST_ADDRESSES=" ".join(addresses))
    code = subprocess.run(options.command, env=environment, check=False).returncode
    return code if code >= 0 else 128 - code


def _start_as_part_of_this_run():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _run_outside(arguments):
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-root-user"]
    command = [*unshare, sys.executable, "-B", os.path.abspath(__file__), "--inside", *arguments]
    # Blocked and waited for, so that a signal that comes while the rig starts is not lost.
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    rig = subprocess.Popen(command, preexec_fn=_start_as_part_of_this_run)
    while True:
        number = signal.sigwait(signals)
        if number != signal.SIGCHLD:
            rig.kill()  # and with it, by --kill-child, the first process of the rig and all others
            rig.wait()
            return 128 + number
        code = rig.poll()
        if code is not None:
            return code if code >= 0 else 128 - code


def main(arguments):
    parser = argparse.ArgumentParser(description="Runs a command beside several hosts on one machine.")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", default="")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if not 1 <= options.hosts <= HOSTS_MAX:
        parser.error(f"--hosts must be 1 to {HOSTS_MAX}")
    if options.rate:
        try:
            bits_per_second(options.rate)
        except ValueError as error:
            parser.error(str(error))
    return _run_inside(options) if options.inside else _run_outside(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
