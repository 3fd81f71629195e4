"""Batches by NumPy until kernels are ready: ndarrays reshaped one by one, all of them checked.

None stands for what is not checked here: other arrays and arguments, and all that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.launches import address_of
from ..shapes.arithmetic import INFER
from ..shapes.request import are_sizes

Shapes = Sequence[tuple[int, ...]]


def reshaped(
    items: Sequence[Any], keys: Sequence[Any] | None, shapes: Any, copy: bool | None, out: Any
) -> list[Any] | None:
    """The results of `reshape_batch`, whose `shapes` and `out` are plain dicts, lists or tuples.

    >>> reshaped([np.zeros((2, 3))], None, (-1,), None, None)[0].shape
    (6,)
    """
    if {*map(type, items)} != {np.ndarray}:
        return None
    targets: Any = [shapes] * len(items) if are_sizes(shapes) else _listed(shapes, keys)
    if targets is None or len(targets) != len(items):
        return None
    if not all(map(are_sizes, {id(shape): shape for shape in targets}.values())):
        return None
    if out is not None:
        outs = _listed(out, keys)
        if outs is None or len(outs) != len(items) or not _fit(items, targets, outs):
            return None
        for x, into in zip(items, outs, strict=True):
            into.reshape(x.shape)[...] = x
        return list(outs)
    with suppress(Exception):
        if copy is None:
            return [x.reshape(shape) for x, shape in zip(items, targets, strict=True)]
        return [x.reshape(shape, copy=copy) for x, shape in zip(items, targets, strict=True)]
    return None


def _listed(values: Any, keys: Sequence[Any] | None) -> Any:
    """The values of a plain dict with these keys, or a list or tuple; else None."""
    if keys is None:
        return values if type(values) in (list, tuple) else None
    if type(values) is not dict or len(values) != len(keys):
        return None
    with suppress(KeyError):
        return [values[key] for key in keys]
    return None


def _fit(items: Sequence[Any], shapes: Shapes, outs: Sequence[Any]) -> bool:
    """Whether outputs fit, and are seen to lie apart from the sources and one another."""
    if {*map(type, outs)} != {np.ndarray}:
        return False
    for x, into in zip(items, outs, strict=True):
        if into.dtype is not x.dtype or into.size != x.size or not into.flags.carray:
            return False
    for made, shape in {*zip([into.shape for into in outs], shapes, strict=True)}:
        if made != shape:
            sizes = zip(made, shape, strict=False)
            one = shape.count(INFER) == 1 and len(made) == len(shape) and 0 not in made
            if not one or any(want not in (size, INFER) for size, want in sizes):
                return False
    read, written = _owners(items), _owners(outs)
    if read is None or written is None or read & written:
        return False
    if len(written) == len(outs):  # each has memory of its own
        return True
    spans = sorted((address_of(into), into.nbytes) for into in outs)
    return all(begin + nbytes <= after for (begin, nbytes), (after, _) in pairwise(spans))


def _owners(arrays: Iterable[NDArray[Any]]) -> set[int] | None:
    """The ndarrays whose own memory these are, by identity; None where others have the memory."""
    found = {}
    for x in arrays:
        owner = x if x.base is None else x.base
        found[id(owner)] = owner
    owned = all(type(x) is np.ndarray and x.flags.owndata for x in found.values())
    return set(found) if owned else None
