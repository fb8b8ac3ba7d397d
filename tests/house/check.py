#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a program can check. Needs nothing but Python 3.

check.py [--root DIR] [--only NAME]...   exit code 0: no finding, 1: findings, 2: wrong use
"""

import argparse
import pathlib
import sys

import documents
import includes
import source
import tools
from tree import Tree

CHECKS = includes.CHECKS + source.CHECKS + documents.CHECKS + tools.CHECKS


def name_of(check):
    return check.__name__.removeprefix("check_")


def main(arguments):
    parser = argparse.ArgumentParser(description="Checks the rules of the house.")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--only", action="append", choices=[name_of(check) for check in CHECKS])
    options = parser.parse_args(arguments)
    tree = Tree(options.root)
    failed = 0
    chosen = [c for c in CHECKS if options.only is None or name_of(c) in options.only]
    for check in chosen:
        findings = sorted(check(tree))
        failed += bool(findings)
        if findings:
            print(f"{name_of(check)}: {check.__doc__}")
            for finding in findings:
                print(f"  {finding}")
    print(f"{len(chosen) - failed} of {len(chosen)} checks of the house hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
