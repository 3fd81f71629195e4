"""Outputs that overlap sources, or one another, in every way: refused, or filled correctly."""

from functools import partial
from importlib.util import find_spec
from math import prod

import loops
import numpy as np
from views import dirt, places_in_shape, shape_of, shape_within, steps_of

import shapejit as sj

from .known import DTYPES, NUMPYS, PACKED, codes_in, laid, unit
from .memory import memory_of
from .programs import to_torch

BASE = 600  # bytes that sources and outputs share
COUNTS = [1, 2, 7, 40]


def case(random):
    """One call whose sources and outputs lie in the same few bytes."""
    loops.use(random.choice(list(loops.LIMITS)))
    base = memory_of(random, dirt(BASE, random.getrandbits(32)))
    random.choice(CALLS)(random, base)


def checked(base, call, sources, outs, expected):
    """The call writes what is expected to the outs and nothing else, or it is refused.

    Only where bytes may be shared: what lies apart must be done.
    """
    codes = [np.array(codes) for codes in expected]
    try:
        call()
    except sj.ShapeJitError:
        base.check_unchanged()
        spans = [*map(span, outs)]
        apart = all(not touch(span(x), out) for x in sources for out in spans)
        apart = apart and not any(touch(a, b) for i, a in enumerate(spans) for b in spans[:i])
        assert not apart, "refused, although nothing overlaps"
        return
    own = np.zeros(base.whole.size, bool)
    start = base.whole.ctypes.data
    for out, want in zip(outs, codes, strict=True):
        low, high = span(out)
        own[low - start : high - start] = True
        kind = sj.dtype(out.dtype)
        assert codes_in(out, kind).tobytes() == want.tobytes(), "a wrong result"
    assert (base.whole == base.before)[~own].all(), "bytes beside the outputs"


