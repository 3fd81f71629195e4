"""Batches by NumPy until kernels are ready: ndarrays one by one, after all of them are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine import outputs
from ..engine.addresses import alike, places_of
from ..operations.views import array_request
from ..shapes.request import are_sizes
from ..shapes.resolver import target_shape


def reshaped(
    items: tuple[Any, ...], keys: Sequence[Any] | None, shapes: Any, copy: bool | None, out: Any
) -> Sequence[Any] | None:
    """The results of `reshape_batch`, whose `shapes` and `out` are plain dicts, lists or tuples.

    None for other arguments, and for all that is wrong: the caller says what it is.

    >>> reshaped((np.zeros((2, 3)),), None, (-1,), None, None)[0].shape
    (6,)
    """
    count = len(items)
    targets = [shapes] * count if are_sizes(shapes) else _listed(shapes, keys)
    outs = None if out is None else _listed(out, keys)
    if {*map(type, items)} != {np.ndarray} or len(targets) != count:
        return None
    if not all(map(are_sizes, {id(shape): shape for shape in targets}.values())):
        return None
    try:
        if outs is None:
            given = {} if copy is None else {"copy": copy}
            return [x.reshape(shape, **given) for x, shape in zip(items, targets, strict=True)]
        wanted = [
            (x.dtype, target_shape(x.shape, array_request(shape, "reshape_batch")))
            for x, shape in zip(items, targets, strict=True)
        ]
        sources, names = alike(items) or places_of(items), range(count)
        wanted = wanted[:1] if len({*wanted}) == 1 else wanted
        places, exact = outputs.given(outs, wanted, names)
        outputs.check_places_apart(sources, places, False, names)
    except (ArithmeticError, MemoryError, TypeError, ValueError):  # also what shapejit raises
        return None
    for x, into in zip(items, exact, strict=True):
        into.reshape(x.shape)[...] = x
    return outs


def _listed(values: Any, keys: Sequence[Any] | None) -> Sequence[Any]:
    """A list or tuple, or the values of a plain dict with these keys; else nothing."""
    if keys is None:
        return values if type(values) in (list, tuple) else ()
    fit = type(values) is dict and values.keys() == {*keys}
    return [values[key] for key in keys] if fit else ()
