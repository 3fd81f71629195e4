"""Casts, dequantizing and quantizing of any view, against the oracle."""

from importlib.util import find_spec
from math import prod

import cast_oracle as oracle
import loops
import numpy as np
from views import places_in_shape, shape_within, steps_of, turned_matrix

import shapejit as sj

from .known import DTYPES, NUMPYS, check_same, codes_in, known, output
from .programs import to_torch

TORCH = find_spec("torch") is not None
SCALES = ("float32", "float32", "float16", "bfloat16", "float64", "float8_e8m0fnu", "float8_e4m3fn")


def case(random):
    """One call of one of them."""
    loops.use(random.choice(list(loops.LIMITS)))
    random.choice([cast, dequantize, quantize])(random)


def cast(random, names=(*oracle.REAL, "nf4", *oracle.PARTS)):
    """Any dtype as any other."""
    k = source(random, names)
    name = sj.dtype(k.x.dtype).name
    others = oracle.PARTS if name in oracle.PARTS else oracle.REAL
    target = kind(random, others, isinstance(k.x, np.ndarray))
    settings = {"saturate": random.random() < 0.5}
    if target.name == "float8_e8m0fnu":
        settings["round_mode"] = random.choice(["nearest", "up", "down"])
    codes = oracle.cast(numbers(k.codes), name, target.name, **settings)
    check(random, k, target, codes, lambda x, o: sj.cast(x, target, **settings, out=o))


def dequantize(random, names=(*oracle.INTEGERS, *oracle.NARROW, "nf4")):
    """Codes with scales of any kind."""
    k = source(random, names)
    name = sj.dtype(k.x.dtype).name
    scale, zero_point, blocks, floats = operands(random, k, name)
    default = random.random() < 0.3 and scale.shown is not None
    target = (
        sj.dtype(scale.name) if default else kind(random, oracle.FLOATS, type(k.x) is np.ndarray)
    )
    facts = {} if default else {"dtype": target}
    made = oracle.dequantize(
        oracle.decode(numbers(k.codes), name),
        scale.spread(k.x.shape, blocks),
        zero_point and zero_point.spread(k.x.shape, blocks),
        floats,
    )
    facts |= given(zero_point, scale, blocks)
    codes = oracle.encode(made, target.name)
    check(random, k, target, codes, lambda x, o: sj.dequantize(x, scale.x, **facts, out=o))


def quantize(random, names=(*oracle.INTEGERS, *oracle.FLOATS)):
    """Numbers divided by scales of any kind."""
    k = source(random, names)
    name = sj.dtype(k.x.dtype).name
    targets = [t for t in (*oracle.INTEGERS, *oracle.FLOATS) if t != "float8_e8m0fnu"]
    target = kind(random, targets, isinstance(k.x, np.ndarray))
    scale, zero_point, blocks, floats = operands(random, k, target.name)
    saturate = random.random() < 0.5
    codes = oracle.quantize(
        oracle.decode(numbers(k.codes), name),
        scale.spread(k.x.shape, blocks),
        zero_point and zero_point.spread(k.x.shape, blocks),
        floats,
        target.name,
        saturate,
        zero_point is None or zero_point.name in oracle.INTEGERS,
    )
    facts = given(zero_point, scale, blocks) | {"dtype": target, "saturate": saturate}
    check(random, k, target, codes, lambda x, o: sj.quantize(x, scale.x, **facts, out=o))


def source(random, names):
    """A known view of one of these dtypes."""
    array = random.random() < 0.5
    most = 700_000 if random.random() < 0.01 else random.choice([60, 2000, 2000, 20_000])
    if most >= 300 and random.random() < 0.25:
        places = turned_matrix(random, most)
    else:
        shape = shape_within(random, most)
        places = (
            places_in_shape(random, shape)
            if random.random() < 0.5
            else steps_of(random, np.arange(prod(shape)).reshape(shape), 6)[1]
        )
    # Which bytes a bool may have is a question of its own.
    names = [name for name in names if name != "bool"]
    return known(random, kind(random, names, array), array, places)


def kind(random, names, as_array):
    return random.choice([d for d in (NUMPYS if as_array else DTYPES) if d.name in names])


def numbers(codes):
    """Codes as unsigned integers; complex ones as they are."""
    width = codes.itemsize
    return codes.view(f"u{width}") if width <= 8 else codes


