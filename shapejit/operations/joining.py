"""concat and stack: several arrays joined, each copied straight to its place in the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import joins_arrays, sees_native_arrays
from ..arrays.tensor import Array, Tensor
from ..dtypes.promotion import promoted
from ..engine import fast_joins, outputs, routes, tensor_joins
from ..engine.addresses import BitAddresses, bit_address_of, bit_addresses_of, byte_of
from ..engine.calls import follow
from ..engine.copying import copy, is_numpys
from ..engine.fast_joins import SCRATCH
from ..engine.patience import by_numpy
from ..engine.small_calls import TABLE
from ..errors import DTypeError, ReshapeError
from ..planning import thresholds
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .casts import cast
from .views import axis_of, checked


@joins_arrays
def concat(tensors: Sequence[Array], axis: int | None = 0, *, out: Array | None = None) -> Array:
    """Concatenate arrays along `axis`, into a new array or `out` (Array API v2024.12, concat).

    The arrays are all ndarrays or all Tensors, whose shapes differ only in the size of `axis`; with
    `axis=None` they may have any shapes, and are flattened. Different dtypes are promoted, see
    `dtypes.promotion`. `out` as in `reshape`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> concat([np.zeros((2, 3)), np.ones((1, 3))]).shape
    (3, 3)
    >>> concat([np.zeros((2, 3), np.int8), np.ones(2, np.int16)], axis=None)
    array([0, 0, 0, 0, 0, 0, 1, 1], dtype=int16)
    """
    parts = tuple(tensors) if type(tensors) is list else tensors
    made = fast_joins.run(parts, out, axis, False, SCRATCH, TABLE)
    return _joined(parts, axis, False, out) if made is None else made  # type: ignore[no-any-return]  # like tensors


@joins_arrays
def stack(tensors: Sequence[Array], axis: int = 0, *, out: Array | None = None) -> Array:
    """Stack arrays of one shape along a new dim `axis` (Array API v2024.12, stack).

    Dtypes and `out` as in `concat`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> stack([np.zeros((2, 3)), np.ones((2, 3))], axis=-1).shape
    (2, 3, 2)
    """
    parts = tuple(tensors) if type(tensors) is list else tensors
    made = fast_joins.run(parts, out, axis, True, SCRATCH, TABLE)
    return _joined(parts, axis, True, out) if made is None else made  # type: ignore[no-any-return]  # like tensors


def _joined(tensors: Any, axis: int | None, new: bool, out: Any) -> Any:
    """Arrays that no kernel joins in one call, joined along a `new` dim or one of theirs."""
    made = fast_joins.by_numpy(tensors, out, axis, new)
    return _any_joined(tensors, axis, new, out) if made is None else made


@sees_native_arrays
def _any_joined(tensors: Any, axis: int | None, new: bool, out: Any) -> Any:
    """Any arrays joined."""
    key = tensor_joins.key_of(tensors, axis, new)
    made = follow(key, tensors, out)
    if made is not None:
        return made
    asked_by = "stack" if new else "concat"
    parts: list[Any] = [x if type(x) is np.ndarray else checked(x) for x in tensors]
    kind = _joined_kind(parts, asked_by)
    shape, at, sizes = _joined_shape(parts, axis, new, asked_by)
    key = key if all(x.dtype is kind for x in parts) else None
    if key and prod(shape):
        made = tensor_joins.by_rows(key, parts, out, Layout.row_major(shape, kind.bits), at)
        if made is not None:
            return made
    target, fresh = outputs.target(out, kind, shape, ())
    made = target if out is None else out
    if not target.size:
        return made
    if axis is None:  # arrays of one rank are joined in one call
        dense = [type(x) is np.ndarray and x.flags.c_contiguous for x in parts]
        parts = [x.reshape(-1) if flat else x for x, flat in zip(parts, dense, strict=True)]
    join: Any = partial(np.concatenate, axis=None if axis is None else at, casting="unsafe")
    join = partial(np.stack, axis=at, casting="unsafe") if new else join
    mixed = any(x.dtype != kind for x in parts)
    if mixed and not (
        all(fast_joins.numpy_casts(x.dtype, kind) for x in parts) and _ndarrays([*parts, target])
    ):
        # By its name, a dtype is found with the Route of the cast.
        parts, mixed = [x if x.dtype == kind else cast(x, kind.name) for x in parts], False
    arrays = _ndarrays([*parts, target])
    if arrays:
        *given, into = arrays
        if fast_joins.run((*given,), into, at, new, SCRATCH, TABLE) is not None:
            return made
    begin, whole = bit_address_of(target)
    if out is not None:
        read, filled = bit_addresses_of(parts), BitAddresses.alike(np.array([begin]), whole)
        outputs.check_all_apart(read.spans(), filled.spans(), read.locate, range(len(parts)))
    run = sizes[0] * prod(shape[at + 1 :]) * whole.bits
    if at and len({*sizes}) == 1 and run % 8 and run < 8 * thresholds.RUN:
        # Elements that share bytes with other parts are written one by one: 300 times as long.
        stack: Tensor = _joined(parts, 0, True, None).moveaxis(0, at)
        needed = [routes.compiled(byte_of(stack)[1])]
        if not tensor_joins.by_codes(key, parts, target, join, needed):
            copy(stack, target.reshape(stack.shape), fresh)
        return made
    numpys = arrays and (mixed or is_numpys(arrays[-1].dtype))
    jobs = [] if numpys else tensor_joins.launches(bit_addresses_of(parts), sizes, begin, whole, at)
    unready = [route.kind for route, *_ in jobs if not route.ready]
    if numpys or (unready and arrays):
        with by_numpy(*unready):
            join(given, out=into)
    elif not tensor_joins.by_codes(key, parts, target, join, [route for route, *_ in jobs]):
        for route, sources, targets in jobs:
            routes.run(route, sources, targets, fresh)
    return made


def stack_of_bytes(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one Layout stacked along dim 0, as the bytes that each spans, concatenated.

    >>> stack_of_bytes([Tensor.frombuffer(bytes([0x21, k]), "int4", (4,))[1:3] for k in (3, 4)])
    Tensor([[2, 3],
            [2, 4]], shape=(2, 2), dtype=int4, 4 bits each)
    """
    layout = tensors[0].layout
    low, high = layout.span
    first, end = low // 8, (high + 7) // 8
    rows = [x.buffer[first:end] for x in tensors]
    seen = layout.at(layout.offset - 8 * first).stacked(len(rows), 8 * (end - first))
    return Tensor.unchecked(np.concatenate(rows), tensors[0].dtype, seen)


