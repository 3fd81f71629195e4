"""Operations on ndarrays, Tensors and torch tensors, compared with NumPy's, and NumPy's own."""

from math import prod

import ml_dtypes
import numpy as np
from views import dirt, shape_of

import shapejit as sj

try:
    import torch
except ImportError:
    torch = None

KINDS = ["ndarray", "Tensor", *(["torch"] if torch else [])]
DTYPES = [np.dtype(kind) for kind in ("bool", "u1", "i2", "f4", "i8", "c8", ml_dtypes.bfloat16)]
INTEGERS = [np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8)]


def case(random):
    """Some calls, of any kind of array."""
    for _ in range(20):
        random.choice([of_any_kind, of_any_kind, of_numpys])(random)


def some(random):
    """An ndarray of any shape, its dims in memory in any order, and backwards now and then."""
    shape = [random.choice([1, 1, 1, 2, 3, 4, 0 if random.random() < 0.1 else 5])
             for _ in range(random.randint(0, 4))]  # fmt: skip
    x = elements(random, random.choice(DTYPES), random.sample(shape, len(shape)))
    x = x.transpose(random.sample(range(x.ndim), x.ndim))
    for axis in range(x.ndim):
        x = np.asarray(x[(*(slice(None),) * axis, slice(None, None, random.choice([1, 1, -1])))])
    return x


def elements(random, kind, shape):
    count = prod(shape)
    if kind.kind == "b":
        return (dirt(count, random.getrandbits(32)) & 1).view(bool).reshape(shape)
    return dirt(count, random.getrandbits(32)).astype(kind).reshape(shape)


def given(random, x, kind):
    """An ndarray as this kind of array; torch's, which never run backwards, in any order."""
    if kind != "torch":
        return x if kind == "ndarray" else sj.asarray(x)
    order = random.sample(range(x.ndim), x.ndim)
    memory = np.array(x.transpose(order), order="C")
    made = torch.from_numpy(memory.view(np.int16) if x.dtype == ml_dtypes.bfloat16 else memory)
    made = made.view(torch.bfloat16) if x.dtype == ml_dtypes.bfloat16 else made
    return made.permute(*np.argsort(order).tolist()) if x.ndim else made


def seen(made, kind):
    """A result of this kind as an ndarray."""
    expected = {"ndarray": np.ndarray, "Tensor": sj.Tensor, "torch": torch and torch.Tensor}
    assert type(made) is expected[kind], f"a {type(made).__name__} for {kind}"
    if kind != "torch":
        return np.asarray(made)
    if made.dtype is torch.bfloat16:
        return made.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return made.numpy()


def check(made, want, like):
    assert (made.shape, made.dtype) == (want.shape, want.dtype), like
    assert made.tobytes() == want.tobytes(), f"wrong elements: {like}"


def of_any_kind(random):
    """One operation on one kind of array; into `out=` where it has that."""
    x, kind = some(random), random.choice(KINDS)
    name = random.choice(list(OPERATIONS))
    drawn = OPERATIONS[name](random, x, kind)
    if drawn is None:
        return
    call, want = drawn
    t, before = given(random, x, kind), x.copy()
    facts = name, kind, x.shape, x.strides, str(x.dtype)
    if isinstance(want, type):
        try:
            call(t)
        except want:
            return
        raise AssertionError(f"not refused: {facts}")
    made = call(t)
    several = isinstance(want, list | tuple)
    for y, expected in zip(*((made, want) if several else ([made], [want])), strict=True):
        check(seen(y, kind), expected, facts)
    if name in WITH_OUT:
        out = given(random, np.zeros_like(want, order="C"), kind)
        if kind == "torch":
            out = out.contiguous()
        assert call(t, out=out) is out
        check(seen(out, kind), want, facts)
    check(seen(t, kind), before, facts)


def axis_of(random, x):
    return random.randrange(-x.ndim, x.ndim) if x.ndim else None


def an_axis(draw):
    """A draw for arrays that have dims."""
    return lambda random, x, kind: draw(random, x, axis_of(random, x), kind) if x.ndim else None


def flip(random, x, kind):
    axis = random.choice([None, axis_of(random, x)])
    want = np.flip(x, axis) if x.ndim else x
    return lambda t: sj.flip(t, axis=axis), want


