#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts the power of real weft agents that apply refits on a real ext4 disk, and looks at what is left.

power_cut.py --binary WEFT [--cuts N] [--seed N] [--refits N] [--bytes SIZE] [--work DIR] [--lose-syncs FILE.so]

A coordinator, an agent that applies in place and one with two sets of files share a disk of this kernel (ext4 on a loop
device) whose every write and flush is written down in order (recorded_disk.py), while refits are published back to back.
Then disks are built as power cuts at N moments would have left them: every second one lost a random part of what was not
flushed, in any order, every fourth with a write that is torn at a sector. Each is checked and repaired by e2fsck as a boot
does it, its files are taken out, the logs are read by a reader of their own (commit_logs.py), and coordinator and agents
are started on them with the kernel boot id of the cut changed in their state, as after a boot:

  * what a publisher was told is committed is in the decision log; what the coordinator heard is applied is;
  * no agent holds a COMMIT or an APPLIED that the decision log does not hold;
  * every agent ends clean at the committed version, byte by byte, or says that it needs a reseed;
  * after every third cut the next refit commits on all of them.

--lose-syncs preloads a library into the agents that answers syncs without doing them: then violations are expected, and
finding none is the failure. Needs root (mounts). Exit code: 0 all held; 1 not; 125 the disk cannot be made.
"""

import argparse
import collections
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))

import commit_logs  # noqa: E402
import fleet as fleets  # noqa: E402
from write_log import FLUSH, WriteLog, entry_count  # noqa: E402

NODES = (0, 1)  # 0 applies in place, 1 has two sets
DISK_BYTES = 256 << 20
AFTER_THE_CUT = "c0ffee00-5eed-4bad-8bad-0123456789ab"  # the kernel boot id that agents find then
AS_AFTER_A_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


class NoDisk(Exception):
    """This machine lets nobody make one."""


class Violation(Exception):
    """What must never be found behind a power cut."""


def run(*command, seconds=300, codes=(0,)):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"{command[0]}: exit code {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def mode_of(node):
    return 'apply.mode = "double_buffer"\n' if node else ""


class CutFleet(fleets.Fleet):
    """Coordinator and agents with their files on one disk; with `boot_id`, under another kernel as far as they can see."""

    def __init__(self, work, steps, boot_id=None, agent_toml=""):
        super().__init__(work, steps / "step-0", agent_count=len(NODES), agent_toml=agent_toml,
                         coordinator_toml="commit.members_min = 2")
        self.boot_id = boot_id

    def on_host(self, place):
        if not self.boot_id:
            return []
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", AS_AFTER_A_BOOT, str(self.boot_id)]

    def weights(self, index):
        folder = self.weights_dir(index)
        current = folder / "current"
        return folder / (current.read_text().strip() if current.exists() else "a") if index else folder

    def settled(self, index):
        member = self.members().get(self.name(index), {})
        done = member.get("state") in ("needs_reseed", "unversioned") or (
            member.get("state") == "clean" and member.get("ready"))
        return member if done else None


class RecordedMount:
    """An ext4 disk, mounted, that writes down what it gets."""

    def __init__(self, work, disk, log):
        self.fuse, self.place = work / "fuse", work / "mnt"
        self.disk, self.log, self.loop = disk, log, None

    def __enter__(self):
        for folder in (self.fuse, self.place):
            folder.mkdir(exist_ok=True)
        self.recorder = subprocess.Popen([sys.executable, "-B", HERE / "recorded_disk.py", self.disk, self.log, self.fuse],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.recorder.stdout.readline().strip() != "ready":
            self.recorder.wait(timeout=60)
            raise NoDisk("root and /dev/fuse are needed")
        try:
            self.loop = run("losetup", "--find", "--show", self.fuse / "disk").strip()
            run("mount", "-t", "ext4", self.loop, self.place)
        except RuntimeError as problem:
            self.__exit__()
            raise NoDisk(str(problem)) from problem
        return self.place

    def __exit__(self, *_):
        subprocess.run(["umount", self.place], check=False, timeout=120)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], check=False, timeout=120)

        def unmounted():  # the loop device lets go of its file a little later
            return subprocess.run(["umount", self.fuse], check=False, timeout=120, stderr=subprocess.DEVNULL).returncode == 0

        fleets.wait_until("the recorded disk is unmounted", unmounted, 60)
        self.recorder.wait(timeout=60)


class Recording:
    """One run: the disk before it, its writes, and what was said at which of them."""

    def __init__(self, work, options):
        self.work = work
        self.options = options
        self.steps = work / "steps"
        self.base_disk = work / "disk-before"
        self.boot_id = work / "boot-id"
        self.log_path = work / "writes"
        self.said = []  # (entries at least written, version)
        self.first = self.last = 0

    def prepare(self):
        changes = [word for _ in range(self.options.refits + 1) for word in ("--changed", "3")]
        run(self.options.binary, "bench", "make-checkpoint", self.steps, "--bytes", self.options.bytes, "--files", "3", *changes)
        root = self.work / "root"
        for node in NODES:
            weights = root / f"node-{node}" / "weights"
            shutil.copytree(self.steps / "step-0", weights / "a" if node else weights)
        with open(self.base_disk, "wb") as disk:
            disk.truncate(DISK_BYTES)
        run("mke2fs", "-q", "-F", "-t", "ext4", "-d", root, self.base_disk)
        shutil.rmtree(root)
        self.boot_id.write_text(AFTER_THE_CUT + "\n")

    def record(self):
        disk = self.work / "disk"
        shutil.copyfile(self.base_disk, disk)
        lying = self.options.lose_syncs
        with RecordedMount(self.work, disk, self.log_path) as place:
            fleet = CutFleet(place, self.steps, agent_toml='apply.engine = "posix"' if lying else "")
            with fleet:
                fleet.start_coordinator()
                for node in NODES:
                    fleet.start_agent(node, {"LD_PRELOAD": str(lying.resolve())} if lying else None, mode_of(node))
                self.first = entry_count(self.log_path)
                fleet.wait_joined(NODES)
                self._publish_all(fleet)
                self.last = entry_count(self.log_path)
        disk.unlink()
        self.writes = WriteLog(self.log_path)

    def _publish_all(self, fleet):
        for version in range(2, self.options.refits + 2):
            done = fleet.publish(self.steps / f"step-{version - 2}", self.steps / f"step-{version - 1}", version)
            if done.returncode != 0:
                logs = [f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in fleet.work.glob("*.log")]
                raise RuntimeError("\n".join([done.stdout, done.stderr, *logs]))
            self.said.append((entry_count(self.log_path), version))
        fleet.wait_clean(NODES, self.options.refits + 1)

    def told(self, to):
        """The version that somebody had been told before entry `to` was written."""
        return max((version for entries, version in self.said if entries <= to), default=0)


class Cut:
    """One cut disk and the verdict on it."""

    def __init__(self, recording, number, to, seed):
        self.recording, self.number, self.to, self.seed = recording, number, to, seed
        self.where = ""
        self.reseeds = self.lost = self.version = 0

    def take_out(self, folder):
        disk = folder / "disk"
        drops = self.number % 2 == 1
        self.lost = self.recording.writes.build(self.recording.base_disk, disk, self.to, self.seed if drops else None,
                                                tear=self.number % 4 == 3)
        run("e2fsck", "-fy", disk, codes=(0, 1))
        run("e2fsck", "-fn", disk)
        files = folder / "fleet"
        files.mkdir()
        run("debugfs", "-R", f"rdump / {files}", disk)
        disk.unlink()
        return files

    def read_logs(self, files):
        """What the logs say to each other before anybody has repaired them."""
        decisions = commit_logs.read(files / "coordinator" / "decisions", "decisions")
        self.version = commit_logs.committed_version(decisions)
        told = self.recording.told(self.to)
        if self.version < told:
            raise Violation(f"version {told} was told as committed, the decision log ends at {self.version}")
        phases = []
        for node in NODES:
            state = commit_logs.read(files / f"node-{node}" / "state" / "state", "state")
            phases.append(commit_logs.phase(state))
            applied = commit_logs.applied_version(state)
            acknowledged = {r["refit"] for r in decisions if r["kind"] == "acked" and r["member"] == f"node-{node}"}
            wanted = [r["target"]["version"] for r in decisions
                      if r["kind"] == "decision" and r["refit"] in acknowledged and r["verdict"] == "commit"]
            if applied < max(wanted, default=0):
                raise Violation(f"node-{node} acknowledged {max(wanted)}, its log has applied {applied}")
            beyond = [r for r in state if r["kind"] == "commit" and r["target"]["version"] > self.version]
            if beyond or applied > max(self.version, 1):
                raise Violation(f"node-{node}: {beyond or applied} is beyond the committed version {self.version}")
        self.where = "+".join(phases)

    def restart(self, files, publish):
        steps = self.recording.steps
        with CutFleet(files, steps, self.recording.boot_id) as fleet:
            fleet.start_coordinator()
            for node in NODES:
                fleet.start_agent(node, extra_toml=mode_of(node))
            at = self.version or 1
            ready = []
            for node in NODES:
                member = fleets.wait_until(f"node-{node} is settled", lambda n=node: fleet.settled(n), 60)
                if member["state"] == "needs_reseed":
                    self.reseeds += 1
                    continue
                if member["version"] not in (0, at) or (member["version"] == 0 and self.version):
                    raise Violation(f"node-{node} is {member['state']} at {member['version']}, committed is {at}")
                ready.append(node)
            self._compare(fleet, ready, at)
            if publish and ready and at < self.recording.options.refits + 1:
                done = fleet.publish(steps / f"step-{at - 1}", steps / f"step-{at}", at + 1)
                if done.returncode != 0:
                    raise Violation(f"the next refit failed: {done.stdout}{done.stderr}")
                fleet.wait_clean(ready, at + 1)
                self._compare(fleet, ready, at + 1)

    def _compare(self, fleet, nodes, version):
        for node in nodes:
            if not fleets.same_bytes(fleet.weights(node), self.recording.steps / f"step-{version - 1}"):
                raise Violation(f"node-{node} says {version} and its bytes are not")

    def check(self, publish):
        """A line about it; raises Violation."""
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self.recording.work, prefix="cut-") as folder:
            files = self.take_out(pathlib.Path(folder))
            self.read_logs(files)
            try:
                self.restart(files, publish)
            except (AssertionError, Violation):
                for log in sorted(files.glob("*.log")):
                    print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
                raise
        return (f"cut {self.number} behind write {self.to}, {self.lost} lost: {self.where}, version {self.version or 1}, "
                f"{self.reseeds} reseeds, {time.monotonic() - begun:.0f} s")


def places(recording, count, chance):
    """Moments spread over the run from the start of the fleet to its end, one at random in each part.

    What is to lose writes is cut as late as it can be before the next flush.
    """
    entries, step = recording.writes.entries, (recording.last - recording.first) / count
    for number in range(count):
        to = recording.first + int((number + chance.random()) * step)
        while number % 2 and to < recording.last and not entries[to][2] & FLUSH:
            to += 1
        yield to


def judge(recording, options):
    chance = random.Random(options.seed)
    violations, reseeds, lost, phases = [], 0, 0, collections.Counter()
    for number, to in enumerate(places(recording, options.cuts, chance)):
        cut = Cut(recording, number, to, chance.randrange(1 << 30))
        try:
            print(cut.check(publish=number % 3 == 0), flush=True)
        except (Violation, AssertionError, commit_logs.Unreadable) as problem:
            violations.append(problem)
            print(f"cut {number} behind write {to}: VIOLATION: {problem}", flush=True)
        reseeds += cut.reseeds
        lost += cut.lost
        phases.update(cut.where.split("+"))
    print(f"{options.cuts} cuts over {recording.last} writes and flushes (seed {options.seed}): "
          f"{len(violations)} violations, {reseeds} reseeds, {lost} writes lost; last record: "
          + ", ".join(f"{name} {count}" for name, count in sorted(phases.items())))
    return violations


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--refits", type=int, default=8)
    parser.add_argument("--bytes", default="6MiB")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--lose-syncs", type=pathlib.Path)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="weft-powercut-") as temporary:
        work = options.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        # A build beside the run must not change what runs.
        options.binary = pathlib.Path(shutil.copy2(options.binary, work / "weft"))
        fleets.BINARY = str(options.binary)
        recording = Recording(work, options)
        recording.prepare()
        try:
            recording.record()
        except NoDisk as problem:
            print(f"no disk can be made: {problem}", file=sys.stderr)
            return 125
        violations = judge(recording, options)
    if options.lose_syncs:
        print("lost syncs were " + ("noticed" if violations else "NOT noticed"))
        return 0 if violations else 1
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
