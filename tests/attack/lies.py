"""Tensors, programs and pickles made of inconsistent facts."""

import copy
import dataclasses
import pickle
from math import prod

import numpy as np
from views import dirt, places_in_shape, shape_within, step_of, tensor_stepped

import shapejit as sj
from shapejit.shapes.layout import Layout

from .hostile import REFUSED, kind_of, tried
from .known import DTYPES, known, output
from .memory import memory_of
from .tokens import token

HUGE = [2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**30]
READS = 2**22  # elements of a true tensor that are worth reading; a lie may have any number


def case(random):
    random.choice(CASES)(random)


def uses(t):
    """Everything that reads the elements of a Tensor, each giving its packed bytes."""
    return [
        lambda: t.tobytes(),
        lambda: t.unpack() is None,
        lambda: t.numpy() is None,
        lambda: repr(t) is None,
        lambda: np.asarray(t) is None,
        lambda: from_dlpack(t) is None,
        lambda: sj.ascontiguous(t).tobytes(),
        lambda: t[..., ::-1].flip(axis=-1).tobytes(),
        lambda: sj.reshape(t, -1, copy=True).tobytes(),
        lambda: sj.reshape_batch([t], -1, copy=True)[0].tobytes(),
        lambda: sj.reshape_batch([t] * 40, -1, copy=True)[39].tobytes(),
        lambda: sj.plan(t.shape, t.dtype, lambda u: u.flip().flip().ascontiguous())(t).tobytes(),
        lambda: sj.plan(t.shape, t.dtype, lambda u: u.flip()).map([t] * 9)[8].flip().tobytes(),
        lambda: sj.concat([t, t])[: t.shape[0]].tobytes(),
        lambda: sj.stack([t, t])[1].tobytes(),
        lambda: sj.array_equal(t, t) and None,
        lambda: pickle.loads(pickle.dumps(t)).tobytes(),
        lambda: copy.deepcopy(t).tobytes(),
    ]


def from_dlpack(t):
    """By NumPy, which has a RuntimeError for dtypes that it lacks."""
    try:
        return np.from_dlpack(t)
    except RuntimeError as fault:
        raise TypeError(str(fault)) from None


LARGE = object()  # a truth of more elements than are worth reading


def use(random, t, truth):
    """Read it in some ways; `truth` is its packed bytes, None for a lie, or LARGE."""
    for read in random.sample(uses(t), 3):
        made = tried(read, *([MemoryError] if truth in (None, LARGE) else []))
        if truth is LARGE or made is REFUSED or made is None or isinstance(made, bool):
            continue
        assert made == (truth or b""), f"wrong elements: {t.dtype} {t.layout}"


# Layouts


def tensors(random):
    """`sj.Tensor(buffer, dtype, layout)` with anything for these."""
    kind = random.choice(DTYPES)
    nbytes = random.choice([0, 1, 5, 64, 1000])
    memory = memory_of(random, dirt(nbytes, random.getrandbits(32)))
    shape = [random.choice([0, 1, 2, 3, 9, 100]) for _ in range(random.randint(0, 4))]
    if random.random() < 0.2:
        shape = [*shape, random.choice([*HUGE, -1, -5])]
    strides = [random.choice([kind.bits, -kind.bits, 8, 0, 24, 1, 7, 10**9]) for _ in shape]
    if random.random() < 0.4:
        strides = Layout.row_major([abs(n) for n in shape], kind.bits).strides
    offset = random.choice([0, 0, 0, kind.bits, 8 * nbytes, -8, -1, 8 * nbytes - 1, 10**12])
    bits = random.choice([kind.bits] * 5 + [8, 1, 64, 0, -4, 10**6])
    make = random.choice([Layout, Layout.of])
    layout = tried(lambda: make(tuple(shape), tuple(strides), offset, bits))
    if layout is REFUSED:
        return
    t = tried(lambda: sj.Tensor(memory.place, kind, layout))
    if t is not REFUSED:
        use(random, t, truth_of(memory.place, kind, layout))
    memory.check_unchanged()


def truth_of(place, kind, layout):
    """The packed bytes that a Tensor of these facts has; None where they are lies, or LARGE."""
    facts = [*layout.shape, *layout.strides, layout.offset]
    if not all(type(n) is int and abs(n) < 2**63 for n in facts) or layout.bits != kind.bits:
        return None
    if any(n < 0 for n in layout.shape) or len(layout.shape) != len(layout.strides):
        return None
    if 0 in layout.shape:
        return b""
    reach = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    low = layout.offset + sum(r for r in reach if r < 0)
    high = layout.offset + sum(r for r in reach if r > 0) + kind.bits
    if low < 0 or high > 8 * place.size:
        return None
    if prod(layout.shape) > READS:
        return LARGE
    bit = np.full(layout.shape, layout.offset)
    for axis, (n, s) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        bit = bit + (np.arange(n) * s).reshape((-1,) + (1,) * (len(layout.shape) - axis - 1))
    stream = np.unpackbits(place, bitorder="little")
    return np.packbits(
        stream[bit.reshape(-1, 1) + np.arange(kind.bits)].reshape(-1), bitorder="little"
    ).tobytes()


