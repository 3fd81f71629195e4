"""Tensors, programs, pickles, subclasses and protocols that tell what is not so.

What can be made is used in every way; only a right answer or one of the usual errors will do.
"""

import copy
import dataclasses
import pickle
from math import prod

import numpy as np
from views import dirt, places_in_shape, shape_of, shape_within, step_of, tensor_stepped

import shapejit as sj
from shapejit.layout import Layout

from .hostile import REFUSED, kind_of, some, token, tried
from .known import DTYPES, check_same, codes_in, known, output
from .memory import memory_of

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


def use(random, t, truth):
    """Read it in some ways; `truth` is its packed bytes, None where there are none to be had."""
    for read in random.sample(uses(t), 3):
        made = tried(read, *([MemoryError] if truth is None or len(truth) > READS else []))
        if made is REFUSED or made is None or isinstance(made, bool):
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
    """The packed bytes that a Tensor of these facts has; None where they are lies."""
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
    if low < 0 or high > 8 * place.size or prod(layout.shape) > READS:
        return None
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
            liar(random, memory),
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
            dataclasses.replace(layout, shape=(2.0, 3)),
            dataclasses.replace(layout, shape=[2, 3]),
            dataclasses.replace(layout, strides=(kind.bits,)),
            dataclasses.replace(layout, offset=None),
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
        return dataclasses.replace(value, **{field.name: part})
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
        return type(value)(items)
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
        use(random, t, truth if isinstance(truth, bytes) else None)


# Subclasses


def liar(random, x):
    """The array as a subclass some of whose attributes say something else."""
    n = random.choice([0, 1, 3, 100, 10**6, 10**12])
    address = x.__array_interface__["data"][0]
    lies = {
        "shape": (n,), "strides": (n,), "size": n, "nbytes": n, "itemsize": n, "ndim": n % 5,
        "dtype": np.dtype(random.choice([np.uint8, np.complex128, object])),
        "flags": np.zeros(random.choice([3, (3, 3)])).flags,
        "data": memoryview(bytes(3)), "base": None, "T": None, "ctypes": None, "real": None,
        "__array_interface__": {
            "data": (address + 64, False), "shape": (n,), "typestr": "|u1", "version": 3
        },
        "__array_struct__": None, "__len__": lambda self: n, "__getitem__": lambda self, i: self,
        "__array__": lambda self, *a, **k: np.zeros(2), "view": lambda self, *a: np.zeros(n % 99),
        "reshape": lambda self, *a, **k: np.zeros(n % 99), "tobytes": lambda self: b"",
        "ravel": lambda self: np.zeros(3), "copy": lambda self: self, "__eq__": None,
        "tolist": lambda self: [n], "transpose": lambda self, *a: self, "__iter__": lambda s: None,
        "__class__": random.choice([sj.Tensor, np.ma.MaskedArray, int]), "__hash__": None,
        "__array_finalize__": lambda self, other: None, "__array_ufunc__": None,
        "__array_function__": lambda self, *a: np.zeros(3), "astype": lambda self, *a: self,
    }  # fmt: skip
    body = {}
    for name in random.sample(list(lies), random.choice([1, 1, 2, 5])):
        value = lies[name]
        method = callable(value) and name != "__class__"
        body[name] = value if method or name.startswith("__array_u") else _told(value)
    return x.view(type("Liar", (np.ndarray,), body))


def _told(value):
    return property(lambda self: value)


