"""Target shapes of many tensors: read and resolved in one compiled call (resolve_batch)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import array_structs
from ..engine.patience import by_numpy
from ..errors import DTypeError, ReshapeError, about
from ..operations.views import array_request
from ..runtime.kernel_names import Call
from ..runtime.launches import Addresses
from ..runtime.ndarrays import is_a, is_mapping, is_sequence, plain
from ..shapes.arithmetic import INVALID, MAX_SIZE
from ..shapes.request import MAX_INTS, Request, integers
from ..shapes.resolver import resolve

ASKED_BY = "reshape_batch"

RESOLVE_ROWS = Call("shapes.resolve_rows", ("a", "a", "a", "i", "t"), "i", held=False)


class TargetShapes(NamedTuple):
    """Target shapes before they are resolved, one for each tensor.

    `tokens[starts[i] : starts[i + 1]]` are the ints of shape i.
    """

    shapes: Sequence[Any]
    tokens: Addresses
    starts: Addresses

    @staticmethod
    def of(shapes: Any, keyed: bool, names: Sequence[Any]) -> TargetShapes:
        """The shapes for the named tensors, which are the values of a dict if `keyed`."""
        if not is_mapping(shapes) and is_one(shapes):
            (row,), tokens, _ = _tokens((shapes,), None, "the target shape")
            count = len(names)
            starts = np.arange(count + 1) * len(tokens)
            return TargetShapes((row,) * count, np.tile(tokens, count), starts)
        rows = arranged(shapes, keyed, names, "shapes")
        return TargetShapes(*_tokens(rows, names, "the target shape"))

    def request(self, index: int) -> Request:
        """The Request for a shape."""
        return array_request(self.shapes[index], ASKED_BY)


def resolve_batch(source_shapes: Any, request: Request) -> NDArray[np.int64]:
    """Resolve one request for many source shapes: an int64 array, one row per tensor.

    `source_shapes` (elements) is a 2-D array of integers, or a sequence of shapes of any ranks;
    `request` comes from a dialect, as in `resolve`. All are resolved in one compiled call. Raises
    ReshapeError, which names the index of the first shape that cannot be resolved.

    >>> import shapejit as sj
    >>> sj.resolve_batch([(2, 3, 4), (8, 5)], sj.onnx.request([0, -1]))
    array([[ 2, 12],
           [ 8,  5]])
    """
    if not is_a(request, Request):
        raise DTypeError(f"a request comes from a dialect's request(), not {request!r}")
    rows = plain(source_shapes) if is_a(source_shapes, np.ndarray) else source_shapes
    matrix = isinstance(rows, np.ndarray) and rows.ndim == 2
    if matrix and rows.dtype == np.int64:
        sizes, starts = rows.ravel(), np.arange(len(rows) + 1) * rows.shape[1]
    elif matrix or (is_sequence(rows) and not isinstance(rows, str | bytes | range)):
        rows = tuple(rows)  # may have another length than it says
        read, sizes, starts = _tokens(rows, range(len(rows)), "the source shape")
        for i in np.flatnonzero(np.diff(starts) == 1).tolist():
            if isinstance(rows[i], int | np.integer):
                raise DTypeError(
                    f"tensor {i}: the source shape must be a sequence, not {rows[i]!r}"
                )
        rows = read
    else:
        what = f"{rows.ndim}-D array" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise DTypeError(f"source shapes are a sequence or a 2-D array, not a {what}")
    targets = np.empty((len(rows), len(request.dims)), np.int64)
    done = _resolved(sizes, starts, rows, request, targets)
    if done < len(targets):
        with about(f"tensor {done}"):
            resolve(rows[done], request)
    return targets


def _resolved(
    sizes: Addresses,
    starts: Addresses,
    rows: Sequence[Any] | NDArray[Any],
    request: Request,
    targets: Addresses,
) -> int:
    """Resolve a request for each of `rows`, whose `sizes` begin at `starts`; return how many."""
    found = array_structs.kernel(RESOLVE_ROWS)
    if found is not None:
        dims = np.array(request.dims, np.int64)
        return int(found(sizes, starts, dims, int(request.cancel), targets))
    with by_numpy(array_structs.work_of(RESOLVE_ROWS)):
        for i, row in enumerate(rows):
            try:
                targets[i] = resolve(row, request)
            except ReshapeError:
                return i
    return len(rows)


def arranged(values: Any, keyed: bool, names: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The values as a tuple in the order of the tensors; there must be one for each."""
    if keyed != is_mapping(values):
        kind = "a dict with the tensors' keys" if keyed else "a sequence"
        raise DTypeError(f"{what} must be {kind}, not {type(values).__name__} ({ASKED_BY})")
    if keyed:
        if values.keys() != set(names):
            missing = [name for name in names if name not in values]
            extra = [name for name in values if name not in set(names)]
            wrong = f"no {missing[0]!r}" if missing else f"{extra[0]!r}, which no tensor has"
            raise ReshapeError(f"{what} has {wrong}", asked_by=ASKED_BY)
        return tuple(values[name] for name in names)
    if not is_sequence(values) and not is_a(values, np.ndarray):
        raise DTypeError(f"{what} must be a sequence, not {type(values).__name__} ({ASKED_BY})")
    count = len(names)
    made = tuple(islice(values, count + 1))  # it may have another length than it says
    if len(made) != count:
        found = f"more than {count}" if len(made) > count else len(made)
        raise ReshapeError(f"{what} has {found} entries for {count} tensors")
    return made


def is_one(shapes: Any) -> bool:
    """Whether `shapes` is one shape and not several."""
    if is_a(shapes, np.ndarray):
        return shapes.ndim < 2
    if is_sequence(shapes):
        # A range of 10**30 ints is one shape, too, and refused later.
        return not any(is_sequence(t) or is_a(t, np.ndarray) for t in islice(shapes, MAX_INTS + 1))
    return True


def _tokens(
    rows: tuple[Any, ...], names: Sequence[Any] | None, what: str
) -> tuple[tuple[Any, ...], Addresses, Addresses]:
    """The shapes (others than plain ones as tuples), all their ints, and where each begins.

    Each shape is read once, as it might change. Ints beyond int64 become INVALID. Errors name the
    row by its name, if it has one.
    """
    found = array_structs.read_ints(rows)
    if found is not None:
        return rows, *found
    checked = list[tuple[int, ...]]()
    with by_numpy(array_structs.work_of(array_structs.READ_SHAPES)):
        for i, row in enumerate(rows):
            shape = (row,) if isinstance(row, int | np.integer) else row
            with about(f"tensor {names[i]!r}") if names is not None else nullcontext():
                checked.append(integers(shape, what, ASKED_BY))
    starts = np.cumsum([0, *map(len, checked)])
    tokens = [t if -1 <= t <= MAX_SIZE else INVALID for t in chain.from_iterable(checked)]
    return (*checked,), np.array(tokens, np.int64), starts
