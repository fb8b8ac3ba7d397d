# SPDX-License-Identifier: Apache-2.0
"""rollout.py RUN NODE WEIGHTS LAST: an inference process that follows a node's weights until version LAST.

For every version: digests of its weights, logits of fixed tokens, and completions for the trainer.
"""

import pathlib
import sys

import torch

import toy_model as toy
import weft

GROUP = 8


def complete(weights, version, node):
    """A group of sampled completions of one prompt."""
    numbers = torch.Generator().manual_seed(1000 * version + node)
    tokens = torch.randint(toy.WORDS, (1, toy.PROMPT), generator=numbers).repeat(GROUP, 1)
    for _ in range(toy.COMPLETION):
        chances = toy.logits(weights, tokens)[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=numbers)], 1)
    return tokens


def main(run, node, directory, last):
    torch.set_num_threads(1)
    weights = {}
    loads = 0

    def load(pairs):
        nonlocal loads
        loads += 1
        weights.update((name, tensor.clone()) for name, tensor in pairs)

    def scatter(updates):
        for name, indices, values in updates:
            weights[name].view(-1).index_copy_(0, indices, values)

    for version in weft.adapters.follow(directory, load, scatter, timeout=120):
        with torch.no_grad():
            toy.write_whole(pathlib.Path(run) / f"rollout-{node}-{version}.pt",
                            {"digests": toy.digests(weights), "logits": toy.logits(weights, toy.probe()),
                             "tokens": complete(weights, version, int(node)), "loads": loads})
        if version >= int(last):
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
