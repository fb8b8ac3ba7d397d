# SPDX-License-Identifier: Apache-2.0
"""Checks of source text: sizes, first lines, comments, words and names."""

import re

from tree import CPP_SUFFIXES, ROOFS, ROOMS, SCRIPTS, Finding

FILE_LINES_MAX = 600

# A machine's paths; written so that this file does not find itself.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|roo" + r"t|home/\w+|Users/\w+)/")
OPEN_WORK = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b(\(#\d+\))?")

PRINTING = re.compile(
    r"\bstd::(cout|cerr|clog)\b|(?<![\w.>])(std::)?v?[fd]?printf\s*\("
    r"|\b(std::)?(f?puts|fputc|putchar|perror|syslog)\s*\(|\bspdlog::"
)
ENDING = re.compile(
    r"\bstd::(abort|exit|_Exit|quick_exit|terminate)\b|(?<![\w.>:])(_?exit|quick_exit)\s*\("
    r"|(?<!\w)::(abort|_?exit)\s*\("
)
MAY_REST = (
    "transport/relay/relay.cpp",  # the progress thread polls its endpoint and rests between two looks
    "apply/read/writer_turn.cpp",  # flock has no timeout: tried again until the deadline
)
MAY_END = (
    "include/weft/base/assert.hpp",
    "apply/hook/command_runner.cpp",  # a child of its own ends there: docs/adr/0035
)
SLEEPING = re.compile(r"\bsleep_(for|until)\b|(?<![\w.>])(u|nano)?sleep\s*\(|\bclock_nanosleep\b")
WALL_CLOCK = re.compile(r"\bsystem_clock\b|\bCLOCK_REALTIME\b|\bgettimeofday\b|\bstd::time\s*\(|(?<![\w.>:])time\s*\((?:nullptr|NULL|0)\)")
# The time of a log line; deadlines that gRPC takes in this clock and turns into its own at once.
MAY_TELL_TIME = ("agent/cli/open_log.cpp", "transport/control/control_client.cpp", "transport/control/control_server.cpp")
HIDDEN_GAP = re.compile(r"\bDISABLED_|\bEXPECT_TRUE\(true\)|\bGTEST_SKIP\b")

VAGUE_WORDS = ("manager", "helper", "helpers", "handler", "util", "utils", "common", "misc")
VAGUE_TYPE = re.compile(
    r"\b(?:class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s*)?(\w*(?:Manager|Helpers?|Handler|Data|Info|Utils?))\b"
)
SHORT_DIRECTION = re.compile(r"(?<![A-Za-z0-9.>])(src|dst)(?![A-Za-z0-9])")
CLASS = re.compile(r"^(?:template\b.*>\s*)?class\s+(?:\[\[\w+\]\]\s*)?(\w+)(?!.*;\s*$)")


def check_first_line(tree):
    """Every source file says its licence first (after the interpreter's line)."""
    for path in tree.code_files():
        lines = tree.lines(path)
        first = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
        if not first or "SPDX-License-Identifier: Apache-2.0" not in first[0]:
            yield Finding(path, 1, "the first line must be SPDX-License-Identifier: Apache-2.0")


def check_file_length(tree):
    """No source file is longer than 600 lines."""
    for path in tree.code_files():
        count = len(tree.lines(path))
        if count > FILE_LINES_MAX:
            yield Finding(path, count, f"{count} lines; at most {FILE_LINES_MAX}: split by what it does")


def check_pragma_once(tree):
    """Every header is included once."""
    for path in tree.cpp():
        if path.endswith(".hpp") and "#pragma once" not in tree.lines(path):
            yield Finding(path, 1, "no #pragma once")


def _comment_above(lines, index):
    """The comment that ends right above a line, attributes and template lines skipped."""
    comment = []
    index -= 1
    while index >= 0 and re.match(r"^(template\b|\[\[|\s*requires\b)", lines[index]):
        index -= 1
    while index >= 0 and lines[index].lstrip().startswith("//"):
        comment.append(lines[index])
        index -= 1
    return "\n".join(reversed(comment))


def check_threads_are_stated(tree):
    """Every class in a header opens with a comment that has a Threads: line."""
    headers = tree.select((".hpp",), ("include/",) + tuple(p + "/" for p in ROOMS + ROOFS))
    for path in headers:
        lines = tree.lines(path)
        for index, line in enumerate(tree.code(path)):
            match = CLASS.match(line)
            if match and "Threads:" not in _comment_above(lines, index):
                yield Finding(path, index + 1, f"class {match.group(1)} does not say its Threads:")


def _search_code(tree, paths, pattern, text):
    for path in paths:
        for number, line in enumerate(tree.code(path), 1):
            match = pattern.search(line)
            if match:
                yield Finding(path, number, f"{match.group(0).strip()}: {text}")


def check_no_printing(tree):
    """Rooms report to an EventSink; they never print."""
    paths = [p for p in tree.room_cpp() if p != "include/weft/base/assert.hpp"]
    yield from _search_code(tree, paths, PRINTING, "rooms report to an EventSink and never print")


def check_no_ending(tree):
    """Only WEFT_ASSERT ends the process."""
    paths = [p for p in tree.room_cpp() if p not in MAY_END]
    yield from _search_code(tree, paths, ENDING, "rooms return an Error and never end the process")


def check_no_sleeping(tree):
    """Rooms and tests wait for something, with a deadline; they never sleep."""
    paths = [p for p in tree.room_cpp() + tree.cpp("tests/") if p not in MAY_REST]
    yield from _search_code(tree, paths, SLEEPING, "wait for what you mean, with a deadline")


def check_no_wall_clock(tree):
    """No result depends on a wall clock: order is by epoch and version, deadlines are of the steady clock (B-076)."""
    paths = [p for p in tree.cpp("include/") + tree.room_cpp() + tree.cpp("agent/") if p not in MAY_TELL_TIME]
    yield from _search_code(tree, sorted(set(paths)), WALL_CLOCK, "steady_clock; a wall clock may jump")


def check_no_hidden_gaps(tree):
    """Tests run: none is skipped, disabled or empty."""
    yield from _search_code(tree, tree.cpp("tests/"), HIDDEN_GAP, "a test runs or is deleted")


def check_open_work(tree):
    """What is left open names its issue."""
    for path in tree.text_files():
        for number, line in enumerate(tree.lines(path), 1):
            match = OPEN_WORK.search(line)
            if match and not (match.group(1) == "TO" + "DO" and match.group(2)):
                yield Finding(path, number, f"{match.group(0)}: write {'TO' + 'DO'}(#issue) or do it")


def check_no_machine_paths(tree):
    """Nothing names a directory of somebody's machine."""
    for path in tree.text_files():
        for number, line in enumerate(tree.lines(path), 1):
            match = MACHINE_PATHS.search(line)
            if match:
                yield Finding(path, number, f"{match.group(0)} is a path of one machine")


def check_file_names(tree):
    """File and folder names are snake_case and say what is inside."""
    for path in tree.files:
        if not path.endswith(CPP_SUFFIXES + (".py",)) or path in SCRIPTS:
            continue
        for part in path.split("/"):
            stem = part.rsplit(".", 1)[0]
            if not re.fullmatch(r"[a-z0-9_]+", stem):
                yield Finding(path, 1, f"{part}: names are snake_case")
            for word in stem.split("_"):
                if word in VAGUE_WORDS:
                    yield Finding(path, 1, f"{part}: '{word}' says nothing")


def check_names(tree):
    """Types are named for what they are; directions are source and target."""
    for path in tree.cpp("include/", *(p + "/" for p in ROOMS + ROOFS)):
        for number, line in enumerate(tree.code(path), 1):
            if line.lstrip().startswith("#"):
                continue
            match = VAGUE_TYPE.search(line)
            if match:
                yield Finding(path, number, f"{match.group(1)}: a vague noun (house rule 3)")
            match = SHORT_DIRECTION.search(line)
            if match:
                yield Finding(path, number, f"{match.group(1)}: write source or target")


CHECKS = (
    check_first_line,
    check_file_length,
    check_pragma_once,
    check_threads_are_stated,
    check_no_printing,
    check_no_ending,
    check_no_sleeping,
    check_no_wall_clock,
    check_no_hidden_gaps,
    check_open_work,
    check_no_machine_paths,
    check_file_names,
    check_names,
)
