# SPDX-License-Identifier: Apache-2.0
"""The goals of the codec, and whether a run reached them."""

# goal, "most" or "least", figures at 1, 3 and 5 % changed, what is measured (of a pair, see codec_suite.py)
GENERATED = (
    ("bytes per changed element, compact", "most", (0.91, 0.785, 0.73), lambda p: p.size("weft")),
    ("bytes over the NeMo-RL method's", "most", (0.52, 0.51, 0.50), lambda p: p.size("weft") / p.size("nemo_rl")),
    ("encode without hashes / compare", "least", (0.60, 0.45, 0.40), lambda p: p.rate("weft_encode_unhashed", "compare")),
    ("encode with hashes / compare", "least", (0.52, 0.39, 0.35), lambda p: p.rate("weft_encode", "compare")),
    ("encode without hashes / NeMo-RL's", "least", (0.9, 1.3, 1.6),
     lambda p: p.rate("weft_encode_unhashed", "nemo_rl_encode")),
    ("decode with verification / memcpy", "least", (0.45, 0.34, 0.30), lambda p: p.rate("weft_decode", "memcpy")),
    ("bytes per changed element, fast", "most", (1.35, 1.08, 1.00), lambda p: p.size("weft_fast")),
    ("fast: unverified decode / NeMo-RL's", "least", (0.8, 1.1, 1.3),
     lambda p: p.rate("weft_fast_decode_unverified", "nemo_rl_decode")),
)  # fmt: skip
AT_3_PERCENT = (
    ("encode: AVX2 / AVX-512", "least", 0.7, lambda p: p.rate("weft_encode_avx2", "weft_encode_avx512")),
    ("decode: AVX2 / AVX-512", "least", 0.7, lambda p: p.rate("weft_decode_avx2", "weft_decode_avx512")),
    ("two threads / one", "least", 1.8, lambda p: p.rate("flow_2", "flow_1")),
    ("untouched chunks / compare", "least", 0.9, lambda p: p.rate("weft_untouched", "compare")),
)
BYTES_OVER_BOUND = {"policy-gradient-lr1e-6": 1.09, "policy-gradient-lr3e-6": 1.06, "fine-tuning-lr1e-5": 1.06}
PERCENTS = (1, 3, 5)


def _row(goal, where, direction, figure, measured):
    row = {"goal": goal, "where": where, "direction": direction, "figure": figure, "measured": measured}
    row["ratio"] = row["reached"] = None
    if measured is not None:
        # Above 1 is better than the goal, whichever way it points.
        row["ratio"] = measured / figure if direction == "least" else figure / measured
        row["reached"] = row["ratio"] >= 1
    return row


def _measure(function, pair):
    try:
        return function(pair)
    except (KeyError, ZeroDivisionError):  # a kernel that this machine does not have
        return None


def judge(pairs):
    """One row per goal and pair: goal, where, direction, figure, measured, ratio (1 and above: reached), reached."""
    generated = {pair.percent: pair for pair in pairs if pair.percent is not None}
    real = {pair.name.split("/")[0]: pair for pair in pairs if pair.percent is None}
    rows = []
    for goal, direction, figures, function in GENERATED:
        for percent, figure in zip(PERCENTS, figures):
            if percent in generated:
                measured = _measure(function, generated[percent])
                rows.append(_row(goal, f"{percent} %", direction, figure, measured))
    for goal, direction, figure, function in AT_3_PERCENT:
        if 3 in generated:
            rows.append(_row(goal, "3 %", direction, figure, _measure(function, generated[3])))
    for name, figure in BYTES_OVER_BOUND.items():
        if name in real:
            rows.append(_row("bytes over the conditional bound", name, "most", figure, real[name].bytes_over_bound()))
    return rows