def subclasses(random):
    """Such arrays as sources and outputs of every function; the truth is what NumPy holds."""
    dtype, _ = kind_of(random)
    if dtype.numpy is None:
        return
    k = known(random, dtype, True, places_in_shape(random, shape_within(random, 100)))
    out = output(random, k.x, dtype, k.codes.shape)
    flat = output(random, k.x, dtype, (k.codes.size,))
    x = k.x if random.random() < 0.4 else liar(random, k.x)
    to = [out.x if random.random() < 0.4 else liar(random, out.x)]
    to.append(flat.x if random.random() < 0.4 else liar(random, flat.x))
    program = sj.plan(k.codes.shape, dtype, lambda t: t)
    others = [(x, k.x)[random.randrange(2)] for _ in range(random.choice([0, 1, 40]))]
    calls = [
        (lambda: sj.reshape(x, -1, copy=True), None),
        (lambda: sj.reshape(x, k.codes.shape, out=to[0]), out),
        (lambda: sj.reshape(x, k.codes.size, out=to[1]), flat),
        (lambda: sj.reshape_batch([*others, x], -1)[-1], None),
        (lambda: sj.reshape_batch([x], -1, out=[to[1]]), flat),
        (lambda: sj.ascontiguous(x), None),
        (lambda: sj.ascontiguous(x, out=to[0]), out),
        (lambda: program(x), None),
        (lambda: program(x, out=to[0]), out),
        (lambda: program.map([*others, x])[-1], None),
        (lambda: program.map([x], out=[to[0]]), out),
        (lambda: program.map([x], out=to[0][None]), out),
        (lambda: sj.concat([x]), None),
        (lambda: sj.concat([x], out=to[0]), out),
        (lambda: sj.stack([*others, x])[-1], None),
        (lambda: sj.permute_dims(x, range(k.x.ndim)), None),
        (lambda: sj.flip(sj.flip(x)), None),
        (lambda: sj.asarray(x), None),
        (lambda: sj.pack(x), None),
        (lambda: sj.pack(k.x).unpack(to[0]), out),
        (lambda: sj.asarray(k.x).unpack(to[0]), out),
        (lambda: sj.array_equal(x, k.x) or 1, None),
        (lambda: sj.Tensor.frombuffer(x, dtype, k.codes.shape), None),
    ]
    call, target = random.choice(calls)
    made = tried(call)
    k.memory.check_unchanged()
    for each in (out, flat):
        each.memory.check_beside()
        if each is not target or made is REFUSED:
            each.check_unchanged()
    if made is REFUSED or isinstance(made, bool | int):
        assert made is not True or sj.array_equal(k.x, k.x)
    elif target is not None:
        target.check(k.codes.reshape(target.x.shape))
    else:
        found = codes_in(np.asarray(made) if type(made) is not sj.Tensor else made, dtype)
        assert found.tobytes() == k.codes.tobytes(), f"a wrong answer: {vars(type(x))}"


class Sub(sj.Tensor):
    """A Tensor that says what it likes of itself."""

    __slots__ = ("lies",)


for _name in ("shape", "ndim", "size", "nbytes", "strides", "offset", "contiguous", "T"):
    _true = getattr(sj.Tensor, _name).fget

    def _lie(self, name=_name, true=_true):
        return self.lies[name] if name in self.lies else true(self)

    setattr(Sub, _name, property(_lie))


def tensor_subclasses(random):
    """The same for Tensors."""
    k = known(random, random.choice(DTYPES), False, places_in_shape(random, (3, 5)))
    n = random.choice([0, 1, 15, 10**6, 10**12])
    lies = {
        "shape": (n,), "ndim": n % 4, "size": n, "nbytes": n, "strides": (n,), "offset": 8 * n,
        "contiguous": True, "T": None,
    }  # fmt: skip
    kept = {name: lies[name] for name in random.sample(list(lies), random.randint(1, 3))}
    kind = k.x.dtype
    t = Sub(k.x.buffer, kind, k.x.layout)
    t.lies = kept
    out = output(random, k.x, kind, (3, 5))
    to = Sub(out.x.buffer, kind, out.x.layout)
    to.lies = kept
    program = sj.plan((3, 5), kind, lambda t: t)
    calls = [
        lambda: sj.reshape(t, (3, 5), copy=True),
        lambda: sj.ascontiguous(t),
        lambda: sj.reshape_batch([t] * random.choice([1, 40]), (3, 5), copy=True)[0],
        lambda: program(t),
        lambda: program.map([t, k.x, t])[2],
        lambda: sj.concat([t]),
        lambda: t.flip().flip(),
        lambda: sj.reshape(k.x, (3, 5), out=to),
        lambda: sj.ascontiguous(k.x, out=to),
        lambda: sj.concat([k.x], out=to),
        lambda: program(k.x, out=to),
        lambda: program.map([k.x], out=[to]),
        lambda: sj.reshape_batch([k.x], (3, 5), out=[to])[0],
    ]
    made = tried(random.choice(calls))
    k.memory.check_unchanged()
    out.memory.check_beside()
    if isinstance(made, sj.Tensor):
        plain = sj.Tensor(made.buffer, kind, made.layout)
        check_same(plain.reshape((3, 5)), plain, kind, k.codes)


# Protocols