def parts(random):
    """The same with a buffer, a dtype or a layout of another type."""
    kind, memory = random.choice(DTYPES), np.zeros(48, np.uint8)
    layout = Layout.row_major((2, 3), kind.bits)
    buffer = random.choice(
        [
            memory, bytes(48), bytearray(48), memoryview(memory), memory.view(np.uint64),
            memory.reshape(6, 8), memory[::2], np.array(3), np.zeros(6, object), [0] * 48,
            np.broadcast_to(np.uint8(3), (48,)), None, "text", sj.asarray(memory), token(random),
        ]
    )  # fmt: skip
    dtype = random.choice(
        [
            kind, kind.name, kind.numpy, sj.dtype("string"), token(random),
            dataclasses.replace(kind, bits=random.choice([0, 1, 3, 8, 64, 10**6, -4])),
            dataclasses.replace(kind, numpy=np.dtype(np.complex128)),
            dataclasses.replace(kind, name="float64"),
        ]
    )  # fmt: skip
    layout = random.choice(
        [
            layout, layout, (2, 3), None, token(random),
            tried(lambda: dataclasses.replace(layout, shape=(2.0, 3))),
            tried(lambda: dataclasses.replace(layout, shape=[2, 3])),
            tried(lambda: dataclasses.replace(layout, strides=(kind.bits,))),
            tried(lambda: dataclasses.replace(layout, offset=None)),
        ]
    )  # fmt: skip
    t = tried(lambda: sj.Tensor(buffer, dtype, layout))
    if t is not REFUSED:
        for read in random.sample(uses(t), 3):
            tried(read)
    tried(lambda: sj.Tensor.frombuffer(buffer, dtype, (2, 3)).tobytes())
    tried(lambda: sj.plan((2, 3), dtype, lambda t: t.T)(np.zeros((2, 3))))


# Programs and pickles


def mutated(random, value):
    """The value with one of its parts, or itself, made another."""
    if dataclasses.is_dataclass(value) and random.random() < 0.9:
        field = random.choice([f for f in dataclasses.fields(value) if f.init])
        part = mutated(random, getattr(value, field.name))
        return tried(lambda: dataclasses.replace(value, **{field.name: part}))
    if isinstance(value, tuple | list) and value and random.random() < 0.9:
        items = list(value)
        at = random.randrange(len(items))
        match random.choice(["change", "change", "change", "drop", "twice", "swap"]):
            case "change":
                items[at] = mutated(random, items[at])
            case "drop":
                del items[at]
            case "twice":
                items.insert(at, items[at])
            case "swap":
                items[at], items[-1] = items[-1], items[at]
        return (tuple if isinstance(value, tuple) else type(value))(items)
    near = [value + 1, value - 1, -value, 2 * value + 7] if type(value) is int else []
    words = ["reshape", "permute", "flip", "narrow", "select", "broadcast_to", "copy", "__init__"]
    return random.choice([*near * 5, token(random), *HUGE, *words, (), (0,), (3, 3), -1, 0, 1])


def random_program(random, shape, kind):
    def moved(t):
        for _ in range(random.randint(1, 4)):
            like = np.broadcast_to(np.uint8(0), t.shape)
            t = tensor_stepped(t, *step_of(random, like), copy=None)
        return t

    return sj.plan(shape, kind, moved)


def programs(random):
    """Programs whose operations, shapes or dtypes were tampered with."""
    kind, as_array = kind_of(random)
    places = places_in_shape(random, shape_within(random, 100))
    made, arguments, *_ = random_program(random, places.shape, kind).__reduce__()
    for _ in range(random.randint(1, 3)):
        arguments = mutated(random, arguments)
    if not isinstance(arguments, tuple):
        return
    program = tried(lambda: made(*arguments))
    if not isinstance(program, sj.Program):
        return
    program = tried(lambda: pickle.loads(pickle.dumps(program)))
    if program is REFUSED or tried(lambda: program.dtype.bits > 0) is not True:
        return
    tried(lambda: str(program), MemoryError)
    k = known(random, kind, as_array, places)
    tried(lambda: program(k.x), MemoryError)
    tried(lambda: program.map([k.x] * random.choice([1, 40])), MemoryError)
    if program.shape and prod(program.shape) < 10**5 and min(program.shape) >= 0:
        out = tried(lambda: output(random, k.x, kind, program.shape))
        if out is not REFUSED and tried(lambda: program(k.x, out=out.x)) is not REFUSED:
            out.memory.check_beside()
        if out is not REFUSED and tried(lambda: program.map([k.x], out=[out.x])) is not REFUSED:
            out.memory.check_beside()
    k.memory.check_unchanged()


def pickles(random):
    """Tensors restored from pickles that were tampered with."""
    k = known(random, random.choice(DTYPES), False, places_in_shape(random, (3, 5)))
    made, arguments, *_ = k.x.__reduce__()
    changed = tuple(
        a if isinstance(a, np.ndarray) and random.random() < 0.7 else mutated(random, a)
        for a in arguments
    )
    t = tried(lambda: made(*changed))
    if type(t) is sj.Tensor and isinstance(t.layout, Layout) and isinstance(t.dtype, sj.DType):
        truth = None
        if isinstance(t.buffer, np.ndarray) and t.buffer.dtype == np.uint8 and t.buffer.ndim == 1:
            truth = tried(lambda: truth_of(t.buffer, t.dtype, t.layout))
        use(random, t, truth if isinstance(truth, bytes) or truth is LARGE else None)


CASES = [tensors, tensors, parts, programs, programs, pickles]
