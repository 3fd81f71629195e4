"""`reshape_batch` by NumPy until kernels are ready: ndarrays one by one, all of them checked.

None stands for what is not checked here: other arrays and arguments, and all that is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from operator import attrgetter, is_
from typing import Any

import numpy as np

from ..planning import thresholds
from ..shapes.arithmetic import INFER
from ..shapes.request import are_sizes
from .bulk_checks import DTYPE, SHAPE, are_apart, are_exact, are_writable

_SIZE, _CONTIGUOUS = attrgetter("size"), attrgetter("flags.c_contiguous")


def reshaped(
    items: tuple[Any, ...], keys: Sequence[Any] | None, shapes: Any, copy: bool | None, out: Any
) -> list[Any] | None:
    """The results of `reshape_batch`, whose `shapes` and `out` are plain dicts, lists or tuples.

    >>> reshaped((np.zeros((2, 3)),), None, (-1,), None, None)[0].shape
    (6,)
    """
    if not are_exact(items):
        return None
    targets = [shapes] * len(items) if are_sizes(shapes) else _listed(shapes, keys, len(items))
    if targets is None or not all(map(are_sizes, {id(s): s for s in targets}.values())):
        return None
    if out is None:
        with suppress(Exception):
            if copy is None:
                return list(map(np.ndarray.reshape, items, targets))
            return [x.reshape(shape, copy=copy) for x, shape in zip(items, targets, strict=True)]
        return None
    outs = _listed(out, keys, len(items))
    if outs is None or not _fit(items, targets, outs):
        return None
    for x, into in zip(items, outs, strict=True):
        into.reshape(x.shape)[...] = x
    return list(outs)


def is_faster(items: tuple[Any, ...], may_be_views: bool) -> bool:
    """Whether NumPy reshapes ndarrays faster than kernels: few elements, or views alone."""
    if not are_exact(items):
        return False
    if sum(map(_SIZE, items)) < thresholds.NUMPY_BELOW:
        return True
    return may_be_views and all(map(_CONTIGUOUS, items))


def _listed(values: Any, keys: Sequence[Any] | None, count: int) -> Any:
    """So many values of a plain dict with these keys, or of a list or tuple; else None."""
    if type(values) not in ((list, tuple) if keys is None else (dict,)) or len(values) != count:
        return None
    if keys is None:
        return values
    with suppress(KeyError):
        return [values[key] for key in keys]
    return None


def _fit(items: Sequence[Any], shapes: Sequence[Any], outs: Sequence[Any]) -> bool:
    """Whether outputs fit, and are seen to lie apart from the sources and one another."""
    if not are_exact(outs) or not all(map(is_, map(DTYPE, items), map(DTYPE, outs))):
        return False
    for source, made, shape in {*zip(map(SHAPE, items), map(SHAPE, outs), shapes, strict=True)}:
        if prod(source) != prod(made):
            return False
        if made != shape:
            sizes = zip(made, shape, strict=False)
            one = shape.count(INFER) == 1 and len(made) == len(shape) and 0 not in made
            if not one or any(want not in (size, INFER) for size, want in sizes):
                return False
    return are_writable(outs) and are_apart(items, outs)
