#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long what hung below a relay goes without frames when that relay is killed in the middle of a refit.

lost_relay.py --weft PROGRAM [--bytes 256MiB] [--agents 4] [--lost-after 1s] [--repeats 3] [--work DIR] [--json]

Agents in a chain on loopback take a whole checkpoint; the second one is killed (SIGKILL) when its first frame arrives.
Measured is the time from its end until the third one, its child, has received a further frame, by that agent's own
counter, which it brings up to date ten times a second. Detection takes `fabric.lost_after`, which is taken off in
`beyond_detection`. Every survivor is compared with the published checkpoint byte by byte.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "system"))

SECONDS_MAX = 120
POLL_SECONDS = 0.01
COUNTER = re.compile(r"^weft_relay_frames_received(?:_total)? (\d+)", re.MULTILINE)


def frames_received(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            found = COUNTER.search(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return 0
    return int(found.group(1)) if found else 0


def wait_for(what, done):
    deadline = time.monotonic() + SECONDS_MAX
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {SECONDS_MAX} s: {what}")
        time.sleep(POLL_SECONDS)
    return time.monotonic()


def measure(options, work, checkpoints):
    import fleet as system

    system.BINARY = str(pathlib.Path(options.weft).resolve())
    toml = f'fabric.heartbeat_interval = "100ms"\nfabric.lost_after = "{options.lost_after}"\n'
    with system.Fleet(work / "fleet", base=checkpoints / "base", agent_count=options.agents, shape="chain",
                      agent_toml=toml) as fleet:  # fmt: skip
        fleet.start_coordinator()
        ports = [system.free_port() for _ in range(options.agents)]
        for index in range(options.agents):
            environment = {"WEFT_TEST_KILL_AT": "agent.first_frame"} if index == 1 else None
            fleet.start_agent(index, environment, f'http.listen = "127.0.0.1:{ports[index]}"')
        fleet.wait_joined(range(options.agents))
        relay = fleet.processes[fleet.name(1)]
        publisher = fleet.start_publish(checkpoints / "base", checkpoints / "target", 2, "--full")
        killed = wait_for("the relay's end", lambda: relay.poll() is not None)
        before = frames_received(ports[2])
        received = wait_for("a frame for its child", lambda: frames_received(ports[2]) > before)
        if publisher.wait(SECONDS_MAX) != 0:
            raise SystemExit(f"publish failed: {fleet.log_text('publisher')[-2000:]}")
        survivors = [index for index in range(options.agents) if index != 1]
        fleet.wait_clean(survivors, 2)
        fleet.assert_bytes(survivors, checkpoints / "target")
        return received - killed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", required=True)
    parser.add_argument("--bytes", default="256MiB")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--lost-after", default="1s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.agents < 3 or not re.fullmatch(r"\d+(ms|s)", options.lost_after):
        parser.error("at least 3 agents; --lost-after like 800ms or 3s")
    number, unit = re.fullmatch(r"(\d+)(ms|s)", options.lost_after).groups()
    detection = int(number) / (1000 if unit == "ms" else 1)
    took = []
    with tempfile.TemporaryDirectory(prefix="weft-lost-relay-", dir=options.work) as directory:
        checkpoints = pathlib.Path(directory) / "model"
        subprocess.run([options.weft, "bench", "make-checkpoint", checkpoints, "--bytes", options.bytes, "--log-level", "error"],
                       check=True, stdout=subprocess.DEVNULL, timeout=SECONDS_MAX)  # fmt: skip
        for repeat in range(options.repeats):
            took.append(measure(options, pathlib.Path(directory) / str(repeat), checkpoints))
    result = {"agents": options.agents, "detection_seconds": detection, "seconds": [round(each, 3) for each in took],
              "median_seconds": round(statistics.median(took), 3),
              "beyond_detection": round(statistics.median(took) - detection, 3)}  # fmt: skip
    if options.json:
        print(json.dumps(result))
        return
    print(f"killed relay to its child's next frame: {result['median_seconds']:.2f} s (median of {len(took)}: "
          f"{', '.join(f'{each:.2f}' for each in took)}), {result['beyond_detection']:.2f} s beyond the {detection:g} s of detection")


if __name__ == "__main__":
    main()