def check(random, k, target, codes, call):
    """The call makes these codes of `k`, in a new array or in `out`, and leaves `k` alone."""
    like = k.codes if target.bits < 16 else np.empty(0, f"V{target.bits // 8}")
    if random.random() < 0.5:
        out = output(random, k.x, target, k.x.shape)
        try:
            made = call(k.x, out.x)
        except sj.ShapeJitError:
            assert out.may_be_refused
            out.check_unchanged()
        else:
            assert made is out.x
            wanted = agreed(codes_in(out.x, target), codes, target)
            out.check(wanted if target.bits <= 8 else wanted.view(like.dtype))
    else:
        made = call(k.x, None)
        if TORCH and random.random() < 0.5:
            made = by_torch(k.x, target, made, call)
        wanted = agreed(codes_in(made, target), codes, target)
        check_same(made, k.x, target, wanted if target.bits <= 8 else wanted.view(like.dtype))
    k.memory.check_unchanged()


def by_torch(x, target, made, call):
    """What the call makes of the same as a torch tensor, as `made` is; `made` if there is none."""
    fit = isinstance(x, np.ndarray) and x.flags.writeable and min(x.strides, default=0) >= 0
    lent = to_torch(x, sj.dtype(x.dtype)) if fit and not sj.dtype(x.dtype).packed else None
    if lent is None or target.torch is None or target.packed:
        return made
    found = sj.asarray(call(lent, None))
    assert found.dtype == target
    return found.numpy()


def agreed(found, codes, target):
    """The codes that are wanted; a NaN in wide floats may have any payload."""
    if target.bits <= 8 or found.shape != codes.shape:
        return codes
    found = found.view(codes.dtype)
    return np.where(oracle.same(found, codes, target.name), found, codes)


class Operand:
    """Scales or zero points: what is passed (`x`), its dtype, and its values."""

    def __init__(self, random, name, codes):
        self.name = name
        self.values = oracle.decode(codes, name)
        self.shown = codes
        array = oracle.array(codes, name)
        if array.ndim > 1 and random.random() < 0.3:
            array = np.asfortranarray(array)
        if array.ndim and random.random() < 0.3:
            array = array[::-1].copy()[::-1]
        self.x = array
        if random.random() < 0.3:
            self.x = sj.asarray(array)
        if array.ndim == 0 and name == "float32" and random.random() < 0.5:
            self.x, self.shown = float(array), None

    def spread(self, shape, blocks):
        """A value per element."""
        return oracle.spread(self.values, shape, blocks)


def operands(random, k, codes_name):
    """Scales, zero points or None, the block's shape, and the floats of the arithmetic."""
    shape, blocks = (), None
    if k.x.ndim and random.random() < 0.7:
        sizes = [max(n, 1) for n in k.x.shape]
        blocks = tuple(random.choice([1, n, random.randint(1, n), 16, 32]) for n in sizes)
        shape = tuple(-(-n // block) for n, block in zip(k.x.shape, blocks, strict=True))
    name = random.choice(SCALES)
    rng = np.random.default_rng(random.getrandbits(32))
    values = np.ldexp(1 + rng.integers(0, 8, shape) / 8, rng.integers(-4, 5, shape))
    if oracle.FLOATS[name].special != "unsigned":
        values *= rng.choice([1, -1], shape)
    scale = Operand(random, name, oracle.encode(values, name))
    floats = oracle.arithmetic(name)
    if random.random() < 0.4:
        return scale, None, blocks, floats
    shape = random.choice([shape, ()])
    if codes_name in oracle.INTEGERS and random.random() < 0.7:
        low, high = (max(-(2**20), min(2**20, end)) for end in oracle.limits(codes_name))
        zeros = rng.integers(low, high + 1, shape)
        name = random.choice([codes_name, "int32"])
        if oracle.numpy_dtype(name) == np.uint8 and name != "uint8":
            name = "uint8"
    else:
        zeros = rng.integers(-8, 9, shape) / 8
        name = random.choice(["float32", "bfloat16"])
    zero = Operand(random, name, oracle.encode(zeros, name))
    return scale, zero, blocks, floats


def given(zero_point, scale, blocks):
    """The arguments of the call; a block_shape may be left out where it says nothing."""
    facts = {} if zero_point is None else {"zero_point": zero_point.x}
    if scale.values.ndim:
        facts["block_shape"] = blocks
    return facts
