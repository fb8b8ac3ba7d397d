#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests in ctest's JUnit reports: the cases where a program prints them (GoogleTest, unittest), else the program.

count_tests.py REPORT.xml...   prints "PASSED FAILED"
"""

import pathlib
import re
import sys
import xml.etree.ElementTree

_PASSED = re.compile(r"\[  PASSED  \] (\d+) tests?\.")
_FAILED = re.compile(r"\[  FAILED  \] (\d+) tests?, listed below")
_RAN = re.compile(r"^Ran (\d+) tests? in .*\n\n(OK|FAILED \((.*)\))", re.MULTILINE)


def _count_case(case):
    output = "".join(part.text or "" for part in case.iter("system-out"))
    passed = sum(int(number) for number in _PASSED.findall(output))
    failed = sum(int(number) for number in _FAILED.findall(output))
    for count, _, kinds in _RAN.findall(output):
        bad = min(int(count), sum(int(number) for number in re.findall(r"=(\d+)", kinds)))
        passed, failed = passed + int(count) - bad, failed + bad
    is_good = case.get("status") == "run"
    if is_good and passed + failed == 0:
        passed = 1
    if not is_good and failed == 0:  # it crashed, hung or does not count its cases
        failed = 1
    return passed, failed


def count(report):
    """(passed, failed) of one report's text."""
    counts = [_count_case(case) for case in xml.etree.ElementTree.fromstring(report).iter("testcase")]
    return sum(passed for passed, _ in counts), sum(failed for _, failed in counts)


def main(paths):
    counts = [count(pathlib.Path(path).read_text(encoding="utf-8", errors="replace")) for path in paths]
    print(sum(passed for passed, _ in counts), sum(failed for _, failed in counts))


if __name__ == "__main__":
    main(sys.argv[1:])
