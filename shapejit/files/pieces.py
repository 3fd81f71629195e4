"""The elements of a view in row-major order, a bounded number of bytes at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd, prod

import numpy as np

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..engine.outputs import new_bytes
from ..shapes.layout import Layout

# Bytes that are converted and written at a time: enough for all threads, and few enough to be in
# the last-level cache when they are written.
PIECE_BYTES = 8 * 1024 * 1024
TENSOR_MAX_BYTES = 1 << 30  # bytes of a tensor in memory at a time, by default


def new_memory(nbytes: int) -> Bytes:
    """Memory of `nbytes` bytes: that of a freed result, if one fits, whose pages exist already."""
    return new_bytes(8 * nbytes)[0]


def filled(found: Iterable[Bytes], kind: DType, shape: tuple[int, ...]) -> Tensor:
    """The tensor whose packed elements are in these pieces, copied to memory of its own."""
    memory, at = new_memory(kind.nbytes(prod(shape))), 0
    for piece in found:
        memory[at : at + piece.size] = piece
        at += piece.size
    return Tensor.frombuffer(memory, kind, shape)


def pieces(tensor: Tensor) -> Iterator[Bytes]:
    """Yield the packed elements: the tensor's own memory, or copies of parts."""
    layout = tensor.layout
    if layout.contiguous_bytes:
        memory = tensor.buffer[layout.offset // 8 :][: tensor.nbytes]
        for at in range(0, tensor.nbytes, PIECE_BYTES):
            yield memory[at : at + PIECE_BYTES]
        return
    for part in parts(layout, PIECE_BYTES):
        view = tensor.with_layout(part)
        out = Tensor.frombuffer(new_memory(view.nbytes), tensor.dtype, view.shape)
        yield view.ascontiguous(out=out).buffer


def parts(layout: Layout, limit: int, near: bool = False) -> Iterator[Layout]:
    """Slices along the outer dims, in order, of whole bytes and about `limit` bytes.

    With `near`, the bytes between their first and last element are counted, so a view that gathers
    elements from everywhere, such as a transposed matrix, is not cut.
    """
    low, high = layout.span
    if not layout.ndim or (high - low if near else layout.size * layout.bits) <= 8 * limit:
        yield layout
        return
    count, row = layout.shape[0], layout.select(0, 0)
    bits = row.size * row.bits
    step = abs(layout.strides[0]) if near else bits
    if near and row.span[1] - row.span[0] > step:
        yield layout
        return
    whole = 8 // gcd(bits, 8)
    rows = max(1, 8 * limit // (step * whole)) * whole
    for i in range(0, count, rows):
        if rows == 1:
            yield from parts(layout.select(0, i), limit, near)
        else:
            yield layout.narrow(0, i, min(rows, count - i), 1)


def whole_elements(found: Iterable[Bytes], bits: int, size: int) -> Iterator[tuple[Bytes, int]]:
    """The packed bytes of `size` elements of `bits` each, in pieces of whole elements.

    Each piece comes with the number of its elements: a multiple of eight, except in the last.
    """
    left = np.empty(0, np.uint8)
    for piece in found:
        data = np.concatenate([left, piece]) if left.size else piece
        last = 8 * data.size >= bits * size
        whole = data.size if last else data.size // bits * bits
        count = size if last else 8 * whole // bits
        left, size = data[whole:].copy(), size - count
        yield data[:whole], count
