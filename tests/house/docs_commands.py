#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what the documents say can be run: every fenced block marked ```sh run.

docs_commands.py --bin DIR [--root DIR]   DIR holds the program weft

The blocks of one document run in order, each in a shell of its own, in one empty directory. A block without the mark is
for reading only (it needs a fleet, or it builds).
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tree import Tree

SECONDS_MAX = 120
_BLOCK = re.compile(r"^```sh run\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def runnable_blocks(text):
    """(line number of its first line, commands) of each block."""
    return [(text.count("\n", 0, m.start()) + 2, m.group(1)) for m in _BLOCK.finditer(text)]


def run_document(path, folder, environment=None):
    """Runs the blocks of one document in a folder; returns what failed."""
    failures = []
    for line, commands in runnable_blocks(path.read_text(encoding="utf-8")):
        try:
            shell = ["bash", "-euo", "pipefail", "-c", commands]
            done = subprocess.run(shell, cwd=folder, env=environment, timeout=SECONDS_MAX,
                                  stdin=subprocess.DEVNULL, check=False)  # fmt: skip
            if done.returncode != 0:
                failures.append(f"{path.name}:{line}: exit code {done.returncode}")
        except subprocess.TimeoutExpired:
            failures.append(f"{path.name}:{line}: still running after {SECONDS_MAX} s")
    return failures


def main(arguments):
    parser = argparse.ArgumentParser(description="Runs the commands in the documents.")
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    options = parser.parse_args(arguments)
    environment = dict(os.environ, PATH=f"{options.bin.resolve()}:{os.environ['PATH']}")
    failures = []
    count = 0
    for name in Tree(options.root).select((".md",)):
        path = options.root / name
        count += len(runnable_blocks(path.read_text(encoding="utf-8")))
        with tempfile.TemporaryDirectory() as folder:
            failures += run_document(path, folder, environment)
    for failure in failures:
        print(failure)
    print(f"{count - len(failures)} of {count} blocks of commands ran")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
