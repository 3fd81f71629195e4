"""Batches by NumPy until kernels are ready: ndarrays one by one or stacked, all of them checked.

None stands for what is not checked here: other arrays and arguments, and all that is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from math import prod
from operator import attrgetter, is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import outputs
from ..engine.addresses import alike
from ..engine.copying import is_numpys
from ..errors import DTypeError, ReshapeError
from ..operations.views import array_request
from ..runtime.launches import address_of
from ..shapes.arithmetic import INFER
from ..shapes.request import are_sizes
from ..shapes.resolver import target_shape

Shapes = Sequence[tuple[int, ...]]

_DTYPE, _SHAPE, _BASE, _FLAGS = map(attrgetter, ("dtype", "shape", "base", "flags.num"))
_CARRAY, _OWNDATA = 0x0501, 0x0004  # of NumPy's flags


def reshaped(
    items: tuple[Any, ...], keys: Sequence[Any] | None, shapes: Any, copy: bool | None, out: Any
) -> list[Any] | None:
    """The results of `reshape_batch`, whose `shapes` and `out` are plain dicts, lists or tuples.

    >>> reshaped((np.zeros((2, 3)),), None, (-1,), None, None)[0].shape
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
        if outs is None or len(outs) != len(items):
            return None
        if are_sizes(shapes) and _all_filled(items, shapes, outs):
            return list(outs)
        if not _fit(items, targets, outs):
            return None
        _assign_all(items, outs)
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


def _all_filled(items: tuple[Any, ...], shape: tuple[int, ...], outs: Sequence[Any]) -> bool:
    """Whether ndarrays are of one kind, and outputs fit: then these are filled."""
    with suppress(ReshapeError, DTypeError):  # raised again with the tensor's name
        sources, x, names = alike(items), items[0], range(len(items))
        if sources is not None and not is_numpys(x.dtype):
            made = target_shape(x.shape, array_request(shape, "reshape_batch"))
            targets, exact = outputs.given(outs, [(x.dtype, made)], names)
            outputs.check_places_apart(sources, targets, False, names)
            _assign_all(items, exact)
            return True
    return False


def _assign_all(items: Sequence[Any], outs: Sequence[Any]) -> None:
    for x, into in zip(items, outs, strict=True):
        into.reshape(x.shape)[...] = x


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
