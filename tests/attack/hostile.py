"""Invalid and unusual arguments: each gives a right answer or one of the usual errors."""

import pickle

import numpy as np
from views import places_in_shape, shape_of, shape_within

import shapejit as sj

from .known import DTYPES, NUMPYS, check_same, codes_in, known
from .tokens import Index, bools_in, sequence, token

ALLOWED = (TypeError, ValueError, sj.ShapeJitError)
REFUSED = object()  # what `tried` gives where an allowed error was raised
LONGEST = 20_000  # characters of a message

NUMPYS_RANK = 64


def tried(call, *more):
    """What the call returns; REFUSED if it raises what it may."""
    try:
        return call()
    except (*ALLOWED, *more) as fault:
        message = str(fault)
    assert len(message) <= LONGEST, "an endless message"
    return REFUSED


def case(random):
    random.choice(CASES)(random)


def kind_of(random):
    as_array = random.random() < 0.5
    return random.choice(NUMPYS if as_array else DTYPES), as_array


def some(random, most=200):
    """A Known of any kind."""
    dtype, as_array = kind_of(random)
    return known(random, dtype, as_array, places_in_shape(random, shape_within(random, most)))


# Shapes


def shapes(random):
    """Every function that takes a shape."""
    k = some(random)
    x, kind = k.x, sj.dtype(k.x.dtype)
    items = list(shape_of(random, k.codes.size)) if random.random() < 0.6 else []
    for _ in range(random.choice([0, 1, 1, 2])):
        items.insert(random.randint(0, len(items)), token(random))
    shape = sequence(random, items)
    name, call = random.choice(list(RESHAPES.items()))
    made = tried(lambda: call(x, shape))
    if made is not REFUSED:
        assert not bools_in(shape), f"{name} takes a bool for a size"
        for y in made if isinstance(made, list) else [made]:
            assert y.size == k.codes.size
            assert all(type(n) is int for n in y.shape), f"{name} gives the shape {y.shape}"
            if y.ndim > 64 or (type(y) is sj.Tensor and y.size == 0):
                y = sj.reshape(y, -1)  # codes, in an ndarray, may not have so many dims, or so long
            check_same(y, x, kind, k.codes.reshape(y.shape))
    k.memory.check_unchanged()


def bools(random):
    """A bool is no size, wherever it stands and whatever it would do."""
    k = some(random)
    shape = list(shape_of(random, k.codes.size))
    shape.insert(random.randint(0, len(shape)), random.choice([True, np.True_]))
    shape = random.choice([list, tuple])(shape)
    name, call = random.choice(list(RESHAPES.items()))
    assert tried(lambda: call(k.x, shape)) is REFUSED, f"{name} takes a bool for a size"


RESHAPES = {
    "reshape": lambda x, s: sj.reshape(x, s),
    "reshape (copy)": lambda x, s: sj.reshape(x, s, copy=True),
    "reshape_batch of one shape": lambda x, s: sj.reshape_batch([x, x], s),
    "reshape_batch": lambda x, s: sj.reshape_batch([x, x, x], [s, s, s]),
    "reshape_batch of many": lambda x, s: sj.reshape_batch([x] * 40, [s] * 40, copy=True),
    "reshape_batch of a dict": lambda x, s: [*sj.reshape_batch({"a": x}, {"a": s}).values()],
    "openvino.reshape": lambda x, s: sj.openvino.reshape(x, s, special_zero=False),
    "onnx.reshape": lambda x, s: sj.onnx.reshape(x, s, allowzero=1),
    "onednn": lambda x, s: sj.onednn.dynamic_reshape(x, s, special_zero=False),
    "plan": lambda x, s: sj.plan(x.shape, x.dtype, lambda t: t.reshape(s))(x),
}


def sizes_alone(random):
    """Functions that make shapes, programs or Tensors out of nothing but sizes."""
    items = [token(random) for _ in range(random.randint(0, 4))]
    shape = sequence(random, items)
    request = sj.onnx.request([0, -1])
    memory = bytes(random.choice([0, 1, 6, 24]))
    kind = random.choice(DTYPES)
    calls = [
        lambda: sj.Tensor.frombuffer(memory, kind, shape).tobytes(),
        lambda: repr(sj.plan(shape, kind, lambda t: t.flip())),
        lambda: sj.resolve(shape, request),
        lambda: sj.resolve((2, 3), sj.onnx.request(shape)),
        lambda: sj.resolve((2, 3), sj.openvino.request(shape, special_zero=token(random))),
        lambda: sj.resolve((2, 3), sj.onnx.request((3, 2), allowzero=token(random))),
        lambda: sj.resolve_batch(shape, request),
        lambda: sj.resolve_batch([shape, (2, 3)], request),
        lambda: sj.onnx.shape_of(shape, start=token(random), end=token(random)),
        lambda: sj.onnx.shape(np.zeros((2, 3)), start=token(random), opset=token(random)),
    ]
    tried(random.choice(calls))


