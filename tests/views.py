"""Random views of every kind, as hypothesis strategies, and the oracle's way to the same bytes."""

from math import prod

import numpy as np
from hypothesis import strategies as st

import shapejit as sj
from shapejit.layout import Layout


@st.composite
def arrays(draw, dtypes, max_rank=6, max_side=7):
    """An ndarray over unaligned memory, then permuted, sliced, flipped and broadcast."""
    dtype = np.dtype(draw(dtypes))
    rank = draw(st.integers(0, max_rank))
    shape = tuple(draw(st.integers(0 if rank < 3 else 1, max_side)) for _ in range(rank))
    shift = draw(st.integers(0, 3))
    seed = draw(st.integers(0, 2**32 - 1))
    count = prod(shape) * dtype.itemsize
    memory = np.random.default_rng(seed).integers(0, 256, shift + count, np.uint8)
    x = np.ndarray(shape, dtype, memory.data, shift)
    if rank:
        x = x.transpose(draw(st.permutations(range(rank))))
    for axis in range(rank):
        step = draw(st.sampled_from([1, 1, 1, 2, -1, -2, 3]))
        start = draw(st.integers(0, 1)) if x.shape[axis] > 1 else 0
        x = x[(slice(None),) * axis + (slice(None, None, step),)]
        x = x[(slice(None),) * axis + (slice(start, None),)]
    if draw(st.booleans()):
        x = np.broadcast_to(x, (*draw(st.sampled_from([(2,), (3, 1), (9,)])), *x.shape))
    return x


def bit_positions(layout: Layout) -> np.ndarray:
    """The bit at which each element of a Layout starts, by plain index arithmetic."""
    positions = np.full(layout.shape, layout.offset)
    for axis, (size, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        steps = np.arange(size) * stride
        positions = positions + steps.reshape((-1,) + (1,) * (layout.ndim - axis - 1))
    return positions


def codes_of(t: sj.Tensor) -> np.ndarray:
    """The codes of a packed tensor's elements, one bit at a time."""
    stream = np.unpackbits(t.buffer, bitorder="little")
    positions = bit_positions(t.layout)
    return sum(
        (stream[positions + k].astype(np.uint8) << k for k in range(t.dtype.bits)),
        np.zeros(t.shape, np.uint8),
    )


def packed_bytes(codes: np.ndarray, bits: int) -> bytes:
    """Codes as one stream of bits, least significant first, zeros behind the last."""
    stream = (codes.reshape(-1, 1) >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(stream.astype(np.uint8).reshape(-1), bitorder="little").tobytes()
