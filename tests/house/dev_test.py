#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev says what it offers, installs what is missing and nothing else, and fails when something fails."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]


class Dev(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.programs = pathlib.Path(self.folder.name)
        self.calls = self.programs / "calls"
        self.calls.touch()

    def fake(self, name, script):
        """A program that comes first on PATH."""
        path = self.programs / name
        path.write_text(f'#!/bin/sh\n{script}\n')
        path.chmod(0o755)

    def dev(self, *arguments):
        environment = dict(os.environ, PATH=f"{self.programs}:{os.environ['PATH']}", CALLS=str(self.calls))
        return subprocess.run([TOP / "dev", *arguments], env=environment, capture_output=True, text=True,
                              timeout=60, check=False)  # fmt: skip

    def fake_debian(self, without=()):
        wanted = re.findall(r"^  ([a-z0-9+.\- ]+?) *(?:#.*)?$", self.package_lists(), re.MULTILINE)
        installed = [name for line in wanted for name in line.split() if name not in without]
        lines = "".join(f"installed {name}\\n" for name in installed) + "not-installed old-thing\\n"
        self.fake("dpkg-query", f"printf '{lines}'")
        self.fake("apt-get", 'echo "apt-get $*" >> "$CALLS"')
        self.fake("sudo", 'exec "$@"')

    @staticmethod
    def package_lists():
        text = (TOP / "dev").read_text(encoding="utf-8")
        return "".join(re.findall(r"^[A-Z]+_PACKAGES=\(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL))

    def test_help_names_every_command(self):
        text = (TOP / "dev").read_text(encoding="utf-8")
        commands = set(re.findall(r"^  ([a-z]+)\)", text, re.MULTILINE))
        listed = set(re.findall(r"^  ([a-z]+) +\S", self.dev("help").stdout, re.MULTILINE))
        self.assertEqual(commands, listed - {"help"})
        self.assertLessEqual({"setup", "build", "demo", "test", "check", "bench"}, commands)

    def test_unknown_command_is_wrong_use(self):
        done = self.dev("tset")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tset", done.stderr)

    def test_setup_installs_only_what_is_missing_and_says_so(self):
        self.fake_debian(without=("libfabric-dev", "shellcheck"))
        done = self.dev("setup")
        self.assertEqual(done.returncode, 0, done.stderr)
        update, install = self.calls.read_text(encoding="utf-8").splitlines()
        self.assertTrue(update.endswith(" update"))
        self.assertTrue(install.endswith("--no-install-recommends libfabric-dev shellcheck"), install)
        self.assertIn("libfabric-dev shellcheck", done.stdout)

    def test_setup_leaves_a_complete_system_alone(self):
        self.fake_debian()
        self.assertEqual(self.dev("setup").returncode, 0)
        self.assertEqual(self.calls.read_text(encoding="utf-8"), "")

    def test_setup_fails_when_packages_cannot_be_installed(self):
        self.fake_debian(without=("cmake",))
        self.fake("apt-get", "exit 100")
        self.assertEqual(self.dev("setup").returncode, 1)

    def test_every_package_says_what_it_is_for(self):
        for line in self.package_lists().splitlines():
            self.assertRegex(line, r"^  [a-z0-9+.\- ]+ # \S")

    def test_broken_build_is_counted_and_fails(self):
        self.fake_debian()
        self.fake("cmake", "exit 3")
        done = self.dev("test")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 1 failed")


if __name__ == "__main__":
    unittest.main()
