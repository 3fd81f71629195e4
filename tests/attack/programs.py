"""Programs that convert, of ndarrays, Tensors and torch tensors, against the oracle."""

from importlib.util import find_spec

import cast_oracle as oracle
import loops
import numpy as np
from views import shape_within, stepped, steps_of, tensor_stepped

import shapejit as sj

FLOATS = ["float32", "float32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", "float6_e3m2fn"]
KINDS = ["int8", "uint8", "int4", "uint4", "uint2", "int1", "uint3", "uint6", *FLOATS]
LENGTHS = 2, 5, 1, 2, 0  # of dim 0, of programs with free sizes
LIBRARIES = ["ndarrays", "Tensors", *(["torch"] if find_spec("torch") else [])]


def case(random):
    """One program, called in one of its ways."""
    loops.use(random.choice(list(loops.LIMITS)))
    random.choice([once, once, many, stacked, columns, free])(random)


class Chain:
    """Steps that move and convert: done to a Tensor by the package, to codes by the oracle."""

    def __init__(self, random, shape, name, moves=3):
        self.shape, self.name, self.steps, kind = tuple(shape), name, [], name
        codes = np.zeros(shape, np.uint8)
        for _ in range(random.randint(1, 3)):
            steps, codes = steps_of(random, codes, moves, copy=None)
            if not moves:  # those that do not depend on the length of dim 0
                steps = random.choice([[], [("flip", None)]])
            self.steps += [(tensor_stepped, stepped, (*step, None)) for step in steps]
            how = random.choice(["cast", "dequantize", "quantize"])
            target = random.choice(FLOATS if how == "dequantize" else KINDS)
            scale = 2.0 ** random.randint(-2, 2)
            given = (kind, target) if how == "cast" else (kind, target, scale)
            self.steps.append((*CONVERSIONS[how], given))
            kind = target
        self.target = kind

    def __call__(self, t):
        for step, _, given in self.steps:
            t = step(t, *given)
        return t

    def expected(self, codes):
        for _, step, given in self.steps:
            codes = step(codes, *given)
        return codes

    def sources(self, random, shapes):
        """Codes of small numbers for arrays of these shapes."""
        rng = np.random.default_rng(random.getrandbits(32))
        return [oracle.encode(rng.integers(-16, 17, s) / 2, self.name) for s in shapes]


def scaled(values, target, scale):
    made = oracle.dequantize(values, np.full(values.shape, scale), None, np.float32)
    return oracle.encode(made, target)


def quantized(values, target, scale):
    return oracle.quantize(values, np.full(values.shape, scale), None, np.float32, target)


CONVERSIONS = {
    "cast": (lambda t, kind, target: t.cast(target), oracle.cast),
    "dequantize": (
        lambda t, kind, target, scale: t.dequantize(scale, dtype=target),
        lambda codes, kind, target, scale: scaled(oracle.decode(codes, kind), target, scale),
    ),
    "quantize": (
        lambda t, kind, target, scale: t.quantize(scale, dtype=target),
        lambda codes, kind, target, scale: quantized(oracle.decode(codes, kind), target, scale),
    ),
}


def lent(random, library, codes, name):
    """Codes as an array of a library, of some strides; None where it has no such array."""
    kind, array = sj.dtype(name), oracle.array(codes, name)
    if array.ndim > 1 and random.random() < 0.5:
        array = np.asfortranarray(array)
    if library == "ndarrays":
        if array.ndim and random.random() < 0.3:
            array = array[::-1].copy()[::-1]
        return None if kind.numpy is None else array
    if library == "Tensors":
        whole = kind.numpy is not None and random.random() < 0.5
        return sj.asarray(array) if whole or not kind.packed else sj.pack(array, kind)
    return to_torch(array, kind)