class Lender:
    """Lends what it is told to, by any protocol, and says that it is of any class."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __array__(self, dtype=None, copy=None):
        return self.array

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device

    @property
    def __class__(self):
        return self.pretends


def protocols(random):
    """Objects that lend memory in ways that make no sense."""
    k = some(random)
    t = sj.asarray(k.x)
    capsule = tried(lambda: t.__dlpack__(max_version=(1, 0)))
    if random.random() < 0.3 and capsule is not REFUSED:
        tried(lambda: from_dlpack(Lender(capsule=capsule, device=(1, 0))))  # used up
    released = memoryview(bytes(24))
    released.release()
    lender = Lender(
        array=random.choice([k.x, None, 3, [[1], [2]], token(random)]),
        capsule=random.choice([capsule, None, 3, object(), token(random)]),
        device=random.choice([(1, 0), (2, 0), None, (), ("a", "b"), token(random)]),
        pretends=random.choice([Lender, Lender, np.ndarray, sj.Tensor, np.ma.MaskedArray, list]),
    )
    odd = random.choice(
        [
            lender, lender, lender, released, memoryview(bytes(24))[::2], memoryview(b""),
            memoryview(bytes(24)).cast("d"), memoryview(bytes(24)).cast("B", (4, 6)), bytearray(24),
            np.zeros(3, "V0"), np.zeros(3, "S0"), np.zeros(3, "U0"), np.zeros(3, "M8[s]"),
            np.zeros(3, ">f4"), np.zeros(3, [("a", "i4"), ("b", "f8")]), np.zeros(3, object),
            np.zeros(3, np.dtypes.StringDType()), np.ma.array([1, 2, 3]), np.array(3),
            np.float32(3), np.array([]), np.recarray((2,), [("a", "i4")]),
        ]
    )  # fmt: skip
    shape = tried(lambda: np.shape(odd) if isinstance(odd, np.ndarray) else (3,), Exception)
    program = sj.plan(k.x.shape, k.x.dtype, lambda t: t.flip())
    calls = [
        lambda: sj.asarray(odd).tobytes(),
        lambda: sj.Tensor.frombuffer(odd, "int8", (24,)).tobytes(),
        lambda: sj.reshape(odd, -1, copy=True),
        lambda: sj.ascontiguous(odd),
        lambda: sj.ascontiguous(k.x, out=odd),
        lambda: sj.reshape_batch([odd] * random.choice([1, 40]), -1, copy=True),
        lambda: sj.reshape_batch([k.x], -1, out=[odd]),
        lambda: sj.concat([odd, odd]),
        lambda: sj.pack(odd),
        lambda: sj.pack(odd, "int4"),
        lambda: sj.array_equal(odd, odd),
        lambda: program(odd),
        lambda: program(k.x, out=odd),
        lambda: program.map([k.x, odd]),
        lambda: program.map([k.x], out=[odd]),
        lambda: program.map(odd),
        lambda: sj.plan(shape, odd, lambda t: t),
        lambda: t.unpack(odd),
    ]
    # Whoever pretends to be of a class without having what the class has, gets AttributeError.
    tried(random.choice(calls), AttributeError, BufferError)
    k.memory.check_unchanged()


def changes(random):
    """Arrays that change their shape while a batch is gathered: what was checked must hold."""
    kind = sj.dtype("int32")
    ks = [known(random, kind, True, np.arange(6).reshape(2, 3)) for _ in range(9)]
    outs = [output(random, k.x, kind, (6,)) for k in ks]

    def tensors():
        for i, k in enumerate(ks):
            if i and random.random() < 0.3:
                reshape_in_place(ks[i - 1].x, random)
            yield k.x

    def out(i):
        if i and random.random() < 0.3:
            reshape_in_place(outs[i - 1].x, random)
        return outs[i].x

    program = sj.plan((2, 3), kind, lambda t: t.T.reshape((6,)))
    calls = [
        lambda: program.map(tensors()),
        lambda: program.map([k.x for k in ks], out),
        lambda: list(program.imap(tensors(), out, chunk=random.choice([None, 1, 3]))),
        lambda: sj.reshape_batch(tensors(), -1),
        lambda: sj.concat(list(tensors())),
    ]
    tried(random.choice(calls))
    for k, o in zip(ks, outs, strict=True):
        k.memory.check_unchanged()
        o.memory.check_beside()


def reshape_in_place(x, random):
    shape = shape_of(random, x.size)
    if x.flags.c_contiguous:
        x.shape = shape


CASES = [
    tensors, tensors, parts, programs, programs, pickles, subclasses, subclasses, subclasses,
    tensor_subclasses, protocols, changes,
]  # fmt: skip
