# SPDX-License-Identifier: Apache-2.0
"""Checks that other programs do: clang-format and shellcheck."""

import re
import shutil
import subprocess

from tree import Finding

FORMAT_VERSION = "14"


def find_clang_format():
    for name in (f"clang-format-{FORMAT_VERSION}", "clang-format"):
        program = shutil.which(name)
        if program:
            said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            if f"version {FORMAT_VERSION}." in said:
                return program
    return None


def check_format(tree):
    """Every C++ file is formatted (./dev format mends it)."""
    paths = tree.cpp()
    if not paths:
        return
    program = find_clang_format()
    if program is None:
        yield Finding(".clang-format", 1, f"clang-format {FORMAT_VERSION} is missing: ./dev setup")
        return
    command = [program, "--dry-run", "--style=file", *paths]
    said = subprocess.run(command, cwd=tree.root, capture_output=True, text=True).stderr
    for path in sorted(set(re.findall(r"^(\S+?):\d+:\d+: warning", said, re.MULTILINE))):
        yield Finding(path, 1, "not formatted: ./dev format")


def check_shell(tree):
    """Shell scripts pass shellcheck."""
    paths = tree.shell_files()
    if not paths:
        return
    program = shutil.which("shellcheck")
    if program is None:
        yield Finding(paths[0], 1, "shellcheck is missing: ./dev setup")
        return
    command = [program, "--format=gcc", "--external-sources", *paths]
    said = subprocess.run(command, cwd=tree.root, capture_output=True, text=True).stdout
    for path, line, text in re.findall(r"^(\S+?):(\d+):\d+: (.*)$", said, re.MULTILINE):
        yield Finding(path, int(line), text)


CHECKS = (check_format, check_shell)