def to_torch(array, kind):
    """An ndarray as a torch tensor over its memory, of pairs over new memory; None: as none."""
    import torch

    if kind.torch is None:
        return None
    own = getattr(torch, kind.torch)
    if not kind.packed:
        array = array if kind.numpy.isbuiltin == 1 else array.view(f"i{array.itemsize}")
        made = torch.from_numpy(array)
        return made if made.dtype is own else made.view(own)
    if array.shape[-1:] in ((), (1,)) or array.shape[-1] % 2:
        return None  # torch has pairs
    pairs = np.array(sj.pack(array).buffer).reshape(*array.shape[:-1], array.shape[-1] // 2)
    return torch.from_numpy(pairs).view(own)


def holds(library, shape, name):
    """Whether a library has such arrays as results."""
    kind = sj.dtype(name)
    if library == "ndarrays":
        return kind.numpy is not None
    if library == "Tensors" or kind.torch is None:
        return library == "Tensors"
    return not kind.packed or (len(shape) > 0 and shape[-1] % 2 == 0)


def check(library, found, codes, name):
    """The array is one of the library, with these codes."""
    kind, known = sj.dtype(name), {"ndarrays": np.ndarray, "Tensors": sj.Tensor}
    if library in known:
        assert type(found) is known[library], f"a {type(found).__name__}"
    else:
        assert type(found).__module__ == "torch"
        found = sj.asarray(found)
    assert found.dtype == kind
    assert found.shape == codes.shape, f"shape {found.shape}, not {codes.shape}"
    array = found if isinstance(found, np.ndarray) else found.unpack()
    made = np.array(array, order="C").view(oracle.carrier(name))
    assert oracle.same(made, codes.astype(made.dtype), name).all(), "wrong elements"


def attempt(library, call, wanted, name):
    """The results of a call are these, or of a dtype that the library lacks."""
    if not all(holds(library, codes.shape, name) for codes in wanted):
        try:
            call()
        except sj.DTypeError:
            return
        assert not wanted, "a result of a dtype that the library lacks"
    for found, codes in zip(call(), wanted, strict=True):
        check(library, found, codes, name)


def drawn(random, most=2000, moves=3, free=False):
    """A library, a chain for arrays of a shape, and a dtype that the library has."""
    library, shape = random.choice(LIBRARIES), shape_within(random, most)
    if free:
        shape = [2, *shape]
    return library, Chain(random, shape, random.choice(KINDS), moves)


def filled(library, codes, name):
    """An output with other elements than these codes."""
    other = np.array(codes ^ codes.dtype.type(1), order="C")
    if library == "torch":
        return to_torch(oracle.array(other, name), sj.dtype(name))
    array = oracle.array(other, name)
    packs = sj.dtype(name).packed
    return array if library == "ndarrays" else sj.pack(array, name) if packs else sj.asarray(array)


def once(random):
    """A call, a new result or an output."""
    library, chain = drawn(random)
    (codes,) = chain.sources(random, [chain.shape])
    x = lent(random, library, codes, chain.name)
    if x is None:
        return
    program, wanted = sj.plan(chain.shape, chain.name, chain), chain.expected(codes)
    attempt(library, lambda: [program(x)], [wanted], chain.target)
    if holds(library, wanted.shape, chain.target):
        out = filled(library, wanted, chain.target)
        for _ in range(random.choice([1, 4])):
            assert program(x, out=out) is out
            check(library, out, wanted, chain.target)


def many(random):
    """A list of arrays, or an iterator of them."""
    library, chain = drawn(random, 300)
    codes = chain.sources(random, [chain.shape] * random.choice([0, 1, 2, 7, 40]))
    xs = [lent(random, library, each, chain.name) for each in codes]
    if any(x is None for x in xs):
        return
    program, wanted = sj.plan(chain.shape, chain.name, chain), [*map(chain.expected, codes)]
    chunk = random.choice([None, 1, 2, 40])
    calls = lambda: program.map(xs), lambda: list(program.imap(iter(xs), chunk=chunk))
    attempt(library, random.choice(calls), wanted, chain.target)


def stacked(random):
    """An array of arrays."""
    library, chain = drawn(random, 300)
    (codes,) = chain.sources(random, [(random.choice([0, 1, 2, 7]), *chain.shape)])
    x = lent(random, library, codes, chain.name)
    if x is None:
        return
    program = sj.plan(chain.shape, chain.name, chain)
    rows = [chain.expected(row) for row in codes]
    whole = np.stack(rows) if rows else np.zeros((0, *program.shape), codes.dtype)
    attempt(library, lambda: [program.map(x)], [whole], chain.target)


def columns(random):
    """A batch, of ndarrays."""
    _, chain = drawn(random, 300)
    (codes,) = chain.sources(random, [(random.choice([1, 2, 7]), *chain.shape)])
    x = lent(random, "ndarrays", codes, chain.name)
    if x is None:
        return
    program, whole = (
        sj.plan(chain.shape, chain.name, chain),
        np.stack([*map(chain.expected, codes)]),
    )
    attempt("ndarrays", lambda: [program.map_batches({"x": x}, "x")["x"]], [whole], chain.target)


def free(random):
    """Arrays of several lengths, new results or outputs."""
    library, chain = drawn(random, 100, 0, free=True)
    shapes = [(n, *chain.shape[1:]) for n in random.sample(LENGTHS, random.randint(1, 5))]
    codes = chain.sources(random, shapes)
    xs = [lent(random, library, each, chain.name) for each in codes]
    if any(x is None for x in xs):
        return
    program = sj.plan((None, *chain.shape[1:]), chain.name, chain)
    wanted = [*map(chain.expected, codes)]
    attempt(library, lambda: program.map(xs), wanted, chain.target)
    if all(holds(library, each.shape, chain.target) for each in wanted):
        outs = [filled(library, each, chain.target) for each in wanted]
        assert all(a is b for a, b in zip(program.map(xs, out=outs), outs, strict=True))
        for out, each in zip(outs, wanted, strict=True):
            check(library, out, each, chain.target)
