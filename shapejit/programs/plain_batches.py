"""Batches by NumPy until kernels are ready: ndarrays one by one or stacked, all of them checked.

None stands for what is not checked here: other arrays and arguments, and all that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise, repeat
from math import prod
from operator import attrgetter, is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import outputs
from ..runtime.launches import address_of
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.arithmetic import INFER
from ..shapes.request import are_sizes

Shapes = Sequence[tuple[int, ...]]

STACKED_MAX_BYTES = 8 * 1024  # of an array that is copied to a stack of them
STACK_MAX_BYTES = 128 * 1024  # of a stack, which stays in a cache

_DTYPE, _SHAPE, _BASE, _FLAGS = map(attrgetter, ("dtype", "shape", "base", "flags.num"))
_CARRAY, _OWNDATA = 0x0501, 0x0004  # of NumPy's flags


def reshaped(
    items: Sequence[Any], keys: Sequence[Any] | None, shapes: Any, copy: bool | None, out: Any
) -> list[Any] | None:
    """The results of `reshape_batch`, whose `shapes` and `out` are plain dicts, lists or tuples.

    >>> reshaped([np.zeros((2, 3))], None, (-1,), None, None)[0].shape
    (6,)
    """
    if {*map(type, items)} != {np.ndarray}:
        return None
    targets: Any = shapes
    if are_sizes(shapes):
        targets = [shapes] * len(items)
    else:
        targets = _listed(shapes, keys)
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


def mapped(
    items: Sequence[NDArray[Any]],
    out: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    fill: Callable[[Sequence[NDArray[Any]], Iterable[NDArray[Any]]], object],
) -> Any:
    """The results, of this dtype and shape, for ndarrays of one kind: as `out` or a slab's rows.

    `fill` computes those of arrays, or of stacks, to which small arrays are copied.
    """
    x, count = items[0], len(items)
    if not (x.ndim and x.size) or max(x.ndim, len(shape)) >= MOST_DIMS:
        return None
    listed = type(out) in (list, tuple)
    if listed:
        fits = len(out) == count and fillable(out) and alike(out, dtype, shape)
        if not fits or not apart(items, out):
            return None
    elif out is not None:
        fits = fillable((out,)) and out.dtype == dtype and out.shape == (count, *shape)
        if not fits or any(map(np.may_share_memory, items, repeat(out))):
            return None
    if x.nbytes > STACKED_MAX_BYTES:
        made = out
        if out is None:
            whole, _ = outputs.new_array(dtype, (count, *shape))
            made = rows(whole)
        fill(items, made)
        return made
    step = min(count, STACK_MAX_BYTES // x.nbytes)
    stack = np.empty((step, *x.shape), x.dtype)
    whole = out
    if listed or out is None:
        whole, _ = outputs.new_array(dtype, (step if listed else count, *shape))
    for begin in range(0, count, step):
        some = items[begin : begin + step]
        source = stack[: len(some)]
        np.concatenate(some, out=source.reshape(-1, *x.shape[1:]))
        target = whole[: len(some)] if listed else whole[begin : begin + len(some)]
        fill((source,), (target,))
        for into, row in zip(out[begin : begin + step] if listed else (), target, strict=False):
            into[...] = row
    return rows(whole) if out is None else out


def rows(stack: NDArray[Any]) -> list[NDArray[Any]]:
    """The arrays of a stack; 0-D ones as arrays, too."""
    return list(stack) if stack.ndim > 1 else [stack[i, ...] for i in range(len(stack))]


def alike(arrays: Sequence[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether all ndarrays have this dtype and shape."""
    return {*map(_DTYPE, arrays)} == {dtype} and {*map(_SHAPE, arrays)} == {shape}


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
    if not fillable(outs) or not all(map(is_, map(_DTYPE, items), map(_DTYPE, outs))):
        return False
    for source, made, shape in {*zip(map(_SHAPE, items), map(_SHAPE, outs), shapes, strict=True)}:
        if prod(source) != prod(made):
            return False
        if made != shape:
            sizes = zip(made, shape, strict=False)
            one = shape.count(INFER) == 1 and len(made) == len(shape) and 0 not in made
            if not one or any(want not in (size, INFER) for size, want in sizes):
                return False
    return apart(items, outs)


def fillable(outs: Sequence[Any]) -> bool:
    """Whether these are exact ndarrays, C-contiguous and writable."""
    if {*map(type, outs)} != {np.ndarray}:
        return False
    return all(flags & _CARRAY == _CARRAY for flags in {*map(_FLAGS, outs)})


def apart(items: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]) -> bool:
    """Whether contiguous outputs are seen to lie apart from the sources and one another."""
    read, written = _owners(items), _owners(outs)
    if read is None or written is None or read & written:
        return False
    if len(written) == len(outs):  # each has memory of its own
        return True
    spans = sorted((address_of(into), into.nbytes) for into in outs)
    return all(begin + nbytes <= after for (begin, nbytes), (after, _) in pairwise(spans))


def _owners(arrays: Sequence[NDArray[Any]]) -> set[int] | None:
    """The ndarrays whose own memory these are, by identity; None where others have the memory."""
    bases = zip(arrays, map(_BASE, arrays), strict=True)
    owners = {id(owner): owner for owner in [x if base is None else base for x, base in bases]}
    exact = {*map(type, owners.values())} == {np.ndarray}
    owned = exact and all(flags & _OWNDATA for flags in {*map(_FLAGS, owners.values())})
    return {*owners} if owned else None
