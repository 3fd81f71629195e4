"""Random views of every kind, and the oracle's way to the same bytes.

Everything is drawn from a `random.Random`: hypothesis gives one whose draws it can
shrink (`st.randoms`), a long run one with a seed.
"""

from math import prod

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import shapejit as sj
from shapejit.shapes.layout import Layout


@st.composite
def arrays(draw, dtypes, max_rank=6, max_side=7):
    """`array` as a hypothesis strategy."""
    random = draw(st.randoms(use_true_random=False))
    return array(random, np.dtype(draw(dtypes)), max_rank, max_side)


def array(random, dtype, max_rank=6, max_side=7):
    """An ndarray over unaligned memory, then permuted, sliced, flipped and broadcast."""
    rank = random.randint(0, max_rank)
    shape = tuple(random.randint(0 if rank < 3 else 1, max_side) for _ in range(rank))
    shift = random.randint(0, 3)
    memory = dirt(shift + prod(shape) * dtype.itemsize, random.getrandbits(32))
    x = np.ndarray(shape, dtype, memory.data, shift)
    if rank:
        x = x.transpose(random.sample(range(rank), rank))
    for axis in range(rank):
        step = random.choice([1, 1, 1, 2, -1, -2, 3])
        start = random.randint(0, 1) if x.shape[axis] > 1 else 0
        x = x[(slice(None),) * axis + (slice(None, None, step),)]
        x = x[(slice(None),) * axis + (slice(start, None),)]
    if random.random() < 0.5:
        x = np.broadcast_to(x, (*random.choice([(2,), (3, 1), (9,)]), *x.shape))
    return x


def of_any_bits(rng, shape, dtype):
    """An array in whose elements each bit is as often 1 as 0, the upper ones, too."""
    kind = np.dtype(dtype)
    if sj.dtype(kind).packed:
        ends = ml_dtypes.iinfo(kind)
        return rng.integers(int(ends.min), int(ends.max) + 1, shape).astype(kind)
    raw = rng.integers(0, 256, (*shape, kind.itemsize), np.uint8)
    return raw.view(kind)[..., 0]


def dirt(nbytes, seed=0):
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


# Chains of views: each step is drawn for an ndarray, and done to it and to a Tensor alike.


def step_of(random, x, steps=(-1, 2, -3), most=4000):
    """A view operation that an array of this shape can have: its name and its arguments.

    Slices take one of `steps` where they skip elements; a broadcast may have five times as
    many elements as `x` for each dim of size 1, but only where `x` has fewer than `most`.
    """
    shape, axes = x.shape, range(x.ndim)
    kinds = ["broadcast", "expand", "reshape"]
    kinds += ["permute", "permute", "slice", "slice", "slice", "flip"] if x.ndim else []
    kinds += ["squeeze"] if 1 in shape else []
    match random.choice(kinds):
        case "permute":
            return "permute_dims", tuple(random.sample(axes, x.ndim))
        case "slice":
            axis = random.choice(axes)
            ends = [random.choice([None, random.randint(-n, n)]) for n in 2 * (shape[axis] + 1,)]
            part = slice(*ends, random.choice([1, 1, None, 5, -6, *steps]))
            return "slice", (*(slice(None),) * axis, part, ...)
        case "flip":
            return "flip", tuple(random.sample(axes, random.randint(1, x.ndim)))
        case "squeeze":
            return "squeeze", (random.choice([i for i in axes if shape[i] == 1]),)
        case "expand" if x.ndim < 6:
            return "expand_dims", (random.randint(0, x.ndim),)
        case "broadcast" if x.size < most:
            wide = tuple(random.randint(1, 5) if n == 1 else n for n in shape)
            front = (random.randint(1, 4),) if x.ndim < 6 else ()
            return "broadcast_to", (*front, *wide)
    return "reshape", shape_of(random, x.size)


def shape_of(random, size):
    """A shape with so many elements."""
    if size == 0:
        shape = [0, *(random.randint(0, 3) for _ in range(random.randint(0, 3)))]
        return tuple(random.sample(shape, len(shape)))
    shape = []
    for _ in range(random.randint(0, 5)):
        divisors = [n for n in range(1, min(size, 150) + 1) if size % n == 0]
        shape.append(random.choice(divisors[:12]))
        size //= shape[-1]
    shape += [size] if size > 1 else []
    return tuple(random.sample(shape, len(shape)))


def stepped(x, name, arguments, copy=False):
    """The step on an ndarray, by NumPy's words."""
    match name:
        case "slice":
            return x[arguments]
        case "reshape":
            return x.reshape(arguments, copy=copy)
        case "permute_dims":
            return x.transpose(arguments)
    return getattr(np, name)(x, arguments)