def _ndarrays(arrays: list[Any]) -> list[NDArray[Any]] | None:
    """Tensors as ndarrays over their memory; None if NumPy lacks the dtype."""
    if any(x.ndim > MOST_DIMS or (type(x) is Tensor and x.dtype.packed) for x in arrays):
        return None
    return [x.numpy() if isinstance(x, Tensor) else x for x in arrays]


def _joined_kind(parts: Sequence[Any], asked_by: str) -> Any:
    """The dtype of the result."""
    if not parts:
        raise ReshapeError("need at least one array to join", asked_by=asked_by)
    first = parts[0]
    for i, x in enumerate(parts):
        if isinstance(x, Tensor) != isinstance(first, Tensor):
            raise DTypeError(
                f"array {i} must be of type {type(first).__name__}, like array 0 ({asked_by})"
            )
    kinds = tuple([x.dtype for x in parts])
    # Equal dtypes may differ in metadata, and `promoted` remembers the first ones that it sees.
    alike = all(kind is kinds[0] or kind == kinds[0] for kind in kinds)
    return kinds[0] if alike else promoted(kinds, asked_by)


def _joined_shape(
    parts: Sequence[Any], axis: int | None, new: bool, asked_by: str
) -> tuple[Ints, int, list[int]]:
    """The shape of the result, the dim along which parts are joined, and the indices of each."""
    if axis is None and not new:
        sizes = [x.size for x in parts]
        return (sum(sizes),), 0, sizes
    first = parts[0].shape
    if new and any(x.shape != first for x in parts):
        shapes = [x.shape for x in parts]
        raise ReshapeError(f"all arrays must have the same shape, not {shapes}", asked_by=asked_by)
    at = axis_of(axis, len(first) + new, asked_by)
    if new:
        return (*first[:at], len(parts), *first[at:]), at, [1] * len(parts)
    for i, x in enumerate(parts):
        same = (x.shape[:at], x.shape[at + 1 :]) == (first[:at], first[at + 1 :])
        if not same or len(x.shape) != len(first):
            note = f"array {i} has shape {x.shape}, array 0 {first}"
            raise ReshapeError(f"only dim {at} may differ: {note}", asked_by=asked_by)
    sizes = [x.shape[at] for x in parts]
    return (*first[:at], sum(sizes), *first[at + 1 :]), at, sizes
