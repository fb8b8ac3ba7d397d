# SPDX-License-Identifier: Apache-2.0
"""What a runtime's own loaders take: (name, tensor) pairs, and (name, flat indices, values) for a scatter on the device.

    for version in weft.adapters.follow("/srv/weights", model.load_weights, scatter):
        engine.resume(version)
"""

from typing import Any, Callable, Iterable, Iterator, Optional, Tuple

from ._weft import Changes, WeightLock, WeightView
from .errors import Error

Pair = Tuple[str, Any]
Update = Tuple[str, Any, Any]


def _as(array: Any, framework: str) -> Any:
    if framework not in ("torch", "numpy"):
        raise ValueError(f"framework={framework!r}: torch or numpy")
    return array.torch() if framework == "torch" else array.numpy()


def weight_pairs(lock: WeightLock, framework: str = "torch") -> Iterator[Pair]:
    """Every tensor of a version, by name: what `load_weights` of a runtime goes through.

    The tensors lie in the mapped files: the loader copies them (to a device, as a rule) while the lock lives.
    """
    for name in lock:
        yield name, _as(lock[name], framework)


def scatter_updates(changes: Changes, framework: str = "torch", device: Any = None) -> Iterator[Update]:
    """Every change as (name, flat indices, values), indices int64 and ascending; with `device` on that device.

    A tensor may come in several pieces; no element comes twice:
    `weights[name].view(-1).index_copy_(0, indices, values)`.
    """
    for change in changes:
        indices, values = _as(change.offsets, framework), _as(change.values, framework)
        if device is not None:
            indices, values = indices.to(device), values.to(device)
        yield change.name, indices, values


def follow(weights: Any, load: Callable[[Iterable[Pair]], Any], scatter: Callable[[Iterable[Update]], Any],
           timeout: Optional[float] = None, framework: str = "torch", device: Any = None) -> Iterator[int]:
    """Keeps a runtime at the published version, and yields each one that it is at.

    `load` takes all tensors, at the start and when the retained journals are not enough; else `scatter` takes what has
    changed. weft.errors.TimeoutError when nothing comes for `timeout` seconds.
    """
    view = WeightView(weights)

    def load_all() -> int:
        with view.acquire(timeout) as lock:
            load(weight_pairs(lock, framework))
            return lock.version

    version = load_all()
    yield version
    for new in view.wait(timeout):
        if new == version:
            continue
        try:
            changes = view.changes(new, since=version)
            scatter(scatter_updates(changes, framework, device))
            version = new
        except Error:  # not from here (FullCopyNeeded), or not to the end: what came so far is void
            version = load_all()
        yield version