def tensor_stepped(t, name, arguments, copy=False):
    """The step on a Tensor."""
    match name:
        case "slice":
            return t[arguments]
        case "reshape":
            return t.reshape(arguments, copy=copy)
        case "flip":
            return t.flip(axis=arguments)
    return getattr(t, name)(arguments)


def shape_within(random, most, long=(9, 17, 33, 65, 129, 150, 515)):
    """A shape with at most so many elements.

    It has two or three dims of any size, or up to six short ones, some of them made long.
    """
    if random.random() < 0.4:
        side = max(int(most ** random.random()), 1)
        shape = [side, random.randint(1, max(most // side, 1)), random.choice([1, 1, 2, 3])]
        shape = random.sample(shape, random.choice([2, 2, 3]))
        return shape if prod(shape) <= most else shape[:1]
    shape = []
    for _ in range(random.randint(0, 6)):
        side = random.randint(1, 5)
        shape += [side] if prod(shape) * side <= most else []
    for _ in range(random.randint(0, 2)):
        side = random.choice(long)
        if shape and prod(shape) * side <= most:
            shape[random.randint(0, len(shape) - 1)] = side
    if random.random() < 0.03:
        shape.insert(random.randint(0, len(shape)), 0)
    return shape if prod(shape) <= most else []


def steps_of(random, x, count, steps=(-1, 2, -3), copy=False):
    """Up to `count` steps, one after the other, and the ndarray that they make of `x`."""
    taken = []
    for _ in range(random.randint(0, count)):
        step = step_of(random, x, steps)
        try:
            x = stepped(x, *step, copy=copy)
        except ValueError:  # a reshape that has no view
            assert (step[0], copy) == ("reshape", False)
            continue
        taken.append(step)
    return taken, x


def turned_matrix(random, most):
    """The places of a transposed matrix, large enough for tiles, whose dims may run backwards."""
    rows = random.randint(8, 40)
    columns = random.randint(8, max(most // rows, 8))
    places = np.arange(rows * columns).reshape(rows, columns)
    return places[:: random.choice([1, -1]), :: random.choice([1, -1])].T


def places_in_shape(random, shape):
    """Which elements of some memory a view of this shape shows, as an int64 view of `arange`.

    The dims lie in memory in any order, with gaps or without, backwards, or repeated.
    """
    order = random.sample(range(len(shape)), len(shape))
    steps = [random.choice([1, 1, -1]) for _ in shape]
    gaps = [0] * len(shape)
    match random.choice(["dense", "dense", "gaps", "gaps", "in order"]):
        case "gaps":
            steps = [random.choice([1, 1, 1, 1, 2, -1, -2, 0]) for _ in shape]
            gaps = [random.choice([0, 0, 0, 1, 3]) for _ in shape]
        case "in order":
            order.sort()
    sides = [
        max(n, 1) * abs(step) + gap if step else 1
        for n, step, gap in zip(shape, steps, gaps, strict=True)
    ]
    if prod(sides) > 8 * prod(shape) + 64:
        order, steps, sides = sorted(order), [1] * len(shape), list(shape)
    memory = np.arange(prod(sides)).reshape([sides[i] for i in order])
    x = memory.transpose(np.argsort(order))
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        part = slice(0, n * abs(step), step) if step > 0 else slice(None, None, step or 1)
        x = x[(slice(None),) * axis + (part,)]
        x = x[(slice(None),) * axis + (slice(0, n),)] if step else x
    return np.broadcast_to(x, shape)


# Bits


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


def specimens(kind):
    """Every array in which a dtype comes, of shape (2, 3)."""
    if kind.name == "string":
        texts = np.array(["a", "", "ccc", "d", "e", "f"]).reshape(2, 3)
        yield from (texts, texts.astype("S"), texts.astype(object))
        yield texts.astype(np.dtypes.StringDType())
        yield texts.astype("S").astype(object)
    elif kind.packed:
        packed = sj.pack(np.zeros((2, 3), np.uint8), kind)
        yield packed
        yield packed.T.T
        if kind.numpy is not None:
            yield np.zeros((2, 3), kind.numpy)
            yield sj.asarray(np.zeros((2, 3), kind.numpy))
    else:
        yield np.zeros((2, 3), kind.numpy)
        yield sj.asarray(np.zeros((2, 3), kind.numpy))


def readonly(x):
    """The array, which can no longer be written to."""
    x.flags.writeable = False
    return x
