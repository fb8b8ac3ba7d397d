#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weft's codec beside its peers' methods and the tools that everybody has, on the same pairs, in one run.

codec_suite.py --build DIR [--bytes 512MiB] [--changed 1,3,5] [--data DIR] [--tools zstd,xdelta3,rsync] [--out DIR]

Pairs: generated ones (one per density) and the real ones of --data. For each: bytes that would travel, per changed element and
over the conditional bound (docs/conditional-bound.md), encode and decode in GB/s of model bytes, and those over a copy (decode)
and a bare compare of two streams (encode) in the same run. Medians of several repetitions, interleaved at random. Prints a table
and the goals; writes codec.json, codec.csv and codec.svg to --out. See bench/README.md.
"""

import argparse
import csv
import filecmp
import io
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import codec_goals
import svg_plot

SECONDS_MAX = 1800
TOOLS = ("zstd", "xdelta3", "rsync")
# method -> (encode, decode) of bench_codec_pairs
METHODS = {"weft": ("weft_encode", "weft_decode"), "weft_fast": ("weft_fast_encode", "weft_fast_decode"),
           "nemo_rl": ("nemo_rl_encode", "nemo_rl_decode"), "slime": ("slime_encode", "slime_decode"),
           "pulse": ("pulse_encode", "pulse_decode")}  # fmt: skip
TITLES = {"weft": "weft compact", "weft_fast": "weft fast", "nemo_rl": "NeMo-RL method", "slime": "slime method",
          "pulse": "PULSE method", "zstd": "zstd --patch-from", "xdelta3": "xdelta3", "rsync": "rsync -z"}  # fmt: skip


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def run(command, folder=None):
    """Output and seconds of a command that must succeed."""
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=folder,
                          timeout=SECONDS_MAX, check=False)  # fmt: skip
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, seconds


class Pair:
    """One pair of checkpoints and what was measured on it."""

    def __init__(self, name, old, new, percent=None):
        self.name, self.old, self.new, self.percent = name, old, new, percent
        self.rates = {}  # of bench_codec_pairs: bytes of one checkpoint per second
        self.methods = []
        self.model_bytes = self.changed = 0
        self.bound_bytes = 0.0

    def method(self, name):
        return next(method for method in self.methods if method["method"] == name)

    def size(self, name):
        return self.method(name)["bytes_per_changed"]

    def rate(self, name, reference):
        return self.rates[name] / self.rates[reference]

    def bytes_over_bound(self):
        return self.method("weft")["ratio_to_bound"]

    def add(self, name, sent_bytes, encode_rate, decode_rate, source, tried=None):
        """Rates in bytes of one checkpoint per second; a rate that is not there is None. `tried`: on that pair instead."""
        tried = tried or self
        self.methods.append({
            "method": name, "bytes": sent_bytes, "bytes_per_changed": sent_bytes / tried.changed,
            "ratio_to_bound": sent_bytes / tried.bound_bytes if tried.bound_bytes else None,
            "encode_gb_per_second": encode_rate and encode_rate / 1e9,
            "decode_gb_per_second": decode_rate and decode_rate / 1e9,
            "encode_over_compare": encode_rate and encode_rate / self.rates["compare"],
            "decode_over_memcpy": decode_rate and decode_rate / self.rates["memcpy"], "measured": source})  # fmt: skip

    def report(self):
        return {"pair": self.name, "model_bytes": self.model_bytes, "changed_elements": self.changed,
                "changed_percent": self.changed_percent, "bound_bytes": self.bound_bytes,
                "bound_bytes_per_changed": self.bound_bytes / self.changed, "rates": self.rates,
                "methods": self.methods}  # fmt: skip

    @property
    def changed_percent(self):
        return 200 * self.changed / self.model_bytes


def count(options, pair, work, profile="compact"):
    """Bytes of the file that `weft diff -o` writes; sets the pair's facts."""
    command = [options.build / "weft", "diff", pair.old, pair.new, "-o", work / "step.weft", "--profile", profile, "--json"]
    facts = json.loads(run(command)[0])
    pair.model_bytes, pair.changed = facts["tensor_bytes"], facts["changed_elements"]
    pair.bound_bytes = facts["bound_bytes_per_changed"] * pair.changed
    return facts["file_bytes"]


