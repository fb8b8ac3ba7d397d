# SPDX-License-Identifier: Apache-2.0
"""Weft for Python: publish the weights of a training run to a fleet, follow them where they are used.

    with weft.Publisher(fleet="coordinator:7443", base="checkpoints/step-0") as publisher:
        with publisher.refit(version=2) as refit:
            for name, tensor in model.state_dict().items():
                refit.put(name, tensor)
        print(refit.stats)

    view = weft.WeightView("/srv/weights")
    for version in view.wait():
        for name, offsets, values in view.changes(version):
            weights[name].view(-1)[offsets.torch()] = values.torch()

Tensors are anything with the buffer protocol or DLPack: numpy arrays, torch tensors in the CPU's memory, bfloat16
included, without copies. Long calls release the interpreter's lock; Ctrl-C is heard while they wait. Errors are
exceptions with the codes of docs/errors.md (weft.errors). Events go to logging.getLogger("weft").
"""

import os as _os

# libinfinipath, which libfabric brings along, takes SIGINT, SIGSEGV and others when it is loaded, and ends the process
# with them. It leaves them alone when it is asked to.
_asked = "IPATH_NO_BACKTRACE" in _os.environ
_os.environ.setdefault("IPATH_NO_BACKTRACE", "1")
try:
    from ._weft import (Agent, AgentStatus, Array, Box, Boxes, Change, Changes, Content, Publisher, Refit, RefitReport,
                        ShardTensor, Versions, WeightLock, WeightView, derive_boxes)
finally:
    if not _asked:
        del _os.environ["IPATH_NO_BACKTRACE"]

from . import adapters, errors
from .errors import Error

__all__ = ["Agent", "AgentStatus", "Array", "Box", "Boxes", "Change", "Changes", "Content", "Error", "Publisher", "Refit",
           "RefitReport", "ShardTensor", "Versions", "WeightLock", "WeightView", "adapters", "derive_boxes", "errors"]
