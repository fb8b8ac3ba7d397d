# SPDX-License-Identifier: Apache-2.0
"""minimal_rollout.py WEIGHTS VERSION: follows a node's weights until VERSION is there."""
import sys

import weft

weights, last = sys.argv[1:]
model = {}


def load(pairs):
    model.update((name, tensor.clone()) for name, tensor in pairs)


def scatter(updates):
    for name, indices, values in updates:
        model[name].view(-1).index_copy_(0, indices, values)


for version in weft.adapters.follow(weights, load, scatter, timeout=60):
    print(version, sum(float(tensor.float().mean()) for tensor in model.values()) / len(model), flush=True)
    if version >= int(last):
        break