# Axes, indices and other settings


def axes(random):
    k = some(random)
    items = random.sample(range(k.x.ndim), k.x.ndim)
    if random.random() < 0.7:
        items.insert(random.randint(0, len(items)), token(random))
    given = sequence(random, items)
    calls = [
        lambda: sj.permute_dims(k.x, given),
        lambda: sj.flip(k.x, axis=given),
        lambda: sj.squeeze(k.x, given),
        lambda: sj.expand_dims(k.x, axis=given),
        lambda: sj.concat([k.x, k.x], axis=given),
        lambda: sj.stack([k.x, k.x], axis=given),
        lambda: sj.broadcast_to(k.x, given),
    ]
    made = tried(random.choice(calls))
    assert made is REFUSED or type(made) is type(k.x)
    if made is not REFUSED and made.size < 10**6 and made.ndim < NUMPYS_RANK:
        codes_in(made, sj.dtype(k.x.dtype))
    k.memory.check_unchanged()


def indices(random):
    """What NumPy calls basic slicing gives NumPy's answer, everything else an error."""
    dtype, _ = kind_of(random)
    places = places_in_shape(random, shape_within(random, 200))
    k = known(random, dtype, False, places)
    huge = [10**30, -(10**30), 2**63, -(2**63), None, 0, 1, -1, 2, -3]
    items = [
        random.choice(
            [
                slice(*(random.choice(huge) for _ in range(3))),
                slice(*(random.choice(huge) for _ in range(3))),
                random.randint(-3, 3), None, ..., token(random), slice(token(random)),
                np.array([0, 1]), np.array([True]), [0], np.int8(0),
            ]
        )
        for _ in range(random.randint(0, 5))
    ]  # fmt: skip
    index = tuple(items) if random.random() < 0.9 else token(random)
    made = tried(lambda: k.x[index])
    if made is not REFUSED and not fickle(index):
        check_same(made, k.x, dtype, k.codes[index])


def fickle(index):
    """Whether some part answers NumPy otherwise than it answered before."""
    items = index if isinstance(index, tuple) else (index,)
    parts = [part for i in items for part in ([i.start, i.stop] if isinstance(i, slice) else [i])]
    return any(isinstance(part, Index) for part in parts)


def settings(random):
    """copy=, chunk=, dtypes, names of anything."""
    k = some(random)
    odd = token(random)
    program = sj.plan(k.x.shape, k.x.dtype, lambda t: t.flip())
    calls = [
        lambda: sj.reshape(k.x, -1, copy=odd),
        lambda: sj.reshape_batch([k.x], -1, copy=odd),
        lambda: sj.dtype(odd),
        lambda: sj.dtype(odd, vocabulary=odd),
        lambda: sj.dtype("F32", vocabulary=odd),
        lambda: sj.dtype(odd, vocabulary=random.choice(["onnx", "dlpack", "gguf"])),
        lambda: list(program.imap([k.x], chunk=odd)),
        lambda: list(program.imap(odd)),
        lambda: list(program.imap([k.x], odd)),
        lambda: program.map(odd),
        lambda: program.map([k.x, odd]),
        lambda: program.map([k.x], out=odd),
        lambda: program.map([k.x], out=[odd]),
        lambda: program(odd),
        lambda: program(k.x, out=odd),
        lambda: sj.plan(odd, k.x.dtype, lambda t: t),
        lambda: sj.plan((2, 3), odd, lambda t: t),
        lambda: sj.plan((2, 3), "int8", odd),
        lambda: sj.plan((2, 3), "int8", lambda t: odd),
        lambda: sj.pack(odd),
        lambda: sj.pack(odd, odd),
        lambda: sj.pack(np.zeros(3, np.uint8), odd),
        lambda: sj.pack(np.zeros(3, np.uint8), "int4", out=odd),
        lambda: sj.ascontiguous(odd),
        lambda: sj.ascontiguous(k.x, out=odd),
        lambda: sj.reshape(odd, -1),
        lambda: sj.concat(odd),
        lambda: sj.concat([k.x, odd]),
        lambda: sj.stack([odd]),
        lambda: sj.array_equal(k.x, odd),
        lambda: sj.asarray(odd),
        lambda: sj.Tensor.frombuffer(odd, "int8", (1,)),
        lambda: sj.Tensor.frombuffer(bytes(3), odd, (1,)),
        lambda: sj.reshape_batch(odd, -1),
        lambda: sj.reshape_batch([k.x, odd], -1),
        lambda: sj.reshape_batch([k.x], odd),
        lambda: sj.reshape_batch([k.x], -1, out=odd),
        lambda: sj.reshape_batch([k.x], -1, out=[odd]),
        lambda: sj.reshape_batch({"a": k.x}, [-1]),
        lambda: sj.reshape_batch({"a": k.x}, {"b": (-1,)}),
        lambda: sj.asarray(k.x).__dlpack__(max_version=odd),
        lambda: sj.asarray(k.x).__dlpack__(dl_device=odd, copy=odd),
    ]
    tried(random.choice(calls))
    k.memory.check_unchanged()


