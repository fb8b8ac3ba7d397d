#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table, the goals and the plot of bench/codec_suite.py, from figures made up here."""

import csv
import io
import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import codec_goals  # noqa: E402
import codec_suite  # noqa: E402
import svg_plot  # noqa: E402

FACTS = {"processor": "a <fast> one", "cores": 2, "linux": "6.1", "load": 0.5}


def made_pair(name, percent, weft_bytes):
    pair = codec_suite.Pair(name, None, None, percent)
    pair.model_bytes, pair.changed, pair.bound_bytes = 2_000_000, 10_000 * (percent or 2), 7_500.0 * (percent or 2)
    pair.rates = {"memcpy": 10e9, "compare": 8e9, "weft_encode": 4e9, "weft_encode_unhashed": 5e9, "weft_decode": 4e9,
                  "weft_fast_decode_unverified": 6e9, "nemo_rl_encode": 2e9, "nemo_rl_decode": 7e9, "flow_1": 2e9,
                  "flow_2": 3.8e9, "weft_untouched": 7.6e9}  # fmt: skip
    for method, size in (("weft", weft_bytes), ("weft_fast", 1.0), ("nemo_rl", 1.6)):
        pair.add(method, round(size * pair.changed), 4e9, 4e9, "here")
    pair.add("rsync", 30 * pair.changed, 1e8, None, "there")
    return pair


class CodecSuiteTest(unittest.TestCase):
    def setUp(self):
        self.pairs = [made_pair(f"generated/{p}%", p, 0.77) for p in (1, 3, 5)]
        self.pairs.append(made_pair("policy-gradient-lr1e-6/step-10-11", None, 0.9))
        self.goals = codec_goals.judge(self.pairs)

    def goal(self, name, where):
        return next(row for row in self.goals if row["goal"] == name and row["where"] == where)

    def test_every_goal_has_a_row_per_density_or_pair(self):
        self.assertEqual(len(self.goals), 3 * len(codec_goals.GENERATED) + len(codec_goals.AT_3_PERCENT) + 1)

    def test_a_goal_is_reached_from_its_own_side(self):
        most = self.goal("bytes per changed element, compact", "3 %")
        self.assertEqual((most["measured"], most["figure"], most["reached"]), (0.77, 0.785, True))
        self.assertGreater(most["ratio"], 1)
        self.assertFalse(self.goal("bytes per changed element, compact", "5 %")["reached"])
        least = self.goal("encode with hashes / compare", "1 %")
        self.assertEqual((least["measured"], least["figure"], least["reached"]), (0.5, 0.52, False))
        self.assertAlmostEqual(least["ratio"], 0.5 / 0.52)
        self.assertTrue(self.goal("two threads / one", "3 %")["reached"])

    def test_what_this_machine_lacks_is_not_measured(self):
        row = self.goal("encode: AVX2 / AVX-512", "3 %")
        self.assertEqual((row["measured"], row["ratio"], row["reached"]), (None, None, None))

    def test_real_pairs_are_held_against_the_bound(self):
        row = self.goal("bytes over the conditional bound", "policy-gradient-lr1e-6")
        self.assertAlmostEqual(row["measured"], 1.2)
        self.assertFalse(row["reached"])

    def test_the_csv_has_a_row_per_pair_and_method(self):
        rows = list(csv.DictReader(io.StringIO(codec_suite.as_csv(self.pairs))))
        self.assertEqual(len(rows), 16)
        self.assertEqual(rows[3]["decode_gb_per_second"], "")
        self.assertEqual(rows[0]["method"], "weft")

    def test_the_text_names_methods_goals_and_the_machine(self):
        text = codec_suite.as_text(FACTS, self.pairs, self.goals)
        for part in ("NeMo-RL method", "rsync -z", "not measured", "a <fast> one", "NO"):
            self.assertIn(part, text)

    def test_the_plot_is_well_formed_and_stays_inside_its_frame(self):
        root = xml.etree.ElementTree.fromstring(codec_suite.as_svg(FACTS, self.pairs))
        space = "{http://www.w3.org/2000/svg}"
        words = [text.text for text in root.iter(f"{space}text")]
        for part in ("weft compact", "values changed, %", "bytes per changed value", "GB of model per second", "memcpy"):
            self.assertIn(part, words)
        self.assertEqual(len(list(root.iter(f"{space}polyline"))), 5)  # four methods and the bound
        for mark in root.iter(f"{space}circle"):
            self.assertTrue(0 <= float(mark.get("cx")) <= 760 and 0 <= float(mark.get("cy")) <= 460)


class BarPlotTest(unittest.TestCase):
    def test_names_of_near_references_do_not_meet(self):
        plot = svg_plot.BarPlot("t", "x", ("a",))
        plot.add("row", (5.0,))
        for name, value in (("memcpy", 10.0), ("compare", 10.4)):
            plot.add_reference(name, value)
        root = xml.etree.ElementTree.fromstring(svg_plot.document([plot]))
        heights = {t.text: t.get("y") for t in root.iter("{http://www.w3.org/2000/svg}text")}
        self.assertNotEqual(heights["memcpy"], heights["compare"])


class AxisTest(unittest.TestCase):
    def test_ends_of_an_axis_are_its_ends(self):
        for log in (False, True):
            axis = svg_plot.Axis("x", [0.5, 40], log)
            self.assertAlmostEqual(axis.share(axis.low), 0)
            self.assertAlmostEqual(axis.share(axis.high), 1)
            self.assertTrue(all(axis.low <= tick <= axis.high for tick in axis.ticks))
            self.assertGreaterEqual(len(axis.ticks), 4)


if __name__ == "__main__":
    unittest.main()
