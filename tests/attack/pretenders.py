"""Subclasses and objects that misreport their attributes: the memory is what counts."""

import numpy as np
from views import places_in_shape, shape_of, shape_within

import shapejit as sj

from .hostile import REFUSED, kind_of, some, tried
from .known import codes_in, known, output
from .lies import from_dlpack
from .tokens import token


def case(random):
    random.choice(CASES)(random)


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
        body[name] = value if method or name.startswith("__array_u") else _reported(value)
    return x.view(type("Liar", (np.ndarray,), body))


def _reported(value):
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
        (lambda: sj.stack([*others, x])[-1, ...], None),
        (lambda: sj.permute_dims(x, range(k.x.ndim)), None),
        (lambda: sj.flip(sj.flip(x)), None),
        (lambda: sj.asarray(x), None),
        (lambda: sj.pack(x), None),
        (lambda: sj.pack(k.x).unpack(to[0]), out),
        (lambda: sj.asarray(k.x).unpack(to[0]), out),
        (lambda: sj.array_equal(x, k.x) or 1, None),
        (lambda: dtype.packed or sj.Tensor.frombuffer(x, dtype, k.codes.shape), None),
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
        assert found.tobytes() == k.codes.tobytes(), f"a wrong answer: {set(vars(type(x)))}"


def tensor_subclasses(random):
    """A Tensor cannot be made to lie by a class of its own: there is none."""
    assert tried(lambda: type("Sub", (sj.Tensor,), {"size": random.random()})) is REFUSED


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
    tried(random.choice(calls), BufferError)
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


CASES = [subclasses, subclasses, subclasses, tensor_subclasses, protocols, changes]
