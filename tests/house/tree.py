# SPDX-License-Identifier: Apache-2.0
"""The files of a checkout, their text, and what a check finds in them."""

import dataclasses
import functools
import os
import pathlib
import re
import subprocess

ROOMS = ("codec", "transport", "apply")
ROOFS = ("agent", "python", "bench")
CPP_SUFFIXES = (".hpp", ".cpp", ".h", ".c")
CODE_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".cmake", ".proto")
TEXT_SUFFIXES = CODE_SUFFIXES + (".md", ".toml", ".json", ".txt", ".yml", ".html")
SCRIPTS = ("dev", ".ci/run")  # shell without a suffix


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


def _blank(match):
    """Spaces for a comment or a literal, with its line ends kept."""
    text = match.group(0)
    if text.startswith(("/", '"', "'", "R")):
        return re.sub(r"[^\n]", " ", text)
    return text


_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def strip_cpp(text):
    """C++ without comments and literals; every line keeps its number. Includes lose their quotes."""
    return _NOT_CODE.sub(_blank, text)


class Tree:
    """A checkout (or any directory, for the tests of the checks)."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()

    @functools.cached_property
    def files(self):
        """Relative paths of every file that belongs to the project, sorted."""
        if (self.root / ".git").exists():
            command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(command, cwd=self.root, check=True, capture_output=True).stdout
            names = {name for name in listed.decode().split("\0") if name}
            return sorted(name for name in names if (self.root / name).is_file())
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in ("build", "__pycache__")]
            for name in names:
                found.append(str((pathlib.Path(folder) / name).relative_to(self.root)))
        return sorted(found)

    @functools.lru_cache(maxsize=None)
    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def lines(self, path):
        return self.text(path).splitlines()

    @functools.lru_cache(maxsize=None)
    def code(self, path):
        """Lines of a C++ file without comments and literals."""
        return strip_cpp(self.text(path)).splitlines()

    def select(self, suffixes, under=("",)):
        return [
            path
            for path in self.files
            if path.endswith(suffixes) and any(path.startswith(folder) for folder in under)
        ]

    def cpp(self, *under):
        return self.select(CPP_SUFFIXES, under or ("",))

    def room_cpp(self):
        return self.cpp("include/", *(room + "/" for room in ROOMS))

    def code_files(self):
        named = [p for p in self.files if p in SCRIPTS or p.endswith("CMakeLists.txt")]
        return sorted(set(self.select(CODE_SUFFIXES)) | set(named))

    def text_files(self):
        return sorted(set(self.select(TEXT_SUFFIXES)) | set(self.code_files()))

    def shell_files(self):
        return [p for p in self.files if p in SCRIPTS or p.endswith(".sh")]
