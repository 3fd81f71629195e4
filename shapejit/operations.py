"""The public shape operations, on ndarrays and Tensors alike; Tensor's methods are bound here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import engine
from .dtypes import DType, dtype
from .errors import DTypeError, ReshapeError, shape_text
from .kernels import MAX_RANK
from .layout import Layout, normal_axes
from .planner import Plan, plan
from .request import Request, integers, request
from .resolver import target_shape
from .tensor import Array, Tensor, asarray, fixed_width, plain
from .tiling import CODES_BLOCK, LINE, Strategy
from .tracing import Traced

View = TypeVar("View")
CACHED = 1 << 16  # a data loader sees thousands of shapes; an entry takes about 1 KiB
CODES = dtype("uint8")
EMPTY = np.empty(0, np.uint8)
NUMPY = Strategy.NUMPY  # a class attribute of an Enum costs 30 ns to look up


def reshape(
    x: Array, /, shape: Sequence[int] | int, *, copy: bool | None = None, out: Array | None = None
) -> Array:
    """`x` with its elements, in row-major order, in another shape.

    `shape` (elements) is taken as the Array API says (reshape, v2024.12): 0 is
    a literal size, one -1 is inferred. The result is a view wherever one
    exists; `copy=True` always copies, `copy=False` raises where it would have
    to. `out` (same kind and dtype as `x`, the result's shape, C-contiguous, not
    overlapping `x`) is filled and returned. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> reshape(np.arange(6), (2, -1))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    if type(shape) is not tuple and isinstance(shape, int | np.integer):
        shape = (shape,)
    tokens = integers(shape, "the target shape", "reshape")
    return reshape_as(x, _array_request(tokens), copy, out)


@lru_cache(maxsize=CACHED)
def _array_request(tokens: tuple[int, ...]) -> Request:
    return request(tokens, asked_by="reshape (Array API)")


def reshape_as(x: Array, request: Request, copy: bool | None, out: Array | None) -> Array:
    """`x` as `request` says; what every dialect's reshape ends in."""
    if isinstance(x, Tensor):
        shape = target_shape(x.shape, request)
        seen = _wanted(x.layout.reshape(shape), x, request, copy, out)
        if isinstance(x, Traced):
            return x.reshaped(shape, copy, out)
        return _copy_tensor(x, shape, out) if seen is None else x.with_layout(seen)
    array = x if type(x) is np.ndarray else _array(x)
    shape, view = _route(array.shape, array.strides, array.itemsize, request)
    if copy is None and out is None:
        return array.reshape(shape) if view else _copy_array(array, shape, None)
    if _wanted(view or None, array, request, copy, out) is None:
        return _copy_array(array, shape, out)
    return array.reshape(shape)


@lru_cache(maxsize=CACHED)
def _route(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, request: Request
) -> tuple[tuple[int, ...], bool]:
    """The target shape of an ndarray, and whether it is a view."""
    target = target_shape(shape, request)
    return target, Layout.of(shape, strides, 0, itemsize).reshape(target) is not None


def _checked(x: Array) -> Array:
    """An ndarray or a Tensor, and nothing else."""
    return x if isinstance(x, Tensor) else _array(x)


def _array(x: Any) -> NDArray[Any]:
    """An ndarray, without its subclass; nothing else is converted silently."""
    if not isinstance(x, np.ndarray):
        raise DTypeError(
            f"expected a numpy.ndarray or a shapejit.Tensor, not {type(x).__name__}; "
            f"wrap it with numpy.asarray or shapejit.asarray"
        )
    return plain(x)


def _wanted(
    view: View | None,
    x: Any,
    request: Request,
    copy: bool | None,
    out: object,
) -> View | None:
    """The view, where `copy` and `out` ask for it; None for a copy."""
    if copy is None:
        return view if out is None else None
    if copy is True:
        return None
    if copy is not False:
        raise DTypeError(f"copy is None, True or False, not {copy!r}")
    if out is not None:
        raise ReshapeError("copy=False and out= exclude each other", asked_by=request.asked_by)
    if view is None:
        note = f"strides {x.strides} need a copy, which copy=False forbids"
        raise ReshapeError("cannot view", x.shape, request.tokens, (note,), request.asked_by)
    return view