def sliced(random, x, axis, kind):
    """A part of one dim, backwards or not; often one element."""
    size = x.shape[axis]
    start = random.randint(0, max(size - 1, 0))
    end, step = random.choice([(-size - 1, -1), (start + 1, 1), (size, 2), (-size - 1, -2)])
    part = slice(start, None if end < 0 else end, step)
    want = x[(*(slice(None),) * (axis % x.ndim), part)]
    return lambda t: sj.onnx.slice(t, [start], [end], [axis], [step]), want


def squeezed(random, x, kind):
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    axes = tuple(random.sample(ones, random.randint(0, len(ones))))
    return lambda t: sj.squeeze(t, axes), np.squeeze(x, axes)


def reshaped(random, x, kind):
    shape = shape_of(random, x.size)
    return lambda t, out=None: sj.reshape(t, shape, out=out), x.reshape(shape)


def repeated(random, x, axis, kind):
    counts = random.choice(
        [random.randint(0, 3), [random.randint(0, 2) for _ in range(x.shape[axis])]]
    )
    return lambda t, out=None: sj.repeat(t, counts, axis=axis, out=out), np.repeat(x, counts, axis)


def tiled(random, x, kind):
    counts = [random.randint(0, 2) for _ in range(random.randint(0, 4))]
    return lambda t, out=None: sj.tile(t, counts, out=out), np.tile(x, counts)


def rolled(random, x, axis, kind):
    shift = random.choice([0, 1, -2, 2**64 + 1])
    want = np.roll(x, shift % max(x.shape[axis], 1), axis)
    return lambda t, out=None: sj.roll(t, shift, axis=axis, out=out), want


def taken(random, x, axis, kind):
    """Indices of any integer dtype and kind, some of them far out of bounds."""
    size, dtype = x.shape[axis], random.choice(INTEGERS)
    least = -size if dtype.kind == "i" else 0
    shape = random.choice([(), (1,), (3,), (2, 1)]) if size else (0,)
    indices = np.array([random.randrange(least, size) for _ in range(prod(shape))], dtype)
    indices = indices.reshape(shape)
    info = np.iinfo(dtype)
    wrong = random.choice(
        [info.max, info.min, *[2**63, 2**64 - 1, 2**64 - size - 1][: 3 * (dtype == "u8")]]
    )
    want = np.asarray(np.take(x, indices.astype(np.int64), axis))
    if indices.size and random.random() < 0.2 and not -size <= wrong < size:
        indices.flat[random.randrange(indices.size)] = wrong
        want = sj.OutOfBoundsError
    others = given(random, indices, random.choice(KINDS))
    return lambda t, out=None: sj.take(t, others, axis=axis, out=out), want


def joined(function, numpys):
    def draw(random, x, axis, kind):
        axis = axis if random.random() < 0.8 else 0
        wider = {np.dtype("i2"): "i8", np.dtype("f4"): "c8", np.dtype(ml_dtypes.bfloat16): "f4"}
        other = x.astype(wider.get(x.dtype, x.dtype)) if random.random() < 0.3 else x
        parts = [x, *[random.choice([other, other[::-1]]) for _ in range(random.randint(0, 3))]]
        want = numpys([y.astype(other.dtype) if len(parts) > 1 else y for y in parts], axis)
        if len(parts) > 1 and want.dtype != other.dtype:
            return None
        rest = [given(random, y, kind) for y in parts[1:]]
        return lambda t, out=None: function([t, *rest], axis=axis, out=out), want

    return draw


OPERATIONS = {
    "flip": flip,
    "slice": an_axis(sliced),
    "squeeze": squeezed,
    "reshape": reshaped,
    "ascontiguous": lambda random, x, kind: (lambda t, out=None: sj.ascontiguous(t, out=out), x),
    "transpose": lambda random, x, kind: (sj.transpose, x.T),
    "moveaxis": an_axis(lambda random, x, axis, kind: (
        lambda t: sj.moveaxis(t, axis, 0), np.moveaxis(x, axis, 0))),
    "expand_dims": lambda random, x, kind: (
        lambda t: sj.expand_dims(t, (0, -1)), np.expand_dims(x, (0, -1))),
    "broadcast_to": lambda random, x, kind: (
        lambda t: sj.broadcast_to(t, (2, *x.shape)), np.broadcast_to(x, (2, *x.shape))),
    "unstack": an_axis(lambda random, x, axis, kind: (
        lambda t: sj.unstack(t, axis=axis), tuple(np.moveaxis(x, axis, 0)[i, ...]
                                                  for i in range(x.shape[axis])))),
    "split": an_axis(lambda random, x, axis, kind: (
        lambda t: sj.split(t, [1, 2], axis=axis), np.split(x, [1, 2], axis))),
    "repeat": an_axis(repeated),
    "tile": tiled,
    "roll": an_axis(rolled),
    "take": an_axis(taken),
    "concat": an_axis(joined(sj.concat, np.concatenate)),
    "stack": an_axis(joined(sj.stack, np.stack)),
}  # fmt: skip
WITH_OUT = {"reshape", "ascontiguous", "repeat", "tile", "roll", "take", "concat", "stack"}