def measure_codecs(options, pair, work):
    """weft and the peers' methods."""
    files = {name: count(options, pair, work, profile) for name, profile in (("weft", "compact"), ("weft_fast", "fast"))}
    raw = work / "rates.json"
    run([options.build / "bench" / "bench_codec_pairs", pair.old, pair.new, "--benchmark_enable_random_interleaving=true",
         f"--benchmark_repetitions={options.repetitions}", f"--benchmark_min_time={options.min_time}",
         f"--benchmark_out={raw}", "--benchmark_out_format=json"])  # fmt: skip
    sent = {}
    for row in json.loads(raw.read_text(encoding="utf-8"))["benchmarks"]:
        if row.get("aggregate_name", "median" if options.repetitions == 1 else "") != "median":
            continue
        name = row["run_name"].split("/")[0]
        pair.rates[name] = row["bytes_per_second"]
        if "sent_bytes" in row:
            sent[name] = int(row["sent_bytes"])
    for name, (encode, decode) in METHODS.items():
        size = files.get(name) or sent[encode]
        pair.add(name, size, pair.rates[encode], pair.rates[decode], "one thread, memory to memory")


def tool_zstd(old, new, work):
    patch, back = work / "patch", work / "back"
    _, encode = run(["zstd", "-q", "-f", "--long=31", f"--patch-from={old}", new, "-o", patch])
    _, decode = run(["zstd", "-q", "-f", "-d", "--long=31", f"--patch-from={old}", patch, "-o", back])
    return patch.stat().st_size, encode, decode, back


def tool_xdelta3(old, new, work):
    patch, back = work / "patch", work / "back"
    _, encode = run(["xdelta3", "-q", "-e", "-f", "-s", old, new, patch])
    _, decode = run(["xdelta3", "-q", "-d", "-f", "-s", old, patch, back])
    return patch.stat().st_size, encode, decode, back


def tool_rsync(old, new, work):
    """Sender and receiver are one run on one machine: its time is taken as that of the encoder."""
    node = work / "node"
    node.mkdir(exist_ok=True)
    shutil.copyfile(old, node / new.name)
    output, seconds = run(["rsync", "-az", "--no-whole-file", "--ignore-times", "--stats", new, f"{node}/"])
    counts = re.findall(r"^Total bytes (?:sent|received): ([\d,.]+)", output, re.MULTILINE)
    return sum(int(re.sub(r"\D", "", count)) for count in counts), seconds, None, node / new.name


def measure_tool(pair, tried, name, work):
    """A tool on every file of the pair `tried`, as a user would run it: wall time of the whole process, files cached."""
    if shutil.which(name) is None:
        say(f"{name} is not installed: left out")
        return
    tool = {"zstd": tool_zstd, "xdelta3": tool_xdelta3, "rsync": tool_rsync}[name]
    sent, encode, decode = 0, 0.0, 0.0
    for new in sorted(tried.new.glob("*.safetensors")):
        size, encode_seconds, decode_seconds, back = tool(tried.old / new.name, new, work)
        if not filecmp.cmp(back, new, shallow=False):
            raise SystemExit(f"{name} does not give back {new}")
        sent += size
        encode += encode_seconds
        decode = None if decode_seconds is None else decode + decode_seconds
    pair.add(name, sent, tried.model_bytes / encode, tried.model_bytes / decode if decode else None,
             f"whole process, files of {tried.model_bytes / 2**20:.0f} MiB", tried)  # fmt: skip


def make_generated(options, percent, folder, size):
    run([options.build / "weft", "bench", "make-checkpoint", folder, "--bytes", size, "--changed", percent,
         "--seed", options.seed, "--files", 1])  # fmt: skip
    number = float(percent)
    return Pair(f"generated/{percent}%", folder / "base", folder / "target", int(number) if number.is_integer() else number)


