"""reshape, permute_dims, flip, cast and dequantize of dask arrays, chunk by chunk.

The results are ordinary dask arrays; equal calls make equal keys. Chunks are kept, except that
those that would split a byte or a block of scales are merged; call `rechunk` of the array for
others. A reshape whose chunks need elements of several chunks is done by dask.

`packed` names the dtype of elements of 1, 2 or 4 bits in an array of uint8: the last dim is
packed, least significant bits first, as in the memory of a Tensor, and has whole bytes. Shapes
and blocks are then those of the elements; results that are packed are arrays of uint8 again.

>>> import dask.array as da
>>> x = da.arange(24, chunks=5).reshape(6, 4)
>>> reshape(x, (8, -1)).compute()[-1].tolist()
[21, 22, 23]
>>> bytes_of_int4 = da.from_array(np.array([[0x21, 0x43], [0x65, 0x07]], np.uint8))
>>> cast(bytes_of_int4, "int8", packed="int4").compute().tolist()
[[1, 2, 3, 4], [5, 6, 7, 0]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType, fixed_width
from ..errors import DTypeError, FormatError, ReshapeError, about, shape_text
from ..operations import casts, codes, views
from ..operations.scaling import blocks_of
from ..runtime.ndarrays import is_a, plain, unwrapped
from ..shapes.layout import normal_axes, permutation
from ..shapes.request import Request, one_or_several
from ..shapes.resolver import target_shape

try:
    from dask import array
except ImportError as missing:
    raise ImportError(
        "shapejit.adapters.dask needs dask: pip install 'shapejit[dask]'", name="dask"
    ) from missing

Shape = tuple[int, ...]


def reshape(x: Any, shape: Sequence[int] | int | Request, *, packed: object = None) -> Any:
    """The elements of a dask array, in row-major order, in another shape.

    `shape` (elements) is as in the Array API, or a dialect's request, such as `sj.onnx.request([0,
    -1])`. The chunks are those of dask's own reshape; shapes whose sizes do not divide one another
    go through one dim. Raises ReshapeError, DTypeError, FormatError.

    >>> import dask.array as da
    >>> import shapejit as sj
    >>> wide = da.ones((4, 10**7), chunks=(4, 10**6))
    >>> reshape(wide, sj.onnx.request([0, 1000, -1])).shape
    (4, 1000, 10000)
    >>> reshape(da.ones((6, 4), chunks=2), (8, 3)).shape
    (8, 3)
    """
    x, kind = _checked(x, packed)
    request = shape if is_a(shape, Request) else views.array_request(shape, "reshape")
    target = target_shape(_shape(x, kind), request)
    if kind is not None:  # row-major and in whole bytes, elements move as their bytes do
        _check_bytes(target, kind)
        target = (*target[:-1], target[-1] // _per(kind))
    if 0 in target:
        return array.zeros(target, dtype=x.dtype, chunks=-1)
    try:
        return x.reshape(target)
    except NotImplementedError:
        return x.reshape(-1).reshape(target)


def permute_dims(x: Any, axes: Sequence[int], *, packed: object = None) -> Any:
    """A dask array whose dim i is dim axes[i] of `x`; its chunks are views if possible.

    If a permutation moves the last dim of packed elements, that dim must fill whole bytes.

    Raises ReshapeError, DTypeError, FormatError.

    >>> import dask.array as da
    >>> permute_dims(da.ones((2, 30, 4), chunks=10), (1, 2, 0)).chunks
    ((10, 10, 10), (4,), (2,))
    """
    x, kind = _checked(x, packed)
    order = permutation(axes, x.shape)
    return _moved(x, kind, lambda x: x.transpose(order), x.ndim - 1 not in order[-1:])


def flip(x: Any, *, axis: int | Sequence[int] | None = None, packed: object = None) -> Any:
    """A dask array with the order of its elements reversed along `axis` (None: along all).

    Raises AxisError, ReshapeError for an axis that is given twice, DTypeError, FormatError.

    >>> import dask.array as da
    >>> flip(da.arange(5, chunks=2)).compute()
    array([4, 3, 2, 1, 0])
    """
    x, kind = _checked(x, packed)
    given = range(x.ndim) if axis is None else one_or_several(axis, "axis", "flip")
    axes = normal_axes(given, x.ndim, "flip")
    return _moved(x, kind, lambda x: array.flip(x, axes) if axes else x, x.ndim - 1 in axes)


def cast(
    x: Any,
    dtype: object,
    *,
    saturate: bool = True,
    round_mode: str = "nearest",
    packed: object = None,
    pack: bool = False,
) -> Any:
    """The elements of a dask array, converted as by `shapejit.cast`.

    With `pack=True` the result, of a dtype of 1, 2 or 4 bits, is an array of packed bytes;
    otherwise it has elements of the NumPy or ml_dtypes dtype.

    Raises DTypeError, FormatError.

    >>> import dask.array as da
    >>> x = da.from_array(np.array([[1.4, -2.6, 7, 99]]), chunks=(1, 2))
    >>> str(cast(x, "float8_e4m3fn").dtype), cast(x, "int4", pack=True).compute()
    ('float8_e4m3fn', array([[225, 119]], dtype=uint8))
    """
    x, kind = _checked(x, packed)
    target, per = fixed_width(dtype), _per(kind)
    per_result = _per(target) if pack else 1
    how: dict[str, Any] = {"dtype": target.name, "saturate": saturate, "round_mode": round_mode}
    sample = casts.cast(_sample(x, kind), **how)  # checks them
    if pack:
        _check_bytes(_shape(x, kind), target)
        x = _merged(x, {x.ndim - 1: lcm(per, per_result) // per})
    work = partial(_cast, kind, pack, how)
    return _mapped(work, [x], np.dtype(np.uint8) if pack else sample.dtype, (per, per_result))


def dequantize(
    x: Any,
    scale: Any,
    *,
    zero_point: Any = None,
    block_shape: Sequence[int] | None = None,
    dtype: object = None,
    packed: object = None,
) -> Any:
    """`(x - zero_point) * scale` of a dask array of codes, as by `shapejit.dequantize`.

    `scale` and `zero_point` are those of `shapejit.dequantize`, or dask arrays. Along dims with
    several scales, chunks of the codes are merged to whole blocks, and each reads only its own
    scales.

    Raises DTypeError, ReshapeError, FormatError.

    >>> import dask.array as da
    >>> codes = da.ones((4, 64), chunks=(2, 24), dtype="int8")
    >>> scale = np.arange(8, dtype=np.float32).reshape(4, 2)
    >>> made = dequantize(codes, scale, block_shape=(1, 32), dtype="bfloat16")
    >>> made.chunks, made[3].compute()[::32].tolist()
    (((2, 2), (32, 32)), [6.0, 7.0])
    """
    x, kind = _checked(x, packed)
    if isinstance(scale, int | float) and not isinstance(scale, np.generic):
        casts.dequantize(np.empty(0, np.int8), scale)  # checks it
        scale = np.float32(float(scale))
    operands = [_operand(given) for given in (scale, zero_point) if given is not None]
    scales, *zeros = operands
    shape, per, last = _shape(x, kind), _per(kind), x.ndim - 1
    blocks = blocks_of(block_shape, shape, scales.shape)
    made = casts.dequantize(_sample(x, kind), np.ones((), scales.dtype), dtype=dtype).dtype
    if zeros and zeros[0].shape not in ((), scales.shape):
        given = f"zero_point has shape {shape_text(zeros[0].shape)}"
        wanted = f"scale {shape_text(scales.shape)}: it must be a scalar or one number per scale"
        raise ReshapeError(f"{given}, {wanted}")
    if 0 in shape:
        return array.zeros(shape, dtype=made, chunks=-1)
    several = {axis: blocks[axis] for axis, n in enumerate(scales.shape) if n > 1}
    items = {axis: per if axis == last else 1 for axis in several}  # elements
    x = _merged(
        x, {axis: lcm(block, items[axis]) // items[axis] for axis, block in several.items()}
    )
    cut = {
        axis: tuple(-(-n * items[axis] // block) for n in x.chunks[axis])
        for axis, block in several.items()
    }
    operands = [each.rechunk(cut) if each.ndim else each for each in operands]
    work = partial(_dequantized, kind, made.name, blocks or None)
    return _mapped(work, [x, *operands], made, (per, 1))


def _checked(x: Any, packed: object = None) -> tuple[Any, DType | None]:
    """A dask array whose chunk sizes are known and not 0 beside others; the dtype that it packs."""
    if not isinstance(x, array.Array):
        raise DTypeError(f"expected a dask array, not {type(x).__name__}; dask.array.asarray(x)")
    with about("chunks"):
        plain(x._meta)
    if any(size != size for sizes in x.chunks for size in sizes):
        raise ReshapeError(f"chunks of unknown sizes: {x.shape}; see x.compute_chunk_sizes()")
    if any(0 in sizes and len(sizes) > 1 for sizes in x.chunks):
        x = x.rechunk(tuple(tuple(filter(None, sizes)) or (0,) for sizes in x.chunks))
    if packed is None:
        return x, None
    kind = fixed_width(packed)
    if x.dtype != np.uint8 or not x.ndim:
        raise DTypeError(f"packed {kind} needs a uint8 array of at least 1 dim, not {x.dtype}")
    _per(kind)  # checks it
    return x, kind


def _operand(given: Any) -> Any:
    """Scales or zero points as a dask array."""
    if isinstance(given, array.Array):
        return _checked(given)[0]
    return array.from_array(np.asarray(unwrapped(given)), chunks=-1)


def _per(kind: DType | None) -> int:
    """The number of elements per byte; 1 if they are not packed (None)."""
    if kind is None:
        return 1
    if not kind.packed:
        raise DTypeError(f"{kind} is not packed: its elements have whole bytes")
    if 8 % kind.bits:
        raise FormatError(f"elements of {kind} cross byte boundaries, where chunks cannot end")
    return 8 // kind.bits


def _shape(x: Any, kind: DType | None) -> Shape:
    """The shape of the elements."""
    return (*x.shape[:-1], *(n * _per(kind) for n in x.shape[-1:]))


def _check_bytes(shape: Shape, kind: DType) -> None:
    """Raise FormatError unless the last dim of packed elements fills whole bytes."""
    if not shape or shape[-1] % _per(kind):
        raise FormatError(
            f"the last dim of {shape_text(shape)} does not fill whole bytes: "
            f"{kind} has {_per(kind)} elements in each"
        )


def _sample(x: Any, kind: DType | None) -> NDArray[Any]:
    """An empty array of the dtype to compute with; floats that ml_dtypes lacks become float32."""
    named = kind is None or kind.numpy is not None or kind.kind == "integer"
    dtype = x.dtype if kind is None else kind.codes if named else np.float32
    return np.empty((0,) * x.ndim, dtype)


def _moved(x: Any, kind: DType | None, move: Callable[[Any], Any], splits: bool) -> Any:
    """The result of `move` on an array; if that `splits` bytes, on elements of a byte each."""
    if kind is None or not splits:
        return move(x)
    raw = f"uint{kind.bits}"
    made = move(cast(x, raw, packed=raw))
    _check_bytes(made.shape, kind)
    return cast(made, raw, pack=True)


def _merged(x: Any, steps: Mapping[int, int]) -> Any:
    """An array whose chunks end at multiples of the steps along these dims."""
    cut = {}
    for axis, step in steps.items():
        ends = [*accumulate(x.chunks[axis])]
        if any(end % step for end in ends[:-1]):
            whole = {min(ends[-1], -(-end // step) * step) for end in ends}
            cut[axis] = tuple(b - a for a, b in pairwise([0, *sorted(whole)]))
    return x.rechunk(cut) if cut else x


def _mapped(
    work: Callable[..., Any], arrays: Sequence[Any], dtype: np.dtype[Any], per: tuple[int, int]
) -> Any:
    """An array whose chunks are the results of `work` on chunks of `arrays`.

    `per` are the elements per item of the last dim, before and after. Along dims where an operand
    has size 1, all chunks use the same part of it.
    """
    axes = tuple(range(arrays[0].ndim))
    pairs = [each for x in arrays for each in (x, axes if x.ndim else ())]
    before, after = per
    sizes = {axes[-1]: tuple(n * before // after for n in arrays[0].chunks[-1])} if axes else None
    return array.blockwise(
        work, axes, *pairs, dtype=dtype, align_arrays=False, adjust_chunks=sizes,
        meta=np.empty((0,) * len(axes), dtype),
    )  # fmt: skip


def _elements(kind: DType | None, chunk: NDArray[Any]) -> Any:
    """The elements of a chunk, packed ones as a Tensor over its bytes."""
    if kind is None:
        return chunk
    return Tensor.frombuffer(views.ascontiguous(chunk), kind, _shape(chunk, kind))


def _cast(
    kind: DType | None, pack: bool, how: Mapping[str, Any], chunk: NDArray[Any]
) -> NDArray[Any]:
    """The elements of a chunk, cast and optionally packed."""
    x = _elements(kind, chunk)
    made: Any = casts.cast(asarray(x) if pack else x, **how)
    if pack:
        return codes.memory(made).reshape(*made.shape[:-1], made.shape[-1] * made.dtype.bits // 8)
    return np.asarray(made.numpy() if is_a(made, Tensor) else made)


def _dequantized(
    kind: DType | None, dtype: str, blocks: Shape | None,
    chunk: NDArray[Any], scale: NDArray[Any], zero: Any = None,
) -> NDArray[Any]:  # fmt: skip
    """The values of a chunk of codes that has whole blocks, or is within one block."""
    x = _elements(kind, chunk)
    made = casts.dequantize(x, scale, zero_point=zero, block_shape=blocks, dtype=dtype)
    return np.asarray(made.numpy() if is_a(made, Tensor) else made)
