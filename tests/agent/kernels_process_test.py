#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""WEFT_KERNELS as the programs see it: a wrong name ends them before they do anything."""

import json
import os
import subprocess
import sys
import unittest

WEFT = sys.argv.pop()
SECONDS_MAX = 60
CONFIG = 30


def weft(kernels, *arguments):
    environment = {**os.environ, "WEFT_KERNELS": kernels}
    return subprocess.run([WEFT, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX,
                          check=False, env=environment)  # fmt: skip


class Kernels(unittest.TestCase):
    def test_a_wrong_name_is_an_error_that_lists_the_right_ones(self):
        for command in (["verify", "/nowhere"], ["status", "--fleet", "127.0.0.1:1"]):
            ended = weft("sse9", *command)
            self.assertEqual(ended.returncode, CONFIG, ended)
            self.assertIn("WEFT_KERNELS=sse9", ended.stderr)
            self.assertIn("scalar", ended.stderr)
            self.assertEqual(ended.stdout, "")

    def test_with_json_the_error_is_one_object(self):
        ended = weft("sse9", "verify", "--json", "/nowhere")
        self.assertEqual(ended.returncode, CONFIG, ended)
        self.assertIn("WEFT_KERNELS", json.dumps(json.loads(ended.stdout)))

    def test_a_right_name_and_help_go_on(self):
        self.assertNotIn("WEFT_KERNELS", weft("scalar", "verify", "/nowhere").stderr)
        self.assertEqual(weft("sse9", "--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
