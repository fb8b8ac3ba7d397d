# SPDX-License-Identifier: Apache-2.0
"""Checks of the documents: decision records, changelog, errors, formats, links and commands."""

import re

from tree import Finding

ADR_NAME = re.compile(r"docs/adr/(\d{4})-[a-z0-9-]+\.md")
ADR_SECTIONS = ("Status", "Context", "Decision", "Rejected", "Consequences")
ADR_LINES_MAX = 90
CHANGELOG_SECTIONS = ("Added", "Changed", "Fixed", "Wire")
FORMAT_FACTS = (
    (r"(?i)little-endian", "the byte order"),
    (r"(?im)^#.*example", "a worked example"),
    (r"(?im)^#.*version", "a version table"),
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
DEV_COMMAND = re.compile(r"(?:^|[\s`])\./dev(?: ([a-z][a-z-]*))?")


def _headings(tree, path, mark):
    return [line[len(mark) :].strip() for line in tree.lines(path) if line.startswith(mark)]


def check_decision_records(tree):
    """Records have numbers of their own, all sections, one page, and stand in the index."""
    index = tree.text("docs/adr/README.md") if "docs/adr/README.md" in tree.files else ""
    seen = {}
    for path in tree.select((".md",), ("docs/adr/",)):
        if path == "docs/adr/README.md":
            continue
        match = ADR_NAME.fullmatch(path)
        if not match:
            yield Finding(path, 1, "a record is named docs/adr/NNNN-title.md")
            continue
        number = match.group(1)
        if number in seen:
            yield Finding(path, 1, f"number {number} is taken by {seen[number]}")
        seen[number] = path
        title = tree.lines(path)[:1]
        if not title or not title[0].startswith(f"# {number}: "):
            yield Finding(path, 1, f"the title must begin with '# {number}: '")
        missing = [s for s in ADR_SECTIONS if s not in _headings(tree, path, "## ")]
        if missing:
            yield Finding(path, 1, "no section " + ", ".join(missing))
        if len(tree.lines(path)) > ADR_LINES_MAX:
            yield Finding(path, 1, f"a record is one page (at most {ADR_LINES_MAX} lines)")
        if f"]({path.rsplit('/', 1)[1]})" not in index:
            yield Finding(path, 1, "not listed in docs/adr/README.md")


def check_changelog(tree):
    """The changelog's newest part has its four sections in order."""
    path = "CHANGELOG.md"
    if path not in tree.files:
        yield Finding(path, 1, "no changelog")
        return
    newest = []
    parts = 0
    for line in tree.lines(path):
        parts += line.startswith("## ")
        if parts == 1 and line.startswith("### "):
            newest.append(line[4:].strip())
    if tuple(newest) != CHANGELOG_SECTIONS:
        yield Finding(path, 1, "the newest part needs the sections " + ", ".join(CHANGELOG_SECTIONS))


def check_errors_document(tree):
    """Every error code is explained, with its exit code."""
    source, document = "include/weft/base/error.hpp", "docs/errors.md"
    if source not in tree.files:
        return
    if document not in tree.files:
        yield Finding(document, 1, "no document of the error codes")
        return
    rows = [line for line in tree.lines(document) if line.startswith("|")]
    enumerators = re.findall(r"^\s*k(\w+) = (\d+),", tree.text(source), re.MULTILINE)
    for name, number in enumerators:
        word = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        row = [line for line in rows if re.match(rf"\|\s*`?{word}`?\s*\|", line)]
        if not row:
            yield Finding(document, 1, f"{word} is not in the table")
        elif not re.search(rf"\|\s*`?{10 + int(number)}`?\s*\|", row[0]):
            yield Finding(document, 1, f"{word}: exit code {10 + int(number)} is not in its row")


def check_formats(tree):
    """A format's document states byte order, versions and an example."""
    for path in tree.select((".md",), ("docs/formats/",)):
        for pattern, what in FORMAT_FACTS:
            if not re.search(pattern, tree.text(path)):
                yield Finding(path, 1, f"does not show {what}")


def check_links(tree):
    """Links between documents lead somewhere."""
    for path in tree.select((".md",)):
        for number, line in enumerate(tree.lines(path), 1):
            for target in LINK.findall(line):
                if re.match(r"[a-z]+:|#", target):
                    continue
                place = (tree.root / path).parent / target.split("#")[0]
                if not place.exists():
                    yield Finding(path, number, f"{target} does not exist")


def check_dev_commands(tree):
    """Documents name only commands that ./dev has."""
    if "dev" not in tree.files:
        return
    offered = set(re.findall(r"^  ([a-z][a-z-]*)\)", tree.text("dev"), re.MULTILINE)) | {"help"}
    for path in tree.select((".md",)):
        for number, line in enumerate(tree.lines(path), 1):
            for command in DEV_COMMAND.findall(line):
                if command and command not in offered:
                    yield Finding(path, number, f"./dev {command}: no such command")


CHECKS = (
    check_decision_records,
    check_changelog,
    check_errors_document,
    check_formats,
    check_links,
    check_dev_commands,
)