def ranks(random):
    """More dims than an ndarray can have: right, or one of our own errors."""
    k = some(random, 100)
    x, dtype = k.x, sj.dtype(k.x.dtype)
    wide = [*k.x.shape, *[1] * random.randint(50, 80)]
    random.shuffle(wide)
    moved = [n for n in k.x.shape if n != 1] == [n for n in wide if n != 1]
    shape = wide if moved else [*k.x.shape, *[1] * random.randint(50, 80)]
    turned = tuple(range(x.ndim, len(shape)))
    through = sj.plan(x.shape, dtype, lambda t: t.flip().reshape(shape).reshape(x.shape).flip())
    calls = [
        lambda: sj.reshape(x, shape),
        lambda: sj.reshape(x, shape, copy=True),
        lambda: sj.reshape(sj.reshape(x, shape), x.shape),
        lambda: sj.ascontiguous(sj.reshape(x, shape)),
        lambda: sj.reshape_batch([x] * 3, shape)[2],
        lambda: sj.reshape_batch([x] * 40, shape, copy=True)[39],
        lambda: sj.plan(x.shape, dtype, lambda t: t.reshape(shape))(x),
        lambda: sj.plan(x.shape, dtype, lambda t: t.reshape(shape)).map([x] * 9)[8],
        lambda: through(x),
        lambda: through.map([x] * 9)[8],
        lambda: sj.concat([sj.reshape(x, shape)]),
        lambda: sj.stack([sj.reshape(x, shape)] * 2)[1],
        lambda: sj.expand_dims(x, turned),
        lambda: sj.broadcast_to(x, (1,) * (len(shape) - x.ndim) + x.shape),
        lambda: pickled(sj.reshape(x, shape)),
        lambda: sj.asarray(sj.reshape(x, shape)).unpack(),  # always an ndarray
    ]
    which = random.randrange(len(calls))
    try:
        made = calls[which]()
    except sj.ShapeJitError:
        assert len(shape) >= 64, "NumPy has such arrays"
        assert isinstance(x, np.ndarray) or which == len(calls) - 1, "a Tensor can have any rank"
        return
    assert codes_in(sj.reshape(made, -1), dtype).tobytes() == k.codes.tobytes()


def pickled(t):
    return pickle.loads(pickle.dumps(t))


# Traced tensors that got away


def traced(random):
    """A Tensor without data outside of its function, or in one that does not expect it."""
    k = some(random)
    program = sj.plan(k.x.shape, k.x.dtype, lambda t: t.flip())
    got = []
    fn = random.choice(
        [
            lambda t: got.append(t) or t,
            lambda t: t.flip() if got.append(t) else got[0].reshape(-1),
        ]
    )
    sj.plan(k.x.shape, k.x.dtype, fn)
    (t,) = got
    odd = random.choice([t, t.reshape(-1), t[..., None]])
    calls = [
        lambda: sj.reshape_batch([k.x, odd], -1),
        lambda: sj.reshape_batch([odd], -1, copy=True),
        lambda: sj.reshape_batch([k.x], [odd.shape], out=[odd]),
        lambda: program.map([odd]),
        lambda: program.map(odd),
        lambda: program.map([k.x], out=[odd]),
        lambda: program.map([k.x], out=odd),
        lambda: program(k.x, out=odd),
        lambda: sj.concat([odd, odd]),
        lambda: sj.concat([k.x], out=odd),
        lambda: sj.stack([odd]),
        lambda: sj.reshape(k.x, odd.shape, out=odd),
        lambda: sj.ascontiguous(k.x, out=odd),
        lambda: sj.pack(odd),
        lambda: sj.pack(np.zeros(3, np.uint8), "int4", out=odd),
        lambda: odd.unpack(),
        lambda: odd.tobytes(),
        lambda: np.asarray(odd),
        lambda: np.from_dlpack(odd),
        lambda: pickled(odd),
        lambda: sj.array_equal(k.x, odd),
        lambda: sj.plan(k.x.shape, k.x.dtype, lambda u: odd),
        lambda: sj.plan(k.x.shape, k.x.dtype, lambda u: u.flip() and odd),
        lambda: sj.plan((2, 3), "int4", lambda u: sj.reshape_batch([u], -1)[0]),
        lambda: sj.plan((2, 3), "int4", lambda u: program.map([u])[0]),
        lambda: sj.plan((2, 3), "int4", lambda u: sj.Tensor(u.buffer, u.dtype, u.layout)),
        lambda: sj.Tensor(np.zeros(30, np.uint8), odd.dtype, odd.layout).tobytes(),
    ]
    tried(random.choice(calls))


CASES = [shapes, shapes, shapes, bools, sizes_alone, axes, indices, settings, ranks, traced]
