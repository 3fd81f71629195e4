"""`reshape_batch` of ndarrays by NumPy, for small batches and until kernels are ready.

Functions return None for what they do not handle: other arrays and arguments, and most errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter, is_
from typing import Any

import numpy as np

from ..errors import ReshapeError
from ..operations.views import array_request
from ..planning import thresholds
from ..shapes.request import are_sizes
from ..shapes.resolver import target_shape
from .bulk_checks import DTYPE, SHAPE, are_exact, may_fill
from .target_shapes import ASKED_BY, arranged, is_one

_SIZE, _CONTIGUOUS = attrgetter("size"), attrgetter("flags.c_contiguous")


def reshaped(
    items: tuple[Any, ...],
    keyed: bool,
    names: Sequence[Any],
    shapes: Any,
    copy: bool | None,
    out: Any,
    always: bool,
) -> Sequence[Any] | None:
    """The results of `reshape_batch` for the named tensors, if all are ndarrays.

    Unless `always`, only where NumPy is faster than kernels, whose launch takes 0.1 ms: for small
    batches, and for views alone.

    >>> reshaped((np.zeros((2, 3)),), False, [0], (-1,), None, None, True)[0].shape
    (6,)
    """
    if not are_exact(items):
        return None
    short = out is None or len(items) <= thresholds.SHORT
    faster = always or (short and _have_few(items))
    if not faster and (copy or out is not None or not all(map(_CONTIGUOUS, items))):
        return None
    plain = dict, list, tuple
    if type(shapes) not in plain or (out is not None and type(out) not in plain):
        return None
    if are_sizes(shapes):
        targets: Sequence[Any] = [shapes] * len(items)
    elif type(shapes) is not dict and is_one(shapes):
        return None
    else:
        targets = arranged(shapes, keyed, names, "shapes")
        if not all(map(are_sizes, {id(shape): shape for shape in targets}.values())):
            return None
    if out is None:
        with suppress(Exception):
            if copy is None:
                return list(map(np.ndarray.reshape, items, targets))
            return [x.reshape(shape, copy=copy) for x, shape in zip(items, targets, strict=True)]
        return None
    outs = arranged(out, keyed, names, "out=")
    if not _fit(items, targets, outs):
        return None
    for x, into in zip(items, outs, strict=True):
        into.reshape(x.shape)[...] = x
    return outs


def _have_few(items: tuple[Any, ...]) -> bool:
    """Whether NumPy copies their elements faster; the first tensors of a large batch decide."""
    most = 4 * thresholds.NUMPY_BELOW
    return bool(sum(map(_SIZE, items[:256])) < most and sum(map(_SIZE, items)) < most)


def _fit(items: Sequence[Any], shapes: Sequence[Any], outs: Sequence[Any]) -> bool:
    """Whether outputs fit, and share no memory with sources or one another."""
    if not are_exact(outs) or not all(map(is_, map(DTYPE, items), map(DTYPE, outs))):
        return False
    rows = [*map(SHAPE, items)], [*map(SHAPE, outs)], [*shapes]
    alike = all(row.count(row[0]) == len(row) for row in rows)  # a third of the time of a set
    for source, made, shape in [[row[0] for row in rows]] if alike else {*zip(*rows, strict=True)}:
        with suppress(ReshapeError):
            if target_shape(source, array_request(shape, ASKED_BY)) == made:
                continue
        return False
    return may_fill(items, outs)