def real_pairs(options):
    if not options.data.is_dir():
        say(f"no real pairs in {options.data} (--data): left out")
        return
    for folder in sorted(path for path in options.data.iterdir() if path.is_dir()):
        steps = sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
        if len(steps) >= 2:
            yield Pair(f"{folder.name}/{steps[0].name}-{steps[1].name.split('-')[1]}", steps[0], steps[1])


def measure(options, pair, work, tried=None):
    """The tools need minutes for what codecs do in a second: `tried` is a smaller pair of the same kind for them."""
    begin = time.monotonic()
    measure_codecs(options, pair, work)
    if options.tools and tried is not None:
        count(options, tried, work)
    for tool in options.tools:
        measure_tool(pair, tried or pair, tool, work)
    say(f"{pair.name}: {time.monotonic() - begin:.0f} s")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    return {"processor": cpu, "cores": os.cpu_count(), "linux": platform.release(), "load": os.getloadavg()[0]}


def described(facts):
    return f"{facts['processor']}, {facts['cores']} cores, Linux {facts['linux']}, load at start {facts['load']:.1f}"


def cell(value, form="{:.3f}"):
    return "" if value is None else form.format(value)


def as_text(facts, pairs, goals):
    out = [described(facts)]
    for pair in pairs:
        out.append(f"\n{pair.name}: {pair.model_bytes / 2**20:.1f} MiB, {pair.changed_percent:.3f} % changed, bound "
                   f"{pair.bound_bytes / pair.changed:.3f} B/change, memcpy {pair.rates['memcpy'] / 1e9:.2f} GB/s, compare "
                   f"{pair.rates['compare'] / 1e9:.2f} GB/s")  # fmt: skip
        out.append(f"{'method':18} {'bytes':>12} {'B/change':>9} {'x bound':>8} {'enc GB/s':>9} {'dec GB/s':>9} "
                   f"{'enc/cmp':>8} {'dec/cpy':>8}  measured")  # fmt: skip
        for m in pair.methods:
            out.append(f"{TITLES[m['method']]:18} {m['bytes']:12d} {m['bytes_per_changed']:9.3f} "
                       f"{cell(m['ratio_to_bound'], '{:.2f}'):>8} {cell(m['encode_gb_per_second']):>9} "
                       f"{cell(m['decode_gb_per_second']):>9} {cell(m['encode_over_compare']):>8} "
                       f"{cell(m['decode_over_memcpy']):>8}  {m['measured']}")  # fmt: skip
    out.append(f"\n{'goal':38} {'where':24} {'goal':>9} {'measured':>9} {'ratio':>6} reached")
    for row in goals:
        sign = "<=" if row["direction"] == "most" else ">="
        reached = {True: "yes", False: "NO", None: "not measured"}[row["reached"]]
        out.append(f"{row['goal']:38} {row['where']:24} {sign} {row['figure']:6.3f} {cell(row['measured']):>9} "
                   f"{cell(row['ratio'], '{:.2f}'):>6} {reached}")  # fmt: skip
    return "\n".join(out)


def as_csv(pairs):
    text = io.StringIO()
    names = ["pair", "model_bytes", "changed_elements", "changed_percent", "bound_bytes_per_changed"]
    writer = csv.DictWriter(text, names + list(pairs[0].methods[0]), lineterminator="\n")
    writer.writeheader()
    for pair in pairs:
        report = pair.report()
        for method in pair.methods:
            writer.writerow({**{name: report[name] for name in names}, **method})
    return text.getvalue()


