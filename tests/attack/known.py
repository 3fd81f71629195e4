"""Arrays and Tensors with known elements, and outputs whose other bytes must not change."""

from math import prod
from typing import NamedTuple

import numpy as np
from views import bit_positions, codes_of, dirt, packed_bytes

import shapejit as sj
from shapejit.shapes.layout import Layout

from .memory import Memory, memory_of

DTYPES = [kind for kind in sj.dtypes.all() if kind.bits]
NUMPYS = [kind for kind in DTYPES if kind.numpy is not None]
PACKED = [kind for kind in DTYPES if kind.packed]


class Known(NamedTuple):
    """An ndarray or a Tensor, its codes, and the memory that it lies in."""

    x: np.ndarray | sj.Tensor
    codes: np.ndarray
    memory: Memory


def unit(dtype):
    """The NumPy dtype of codes."""
    return np.dtype(np.uint8) if dtype.bits <= 8 else np.dtype(f"V{dtype.bits // 8}")


def random_codes(random, dtype, count):
    """Codes of so many elements."""
    codes = dirt(count * unit(dtype).itemsize, random.getrandbits(32)).view(unit(dtype))
    return codes & (1 << dtype.bits) - 1 if dtype.packed else codes


def known(random, dtype, as_array, places):
    """Elements of random codes that lie as `places`, an int64 view of `arange`, says.

    The memory begins or ends with the first or last byte that an element reaches. A Tensor of
    packed elements has one a byte now and then, as that of an ml_dtypes array.
    """
    spread = dtype.packed and (as_array or random.random() < 0.15)
    pitch = 8 if spread else dtype.bits
    skipped = 0 if as_array else random.choice([0, 0, *range(1, 9)])
    flat = random_codes(random, dtype, skipped + (int(places.max()) + 1 if places.size else 0))
    codes = flat[skipped:][places]
    content = flat.view(np.uint8)
    if spread:
        content = content | dirt(flat.size, random.getrandbits(32)) << dtype.bits
    elif dtype.packed:
        content = np.frombuffer(packed_bytes(flat, dtype.bits), np.uint8)
    low = high = 0
    if places.size:
        low = (skipped + int(places.min())) * pitch // 8
        high = -(-(skipped + int(places.max()) + 1) * pitch // 8)
    memory = memory_of(random, content[low:high])
    first = (skipped + int(places.flat[0])) * pitch - 8 * low if places.size else 0
    place = memory.place
    if not places.flags.writeable or random.random() < 0.2:
        place = place.view()
        place.flags.writeable = False
    return Known(laid(place, dtype, as_array, places, first, pitch), codes, memory)


def laid(place, dtype, as_array, places, first, pitch):
    """An array or a Tensor over `place`: element 0 at the bit `first`, others at `places`."""
    shape, strides = places.shape, [s // 8 * pitch for s in places.strides]
    if not as_array:
        return sj.Tensor(place, dtype, Layout.of(shape, strides, first, dtype.bits))
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    return np.ndarray(shape, dtype.numpy, place, first // 8, [s // 8 for s in strides])


def codes_in(x, dtype):
    """The codes of an array or a Tensor, read by plain index arithmetic."""
    if isinstance(x, np.ndarray):
        codes = np.array(x).view(unit(dtype))
        return codes & (1 << dtype.bits) - 1 if dtype.packed else codes
    if x.size == 0:
        return np.empty(x.shape, unit(dtype))
    if dtype.packed:
        return codes_of(x)
    places = bit_positions(x.layout)[..., None] // 8 + np.arange(dtype.bits // 8)
    return x.buffer[places].view(unit(dtype))[..., 0]


def check_same(x, like, dtype, codes):
    """`x` has the type of `like`, the dtype, and exactly these elements."""
    assert type(x) is type(like), f"a {type(x).__name__} for a {type(like).__name__}"
    assert x.dtype == (dtype.numpy if isinstance(x, np.ndarray) else dtype)
    assert x.shape == codes.shape, f"shape {x.shape}, not {codes.shape}"
    found = codes_in(x, dtype)
    if found.tobytes() != codes.tobytes():
        wrong = np.flatnonzero(found.reshape(-1) != codes.reshape(-1))
        raise AssertionError(f"{wrong.size} of {codes.size} elements are wrong: {wrong[:9]} ...")


def raw(codes, dtype):
    """The packed bytes of codes in row-major order."""
    return packed_bytes(codes, dtype.bits) if dtype.packed else codes.tobytes()


class Out(NamedTuple):
    """An output in watched memory: `bits` of its place, from the one to the other, are its own.

    Where other elements share one of its bytes it may be refused.
    """

    x: np.ndarray | sj.Tensor
    dtype: sj.DType
    memory: Memory
    bits: tuple[int, int]
    may_be_refused: bool

    def check(self, codes):
        """It holds the codes, and nothing beside them has changed."""
        check_same(self.x, self.x, self.dtype, codes)
        self.memory.check_beside()
        begin, end = self.bits
        before, after = (
            np.unpackbits(part, bitorder="little")
            for part in (self.memory.place_before, self.memory.place)
        )
        assert (before[:begin] == after[:begin]).all(), "bits before the first element"
        padding = not self.may_be_refused and not after[end:].any()
        assert padding or (before[end:] == after[end:]).all(), "bits behind the last element"

    def check_unchanged(self):
        """Nothing at all has changed."""
        self.memory.check_unchanged()


def output(random, like, dtype, shape):
    """An Out of this shape, an ndarray or a Tensor as `like` is.

    A packed one may lie among other elements, whose bits are nobody's business.
    """
    count = prod(shape)
    if isinstance(like, np.ndarray):
        memory = memory_of(random, dirt(count * dtype.numpy.itemsize, random.getrandbits(32)))
        x = memory.place.view(dtype.numpy).reshape(shape)
        return Out(x, dtype, memory, (0, 8 * memory.place.size), False)
    before, behind = 0, 0
    if dtype.packed and count and random.random() < 0.4:
        before = random.choice([0, 0, 1, 8, random.randint(0, 30)])
        behind = random.choice([0, 1, 2, random.randint(0, 30)])
    nbytes = dtype.nbytes(before + count + behind)
    memory = memory_of(random, dirt(nbytes, random.getrandbits(32)))
    whole = sj.Tensor.frombuffer(memory.place, dtype, (before + count + behind,))
    x = whole[before : before + count].reshape(shape, copy=False)
    bits = before * dtype.bits, (before + count) * dtype.bits
    shares = bits[0] % 8 != 0 or (bits[1] % 8 != 0 and behind > 0)
    return Out(x, dtype, memory, bits, shares)