def _numpys_own(dtype: np.dtype[Any]) -> bool:
    """Strings and objects: references need counting, and text may have no width."""
    return dtype.hasobject or dtype.itemsize == 0 or issubclass(dtype.type, np.character)


@lru_cache(maxsize=CACHED)
def _array_plan(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> Plan:
    """The Plan that makes an ndarray contiguous."""
    if _numpys_own(dtype):
        return Plan(NUMPY, 0)
    bits = 8 * dtype.itemsize
    return plan(Layout.of(shape, [8 * s for s in strides], 0, bits), bits)


def _copy_array(x: NDArray[Any], shape: tuple[int, ...], out: Any) -> NDArray[Any]:
    """The elements of `x`, row-major, as `out` or a new array of `shape`."""
    dtype, source_shape = x.dtype, x.shape
    if out is None:
        target: NDArray[Any] = np.empty(shape, dtype)
    else:
        target = out
        # Written out, not called: a small copy may cost 1 us more than NumPy's.
        plain_out = type(out) is np.ndarray and out.dtype is dtype and out.flags.carray
        if not plain_out or out.shape != shape:
            _check_array_out(dtype, shape, out)
        if np.may_share_memory(x, target):
            _check_apart(x, target)
    made = _array_plan(source_shape, x.strides, dtype)
    if made.strategy is NUMPY:
        # Assignment is np.copyto without its 100 ns of dispatch.
        (target if shape == source_shape else target.reshape(source_shape))[...] = x
    else:
        engine.run(made, x, target, fresh=out is None)
    return target


def _check_array_out(dtype: np.dtype[Any], shape: tuple[int, ...], out: Any) -> None:
    if not isinstance(out, np.ndarray):
        raise DTypeError(f"out= must be an ndarray like the source, not {type(out).__name__}")
    if isinstance(out, np.ma.MaskedArray):
        raise DTypeError("out= must not be a masked array, whose mask would stay as it is")
    if out.dtype != dtype:
        raise DTypeError(f"out= has dtype {out.dtype}, the result {dtype}")
    if out.shape != shape:
        raise ReshapeError(f"out= has shape {out.shape}, the result {shape_text(shape)}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ReshapeError("out= must be C-contiguous and writable")


def _check_apart(x: NDArray[Any], out: NDArray[Any]) -> None:
    """Refuse an out= that shares memory with the source, or where that is hard to tell."""
    if not np.may_share_memory(x, out):
        return
    try:
        overlap = np.shares_memory(x, out, max_work=10_000)  # type: ignore[arg-type]  # any int will do
    except np.exceptions.TooHardError:
        overlap = True
    if overlap:
        raise ReshapeError("out= overlaps the source")


def _copy_tensor(t: Tensor, shape: tuple[int, ...], out: Tensor | None) -> Tensor:
    """The elements of `t`, row-major, as `out` or a new Tensor of `shape`."""
    if out is not None:
        _check_tensor_out(t.dtype, shape, out)
        _check_apart(_reach(t), _reach(out))
    if t.size == 0:
        nothing = Tensor.trusted(EMPTY, t.dtype, Layout.row_major(shape, t.dtype.bits))
        return nothing if out is None else out
    if max(t.ndim, len(shape)) > MAX_RANK:
        return _copy_flat(t, shape, out)
    if not t.dtype.packed:
        array = _copy_array(t.numpy(), shape, None if out is None else out.numpy())
        return asarray(array) if out is None else out
    fresh = out is None
    if out is None:
        layout = Layout.row_major(shape, t.dtype.bits)
        out = Tensor.trusted(np.empty(t.nbytes, np.uint8), t.dtype, layout)
    first = out.offset // 8
    target = out.buffer[first : first + t.nbytes]
    engine.run(plan(t.layout, t.dtype.bits), t.buffer, target, fresh)
    return out


def _copy_flat(t: Tensor, shape: tuple[int, ...], out: Tensor | None) -> Tensor:
    """`_copy_tensor` of more dims than an ndarray has: nearly all of them are of size 1."""
    wide = t.layout.reshape(tuple(n for n in t.shape if n != 1))
    into = None if out is None else out.layout.reshape((t.size,))
    assert wide is not None
    target = None if out is None or into is None else out.with_layout(into)
    made = _copy_tensor(t.with_layout(wide), (t.size,), target)
    return made.with_layout(Layout.row_major(shape, t.dtype.bits)) if out is None else out


def _check_tensor_out(kind: DType, shape: tuple[int, ...], out: Any) -> None:
    if not isinstance(out, Tensor):
        raise DTypeError(f"out= must be a Tensor like the source, not {type(out).__name__}")
    if out.dtype is not kind:
        raise DTypeError(f"out= has dtype {out.dtype}, the result {kind}")
    if out.shape != shape:
        raise ReshapeError(f"out= has shape {out.shape}, the result {shape_text(shape)}")
    if not (out.contiguous and out.buffer.flags.writeable):
        raise ReshapeError("out= must be contiguous and over writable memory")
    low, high = out.layout.span
    if low % 8 or (high % 8 and high < 8 * out.buffer.size - 7):
        raise ReshapeError("out= shares a byte with elements beside it")


def _reach(t: Tensor) -> NDArray[Any]:
    """The bytes that a tensor's elements touch; exactly, where they are whole bytes."""
    if not t.dtype.packed and t.ndim <= MAX_RANK and t.size:
        return t.numpy()
    low, high = t.layout.span
    return t.buffer[low // 8 : (high + 7) // 8]


def ascontiguous(x: Array, *, out: Array | None = None) -> Array:
    """`x` in row-major order: itself if it is so already and starts on a byte, else a copy.

    `out` is filled and returned, as in `reshape`.

    >>> import numpy as np
    >>> ascontiguous(np.arange(6).reshape(2, 3).T).strides
    (16, 8)
    """
    if isinstance(x, Tensor):
        if isinstance(x, Traced):
            return x.made_contiguous(out)
        if out is None and x.contiguous and x.offset % 8 == 0:
            return x
        return _copy_tensor(x, x.shape, out)
    array = x if type(x) is np.ndarray else _array(x)
    if out is None and array.flags.c_contiguous:
        return array
    return _copy_array(array, array.shape, out)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    """The view whose dim i is dim `axes[i]` of `x` (Array API).

    >>> import numpy as np
    >>> permute_dims(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = _checked(x)
    order = integers(axes, "axes", "permute_dims")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.permute(order))
    return np.permute_dims(x, normal_axes(order, x.ndim, "permute_dims"))


def flip(x: Array, *, axis: int | Sequence[int] | None = None) -> Array:
    """The view with the order of the elements reversed along `axis` (None: along all).

    >>> import numpy as np
    >>> flip(np.arange(3))
    array([2, 1, 0])
    """
    x = _checked(x)
    axes = None if axis is None else _axes(axis, x.ndim, "flip")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.flip(axes))
    return np.flip(x, axes)


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    """The read-only view of `shape` in which dims of size 1 repeat (stride 0).

    >>> import numpy as np
    >>> broadcast_to(np.arange(3), (2, 3)).strides
    (0, 8)
    """
    sizes = integers(shape, "the shape", "broadcast_to")
    if not isinstance(x, Tensor):
        return np.broadcast_to(_array(x), sizes)
    return x.with_layout(x.layout.broadcast_to(sizes)).locked()


def expand_dims(x: Array, /, axis: int | Sequence[int] = 0) -> Array:
    """The view with new dims of size 1 at the places `axis` of the result.

    >>> import numpy as np
    >>> expand_dims(np.zeros((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    x = _checked(x)
    given = _axes(axis, None, "expand_dims")
    axes = normal_axes(given, x.ndim + len(given), "expand_dims")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.expand_dims(axes))
    return np.expand_dims(x, axes)


def squeeze(x: Array, /, axis: int | Sequence[int]) -> Array:
    """The view without the dims `axis`, which must be of size 1.

    >>> import numpy as np
    >>> squeeze(np.zeros((2, 1, 3)), axis=1).shape
    (2, 3)
    """
    x = _checked(x)
    axes = _axes(axis, x.ndim, "squeeze")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.squeeze(axes))
    return np.squeeze(x, axes)


def matrix_transpose(x: Array, /) -> Array:
    """The view with the last two dims exchanged.

    >>> import numpy as np
    >>> matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = _checked(x)
    if x.ndim < 2:
        raise ReshapeError(f"matrix_transpose needs 2 dims, {shape_text(x.shape)} has {x.ndim}")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _axes(axis: int | Sequence[int], ndim: int | None, asked_by: str) -> tuple[int, ...]:
    """One axis or several, counted from the front where `ndim` is given."""
    axes = integers(axis if isinstance(axis, Sequence) else (axis,), "axis", asked_by)
    return axes if ndim is None else normal_axes(axes, ndim, asked_by)


def concat(tensors: Sequence[Array], *, axis: int = 0, out: Array | None = None) -> Array:
    """The arrays one after the other along `axis`, in one new array or in `out` (Array API).

    All are ndarrays or all are Tensors, of one dtype and of one shape but for
    `axis`; each is copied straight to its place. `out` as in `reshape`. Raises
    ReshapeError, DTypeError.

    >>> import numpy as np
    >>> concat([np.zeros((2, 3)), np.ones((1, 3))]).shape
    (3, 3)
    """
    parts = [_checked(x) for x in tensors]
    shape, at = _joined_shape(parts, axis, "concat")
    if isinstance(parts[0], Tensor):
        return _concat_tensors(parts, shape, at, out)
    return _concat_arrays(parts, shape, at, out)


def stack(tensors: Sequence[Array], *, axis: int = 0, out: Array | None = None) -> Array:
    """The arrays, all of one shape, side by side along a new dim `axis` (Array API).

    >>> import numpy as np
    >>> stack([np.zeros((2, 3)), np.ones((2, 3))], axis=-1).shape
    (2, 3, 2)
    """
    parts = [_checked(x) for x in tensors]
    if len({x.shape for x in parts}) > 1:
        raise ReshapeError(f"shapes {[x.shape for x in parts]} differ", asked_by="stack")
    ndim = parts[0].ndim + 1 if parts else 1
    at = normal_axes(integers((axis,), "axis", "stack"), ndim, "stack")
    return concat([expand_dims(x, at) for x in parts], axis=at[0], out=out)


def _joined_shape(parts: list[Any], axis: int, asked_by: str) -> tuple[tuple[int, ...], int]:
    """The shape of the whole, and the axis counted from the front."""
    if not parts:
        raise ReshapeError("there is nothing to join", asked_by=asked_by)
    first = parts[0]
    (at,) = normal_axes(integers((axis,), "axis", asked_by), first.ndim, asked_by)
    for i, x in enumerate(parts):
        if isinstance(x, Tensor) != isinstance(first, Tensor):
            raise DTypeError(f"array {i} is no {type(first).__name__} like array 0 ({asked_by})")
        if x.dtype != first.dtype:
            raise DTypeError(f"array {i} has dtype {x.dtype}, array 0 {first.dtype} ({asked_by})")
        if (x.shape[:at], x.shape[at + 1 :]) != (first.shape[:at], first.shape[at + 1 :]):
            note = f"array {i} has shape {x.shape}, array 0 {first.shape}"
            raise ReshapeError(f"only dim {at} may differ: {note}", asked_by=asked_by)
    size = sum(x.shape[at] for x in parts)
    return (*first.shape[:at], size, *first.shape[at + 1 :]), at


def _concat_arrays(
    parts: list[NDArray[Any]], shape: tuple[int, ...], axis: int, out: Any
) -> NDArray[Any]:
    dtype = parts[0].dtype
    target: NDArray[Any] = np.empty(shape, dtype) if out is None else out
    if out is not None:
        _check_array_out(dtype, shape, out)
        for x in parts:
            _check_apart(x, out)
    start = 0
    for x in parts:
        place = target[(slice(None),) * axis + (slice(start, start + x.shape[axis]),)]
        start += x.shape[axis]
        made = _part_plan(x.shape, x.strides, place.strides, dtype)
        if made.strategy is NUMPY:
            np.copyto(place, x)
        else:
            engine.run(made, x, place, fresh=out is None)
    return target


@lru_cache(maxsize=CACHED)
def _part_plan(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    place: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Plan:
    """The Plan that copies an ndarray into a part of a larger one."""
    if _numpys_own(dtype):
        return Plan(NUMPY, 0)
    bits = 8 * dtype.itemsize
    source, into = (Layout.of(shape, [8 * s for s in ss], 0, bits) for ss in (strides, place))
    made = plan(source, bits, into)
    if made.strategy is Strategy.ROWS and made.width == dtype.itemsize <= 8 and made.loops:
        # Elements that go one by one into gaps: NumPy's loop takes 0.3 ns for each, ours 3.
        return Plan(NUMPY, 0) if abs(made.loops[-1].source) <= LINE else made
    return made


def _concat_tensors(
    parts: list[Tensor], shape: tuple[int, ...], axis: int, out: Tensor | None
) -> Tensor:
    kind = parts[0].dtype
    whole = Layout.row_major(shape, kind.bits)
    if out is not None:
        _check_tensor_out(kind, shape, out)
        for t in parts:
            _check_apart(_reach(t), _reach(out))
    if not kind.packed:
        arrays = [t.numpy() for t in parts]
        joined = _concat_arrays(arrays, shape, axis, None if out is None else out.numpy())
        return asarray(joined) if out is None else out
    target = out
    if target is None:
        target = Tensor.trusted(np.empty(kind.nbytes(whole.size), np.uint8), kind, whole)
    start = 0
    for t in parts:
        place = target.layout.narrow(axis, start, t.shape[axis], 1)
        start += t.shape[axis]
        engine.run(plan(t.layout, kind.bits, place), t.buffer, target.buffer, fresh=out is None)
    _clear_padding(target)
    return target


def _clear_padding(t: Tensor) -> None:
    """Make the bits behind the last element of its last byte zero."""
    padding = -t.layout.span[1] % 8
    if padding and t.layout.size:
        t.buffer[(t.layout.span[1] - 1) // 8] &= 0xFF >> padding


def pack(x: NDArray[Any] | Tensor, dtype: object = None, *, out: Tensor | None = None) -> Tensor:
    """A contiguous packed Tensor of an array with one byte an element; new, or `out`.

    `x` has an ml_dtypes sub-byte dtype, or holds uint8 codes of `dtype`. Bits
    above an element's width are ignored, padding bits are zero. `out` as in
    `reshape`, of the packed dtype. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> pack(np.array([1, 2, 3], np.uint8), "uint4").tobytes().hex()
    '2103'
    """
    given = asarray(x)
    kind = given.dtype if dtype is None else fixed_width(dtype)
    if kind is not given.dtype:
        if given.dtype.name != "uint8" or not kind.packed:
            raise DTypeError(f"{given.dtype} elements are no codes of {kind}: pass uint8 codes")
        given = _codes_as(given, kind)
    if not kind.packed:
        return ascontiguous(given, out=out)
    if out is not None:
        _check_tensor_out(kind, given.shape, out)
        _check_apart(_reach(given), _reach(out))
    if all(s % 8 == 0 for s in (given.offset, *given.strides)) and not _side_by_side(given, 8):
        # Bytes are put in order faster than codes.
        seen = Tensor.trusted(given.buffer, CODES, _with_bits(given.layout, 8))
        given = _codes_as(_copy_tensor(seen, seen.shape, None), kind)
    # Never the caller's own byte, whose high bits may be dirty.
    return _copy_tensor(given, given.shape, out)


def _codes_as(codes: Tensor, kind: DType) -> Tensor:
    """Codes, a byte each, as the elements that they are."""
    return Tensor.trusted(codes.buffer, kind, _with_bits(codes.layout, kind.bits))


def _with_bits(layout: Layout, bits: int) -> Layout:
    """The same places, whose elements are wider or narrower."""
    return Layout.of(layout.shape, layout.strides, layout.offset, bits)


def _side_by_side(t: Tensor, apart: int) -> bool:
    """Whether most elements stand `apart` bits behind the one before, or there are few."""
    runs = t.layout.runs()
    return t.size <= CODES_BLOCK or (runs[-1][1] == apart and runs[-1][0] >= LINE)


def unpack(t: Tensor, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """One element a byte (or whole bytes) as a new ndarray, or in `out`.

    The dtype is ml_dtypes' or NumPy's; types that both lack give uint8 codes.

    >>> Tensor.frombuffer(bytes([0x21, 0x03]), "uint4", (3,)).unpack()
    array([1, 2, 3], dtype=uint4)
    """
    if not t.dtype.packed:
        return _copy_array(t.numpy(), t.shape, out)
    codes = t.dtype.codes
    fresh = out is None
    if out is None:
        try:
            out = np.empty(t.shape, codes)
        except ValueError as fault:
            raise _beyond_numpy(t, fault) from None
    else:
        _check_array_out(codes, t.shape, out)
        _check_apart(_reach(t), out)
    if not (_side_by_side(t, t.dtype.bits) or _side_by_side(t, 8)):
        # Packed elements are put in order faster than codes.
        t = _copy_tensor(t, t.shape, None)
    engine.run(plan(t.layout, 8), t.buffer, out, fresh)
    return out


def numpy(t: Tensor) -> NDArray[Any]:
    """The tensor as an ndarray: its own memory where elements are whole bytes, else unpacked.

    Raises ReshapeError for more than NumPy's 64 dims and for sizes beyond its memory.

    >>> Tensor.frombuffer(bytes([0x21, 0x43]), "uint4", (2, 2)).numpy()
    array([[1, 2],
           [3, 4]], dtype=uint4)
    """
    if t.dtype.packed:
        return unpack(t)
    strides = tuple(s // 8 for s in t.strides)
    try:
        return np.ndarray(t.shape, t.dtype.codes, t.buffer.data, t.offset // 8, strides)
    except (ValueError, OverflowError) as fault:
        raise _beyond_numpy(t, fault) from None


def _beyond_numpy(t: Tensor, fault: Exception) -> ReshapeError:
    """The error for a shape that no ndarray can have."""
    return ReshapeError(f"NumPy has no array of {t.ndim} dims and {t.size} elements: {fault}")


def tobytes(t: Tensor) -> bytes:
    """The packed elements in row-major order; padding bits are zero.

    >>> Tensor.frombuffer(bytes([0x21, 0xF3]), "uint4", (3,)).tobytes().hex()
    '2103'
    """
    # Never a packed tensor's own bytes: the padding may not be zero.
    made = _copy_tensor(t, t.shape, None) if t.dtype.packed else ascontiguous(t)
    first = made.offset // 8
    return made.buffer[first : first + t.nbytes].tobytes()


for _operation in (
    ascontiguous, broadcast_to, expand_dims, flip, matrix_transpose, numpy, permute_dims,
    reshape, squeeze, tobytes, unpack,
):  # fmt: skip
    setattr(Tensor, _operation.__name__, _operation)
