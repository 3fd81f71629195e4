"""reshape, permute_dims, cast and dequantize of dask arrays, in chunks of a bounded size.

The results are ordinary dask arrays; equal calls make equal keys. A result's chunk has at most
`chunk_size` bytes (an int, or text such as "64MiB"; dask's own `array.chunk-size` if not given).

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

from collections.abc import Sequence
from functools import partial
from math import lcm
from typing import Any

import numpy as np

from ..dtypes.table import DType, fixed_width
from ..errors import DTypeError, FormatError, ReshapeError, about, shape_text
from ..operations import casts, views
from ..operations.scaling import blocks_of
from ..runtime.ndarrays import is_a, plain, unwrapped
from ..shapes.layout import permutation
from ..shapes.request import Request
from ..shapes.resolver import target_shape
from . import chunk_work, chunks
from .chunks import Chunks, Grid

try:
    from dask import array, config
    from dask.utils import parse_bytes

    from .dask_graphs import Index, mapped, reshaped
except ImportError as missing:
    raise ImportError(
        "shapejit.adapters.dask needs dask: pip install 'shapejit[dask]'", name="dask"
    ) from missing


def reshape(
    x: Any,
    shape: Sequence[int] | int | Request,
    *,
    packed: object = None,
    chunk_size: int | str | None = None,
) -> Any:
    """The elements of a dask array, in row-major order, in another shape.

    `shape` (elements) is taken as the Array API says, or is a dialect's request, such as
    `sj.onnx.request([0, -1])`. Dims that stay, and groups of dims whose product stays,
    keep chunks of their own; within a group, chunks of the result are ranges of its elements
    in row-major order, and read no more than these of the source. Only where a source's chunks
    are no such ranges is it rechunked first. Raises ReshapeError, DTypeError, FormatError.

    >>> import dask.array as da
    >>> wide = da.ones((4, 10**7), chunks=(4, 10**6))
    >>> tall = reshape(wide, (10**7, 4), chunk_size="32MiB")
    >>> tall.npartitions, tall.chunksize
    (10, (1000000, 4))
    >>> import shapejit as sj
    >>> reshape(wide, sj.onnx.request([0, 1000, -1])).shape
    (4, 1000, 10000)
    """
    x, per = _opened(x, packed)
    request = shape if is_a(shape, Request) else views.array_request(shape, "reshape")
    source = (*x.shape[:-1], x.shape[-1] * per) if per > 1 else x.shape
    target = target_shape(source, request)
    if per > 1:
        target = (*target[:-1], _bytes_of(target, per, packed))
    most = _most(x.dtype.itemsize, chunk_size)
    if 0 in target:
        return array.zeros(target, dtype=x.dtype, chunks=-1)
    if any(0 in sizes for sizes in x.chunks):
        x = x.rechunk(tuple(tuple(filter(None, sizes)) for sizes in x.chunks))
    if target == x.shape:
        return _rechunked(x, chunks.bounded(x.chunks, [Grid()] * x.ndim, most))
    return reshaped(x, target, most)


def permute_dims(
    x: Any,
    axes: Sequence[int],
    *,
    packed: object = None,
    chunk_size: int | str | None = None,
) -> Any:
    """A dask array whose dim i is dim axes[i] of `x`; its chunks are views where they can be.

    Where packed elements change their last dim, that must fill whole bytes, and is cut
    into chunks that do. Raises ReshapeError, DTypeError, FormatError.

    >>> import dask.array as da
    >>> permute_dims(da.ones((2, 30, 4), chunks=10), (1, 2, 0)).chunks
    ((10, 10, 10), (4,), (2,))
    """
    x, per = _opened(x, packed)
    order = permutation(axes, x.shape)
    last = order[-1] if order else 0
    grids = [Grid()] * x.ndim
    if per > 1 and last != x.ndim - 1:
        if x.shape[last] % per:
            _refuse_bytes(tuple(x.shape[i] for i in order), per, packed)
        grids[last] = Grid(per, per)
    x = _rechunked(x, chunks.bounded(x.chunks, grids, _most(x.dtype.itemsize, chunk_size)))
    if per == 1 or last == x.ndim - 1:
        return x.transpose(order)
    kind = fixed_width(packed)
    cut = [x.chunks[i] for i in order]
    cut[order.index(x.ndim - 1)] = tuple(n * per for n in x.chunks[-1])
    cut[-1] = tuple(n // per for n in cut[-1])
    back = [order.index(i) for i in range(x.ndim)]
    work = partial(chunk_work.permuted, kind.name, order)
    return mapped("permute", x, work, tuple(cut), x.dtype, lambda at: tuple(at[i] for i in back))


def cast(
    x: Any,
    dtype: object,
    *,
    saturate: bool = True,
    round_mode: str = "nearest",
    packed: object = None,
    pack: bool = False,
    chunk_size: int | str | None = None,
) -> Any:
    """The elements of a dask array, converted as by `shapejit.cast`.

    With `pack=True` the result, of a dtype of 1, 2 or 4 bits, is packed bytes; without, elements
    of NumPy's or ml_dtypes' dtype. Raises DTypeError, FormatError.

    >>> import dask.array as da
    >>> x = da.from_array(np.array([[1.4, -2.6, 7, 99]]), chunks=(1, 2))
    >>> str(cast(x, "float8_e4m3fn").dtype), cast(x, "int4", pack=True).compute()
    ('float8_e4m3fn', array([[225, 119]], dtype=uint8))
    """
    x, per = _opened(x, packed)
    kind = fixed_width(dtype)
    to = _per(kind) if pack else 1
    settings: dict[str, Any] = {"saturate": saturate, "round_mode": round_mode}
    sample = casts.cast(np.empty(0, _numpy_of(x, packed)), kind, **settings)  # checks them
    last = x.shape[-1] * per if x.ndim else 1
    if to > 1 and (last % to or not x.ndim):
        _refuse_bytes((*x.shape[:-1], last)[: x.ndim], to, kind)
    made = np.dtype(np.uint8) if pack else sample.dtype
    grids = [Grid()] * x.ndim
    x, cut = _fitted(x, per, to, grids, made.itemsize, chunk_size)
    source = fixed_width(packed).name if per > 1 else None
    work = partial(chunk_work.cast, source, kind.name, pack, settings)
    return mapped("cast", x, work, cut, made)


def dequantize(
    x: Any,
    scale: Any,
    *,
    zero_point: Any = None,
    block_shape: Sequence[int] | None = None,
    dtype: object = None,
    packed: object = None,
    chunk_size: int | str | None = None,
) -> Any:
    """`(x - zero_point) * scale` of a dask array of codes, as by `shapejit.dequantize`.

    `scale` and `zero_point` are what `shapejit.dequantize` takes, or dask arrays. Chunks of the
    codes are cut so that each has whole blocks or lies within one, and reads its own scales
    only. Raises DTypeError, ReshapeError, FormatError.

    >>> import dask.array as da
    >>> codes = da.ones((4, 64), chunks=(2, 24), dtype="int8")
    >>> scale = np.arange(8, dtype=np.float32).reshape(4, 2)
    >>> made = dequantize(codes, scale, block_shape=(1, 32), dtype="bfloat16")
    >>> made.chunks, made[3].compute()[::32].tolist()
    (((2, 2), (32, 32)), [6.0, 7.0])
    """
    x, per = _opened(x, packed)
    shape = (*x.shape[:-1], x.shape[-1] * per) if per > 1 else x.shape
    if isinstance(scale, int | float) and not isinstance(scale, np.generic):
        casts.dequantize(np.empty(0, np.int8), scale)  # checks it
        scale = np.float32(float(scale))
    scales = _operand(scale)
    blocks = blocks_of(block_shape, shape, scales.shape)
    sample = np.empty((0,) * x.ndim, _numpy_of(x, packed))
    made = casts.dequantize(sample, np.ones((), scales.dtype), dtype=dtype).dtype
    if 0 in shape:
        return array.zeros(shape, dtype=made, chunks=-1)
    grids = [Grid(1, block) for block in blocks] or [Grid()] * x.ndim
    x, cut = _fitted(x, per, 1, grids, made.itemsize, chunk_size)
    owners, parts = _scale_chunks(cut, blocks)
    zeros = None if zero_point is None else _operand(zero_point)
    if zeros is not None and zeros.shape not in ((), scales.shape):
        given = f"zero_point has shape {shape_text(zeros.shape)}, scale {shape_text(scales.shape)}"
        raise ReshapeError(f"{given}: it is a scalar, or has one number per scale")
    operands = [(o.rechunk(parts) if o.ndim else o) for o in (scales, zeros) if o is not None]
    source = fixed_width(packed).name if per > 1 else None
    work = partial(chunk_work.dequantize, source, made.name, blocks or None)

    def keys(at: Index) -> list[Any]:
        own = tuple(owner[i] for owner, i in zip(owners, at, strict=False))
        return [(o.name, *(own if o.ndim else ())) for o in operands]

    return mapped("dequantize", x, work, cut, made, operands=operands, keys=keys)


def _opened(x: Any, packed: object) -> tuple[Any, int]:
    """A dask array whose chunks are known, and its elements per item: 1, or those of a byte."""
    if not isinstance(x, array.Array):
        raise DTypeError(f"expected a dask array, not {type(x).__name__}; dask.array.asarray(x)")
    with about("chunks"):
        plain(x._meta)
    if any(size != size for sizes in x.chunks for size in sizes):
        raise ReshapeError(f"chunks of unknown sizes: {x.shape}; see x.compute_chunk_sizes()")
    if packed is None:
        return x, 1
    kind = fixed_width(packed)
    if x.dtype != np.uint8 or not x.ndim:
        raise DTypeError(f"packed {kind} lies in an array of uint8 of 1 dim or more, not {x.dtype}")
    return x, _per(kind)


def _per(kind: DType) -> int:
    """The elements of a byte."""
    if not kind.packed:
        raise DTypeError(f"{kind} is not packed: its elements have whole bytes")
    if 8 % kind.bits:
        raise FormatError(f"elements of {kind} lie across bytes, where no chunk can end")
    return 8 // kind.bits


def _bytes_of(target: Index, per: int, packed: object) -> int:
    """The bytes of the last dim of a packed shape."""
    if not target or target[-1] % per:
        _refuse_bytes(target, per, packed)
    return target[-1] // per


def _refuse_bytes(shape: Index, per: int, packed: object) -> None:
    raise FormatError(
        f"the last dim of {shape_text(shape)} does not fill whole bytes: "
        f"{fixed_width(packed)} has {per} elements in each"
    )


def _numpy_of(x: Any, packed: object) -> np.dtype[Any]:
    """The dtype of the elements."""
    if packed is None:
        found: np.dtype[Any] = x.dtype
        return found
    kind = fixed_width(packed)
    return kind.codes


def _most(itemsize: int, chunk_size: int | str | None) -> int:
    """The most elements of a chunk."""
    given = config.get("array.chunk-size") if chunk_size is None else chunk_size
    try:
        nbytes = parse_bytes(given)
    except (ValueError, AttributeError):
        raise ReshapeError(f'chunk_size is bytes, such as "64MiB", not {given!r}') from None
    if nbytes < itemsize:
        raise ReshapeError(f"chunk_size={given!r} is less than an element of {itemsize} bytes")
    return int(nbytes // max(1, itemsize))


def _rechunked(x: Any, cut: Chunks) -> Any:
    return x if cut == x.chunks else x.rechunk(cut)


def _fitted(
    x: Any, per: int, to: int, grids: list[Grid], itemsize: int, chunk_size: int | str | None
) -> tuple[Any, Chunks]:
    """`x` in chunks that fit the grids (of elements), and the chunks of the result.

    The last dim has `per` elements per item in `x`, `to` in the result, whose items have
    `itemsize` bytes.
    """
    if not x.ndim:
        return x, ()
    found = (*x.chunks[:-1], tuple(n * per for n in x.chunks[-1]))
    grain, block = lcm(per, to), grids[-1].block
    block = lcm(grain, block)
    grids = [*grids[:-1], Grid(grain if block == grids[-1].block else block, block)]
    bits = max(8 * itemsize // to, 8 * x.dtype.itemsize // per)
    cut = chunks.bounded(found, grids, max(1, 8 * _most(1, chunk_size) // bits))
    x = _rechunked(x, (*cut[:-1], tuple(n // per for n in cut[-1])))
    return x, (*cut[:-1], tuple(n // to for n in cut[-1]))


def _operand(given: Any) -> Any:
    """Scales or zero points as a dask array."""
    if isinstance(given, array.Array):
        return _opened(given, None)[0]
    return array.from_array(np.asarray(unwrapped(given)), chunks=-1)


def _scale_chunks(cut: Chunks, blocks: Index) -> tuple[list[list[int]], Chunks]:
    """For each dim: which chunk of the scales each chunk of the codes has, and these chunks."""
    owners, parts = [], []
    for sizes, block in zip(cut, blocks, strict=False):
        ends = np.cumsum(sizes)
        ranges = [*zip((ends - sizes) // block, -(-ends // block), strict=True)]
        known = sorted(set(ranges))
        owners.append([known.index(r) for r in ranges])
        parts.append(tuple(int(last - first) for first, last in known))
    return owners, tuple(parts)
