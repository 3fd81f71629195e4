"""Casts and scales within programs give the results of single steps."""

import pickle

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj
from shapejit.engine import patience

DTYPES = ["int4", "uint8", "float32", "bfloat16"]
LIMITS = {"int4": (-8, 7), "uint2": (0, 3), "float4_e2m1fn": (-6, 6), "float6_e2m3fn": (-7.5, 7.5)}
PACKED = [*LIMITS]


def steps(rng, shape):
    """A few operations on a Tensor or an ndarray of a shape, at least one of them a conversion."""
    made, kinds = [], ["float32", "bfloat16", "int8", "float8_e4m3fn", *PACKED]
    for choice in [*rng.integers(0, 7, rng.integers(1, 5)), rng.integers(4, 7)]:
        if choice == 0:
            axes = tuple(map(int, rng.permutation(len(shape))))
            made.append(lambda t, axes=axes: sj.permute_dims(t, axes))
            shape = tuple(shape[axis] for axis in axes)
        elif choice == 1:
            size = int(np.prod(shape))
            rows = int(rng.choice([n for n in range(1, size + 1) if size % n == 0]))
            shape = (rows, size // rows)
            made.append(lambda t, shape=shape: sj.reshape(t, shape))
        elif choice == 2:
            made.append(lambda t: t[::-1])
        elif choice == 3 and shape[0] > 1:
            made.append(lambda t: t[1:])
            shape = (shape[0] - 1, *shape[1:])
        elif choice == 4:
            kind = str(rng.choice(kinds))
            made.append(lambda t, kind=kind: sj.cast(t, kind))
        elif choice >= 5:
            blocks = tuple(int(rng.integers(1, n + 1)) for n in shape)
            counts = tuple(-(-n // b) for n, b in zip(shape, blocks, strict=True))
            scale = rng.uniform(0.5, 2, counts).astype(np.float32)
            kind = "bfloat16" if choice == 5 else str(rng.choice(["uint8", *PACKED]))
            scaled = sj.dequantize if choice == 5 else sj.quantize
            settings = {"block_shape": blocks, "dtype": kind}
            made.append(lambda t, f=scaled, s=scale, k=settings: f(t, s, **k))
    return made


def done(x, operations):
    for operation in operations:
        x = operation(x)
    return x


def same(found, wanted):
    found, wanted = (np.ascontiguousarray(x) for x in (found, wanted))
    return found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("seed", range(60))
def test_chains(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 4)))
    kind = DTYPES[seed % len(DTYPES)]
    operations = steps(rng, shape)
    x = sj.cast(rng.integers(0, 8, shape).astype(np.uint8), kind)
    t = sj.pack(x) if kind == "int4" else sj.asarray(x)
    wanted = done(x, operations)
    program = sj.plan(shape, kind, lambda t: done(t, operations))
    assert (program.shape, program.result_dtype.numpy) == (wanted.shape, wanted.dtype)
    assert same(program(x), wanted)
    assert program(t).tobytes() == done(t, operations).tobytes()
    assert all(same(found, wanted) for found in program.map([x, x.copy(), x]))
    assert all(same(found, wanted) for found in program.map(np.stack([x, x])))
    assert all(same(found, wanted) for found in program.imap([x, x, x], chunk=2))
    slab = np.empty((2, *wanted.shape), wanted.dtype)
    assert all(same(found, wanted) for found in program.map([x, x], out=slab))
    out = np.empty(wanted.shape, wanted.dtype)
    assert program(x, out=out) is out
    assert same(out, wanted)
    again = pickle.loads(pickle.dumps(program))
    assert again == program
    assert same(again(x), wanted)


@pytest.mark.parametrize("kind", PACKED)
def test_packed_results_have_a_byte_each_in_ndarrays(kind):
    """However a program is called, and of each length, as ml_dtypes has them."""
    x = np.arange(-4, 4, dtype=np.float32)
    wanted = np.clip(x, *LIMITS[kind]).astype(getattr(ml_dtypes, kind))
    batch = {"x": np.stack([x, x]), "rows": np.array([x, x[:3], None], object)[:2]}
    for shape in ((8,), (None,)):
        program = sj.plan(shape, "float32", lambda t: t.cast(kind))
        out = np.full(8, 1, wanted.dtype)
        assert program(x, out=out) is out
        assert same(out, wanted)
        assert same(program(x), wanted)
        assert all(same(made, wanted) for made in program.map([x, x]))
        assert all(same(made, wanted) for made in program.map_batches(batch, "x")["x"])
    rows = program.map_batches(batch, ["rows"])["rows"]
    assert same(rows[0], wanted)
    assert same(rows[1], wanted[:3])
    scaled = sj.plan((8,), "float32", lambda t: t.quantize(0.5, dtype=kind))
    assert same(scaled(x / 2), sj.quantize(x / 2, 0.5, dtype=kind))
    there_and_back = sj.plan((8,), "float32", lambda t: t.cast(kind)[::-1].cast("float32"))
    assert same(there_and_back(x), wanted[::-1].astype(np.float32))


def test_images():
    """A loader's line is one launch: images normalised, channels first."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 56, 48, 3), dtype=np.uint8)
    mean, std = (rng.uniform(1, 2, (3, 1, 1)).astype(np.float32) for _ in range(2))
    wanted = (x.transpose(0, 3, 1, 2).astype(np.float32) - mean) * (1 / std)
    program = sj.plan(
        x.shape[1:],
        "uint8",
        lambda t: t.permute_dims((2, 0, 1)).dequantize(1 / std, zero_point=mean),
    )
    assert len(program.steps) == 1
    slab = np.empty(wanted.shape, np.float32)
    assert program.map(list(x), out=slab) is slab
    assert np.array_equal(slab, wanted)
    assert np.array_equal(program.map(x), wanted)


def test_patches_are_one_pass():
    x = np.arange(224 * 224 * 3).reshape(224, 224, 3).astype(np.uint8)
    scale = np.array([0.5, 2, 4], np.float32).reshape(1, 1, 3)
    program = sj.plan(
        x.shape,
        "uint8",
        lambda t: (
            t.dequantize(scale)
            .reshape((14, 16, 14, 16, 3))
            .permute_dims((0, 2, 1, 3, 4))
            .reshape((196, 768))
            .cast("float32")
        ),
    )
    assert len(program.steps) <= 2
    wanted = (x * scale).reshape(14, 16, 14, 16, 3).transpose(0, 2, 1, 3, 4).reshape(196, 768)
    assert np.array_equal(program(x), wanted)


def test_hostile_pickles():
    program = sj.plan((4, 6), "uint8", lambda t: t.dequantize(np.ones((4, 1), np.float32)))
    ((name, (scale, zero, blocks, kind)),) = program.ops
    for given in [
        (scale, zero, (3, 6), kind),
        (scale, np.ones((4, 1), np.float32), blocks, kind),
        (scale, zero, blocks, "int8"),
        (b"", zero, blocks, kind),
        (scale, zero),
    ]:
        with pytest.raises(sj.FormatError):
            sj.Program((4, 6), sj.dtype("uint8"), ((name, given),))


@pytest.mark.parametrize(
    "constant",
    [
        ("float32", (1 << 40,), b""), ("float32", (-1, -4), bytes(16)), ("float32", "ab", bytes(8)),
        ("float32", (1.0,), bytes(4)), ("float32", (-2,), bytes(8)), ("float16", (2,), bytes(4)),
        ("object", (1,), bytes(8)), ("float32", (1,), bytearray(4)), ("float32", (1,)),
    ],
)  # fmt: skip
def test_constants_are_checked(constant):
    ops = (("dequantize", (constant, None, None, "float32")),)
    with pytest.raises(sj.FormatError, match=r"operation 0 \(dequantize\)"):
        sj.Program((4, 6), sj.dtype("uint8"), ops)


@pytest.mark.parametrize("zero", [None, 1])
def test_no_tensors(zero):
    """A stack of none, too, has results of the new dtype."""
    scale = np.full((4, 3), 0.5, np.float32)
    settings = {"block_shape": (1, 2), "zero_point": zero}
    program = sj.plan((4, 6), "uint8", lambda t: t.dequantize(scale, **settings).T)
    back = sj.plan((4, 6), "float32", lambda t: t.quantize(scale, dtype="int8", block_shape=(1, 2)))
    empty = np.empty((0, 4, 6), np.uint8)
    out = np.empty((0, 6, 4), np.float32)
    assert program.map(empty).shape == (0, 6, 4)
    assert program.map(empty).dtype == np.float32
    assert program.map(empty, out=out) is out
    assert program.map([]) == []
    assert back.map(empty.astype(np.float32)).dtype == np.int8


def test_dtypes_that_numpy_lacks():
    program = sj.plan((3,), "uint8", lambda t: t.cast("uint3"))
    with pytest.raises(sj.DTypeError, match="uint3"):
        program(np.zeros(3, np.uint8))
    assert program(sj.asarray(np.arange(3, dtype=np.uint8))).unpack().tolist() == [0, 1, 2]
    program = sj.plan((3,), "uint3", lambda t: t.cast("uint8"))
    for x in (np.ones(3), np.ones(3, np.uint8)):  # NumPy says that float64 equals None
        for call in (program, lambda x: program.map([x]), lambda x: program.map(x[None])):
            with pytest.raises(sj.DTypeError, match=f"{x.dtype}, the program's uint3"):
                call(x)


@pytest.mark.parametrize("kind", [np.asarray, sj.asarray])
@pytest.mark.parametrize("target", ["complex64", "complex128"])
def test_numpy_makes_new_results_of_complex_numbers(kind, target):
    """Each number is two floats: a stack of results has the size of numbers."""
    source = {"complex64": "complex128", "complex128": "complex64"}[target]
    program = sj.plan((3, 4), source, lambda t: t.T.cast(target))
    x = [np.arange(12 * i, 12 * i + 12).reshape(3, 4).astype(source) * (1 + 2j) for i in range(20)]
    with patience.force_numpy():
        made = program.map([kind(one) for one in x])
    assert [np.asarray(one).tolist() for one in made] == [one.T.tolist() for one in x]


def test_results_are_of_the_new_dtype():
    program = sj.plan((2, 3), "float32", lambda t: t.T.cast("bfloat16"))
    assert program.nbytes == 12
    assert "float32 -> bfloat16" in str(program)
    with pytest.raises(sj.DTypeError):
        program(np.zeros((2, 3), np.float32), out=np.zeros((3, 2), np.float32))
    out = np.zeros((3, 2), ml_dtypes.bfloat16)
    assert program(np.ones((2, 3), np.float32), out=out) is out
    assert (out == 1).all()


def test_any_length_of_dim_0():
    """One program for every batch length; bad shapes are refused before anything is written."""

    scale = np.array([0.5, 2, 3, 1], np.float32).reshape(1, 4, 1)

    def fn(t):
        return t.permute_dims((0, 2, 1)).dequantize(scale)

    program = sj.plan((None, 3, 4), "uint8", fn)
    arrays = [np.arange(n * 12).reshape(n, 3, 4).astype(np.uint8) for n in (2, 0, 5, 2)]
    wanted = [x.transpose(0, 2, 1) * scale for x in arrays]
    for x, right in zip(arrays, wanted, strict=True):
        assert np.array_equal(program(x), right)
        assert np.array_equal(program(sj.asarray(x)).numpy(), right)
    found = program.map(arrays)
    assert all(np.array_equal(x, right) for x, right in zip(found, wanted, strict=True))
    outs = [np.zeros(right.shape, np.float32) for right in wanted]
    found = program.map(iter(arrays), out=outs)
    assert all(x is out for x, out in zip(found, outs, strict=True))
    assert all(np.array_equal(x, right) for x, right in zip(outs, wanted, strict=True))
    assert program.of(2) is program.of(2)
    for wrong in (np.zeros((2, 4, 3), np.uint8), np.zeros((), np.uint8)):
        with pytest.raises(sj.ReshapeError, match=r"\(n, 3, 4\)"):
            program(wrong)
    with pytest.raises(sj.ReshapeError, match="tensor 1"):
        program.map([arrays[0], np.zeros((2, 3, 5), np.uint8)])
    with pytest.raises(sj.ReshapeError, match="3 arrays for 4"):
        program.map(arrays, out=outs[:3])
    with pytest.raises(sj.DTypeError):
        program([1, 2])
    with pytest.raises(sj.DTypeError):
        sj.plan((3, None), "uint8", fn)


def test_a_free_dim_0_is_a_property_of_a_program():
    fn = lambda t: t.T.cast("float32")  # noqa: E731
    program, fixed = sj.plan((None, 3), "uint8", fn), sj.plan((2, 3), "uint8", fn)
    assert (type(program), program.free_dims, fixed.free_dims) == (sj.Program, (0,), ())
    assert program.source_shape == (None, 3)
    assert (program.of(2), fixed.of(2)) == (fixed, fixed)
    assert program == sj.plan((None, 3), np.uint8, fn) != fixed
    assert str(program) == "(n, 3) uint8: traced for each n"
    for name in ("shape", "result_dtype", "nbytes", "is_view", "steps"):
        with pytest.raises(sj.ReshapeError, match=r"shape \(n, 3\) depends on n"):
            getattr(program, name)
    with pytest.raises(sj.ReshapeError, match=r"the program is of shape \(2, 3\)"):
        fixed.of(3)
    outer = sj.plan((2, 3), "uint8", lambda t: program(t).T)
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert np.array_equal(outer(x), x)


@pytest.mark.parametrize("own", [np.asarray, sj.asarray])
def test_programs_with_a_free_dim_0_map_as_others_do(own):
    """A stack gives a stack; an iterator is mapped with bounded memory."""
    program = sj.plan((None, 3), "uint8", lambda t: t.T.cast("float32"))
    stack = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    want = stack.swapaxes(1, 2).astype(np.float32)
    made = program.map(own(stack))
    assert type(made) is type(own(stack))
    assert np.array_equal(np.asarray(made), want)
    out = own(np.zeros((4, 3, 2), np.float32))
    assert program.map(own(stack), out=out) is out
    assert np.array_equal(np.asarray(out), want)
    slab = own(np.zeros((4, 3, 2), np.float32))
    assert program.map([own(x) for x in stack], out=slab) is slab
    assert np.array_equal(np.asarray(slab), want)
    for wrong in (stack[0], stack.reshape(4, 3, 2)):
        with pytest.raises(sj.ReshapeError, match=r"has shape \(n, any, 3\), not"):
            program.map(own(wrong))
    rows = [np.full((n, 3), n, np.uint8) for n in (1, 4, 4, 0, 2)]
    for chunk in (None, 1, 3):
        made = [*program.imap(map(own, rows), chunk=chunk)]
        assert [x.shape for x in made] == [(3, len(x)) for x in rows]
        assert all(np.array_equal(np.asarray(a), b.T) for a, b in zip(made, rows, strict=True))
    taken = []
    large = (taken.append(i) or own(np.zeros((1 << 20, 3), np.uint8)) for i in range(9))
    next(program.imap(large))
    assert len(taken) == 1


ROWS = sj.plan((None, 3), "float32", lambda t: t.reshape((-1,)))
OWN = {
    "ndarrays": np.asarray,
    "Tensors": sj.asarray,
    "torch tensors": lambda x: pytest.importorskip("torch").from_numpy(x),
}


@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_outs_of_all_lengths_are_checked_before_any_is_written(own):
    memory = np.arange(60, dtype=np.float32)

    def at(begin, *shape):
        return memory[begin : begin + int(np.prod(shape))].reshape(shape)

    xs = [at(0, 2, 3), at(6, 1, 3), at(9, 2, 3)]
    fit = [at(20, 6), at(26, 3), at(29, 6)]
    wrong = {
        r"tensor [12]: out= overlaps the source": [at(6, 6), *fit[1:]],
        r"tensor 2: out= overlaps the source": [fit[0], at(12, 3), fit[2]],
        r"tensor 0: out= overlaps the source": [fit[0], at(3, 3), fit[2]],
        r"out 1 overlaps out 0": [fit[0], at(25, 3), fit[2]],
        r"out 2 overlaps out 0": [fit[0], fit[1], at(21, 6)],
        r"out 1: out= has shape \(4,\), the result \(3,\)": [fit[0], at(40, 4), fit[2]],
        r"out 2: out= has dtype": [*fit[:2], at(40, 6).view(np.int32)],
        r"2 (arrays|Tensors) for 3": fit[:2],
    }
    before = memory.copy()
    for fault, outs in wrong.items():
        with pytest.raises(sj.ShapeJitError, match=fault):
            ROWS.map([*map(own, xs)], out=[*map(own, outs)])
        assert np.array_equal(memory, before)
    for x, fault in ((at(40, 1, 3).view(np.int32), "dtype"), (at(40, 3), "shape")):
        with pytest.raises(sj.ShapeJitError, match=f"tensor 2: .*{fault}"):
            ROWS.map([*map(own, [*xs[:2], x])], out=[*map(own, fit)])
        assert np.array_equal(memory, before)
    outs = [*map(own, fit)]
    made = ROWS.map([*map(own, xs)], out=outs.__getitem__)
    assert all(x is out for x, out in zip(made, outs, strict=True))
    assert memory[20:35].tolist() == [*range(15)]
    with pytest.raises(sj.DTypeError, match=r"out= must be .*a sequence of arrays, not int"):
        ROWS.map(xs, out=5)
    column = np.array([xs[0], xs[1].view(np.int32), None], object)[:2]
    with pytest.raises(sj.DTypeError, match="column 'x': tensor 1"):
        ROWS.map_batches({"x": column}, ["x"])


@pytest.mark.parametrize("kind", ["uint3", "uint6"])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_imap_ends_where_its_tensors_do(kind, count):
    """Of a dtype that NumPy lacks, too; map of no tensors is no result."""
    program = sj.plan((8,), "uint8", lambda t: t.cast(kind))
    x = sj.asarray(np.arange(8, dtype=np.uint8))
    made = [*program.imap([x] * count, chunk=2)]
    assert [t.unpack().tolist() for t in made] == [x.cast(kind).unpack().tolist()] * count
    outs = [x.cast(kind) for _ in range(count)]
    made = [*program.imap(iter([x] * count), outs.__getitem__, chunk=2)]
    assert [*map(id, made)] == [*map(id, outs)]
    assert len(program.map([x] * count)) == count


class Short(list):
    """A list that says it is longer."""

    def __len__(self):
        return 3


def test_a_shape_is_what_its_items_are():
    assert sj.plan(Short(), "int8", lambda t: t).shape == ()
    assert sj.plan(Short([None]), "int8", lambda t: t)(np.zeros(3, np.int8)).shape == (3,)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0, 3)])
def test_arrays_without_elements_are_mapped(shape):
    program = sj.plan(shape, "uint8", lambda t: sj.flip(t).cast("float32"))
    for made in program.map([np.zeros(shape, np.uint8)] * 3):
        assert (made.shape, made.dtype) == (shape, np.float32)