def as_svg(facts, pairs):
    """Sizes over density, and speeds at the middle density."""
    generated = [pair for pair in pairs if pair.percent is not None]
    real = [pair for pair in pairs if pair.percent is None]
    ticks = sorted({0.5, 1, 2, 3, 5, 7, 10, 20, 50})
    sizes = svg_plot.LinePlot("Bytes on the wire per changed BF16 value (hollow: real updates)", "values changed, %",
                              "bytes per changed value", True, True, ticks)  # fmt: skip
    for name, title in TITLES.items():
        for group, style in ((generated, "line"), (real, "marks")):
            points = [(p.changed_percent, m["bytes_per_changed"]) for p in group for m in p.methods if m["method"] == name]
            sizes.add(title, points, style)
    sizes.add("conditional bound", [(p.changed_percent, p.bound_bytes / p.changed) for p in generated or real], "dashed")
    middle = (generated or real)[len(generated or real) // 2]
    speeds = svg_plot.BarPlot(f"Speed at {middle.changed_percent:.1f} % changed, one thread (tools: whole process)",
                              "GB of model per second", ("encode", "decode"))  # fmt: skip
    for method in middle.methods:
        speeds.add(TITLES[method["method"]], (method["encode_gb_per_second"], method["decode_gb_per_second"]))
    speeds.add_reference("compare", middle.rates["compare"] / 1e9)
    speeds.add_reference("memcpy", middle.rates["memcpy"] / 1e9)
    return svg_plot.document([sizes, speeds], described(facts))


def parse(arguments):
    here = pathlib.Path(__file__).resolve().parents[1]
    shared = pathlib.Path(os.environ.get("WEFT_SHARED", here.parent / "shared"))
    parser = argparse.ArgumentParser(description="weft's codec beside its peers' methods, in one run.")
    parser.add_argument("--build", required=True, type=pathlib.Path, help="release build: weft and bench/bench_codec_pairs")
    parser.add_argument("--bytes", default="512MiB", help="of each generated checkpoint: more than the processor's cache")
    parser.add_argument("--tool-bytes", default="32MiB", help="of those for the tools, which are slow")
    parser.add_argument("--changed", default="1,3,5", help="percent, one generated pair each; empty: none")
    parser.add_argument("--data", type=pathlib.Path, default=shared / "data", help="folders with step-N checkpoints")
    parser.add_argument("--tools", default=",".join(TOOLS), help="empty: none")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.1, help="seconds of one repetition of one measurement")
    parser.add_argument("--seed", default=1)
    parser.add_argument("--work", help="where to put checkpoints, about six times BYTES [a temporary directory]")
    parser.add_argument("--out", type=pathlib.Path, help="gets codec.json, codec.csv, codec.svg [not written]")
    parser.add_argument("--format", choices=("text", "json", "csv"), default="text", help="of what is printed")
    options = parser.parse_args(arguments)
    options.build = options.build.resolve()
    options.tools = [tool for tool in options.tools.split(",") if tool]
    unknown = set(options.tools) - set(TOOLS)
    if unknown:
        parser.error(f"--tools: {', '.join(sorted(unknown))} is none of {', '.join(TOOLS)}")
    return options


def main(arguments):
    # A request to end ends the running command and removes the checkpoints.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = parse(arguments)
    facts = machine()
    pairs = []
    for percent in options.changed.split(",") if options.changed else []:
        with tempfile.TemporaryDirectory(prefix="weft-codec-", dir=options.work) as work:
            folder = pathlib.Path(work)
            pair = make_generated(options, percent, folder / "pair", options.bytes)
            tried = make_generated(options, percent, folder / "small", options.tool_bytes) if options.tools else None
            measure(options, pair, folder, tried)
            pairs.append(pair)
    for pair in real_pairs(options):
        with tempfile.TemporaryDirectory(prefix="weft-codec-", dir=options.work) as work:
            measure(options, pair, pathlib.Path(work))
            pairs.append(pair)
    if not pairs:
        raise SystemExit("nothing to measure: neither --changed nor --data gives a pair")
    goals = codec_goals.judge(pairs)
    report = json.dumps({"machine": facts, "pairs": [pair.report() for pair in pairs], "goals": goals}, indent=1)
    table = as_csv(pairs)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "codec.json").write_text(report + "\n", encoding="utf-8")
        (options.out / "codec.csv").write_text(table, encoding="utf-8")
        (options.out / "codec.svg").write_text(as_svg(facts, pairs), encoding="utf-8")
        say(f"written to {options.out}/codec.json, codec.csv and codec.svg")
    print({"text": as_text(facts, pairs, goals), "json": report, "csv": table.rstrip("\n")}[options.format])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
