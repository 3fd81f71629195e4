"""concat and stack: several arrays joined, each copied straight to its place in the result."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import sees_native_arrays, typed_joining
from ..arrays.tensor import Array, Tensor
from ..dtypes.promotion import AnyDtype, beyond_numpy, promoted
from ..engine import fast_joins, outputs, routes
from ..engine.addresses import Places, place_of, places_of
from ..engine.copying import copy, is_numpys
from ..engine.patience import Kind, by_numpy, now, spent
from ..errors import DTypeError, ReshapeError
from ..kernels.constants import MAX_RANK
from ..planning import planner, thresholds
from ..runtime.launches import Addresses
from ..shapes.layout import Layout, normal_axes
from ..shapes.request import integers
from .casts import cast
from .views import checked


@typed_joining
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
    return _join(tensors, axis, False, out)  # type: ignore[no-any-return]  # like tensors


@typed_joining
def stack(tensors: Sequence[Array], axis: int = 0, *, out: Array | None = None) -> Array:
    """Stack arrays of one shape along a new dim `axis` (Array API v2024.12, stack).

    Dtypes and `out` as in `concat`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> stack([np.zeros((2, 3)), np.ones((2, 3))], axis=-1).shape
    (2, 3, 2)
    """
    return _join(tensors, axis, True, out)  # type: ignore[no-any-return]  # like tensors


def _join(tensors: Any, axis: Any, new: bool, out: Any) -> Any:
    """Arrays joined along a `new` dim or one of theirs: by the first way that can."""
    plain = type(tensors) in (list, tuple) and len(tensors) > 1 and type(axis) is int
    if plain and (out is None or type(out) is np.ndarray):
        parts = tuple(tensors)
        made = None
        if getattr(parts[0], "dtype", None) is getattr(parts[-1], "dtype", None):
            made = fast_joins.join(parts, axis, new, out)
        if made is None:
            made = _by_numpy(parts, axis, new, out)
        if made is not None:
            return made
    return _joined(tensors, axis, new, out)


def _by_numpy(parts: tuple[Any, ...], axis: int, new: bool, out: Any) -> Any:
    """Small ndarrays joined by NumPy; None for others, and if anything is wrong."""
    if {*map(type, parts)} != {np.ndarray}:
        return None
    kinds = [x.dtype for x in parts]
    kind, alike = kinds[0], len({*kinds}) == 1
    start, unready = now(), () if fast_joins.ready() else (fast_joins.KIND,)
    # A kernel is faster at what is strided, or put between others.
    runs = axis == 0 and all(x.flags.c_contiguous for x in parts)
    below = thresholds.RESULT_MEMORY_FROM if runs or not alike else thresholds.NUMPY_BELOW
    if unready:
        below = thresholds.PLAN_ON_FIRST_USE_FROM
    if sum([x.nbytes for x in parts]) >= below:
        return None
    kind = kind if alike else _numpy_kind((*kinds,))
    if kind is None:
        return None
    if out is not None:
        # NumPy writes parts before it looks at later ones.
        unfit = not out.flags.carray or out.dtype is not kind
        if unfit or any(map(np.may_share_memory, parts, repeat(out))):
            return None
        kind = None
    try:  # a fifth of the time of `suppress`
        join = np.stack if new else np.concatenate
        made = join(parts, axis, out, dtype=kind, casting="unsafe")
    except (ValueError, IndexError, TypeError):  # other shapes, or too many dims
        return None
    made = made if made.flags.c_contiguous else made.copy()
    spent(start, *unready)
    return made


@lru_cache(maxsize=256)
def _numpy_kind(kinds: tuple[np.dtype[Any], ...]) -> np.dtype[Any] | None:
    """The dtype of several dtypes' join, if NumPy's casts to it give the bits of `cast`."""
    with suppress(DTypeError):
        kind: Any = promoted(kinds, "concat")
        if isinstance(kind, np.dtype) and all(_numpy_casts(x, kind) for x in kinds):
            return kind
    return None


def _numpy_casts(source: AnyDtype, target: AnyDtype) -> bool:
    """Whether NumPy's cast gives the bits of `cast`: it widens bfloat16 by a shift.

    A signalling NaN of float16 gets other bits.
    """
    others = beyond_numpy(source) or beyond_numpy(target) or source == np.float16
    own = source == target or not others
    return own or (source.name, target.name) == ("bfloat16", "float32")


@sees_native_arrays
def _joined(tensors: Any, axis: int | None, new: bool, out: Any) -> Any:
    """Any arrays, joined along a `new` dim or one of theirs."""
    asked_by = "stack" if new else "concat"
    parts = [x if type(x) is np.ndarray else checked(x) for x in tensors]
    kind = _joined_kind(parts, asked_by)
    shape, at, sizes = _joined_shape(parts, axis, new, asked_by)
    target, fresh = outputs.target(out, kind, shape, ())
    begin, whole = place_of(target)
    if out is not None:
        place = Places.alike(np.array([begin]), whole)
        outputs.check_places_apart(places_of(parts), place, True, range(len(parts)))
    arrays, kinds = _ndarrays([*parts, target]), {x.dtype for x in parts}
    unready: tuple[Kind, ...] = ()
    if len(kinds) > 1 and not (arrays and all(_numpy_casts(x, kind) for x in kinds)):
        # By its name, a dtype is found with the Route of the cast.
        parts = [x if x.dtype == kind else cast(x, kind.name) for x in parts]
        arrays, kinds = arrays and _ndarrays([*parts, target]), {kind}
    run = sizes[0] * prod(shape[at + 1 :]) * whole.bits
    if at and len({*sizes}) == 1 and run % 8 and run < 8 * thresholds.RUN:
        # Elements that share bytes with other parts are written one by one: 300 times as long.
        stacked = _joined(parts, 0, True, None).moveaxis(0, at)
        copy(stacked, target.reshape(stacked.shape), fresh)
        return target if out is None else out
    if not arrays or (len(kinds) == 1 and arrays[-1].nbytes >= _numpy_below(arrays, at)):
        launches = _launches(places_of(parts), sizes, begin, whole, at)
        waiting = [route.kind for route, *_ in launches if not route.ready]
        if not (arrays and waiting):
            for route, sources, targets in launches:
                routes.run(route, sources, targets, fresh)
            return target if out is None else out
        unready = tuple(filter(None, waiting))
    *given, made = arrays
    with by_numpy(*unready):
        if new:
            np.stack(given, at, made)
        else:
            np.concatenate(given, None if axis is None else at, made, casting="unsafe")
    return target if out is None else out


def _numpy_below(arrays: Sequence[NDArray[Any]], at: int) -> float:
    """The bytes of a join along dim `at` below which NumPy makes it; the result comes last."""
    *parts, made = arrays
    if is_numpys(made.dtype):
        return inf
    dense = all(x.flags.c_contiguous for x in parts)
    run = min(prod(x.shape[at:]) for x in parts) if dense else 1
    return planner.numpy_below(max(run, 1) * made.itemsize, gaps=True)


def _ndarrays(arrays: list[Any]) -> list[NDArray[Any]] | None:
    """The same as ndarrays over their memory; None if NumPy cannot have them."""
    if any(x.ndim > MAX_RANK or (type(x) is Tensor and x.dtype.packed) for x in arrays):
        return None
    return [x.numpy() if isinstance(x, Tensor) else x for x in arrays]


def _launches(
    places: Places, sizes: Sequence[int], begin: int, whole: Layout, at: int
) -> list[tuple[routes.Route, Addresses, Addresses]]:
    """The Route of parts with equal Layouts, into equal boxes of the whole; sources, targets.

    Part k has `sizes[k]` indices of dim `at`.
    """
    made = []
    ends = np.cumsum(np.array(sizes, np.int64))
    starts = begin + whole.strides[at] * (ends - sizes)
    for layout, bit, which in places.groups(starts):
        if not layout.size:
            continue
        box = whole.narrow(at, 0, sizes[which[0]], 1).at(bit)
        into = box if box.shape == layout.shape else box.reshape(layout.shape)
        assert into is not None  # only contiguous boxes have another shape
        sources, targets = places.begins(which) & ~7, starts[which] & ~7
        steps = targets[1:] - targets[:-1]
        apart = int(steps[0]) if len(steps) and (steps == steps[0]).all() else 0
        route = routes.joins(layout, into, len(which), apart)
        if route.by_numpy:
            route = routes.compiled(layout, into=into)
        made.append((route, sources, targets))
    return made


def _joined_kind(parts: Sequence[Any], asked_by: str) -> Any:
    """The dtype of the result."""
    if not parts:
        raise ReshapeError("need at least one array to join", asked_by=asked_by)
    first = parts[0]
    for i, x in enumerate(parts):
        if isinstance(x, Tensor) != isinstance(first, Tensor):
            raise DTypeError(f"array {i} is no {type(first).__name__} like array 0 ({asked_by})")
    kinds = tuple([x.dtype for x in parts])
    alike = all(kind is kinds[0] for kind in kinds)
    return kinds[0] if alike else promoted(kinds, asked_by)


def _joined_shape(
    parts: Sequence[Any], axis: int | None, new: bool, asked_by: str
) -> tuple[tuple[int, ...], int, list[int]]:
    """The shape of the result, the dim along which parts are joined, and the indices of each."""
    if axis is None and not new:
        sizes = [x.size for x in parts]
        return (sum(sizes),), 0, sizes
    first = parts[0].shape
    if new and any(x.shape != first for x in parts):
        shapes = [x.shape for x in parts]
        raise ReshapeError(f"all arrays must have the same shape, not {shapes}", asked_by=asked_by)
    (at,) = normal_axes(integers((axis,), "axis", asked_by), len(first) + new, asked_by)
    if new:
        return (*first[:at], len(parts), *first[at:]), at, [1] * len(parts)
    for i, x in enumerate(parts):
        if (x.shape[:at], x.shape[at + 1 :]) != (first[:at], first[at + 1 :]):
            note = f"array {i} has shape {x.shape}, array 0 {first}"
            raise ReshapeError(f"only dim {at} may differ: {note}", asked_by=asked_by)
    sizes = [x.shape[at] for x in parts]
    return (*first[:at], sum(sizes), *first[at + 1 :]), at, sizes
