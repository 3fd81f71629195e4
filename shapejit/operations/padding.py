"""Arrays with elements added around them, or removed: constant, edge, reflect, wrap.

The array is copied to its place in the result. Then each dim, the last one first, is padded on both
sides from the elements that are there already. With k padded dims that is 1 + 2k copies instead of
3^k regions, and each element is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays.tensor import Array, Tensor, asarray
from ..dtypes.table import dtype
from ..engine import outputs
from ..errors import ReshapeError, shape_text
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.layout import overflows
from .regions import fill_region
from .views import checked


def pad(
    x: Array,
    widths: Sequence[tuple[int, int]],
    *,
    mode: str = "constant",
    value: Array | None = None,
    out: Array | None = None,
    asked_by: object = "pad",
) -> Array:
    """`x` with elements added before and after each dim: `widths` has a pair of counts per dim.

    Negative widths remove elements, before any are added. The added elements are, by `mode`:
    `value` ("constant"; an array of one element, of the type and dtype of `x`; None means zero),
    the nearest element ("edge"), elements mirrored at it ("reflect", repeatedly if there are too
    few), or those from the other end ("wrap"). `out` as in
    `shapejit.reshape`. Raises ReshapeError, DTypeError.

    >>> pad(np.arange(3), [(2, 4)], mode="reflect")
    array([2, 1, 0, 1, 2, 1, 0, 1, 2])
    """
    inner = _cropped(checked(x), widths, asked_by)
    added = [(max(before, 0), max(behind, 0)) for before, behind in widths]
    pairs = zip(inner.shape, added, strict=True)
    shape = tuple(size + before + behind for size, (before, behind) in pairs)
    if overflows(shape):
        raise ReshapeError(f"cannot pad by {list(widths)}", inner.shape, asked_by=asked_by)
    if mode != "constant" and 0 in inner.shape:
        empty = [i for i, n in enumerate(inner.shape) if n == 0 and any(added[i])]
        if empty:
            raise ReshapeError(
                f"dim {empty[0]} of {shape_text(inner.shape)} has no elements to repeat ({mode})",
                asked_by=asked_by,
            )
    target, fresh = outputs.target(out, x.dtype, shape, (x, value))
    _fill(_plain(inner), _plain(target), added, mode, value, fresh)
    return target if out is None else out


def _fill(
    inner: Any, target: Any, added: list[tuple[int, int]], mode: str, value: Any, fresh: bool
) -> None:
    """Copy `inner` to its place in `target`, then pad each dim."""
    # Dims after the current one are padded already, those before it are not.
    inside = [slice(first, first + n) for (first, _), n in zip(added, inner.shape, strict=True)]
    fill_region(inner, target[(*inside, ...)], fresh)
    if mode == "constant":
        value = _zero(inner) if value is None else _plain(value)
    for axis in reversed(range(inner.ndim)):
        before = tuple(inside[:axis])
        for into, seen in _pieces(mode, added[axis], inner.shape[axis]):
            part = target[(*before, into, ...)]
            fill_region(value if seen is None else target[(*before, seen, ...)], part)


def _plain(x: Any) -> Any:
    """The elements as an ndarray, if NumPy can hold them."""
    return x.numpy() if isinstance(x, Tensor) and not x.dtype.packed and x.ndim < MOST_DIMS else x


def _cropped(x: Any, widths: Sequence[tuple[int, int]], asked_by: object) -> Any:
    """The elements that negative widths leave."""
    for axis, (before, behind) in enumerate(widths):
        if min(before, behind) < 0:
            first, last = max(-before, 0), x.shape[axis] - max(-behind, 0)
            if first > last:
                gone = f"widths {before} and {behind} of dim {axis}"
                raise ReshapeError(
                    f"{gone} remove more elements than there are", x.shape, asked_by=asked_by
                )
            x = x[(*(slice(None),) * axis, slice(first, last), ...)]
    return x


def _zero(x: Array) -> Any:
    """An array of one element, of the kind and dtype of `x`, all of whose bits are zero."""
    if isinstance(x, Tensor):
        return Tensor.frombuffer(bytes(x.dtype.nbytes(1)), x.dtype, ())
    return np.array("", x.dtype) if x.dtype == object else np.zeros((), x.dtype)


def _pieces(mode: str, added: tuple[int, int], size: int) -> Iterator[tuple[slice, slice | None]]:
    """The slices of a dim to fill, and the slices to copy from; None for `value`.

    A slice of one element is repeated. The `size` elements after the first `added[0]` exist
    already.

    >>> list(_pieces("reflect", (2, 1), 3))
    [(slice(0, 2, 1), slice(4, 2, -1)), (slice(5, 6, 1), slice(3, 4, 1))]
    """
    first, behind = added
    if mode == "constant":
        ends = slice(0, first, 1), slice(first + size, first + size + behind, 1)
        yield from ((part, None) for part, n in zip(ends, added, strict=True) if n)
        return
    for at, length, source, step in _behind(mode, size, first):
        # The same from the other end.
        low, begin = size - at - length, size - 1 - source - (length - 1) * step
        yield _steps(first + low, length, 1), _steps(first + begin, length, step)
    for at, length, source, step in _behind(mode, size, behind):
        yield _steps(first + at, length, 1), _steps(first + source, length, step)


def _steps(start: int, length: int, step: int) -> slice:
    """`length` elements from `start` on; a single one if the step is 0."""
    if length == 1 or step == 0:
        return slice(start, start + 1, 1)
    stop = start + length * step
    return slice(start, stop if stop >= 0 else None, step)


def _behind(mode: str, size: int, count: int) -> Iterator[tuple[int, int, int, int]]:
    """The copies that pad after `size` elements: (start, length, source start, source step).

    Indices count from the first of the elements. Repetitions are copied from earlier copies, which
    doubles their length each time.

    >>> list(_behind("wrap", 3, 8))
    [(3, 3, 0, 1), (6, 5, 0, 1)]
    """
    if count and (mode == "edge" or (mode == "reflect" and size == 1)):
        yield size, count, size - 1, 0
        return
    turn = size - 1 if mode == "reflect" else 0
    done = 0
    while done < count:
        if done < turn:
            length, source, step = min(turn, count - done), size - 2, -1
        elif done < 2 * turn:
            length, source, step = min(turn, count - done), 1, 1
        else:
            period = 2 * turn or size
            back = (size + done) // period * period
            length, source, step = min(back, count - done), size + done - back, 1
        yield size + done, length, source, step
        done += length


def scalar(x: Array, value: Any) -> Any:
    """A value as an array of one element of the kind and dtype of `x`.

    Raises OverflowError for a value outside an integer dtype's range.

    >>> scalar(np.zeros(2, np.int8), 3)
    array(3, dtype=int8)
    """
    made = np.asarray(value, x.dtype.numpy if isinstance(x, Tensor) else x.dtype)
    # ml_dtypes' integers, and those of NumPy given a number of NumPy's, keep the low bits.
    if dtype(made.dtype).kind == "integer" and made.ndim == 0 and int(made) != int(value):
        raise OverflowError(f"{value} is out of the range of {made.dtype}")
    return asarray(made) if isinstance(x, Tensor) else made
