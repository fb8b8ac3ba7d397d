# SPDX-License-Identifier: Apache-2.0
"""minimal_trainer.py COORDINATOR CHECKPOINT STEPS: the whole of weft in a training loop."""
import sys

import torch
import weft

coordinator, checkpoint, steps = sys.argv[1:]
with weft.Publisher(coordinator, checkpoint) as publisher:
    shapes = {each.name: each.element_count for each in publisher.shard_tensors}
    model = {name: torch.zeros(count, requires_grad=True) for name, count in shapes.items()}  # FP32 master
    optimizer = torch.optim.SGD(model.values(), lr=0.25)
    for version in range(publisher.version + 1, publisher.version + 1 + int(steps)):
        optimizer.zero_grad()
        sum((parameter - 1).square().sum() for parameter in model.values()).backward()
        optimizer.step()
        with publisher.refit(version) as refit:
            for name, parameter in model.items():
                refit.put(name, parameter, cast=True)  # rounded to the checkpoint's BF16
        print(refit.stats, flush=True)