def span(x):
    """The addresses from the first byte of an array or a Tensor to the one behind its last."""
    if isinstance(x, np.ndarray):
        return np.lib.array_utils.byte_bounds(x) if x.size else (0, 0)
    low, high = x.layout.span
    start = x.buffer.ctypes.data
    return (start + low // 8, start - -high // 8) if x.size else (0, 0)


def touch(a, b):
    return a[0] < b[1] and b[0] < a[1]


def source(random, base, dtype, as_array, places):
    """A view of this pattern anywhere in the base."""
    pitch = 8 * dtype.numpy.itemsize if as_array else dtype.bits
    need = -(-(int(places.max(initial=-1)) + 1) * pitch // 8)
    if need > BASE:
        return None
    at = random.randint(0, BASE - need)
    begin, end = (0, BASE) if random.random() < 0.5 else (at, at + need)
    first = 8 * (at - begin) + (int(places.flat[0]) * pitch if places.size else 0)
    return laid(base.place[begin:end], dtype, as_array, places, first, pitch)


def target(random, base, dtype, as_array, shape):
    """A contiguous output anywhere in the base."""
    count = prod(shape)
    nbytes = count * dtype.numpy.itemsize if as_array else dtype.nbytes(count)
    if nbytes > BASE:
        return None
    at = random.randint(0, BASE - nbytes)
    if as_array:
        return np.ndarray(shape, dtype.numpy, base.place, at)
    return sj.Tensor.frombuffer(base.place[at : at + nbytes], dtype, shape)


def pattern(random, most):
    memory = np.arange(prod(shape := shape_within(random, most, (9, 17, 33)))).reshape(shape)
    return steps_of(random, memory, 4)[1]


def any_kind(random):
    as_array = random.random() < 0.5
    return random.choice(NUMPYS if as_array else DTYPES), as_array


def alone(random, base):
    """One source, one output, through each function with out=."""
    dtype, as_array = any_kind(random)
    places = pattern(random, random.choice([10, 100, 1000]))
    x = source(random, base, dtype, as_array, places)
    shape = random.choice([places.shape, shape_of(random, places.size)])
    out = target(random, base, dtype, as_array, shape)
    if x is None or out is None:
        return
    codes = codes_in(x, dtype).reshape(shape)
    program = sj.plan(x.shape, dtype, lambda t: t.reshape(shape))
    calls = [
        lambda: sj.reshape(x, shape, out=out),
        lambda: sj.reshape_batch([x], [shape], out=[out]),
        lambda: program(x, out=out),
        lambda: program.map([x], out=[out]),
        lambda: list(program.imap([x], lambda i: out)),
    ]
    if shape == x.shape:
        calls.append(lambda: sj.ascontiguous(x, out=out))
    checked(base, random.choice(calls), [x], [out], [codes])


def unlike_widths(random, base):
    """Packed elements and codes in the same bytes: pack and unpack."""
    dtype = random.choice([d for d in PACKED if d.numpy is not None])
    places = pattern(random, random.choice([10, 100, 1000]))
    packing = random.random() < 0.5
    x = source(random, base, dtype, packing, places)
    out = target(random, base, dtype, not packing, places.shape)
    if x is None or out is None:
        return
    codes = codes_in(x, dtype)
    checked(base, lambda: sj.pack(x, out=out) if packing else x.unpack(out), [x], [out], [codes])


def together(random, base):
    """Many sources and outputs: none may destroy what another still needs."""
    dtype, as_array = any_kind(random)
    count = random.choice(COUNTS)
    places = pattern(random, random.choice([3, 10, 60]))
    xs = [
        source(random, base, dtype, as_array, random.choice([places, like]))
        for like in (places_in_shape(random, places.shape) for _ in range(count))
    ]
    if None in map(type_or_none, xs):
        return
    shape = random.choice([places.shape, shape_of(random, places.size)])
    codes = [codes_in(x, dtype).reshape(shape) for x in xs]
    program = sj.plan(places.shape, dtype, lambda t: t.reshape(shape))
    if random.random() < 0.6:
        outs = [target(random, base, dtype, as_array, shape) for _ in xs]
        if random.random() < 0.7:  # each output where no other is, as far as there is room
            outs = side_by_side(random, base, dtype, as_array, shape, count) or outs
        calls = [
            lambda: program.map(xs, out=outs),
            lambda: sj.reshape_batch(xs, shape, out=outs),
        ]
    else:
        whole = np.stack(codes) if codes else np.empty((0, *shape), unit(dtype))
        outs, codes = [target(random, base, dtype, as_array, whole.shape)], [whole]
        calls = [lambda: program.map(xs, out=outs[0])]
        if shape == places.shape:
            calls.append(lambda: sj.stack(xs, out=outs[0]))
        if shape == places.shape and shape:
            joined = whole.reshape(len(xs) * shape[0], *shape[1:])
            out = target(random, base, dtype, as_array, joined.shape)
            if out is not None:
                checked(base, lambda: sj.concat(xs, out=out), xs, [out], [joined])
                return
    if None not in map(type_or_none, outs):
        checked(base, random.choice(calls), xs, outs, codes)


def lengths(random, base):
    """Sources and outputs of several lengths, of one program with a free size."""
    dtype, as_array = any_kind(random)
    row = shape_within(random, 12)
    shapes = [(random.randint(0, 4), *row) for _ in range(random.choice([1, 2, 5]))]
    xs = [
        source(random, base, dtype, as_array, np.arange(prod(shape)).reshape(shape))
        for shape in shapes
    ]
    outs = [target(random, base, dtype, as_array, (prod(shape),)) for shape in shapes]
    if None in map(type_or_none, [*xs, *outs]):
        return
    program = sj.plan((None, *row), dtype, lambda t: t.flip().reshape((-1,)))
    codes = [np.flip(codes_in(x, dtype)).reshape(-1) for x in xs]
    into = random.choice([list, tuple, lambda outs: outs.__getitem__])(outs)
    checked(base, lambda: program.map(xs, out=into), xs, outs, codes)


def operands(random, base):
    """Calls of several arrays, any one of which may lie where the output does."""
    lend = random.choice(LENDERS)
    shape = random.choice([(), (3,), (7,), (4, 5), (2, 3, 4)])
    xs, call = random.choice(SEVERAL)(random, shape)
    wanted = call(*map(sj.asarray, xs), None).numpy()
    out, k = in_base(random, base, np.zeros_like(wanted)), random.randrange(len(xs))
    xs[k] = in_base(random, base, xs[k])
    if out is None or xs[k] is None:
        return
    base.before[...] = base.whole
    lent, into = [*map(lend, xs)], lend(out)
    codes = codes_in(wanted, sj.dtype(wanted.dtype))
    checked(base, lambda: call(*lent, into), [xs[k]], [out], [codes])


def in_base(random, base, x):
    """The elements in the base, where an array of any dtype may begin; None: no room."""
    if x.nbytes > BASE - 16:
        return None
    first = -base.place.ctypes.data % 8
    at = first + 8 * random.randint(0, (BASE - 16 - x.nbytes) // 8)
    made = np.ndarray(x.shape, x.dtype, base.place, at)
    made[...] = x
    return made


def drawn(random, shape, low=1, high=8, kinds=("float32", "float64", "bfloat16")):
    rng = np.random.default_rng(random.getrandbits(32))
    return rng.integers(low, high, shape).astype(sj.dtype(random.choice(kinds)).numpy)


def scaled(random, shape, name):
    """dequantize or quantize, with a zero point."""
    scales = random.choice([shape, (1,) * len(shape), ()])
    zeros = random.choice([scales, ()])
    x = drawn(random, shape, kinds=("int8", "uint8", "int32") if name == "dequantize" else FLOATS)
    scale = drawn(random, scales, kinds=FLOATS)
    zero = drawn(random, zeros, kinds=("int8", "uint8", *FLOATS))
    settings = {} if name == "dequantize" else {"dtype": "uint8"}
    function = getattr(sj, name)
    return [x, scale, zero], lambda x, s, z, out: function(x, s, zero_point=z, out=out, **settings)


def taken(random, shape):
    """take or onnx.gather."""
    x = drawn(random, (5, *shape), -9, 9, ("int16", *FLOATS))
    indices = drawn(random, random.choice([(4,), (9,), (2, 3)]), -5, 5, ("int32", "int64"))
    return [x, indices], random.choice(
        [
            lambda x, i, out: sj.take(x, i, axis=0, out=out),
            lambda x, i, out: sj.onnx.gather(x, i, axis=0, out=out),
        ]
    )


def padded(random, shape):
    """onnx.pad with a constant."""
    x = drawn(random, shape, -9, 9, FLOATS)
    constant = drawn(random, (1,)).astype(x.dtype)
    pads = [random.randint(0, 3) for _ in range(2 * x.ndim)]
    return [x, constant], lambda x, c, out: sj.onnx.pad(x, pads, c, out=out)


def joined(random, shape):
    """concat or stack, of dtypes that may differ."""
    xs = [drawn(random, shape or (1,)) for _ in range(random.choice([1, 2, 5]))]
    join = random.choice([sj.concat, sj.stack])
    return xs, lambda *given: join(given[:-1], axis=0, out=given[-1])


FLOATS = ("float32", "float64", "bfloat16", "float16")
SCALED = [partial(scaled, name=name) for name in ("dequantize", "quantize")]
SEVERAL = [*SCALED, taken, padded, joined]
LENDERS = [np.asarray, sj.asarray]
if find_spec("torch"):
    LENDERS.append(lambda x: to_torch(x, sj.dtype(x.dtype)))


def type_or_none(x):
    return None if x is None else type(x)


def side_by_side(random, base, dtype, as_array, shape, count):
    """Outputs one behind the other, in any order; None where they have no room."""
    count_all = prod(shape)
    nbytes = count_all * dtype.numpy.itemsize if as_array else dtype.nbytes(count_all)
    if nbytes * count > BASE:
        return None
    at = random.randint(0, BASE - nbytes * count)
    begins = [at + i * nbytes for i in random.sample(range(count), count)]
    if as_array:
        return [np.ndarray(shape, dtype.numpy, base.place, b) for b in begins]
    return [sj.Tensor.frombuffer(base.place[b : b + nbytes], dtype, shape) for b in begins]


CALLS = [alone, unlike_widths, together, together, lengths, operands, operands]
