# SPDX-License-Identifier: Apache-2.0
"""weft bench fabric: every topology and method moves frames, and what cannot start is said."""

import json
import subprocess
import unittest

from fleet import BINARY


def bench(*arguments):
    return subprocess.run([BINARY, "bench", "fabric", "--json", *arguments], capture_output=True, text=True, timeout=200,
                          check=False)  # fmt: skip


class BenchFabric(unittest.TestCase):
    def test_every_topology_has_its_reference_in_the_same_run(self):
        result = bench("--rounds", "1", "--seconds", "0.1", "--hops", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        figures = json.loads(result.stdout)["figures"]
        names = {(each["topology"], each["method"], each["provider"]) for each in figures}
        wanted = {(topology, "tcp", "") for topology in ("hop", "chain", "fan-out")} | {("hop", "tcp+hash", "")}
        for provider in ("net", "tcp;ofi_rxm"):
            wanted |= {("hop", "writes", provider)}
            wanted |= {(topology, "relay", provider) for topology in ("hop", "chain", "fan-out")}
        self.assertEqual(names, wanted)
        for each in figures:
            self.assertGreater(each["gib_per_second"], 0, each)
            self.assertGreater(each["cpu_seconds_per_gib"], 0, each)

    def test_a_provider_that_is_not_there_is_named(self):
        result = bench("--rounds", "1", "--seconds", "0.1", "--providers", "no-such")
        self.assertNotEqual(result.returncode, 0)
        error = json.loads(result.stdout)["error"]
        self.assertEqual(error["code"], "config", error)
        self.assertIn("no-such", error["detail"] + result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
