"""What is done to the chunks of an array, each an ndarray: functions that pickle by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import fixed_width
from ..operations import casts, codes, views
from ..operations.joining import Box, flat_boxes, joined
from ..runtime.ndarrays import plain

Shape = tuple[int, ...]


def permuted(packed: str, axes: Shape, chunk: NDArray[Any]) -> NDArray[Any]:
    """A packed chunk with its dims in another order."""
    return _bytes(views.permute_dims(_elements(chunk, packed), axes))


def cast(
    packed: str | None, dtype: str, pack: bool, settings: Mapping[str, Any], chunk: NDArray[Any]
) -> NDArray[Any]:
    """The elements of a chunk, `packed` or not, converted, and packed if `pack`."""
    x = _elements(chunk, packed)
    if pack and not isinstance(x, Tensor):
        x = codes.pack(x) if fixed_width(x.dtype).packed else asarray(x)
    made = casts.cast(x, dtype, **settings)
    return _bytes(made) if pack else np.asarray(made)


def dequantize(
    packed: str | None,
    dtype: str,
    blocks: Shape | None,
    chunk: NDArray[Any],
    scale: NDArray[Any],
    zero_point: Any = None,
) -> NDArray[Any]:
    """The values of a chunk of codes, `packed` or not, which has whole blocks or lies in one."""
    made = casts.dequantize(
        _elements(chunk, packed), scale, zero_point=zero_point, block_shape=blocks, dtype=dtype
    )
    return np.asarray(made)


def cut(ranges: Sequence[slice], sizes: Sequence[Shape], chunk: NDArray[Any]) -> NDArray[Any]:
    """The part of a chunk that lies in a range of the elements of each group of its dims.

    `sizes` are those of the dims of each group, in order; dims of size 1 may be in none. The part
    has a dim per group, and is a copy if it is less than half of the chunk: what is left
    of that need not stay in memory.
    """
    chunk = plain(chunk).reshape([n for group in sizes for n in group], copy=False)
    flat = [flat_boxes(g, x.start, x.stop) for g, x in zip(sizes, ranges, strict=True)]
    shape = tuple(x.stop - x.start for x in ranges)
    if chunk.flags.c_contiguous and 2 * prod(shape) >= chunk.size:
        part: NDArray[Any] = chunk.reshape([prod(group) for group in sizes])[*ranges]
        return part
    parts, places = [], []
    for boxes in product(*map(_placed, flat)):
        parts.append(chunk[tuple(x for box, _ in boxes for x in box)])
        places.append(tuple(place for _, place in boxes))
    made: NDArray[Any] = joined(parts, places, shape, chunk.dtype, None)
    return made


def _placed(boxes: Iterable[Box]) -> list[tuple[Box, slice]]:
    """Boxes that follow one another, each with its range of their elements."""
    made, at = [], 0
    for box in boxes:
        size = prod(x.stop - x.start for x in box)
        made.append((box, slice(at, at + size)))
        at += size
    return made


def assembled(
    boxes: Sequence[tuple[slice, ...]], flat: Shape, shape: Shape, *parts: NDArray[Any]
) -> NDArray[Any]:
    """An array of `shape` whose `boxes`, of the array seen as `flat`, hold the parts."""
    if len(parts) == 1:
        return views.reshape(parts[0], shape)
    made: NDArray[Any] = joined([*map(plain, parts)], boxes, flat, parts[0].dtype, None)
    return made.reshape(shape)


def _elements(chunk: NDArray[Any], packed: str | None) -> Any:
    """The elements of a chunk; of a packed one, a Tensor over its bytes."""
    if packed is None:
        return chunk
    kind = fixed_width(packed)
    shape = (*chunk.shape[:-1], chunk.shape[-1] * (8 // kind.bits))
    return Tensor.frombuffer(views.ascontiguous(chunk), kind, shape)


def _bytes(t: Any) -> NDArray[np.uint8]:
    """The bytes of a Tensor whose last dim has whole bytes, in a last dim of bytes."""
    whole = views.ascontiguous(t)
    first = whole.offset // 8
    memory: NDArray[np.uint8] = whole.buffer[first : first + whole.nbytes]
    return memory.reshape(*t.shape[:-1], t.shape[-1] * t.dtype.bits // 8)
