# SPDX-License-Identifier: Apache-2.0
"""train_rank.py RUN RANK COORDINATOR STEPS: one tensor-parallel rank.

Version 2 is the start. Then, step by step: takes the completions that all rollouts made with the last version, makes a
policy-gradient step with rewards relative to their group (GRPO), and publishes the next version when it may.
"""

import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist

import shards
import toy_model as toy
import weft

ROLLOUTS = 3


def wait_for(path, seconds=120):
    """Until a file is there."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {path}")
        pause.wait(0.01)
    return path


def loss_of(held, rank, batch):
    """REINFORCE with the group's mean and deviation as the baseline."""
    total = 0
    for group in batch:
        tokens, scores = group["tokens"], toy.reward(group["tokens"][:, toy.PROMPT:])
        advantage = (scores - scores.mean()) / (scores.std() + 1e-4)
        chances = shards.logits(held, tokens[:, :-1], rank).log_softmax(-1)
        chosen = chances.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)[:, toy.PROMPT - 1:]
        total = total - (advantage.unsqueeze(-1) * chosen).mean()
    return total / len(batch)


def show(run, version, held, rank):
    """The export that rollouts are compared with, and the logits of the trainer's BF16 model."""
    weights = shards.export(held, rank)
    if rank == 0:
        toy.write_checkpoint(run / "last-export", weights)
        with torch.no_grad():
            toy.write_whole(run / f"trainer-{version}.pt",
                            {"digests": toy.digests(weights), "logits": toy.logits(weights, toy.probe())})


def main(run, rank, coordinator, steps):
    run, rank = pathlib.Path(run), int(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{run / 'meeting'}", rank=rank, world_size=shards.SIZE)
    held = shards.cut(toy.initial(seed=1), rank)
    optimizer = torch.optim.AdamW(held.values(), lr=3e-3)
    base = run / "base"
    boxes = [shards.boxes(base, each) for each in range(shards.SIZE)]
    with weft.Publisher(coordinator, base, producer=rank, boxes=boxes) as publisher:
        for version in range(2, 3 + int(steps)):
            if version > 2:
                batch = [torch.load(wait_for(run / f"rollout-{node}-{version - 1}.pt")) for node in range(ROLLOUTS)]
                optimizer.zero_grad()
                loss_of(held, rank, batch).backward()
                optimizer.step()
            wait_for(run / f"go-{version}")
            stats = shards.publish(publisher, version, held)
            show(run, version, held, rank)
            print(f"rank {rank} version {version} changed {stats.changed_fraction:.1%} of {stats.total_elements}, "
                  f"{stats.wire_bytes} bytes, put {stats.put_seconds * 1e3:.0f} ms, commit "
                  f"{stats.commit_seconds * 1e3:.0f} ms", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