# NumPy's functions of Tensors


def of_numpys(random):
    """What NumPy makes of a Tensor is what it makes of the ndarray, with any arguments."""
    x = some(random)
    t, before = sj.asarray(x), x.copy()
    function, arguments, named, limited = random.choice(NUMPYS)(random, x)
    facts = function.__name__, x.shape, x.strides, arguments, named
    outcomes = []
    for y in (x, t):
        try:
            outcomes.append(function([y, y] if function in JOINS else y, *arguments, **named))
        except (ValueError, TypeError, IndexError, OverflowError) as fault:
            outcomes.append(fault)
    want, made = outcomes
    if isinstance(want, Exception) or isinstance(made, Exception):
        assert isinstance(made, Exception), f"accepted what NumPy refuses: {facts}"
        assert limited or isinstance(want, Exception), f"refused: {facts}, {made}"
        return
    if isinstance(made, int):
        assert made == want, facts
        return
    want = np.asarray(want)
    check(seen(made, "Tensor"), want, facts)
    if made.size and x.ndim and made.buffer.flags.writeable:
        assert not np.shares_memory(made.buffer, x) or np.shares_memory(want, x), facts
    check(x, before, facts)


def an_order(random):
    return random.choice(["C", "F", "A", "K", "a", None, "Z"])


def ravel(random, x):
    order = an_order(random)
    repeats = any(size > 1 and not stride for size, stride in zip(x.shape, x.strides, strict=True))
    return np.ravel, (), {"order": order}, order == "K" and repeats


def numpys_reshape(random, x):
    shape = random.choice([shape_of(random, x.size), -1, (-1, 1), (x.size, 2), x.shape[::-1]])
    named = {"order": an_order(random)} if random.random() < 0.7 else {}
    named |= {"copy": random.choice([None, True, False])} if random.random() < 0.3 else {}
    return np.reshape, (shape,), named, False


def numpys_take(random, x):
    indices = random.choice(
        [[0], [-1, 0], np.array([0, 0], np.uint64), np.array([2**64 - 1], "u8")]
    )
    named = {
        "axis": random.choice([None, 0, -1]),
        "mode": random.choice(["raise", "raise", "clip"]),
    }
    # NumPy takes any index where the result has no elements: a dim of size 0 has none, beside one.
    far = (isinstance(indices, np.ndarray) and indices.max() > 0) or 0 in x.shape
    return np.take, (indices,), named, far or named["mode"] != "raise" or not x.ndim


NUMPYS = [
    ravel, ravel, numpys_reshape, numpys_reshape, numpys_take,
    lambda random, x: (np.copy, (), {"order": random.choice("CAKF")}, True),
    lambda random, x: (np.size, (random.choice([None, 0, -1, (0, 1), (), (0, 0), 9]),), {}, False),
    lambda random, x: (np.repeat, (random.choice([0, 1, 2, [1]]),),
                       {"axis": random.choice([None, 0, -1])}, not x.ndim),
    lambda random, x: (np.tile, (random.choice([0, 1, (1, 1), (2, 1)]),), {}, False),
    lambda random, x: (np.roll, (random.choice([0, 1, -3]), random.choice([None, 0])), {}, False),
    lambda random, x: (np.concatenate, (random.choice([None, 0, -1, 9]),), {}, False),
    lambda random, x: (np.stack, (random.choice([0, -1, 9]),), {"casting": "same_kind"}, False),
    lambda random, x: (np.swapaxes, (0, random.choice([-1, 1, None])), {}, False),
    lambda random, x: (np.flip, (random.choice([None, 0, (0,), 7]),), {}, False),
    lambda random, x: (np.squeeze, (random.choice([None, 0, -1, ()]),), {}, not x.ndim),
]  # fmt: skip
JOINS = {np.concatenate, np.stack}
