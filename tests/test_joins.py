"""Joins of arrays of one kind: interleaved, one by one, or in one call."""

import gc
import sys
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from math import prod

import loops
import ml_dtypes
import numpy as np
import pytest
from compiled import COMPILED
from guarded import guarded
from hypothesis import HealthCheck, given, settings, strategies as st
from test_packed import run_alone

import shapejit as sj
from shapejit.engine import patience
from shapejit.errors import ReshapeError
from shapejit.planning import planner
from shapejit.planning.strategies import Strategy
from shapejit.shapes.layout import Layout

DTYPES = ["u1", "u2", "f4", "f8", "c16", "V3"]


def filled(shape, dtype, seed=0):
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(seed).integers(0, 256, prod(shape) * dtype.itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def same(made, expected):
    return (made.shape, made.dtype, made.tobytes()) == (
        expected.shape,
        expected.dtype,
        expected.tobytes(),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 15, 16, 33])
def test_stacks_along_any_axis_are_numpys(dtype, count, kernels):
    for shape in ((37, 41), (5, 3, 19), (133,)):
        parts = [filled(shape, dtype, k) for k in range(count)]
        for axis in range(len(shape) + 1):
            expected = np.stack(parts, axis)
            assert same(sj.stack(parts, axis), expected)
            # Whatever is beside the output stays as it is, and it may begin anywhere.
            memory = np.full(expected.nbytes + 200, 0xA5, np.uint8)
            out = memory[101:-99].view(dtype).reshape(expected.shape)
            assert sj.stack(parts, axis, out=out) is out
            assert same(out, expected)
            assert (memory[:101] == 0xA5).all()
            assert (memory[-99:] == 0xA5).all()


@pytest.mark.parametrize("kind", ["uint1", "uint2", "uint3", "uint4", "uint6"])
@pytest.mark.parametrize("row", [1, 3, 7, 130])
def test_packed_elements_that_share_bytes(kind, row, kernels):
    parts = [filled((5, 9, row), "u1", k) % (1 << int(kind[-1])) for k in range(3)]
    packed = [sj.pack(x, kind) for x in parts]
    for join, by_numpy in ((sj.stack, np.stack), (sj.concat, np.concatenate)):
        for axis in range(3):
            expected = by_numpy(parts, axis)
            out = sj.pack(np.zeros_like(expected), kind)
            assert join(packed, axis=axis, out=out) is out
            for made in (out, join(packed, axis=axis)):
                assert np.array_equal(sj.unpack(made).view(np.uint8), expected)
                assert made.tobytes() == sj.pack(expected, kind).tobytes()
    whole = sj.stack(packed[:2])
    with pytest.raises(ReshapeError, match="overlap"):
        sj.stack([*whole], axis=2, out=whole.reshape((5, 9, 2, row)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [1, 2, 3, 5, 15, 16, 17, 40, 64, 100, 1500])
def test_short_rows_side_by_side(dtype, row, kernels):
    parts = [filled((29, row), dtype, k) for k in range(6)]
    assert same(sj.concat(parts, axis=1), np.concatenate(parts, 1))
    assert same(sj.stack(parts, axis=1), np.stack(parts, 1))
    # Of different lengths, whose places are not evenly spaced, between others.
    mixed = [*parts[:3], filled((29, 2 * row), dtype, 7), *parts[3:]]
    assert same(sj.concat(mixed, axis=1), np.concatenate(mixed, 1))


LOOKS = {
    "transposed": lambda x: x.T,
    "backwards": lambda x: x[:, ::-1],
    "upside down": lambda x: x[::-1],
    "every other": lambda x: x[::2, ::3],
    "one row, repeated": lambda x: np.broadcast_to(x[3], x.shape),
    "one column, repeated": lambda x: np.broadcast_to(x[:, 3:4], x.shape),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
def test_parts_of_any_strides(look, dtype, kernels):
    for count in (2, 3, 6, 20):
        parts = [LOOKS[look](filled((48, 66), dtype, k)) for k in range(count)]
        for axis in range(3):
            assert same(sj.stack(parts, axis), np.stack(parts, axis))
            if axis < 2:
                assert same(sj.concat(parts, axis), np.concatenate(parts, axis))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_parts_of_any_shapes_and_strides_are_joined(data, kernels):
    dtype = data.draw(st.sampled_from(DTYPES))
    side = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 40])
    shape = data.draw(st.lists(side, min_size=1, max_size=3))
    axes = data.draw(st.permutations(range(len(shape))))
    steps = data.draw(st.lists(st.sampled_from([1, 1, 1, -1, 2]), min_size=3, max_size=3))
    index = tuple(slice(None, None, step) for step in steps[: len(shape)])
    count = data.draw(st.sampled_from([2, 3, 4, 5, 8, 16, 20]))
    bases = [filled(shape, dtype, k) for k in range(count)]
    # The first ones end where nobody may read on.
    for k in range(min(count, 2)):
        memory = guarded(bases[k].nbytes)[-bases[k].nbytes :].view(dtype).reshape(shape)
        memory[...] = bases[k]
        bases[k] = memory
    parts = [base[index].transpose(axes) for base in bases]
    axis = data.draw(st.integers(0, len(shape)))
    assert same(sj.stack(parts, axis), np.stack(parts, axis))
    axis = data.draw(st.integers(0, len(shape) - 1))
    assert same(sj.concat(parts, axis), np.concatenate(parts, axis))


def looked_at(x, axes, steps):
    """A view of the same shape, whose dims lie in memory in the order of `axes`, with gaps."""
    order = np.argsort(axes)
    memory = guarded(max(1, prod(x.shape)) * x.itemsize * prod(map(abs, steps)))
    wider = [n * abs(step) for n, step in zip(np.array(x.shape)[list(axes)], steps, strict=True)]
    nbytes = prod(wider) * x.itemsize
    view = memory[len(memory) - nbytes :].view(x.dtype).reshape(wider)
    view = view[tuple(slice(None, None, step) for step in steps)].transpose(order)
    view[...] = x
    return view


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_parts_of_unlike_sizes_and_strides_are_joined(data, kernels):
    dtype = data.draw(st.sampled_from([*DTYPES, "M8[s]", "S3", "U2"]))
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 8, 16, 17, 40]), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = []
    for k in range(data.draw(st.integers(1, 6))):
        shape[axis] = data.draw(st.sampled_from([0, 1, 2, 5, 16, 33]))
        axes = data.draw(st.permutations(range(len(shape))))
        steps = [data.draw(st.sampled_from([1, 1, -1, 2])) for _ in shape]
        codes = filled(shape, f"V{np.dtype(dtype).itemsize}", k)
        x = codes.view(dtype) if dtype != "U2" else np.full(shape, "xy"[k % 2] * 2, dtype)
        parts.append(looked_at(x, axes, steps))
    expected = np.concatenate(parts, axis)
    assert same(sj.concat(parts, axis), np.ascontiguousarray(expected))
    memory = np.full(expected.nbytes + 64, 0xA5, np.uint8)
    out = memory[32:-32].view(dtype).reshape(expected.shape)
    assert sj.concat(parts, axis - len(shape), out=out) is out
    assert same(out, np.ascontiguousarray(expected))
    assert (memory[:32] == 0xA5).all()
    assert (memory[-32:] == 0xA5).all()


def test_arrays_of_objects_count_their_references(kernels):
    thing = object()
    parts = [np.full((2, 3), thing), np.full((2, 3), thing)]
    before = sys.getrefcount(thing)
    for join in (sj.concat, sj.stack):
        made = join(parts)
        assert sys.getrefcount(thing) == before + 12
        assert join(parts, out=np.empty_like(made)).ravel().tolist() == [thing] * 12
        del made
    assert sys.getrefcount(thing) == before


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize("join", [sj.concat, sj.stack])
def test_results_are_row_major_whatever_the_parts_are(join, by):
    parts = [filled((5, 7), "f4", k).T for k in range(3)]
    with by():
        assert join(parts).flags.c_contiguous


@pytest.mark.parametrize("name", ["float8_e4m3fn", "bfloat16"])
def test_tensors_join_as_their_codes(name, kernels):
    width = "u1" if name.startswith("float8") else "u2"
    codes = [filled((21, 35), width, k) for k in range(5)]
    tensors = [sj.Tensor.frombuffer(c.copy(), name, c.shape) for c in codes]
    for axis in range(3):
        made = sj.stack(tensors, axis)
        assert (made.shape, made.tobytes()) == (
            np.stack(codes, axis).shape,
            np.stack(codes, axis).tobytes(),
        )


def interleaved(count, part, axis, bits):
    """The Plan of a stack of contiguous parts."""
    whole = Layout.row_major((*part[:axis], count, *part[axis:]), bits)
    into = whole.narrow(axis, 0, 1, 1).squeeze((axis,))
    return planner.joined(Layout.row_major(part, bits), into, count, whole.strides[axis])


INTERLEAVED = [
    (3, (5000,), 1, 1, Strategy.SHUFFLE),
    (4, (50, 70), 2, 2, Strategy.SHUFFLE),
    (2, (50, 70), 2, 4, Strategy.SHUFFLE),
    (5, (5000,), 1, 1, Strategy.SHUFFLE),
    (15, (333, 17), 2, 1, Strategy.SHUFFLE),
    (7, (555,), 1, 2, Strategy.SHUFFLE),
    (16, (999,), 1, 1, Strategy.TILES),
    (200, (301,), 1, 4, Strategy.TILES),
    (3000, (40,), 1, 8, Strategy.TILES),
    (2, (333,), 1, 16, Strategy.TILES),
    (9, (777, 3), 1, 1, Strategy.SHUFFLE),
    (9, (50, 33, 5), 2, 4, Strategy.INTERLEAVED_ROWS),
    (40, (60, 700), 1, 2, Strategy.INTERLEAVED_ROWS),
]


@pytest.mark.parametrize(("count", "part", "axis", "width", "strategy"), INTERLEAVED)
def test_interleaved_between_forbidden_pages(count, part, axis, width, strategy, kernels):
    if not COMPILED and count * prod(part) > 20000:
        pytest.skip("with the JIT off smaller ones are enough")
    assert interleaved(count, part, axis, 8 * width).strategy is strategy
    nbytes, dtype = prod(part) * width, np.dtype(f"V{width}") if width == 16 else f"u{width}"
    expected = np.stack([filled(part, dtype, k) for k in range(count)], axis)
    some = [guarded(nbytes) for _ in range(min(count, 3))]
    ends = guarded(expected.nbytes)
    for at_end in (False, True):
        parts = []
        for k in range(count):
            memory = some[k] if k < len(some) else np.empty(nbytes + 64, np.uint8)
            place = memory[-nbytes:] if at_end else memory[:nbytes]
            parts.append(place.view(dtype).reshape(part))
            parts[-1][...] = filled(part, dtype, k)
        place = ends[-expected.nbytes :] if at_end else ends[: expected.nbytes]
        out = place.view(dtype).reshape(expected.shape)
        out[...] = np.zeros((), dtype)
        sj.stack(parts, axis, out=out)
        assert same(out, expected)


@pytest.mark.parametrize(("count", "part", "axis", "width", "strategy"), INTERLEAVED)
def test_interleaved_plans_say_so(count, part, axis, width, strategy, kernels):
    made = interleaved(count, part, axis, 8 * width)
    assert str(made).startswith(strategy.row.words)
    assert ("source of the next array" in str(made)) is bool(made.rows)


def test_small_arrays_are_numpys_or_one_call_and_large_ones_are_interleaved():
    loops.forget_plans()
    assert interleaved(3, (64,), 1, 8).by_numpy
    assert interleaved(3, (512, 512), 2, 8).strategy is Strategy.SHUFFLE
    assert interleaved(4096, (1024,), 0, 32).strategy is Strategy.ONE_RUN
    assert interleaved(70000, (16,), 1, 32).strategy not in (Strategy.TILES, Strategy.SHUFFLE)


@pytest.mark.parametrize("shape", [(16,), (3, 5), (), (2, 1, 7), (4, 33)])
@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_small_joins_in_one_call(shape, dtype, count):
    kind = np.dtype("u1" if dtype == "bool" else dtype)  # one object, which tells them alike
    parts = [filled(shape, kind, k) for k in range(count)]
    if dtype == "bool":
        parts = [np.asarray(part & 1).view(np.bool_) for part in parts]
    for axis in range(-len(shape) - 1, len(shape) + 1):
        expected = np.stack(parts, axis)
        for _ in range(2):
            assert same(sj.stack(parts, axis), expected)
        out = np.empty_like(expected)
        assert sj.stack(parts, axis, out=out) is out
        assert same(out, expected)
    for axis in range(-len(shape), len(shape)):
        assert same(sj.concat(parts, axis), np.concatenate(parts, axis))


class Marked(np.ndarray):
    """A subclass, which could say what it likes."""


def not_for_one_call():
    x = np.arange(12.0).reshape(3, 4)
    fit = np.empty((2, 3, 4))
    readonly = fit.copy()
    readonly.flags.writeable = False
    memory = np.empty(36)
    return {
        "other shape": ((x, x[:2]), fit),
        "other dtype": ((x, x.astype("f4")), fit),
        "other byte order": ((x, x.astype(">f8")), fit),
        "transposed": ((x.T, x.T), np.empty((2, 4, 3))),
        "later transposed": ((x, x.reshape(4, 3).T), fit),
        "no array": ((x, [[1.0] * 4] * 3), fit),
        "a subclass": ((x, x.view(Marked)), fit),
        "out readonly": ((x, x), readonly),
        "out of another shape": ((x, x), np.empty((2, 4, 3))),
        "out of another dtype": ((x, x), np.empty((2, 3, 4), "f4")),
        "out with gaps": ((x, x), np.empty((2, 3, 8))[..., ::2]),
        "out overlaps": ((memory[12:24].reshape(3, 4), x), memory[:24].reshape(2, 3, 4)),
    }


@pytest.mark.parametrize("kind", not_for_one_call())
def test_what_does_not_fit_the_first_array(kind, kernels):
    parts, out = not_for_one_call()[kind]
    raw = out.base if kind == "out overlaps" else out
    if raw.flags.writeable:
        raw[...] = 7.5
    before = raw.copy()
    if kind in ("no array", "other shape") or kind.startswith("out"):
        with pytest.raises(sj.ShapeJitError):
            sj.stack(parts, 0, out=out)
        assert np.array_equal(raw, before, equal_nan=True)
    else:
        assert np.array_equal(sj.stack(parts, 0, out=out), np.stack(parts))


def stacked(parts, out):
    """What a stack returns, or the error that it raises, and what is in `out` then."""
    try:
        made = sj.stack(parts, 0, out=out)
        assert made is out
    except (sj.ShapeJitError, TypeError) as fault:
        made = type(fault), str(fault)
    return made if isinstance(made, tuple) else made.tobytes(), out.tobytes()


@pytest.mark.parametrize("kind", [*not_for_one_call(), "fit"])
def test_numpy_joins_and_refuses_the_same(kind):
    """Before kernels are ready, and where they never are."""
    fit = (np.arange(12.0).reshape(3, 4), np.ones((3, 4))), np.empty((2, 3, 4))
    results = []
    for by in (patience.force_numpy, nullcontext):
        parts, out = not_for_one_call().get(kind, fit)
        fixed, out.flags.writeable = not out.flags.writeable, True
        out[...] = 7.5
        out.flags.writeable = not fixed
        with by():
            results.append(stacked(parts, out))
    assert results[0] == results[1]


@pytest.mark.parametrize("axis", [True, np.int64(1), 1.0, None, "1", 3, -4])
def test_an_axis_that_equals_a_known_one(axis):
    """What was kept for axis 1 is not given to whatever is equal to 1."""
    x = np.arange(12.0).reshape(3, 4)
    sj.stack([x, x], 1)
    if isinstance(axis, np.integer):
        assert np.array_equal(sj.stack([x, x], axis), np.stack([x, x], axis))
    else:
        with pytest.raises((sj.ShapeJitError, TypeError)):
            sj.stack([x, x], axis)


def test_many_arrays_that_lie_apart(kernels):
    for shape, count in (((16,), 5000), ((3, 5), 300), ((700,), 64)):
        parts = [filled(shape, "f4", k) for k in range(count)]
        assert same(sj.stack(parts), np.stack(parts))
        assert same(sj.concat(parts), np.concatenate(parts))
        parts[-2] = parts[-2][::-1]
        assert same(sj.stack(parts), np.stack(parts))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_output_that_overlaps_a_part_is_refused(axis, kernels):
    memory = filled((9, 40, 30), "f4")
    before = memory.tobytes()
    out = memory[:3].reshape(
        (40, 3, 30) if axis == 1 else (40, 30, 3) if axis == 2 else (3, 40, 30)
    )
    with pytest.raises(ReshapeError, match="out= overlaps the source"):
        sj.stack([memory[5], memory[2], memory[6]], axis, out=out)
    assert memory.tobytes() == before


def test_parts_are_let_go():
    parts = [np.ones((200, 300), "f4") for _ in range(3)]
    for shape in ((200, 300), (4,)):
        held = [x[: shape[0]].copy() for x in parts]
        kept, made = weakref.ref(held[0]), sj.stack(held, -1)
        assert sys.getrefcount(made) == 2
        del held
        gc.collect()
        assert kept() is None


@pytest.mark.parametrize("join", [sj.concat, sj.stack])
def test_messages_name_the_function(join):
    name = join.__name__
    with pytest.raises(sj.ReshapeError, match=f"at least one array to join\n  asked by {name}$"):
        join([])
    told = rf"array 1 must be of type ndarray, like array 0 \({name}\)"
    with pytest.raises(sj.DTypeError, match=told):
        join([np.ones(2), sj.asarray(np.ones(2))])
    with pytest.raises(sj.DTypeError, match=rf"no dtype in common: cast to one first \({name}\)"):
        join([np.ones(2), np.ones(2, ml_dtypes.int4)])


@pytest.mark.parametrize("kind", ["uint8", "int4", "bfloat16", "uint3"])
@pytest.mark.parametrize("rank", [64, 66])
def test_tensors_of_more_dims_than_numpys(rank, kind):
    """What NumPy can hold no longer goes by kernels; the elements are those of fewer dims."""
    few = sj.Tensor.frombuffer(np.arange(sj.dtype(kind).nbytes(24), dtype="u1"), kind, (2, 3, 4))
    for axes in ((0, 1, 2), (2, 0, 1)):
        x = few.permute_dims(axes)
        many = x.reshape((*x.shape, *[1] * (rank - 3)))
        wider = [many, many.cast("float64")] if kind in ("uint8", "bfloat16") else [many, many]
        for axis in range(3):
            for made, want in (
                (sj.stack([many, many], axis), sj.stack([x, x], axis)),
                (sj.concat([many, many], axis), sj.concat([x, x], axis)),
                (sj.concat(wider, axis), sj.concat([t.reshape(x.shape) for t in wider], axis)),
                (sj.take(many, [[1, 0], [-1, 0]], axis=axis),
                 sj.take(x, [[1, 0], [-1, 0]], axis=axis)),
                (sj.repeat(many, [2] * x.shape[axis], axis=axis), sj.repeat(x, 2, axis=axis)),
            ):  # fmt: skip
                assert made.shape == (*want.shape, *[1] * (rank - 3))
                assert made.dtype == want.dtype
                assert sj.array_equal(made.reshape(want.shape), want)
        out = sj.stack([many, many])
        assert sj.stack([many.flip(), many.flip()], out=out) is out
        assert sj.array_equal(out.reshape((2, *x.shape))[1], x.flip())


@pytest.mark.parametrize("shapes", [((2, 3), (2,)), ((2,), (2, 3)), ((2, 3), (2, 3, 1))])
def test_arrays_of_other_ranks_are_refused(shapes):
    for x in (np.zeros, lambda shape: sj.asarray(np.zeros(shape))):
        for axis in range(len(shapes[0])):
            with pytest.raises(sj.ReshapeError, match=r"array 1 has shape .*, array 0 \("):
                sj.concat([x(shape) for shape in shapes], axis=axis)


@pytest.mark.parametrize("name", ["uint1", "int4", "uint3", "float6_e2m3fn"])
@pytest.mark.parametrize("axis", [0, 1])
def test_nothing_is_read_of_empty_packed_tensors(name, axis):
    """Not even the byte at which they would begin, which may belong to nobody."""
    page, kind = guarded(1), sj.dtype(name)
    some = sj.Tensor(page, kind, Layout.row_major((5, 15), kind.bits))
    shape, nothing = (0, 15) if axis == 0 else (5, 0), np.ndarray(0, np.uint8, page, page.size)
    empty = sj.Tensor(nothing, kind, Layout(shape, some.layout.strides, 0, kind.bits))
    for by in (patience.force_numpy, patience.force_kernels):
        with by():
            for _ in range(2):
                assert sj.array_equal(sj.concat([empty, some, empty], axis=axis), some)


@pytest.mark.parametrize("ndim", [63, 64, 65])
def test_packed_tensors_of_many_dims_are_joined(ndim):
    flat = sj.pack(np.arange(5, dtype=np.uint8), "uint3")
    t = sj.reshape(flat, (1,) * (ndim - 1) + (5,))
    for by in (patience.force_numpy, patience.force_kernels):
        with by():
            for _ in range(2):
                made = sj.reshape(sj.concat([t, t], axis=-1), (10,))
                assert sj.unpack(made).tolist() == [0, 1, 2, 3, 4] * 2


def test_one_error_for_more_dims_than_numpys():
    words = "NumPy has no array of 65 dims .*: it allows 64 dims; a shapejit.Tensor can have more$"
    x = np.zeros((1,) * 64)
    t = sj.asarray(x)[None]
    for call in (
        lambda: sj.stack([x]), lambda: sj.stack([x, x]), lambda: sj.take(x, [[0]], axis=0),
        lambda: sj.expand_dims(x), lambda: sj.reshape(x, (1,) * 65), lambda: t.numpy(),
        lambda: sj.dequantize(t.cast("int8"), t), lambda: sj.quantize(t, t, dtype="int8"),
        lambda: sj.dequantize(t.cast("int8"), t.cast("float6_e2m3fn"), block_shape=(1,) * 65),
        lambda: sj.take(t.reshape(-1), t.cast("int8")),
    ):  # fmt: skip
        with pytest.raises(sj.ReshapeError, match=words):
            call()


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize("join", [sj.concat, sj.stack])
def test_a_part_of_another_dtype_between_others_leaves_out_as_it_was(join, by):
    x = np.ones((2, 3), np.float32)
    out = np.zeros((6, 3) if join is sj.concat else (3, 2, 3), np.float32)
    with by(), pytest.raises(sj.DTypeError, match="out= has dtype float32, the result float64"):
        join([x, x.astype(np.float64), x], out=out)
    assert not out.any()


@pytest.mark.parametrize("entering", [np.asarray, sj.asarray])
def test_bfloat16_keeps_its_bits_among_float32(entering):
    """Also those of every NaN."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    parts = [entering(x) for x in (np.ones(3, np.float32), halves.view(ml_dtypes.bfloat16))]
    for made in (sj.concat(parts), sj.concat(parts, out=entering(np.empty(65539, np.float32)))):
        bits = np.asarray(made).view(np.uint32)
        assert np.array_equal(bits[3:], halves.astype(np.uint32) << 16)


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize("entering", [np.asarray, sj.asarray])
@pytest.mark.parametrize("wider", ["float32", "float64"])
def test_float16_is_cast_among_wider_floats(entering, wider, by):
    """Also a signalling NaN, to which NumPy gives other bits."""
    halves = entering(np.arange(1 << 16, dtype=np.uint16).view(np.float16))
    nans = entering(np.array([0x7C01, 0xFE02], np.uint16).view(np.float16))
    with by():
        for x in (halves, nans):
            made = np.asarray(sj.concat([x, entering(np.ones(3, wider))]))
            assert made[:-3].tobytes() == np.asarray(sj.cast(x, wider)).tobytes()


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize("rows", [3, 4000])
def test_parts_of_several_shapes_and_dtypes_into_an_output(by, rows):
    memory = np.zeros(1 << 17, np.uint8)
    with by():
        for dtypes in (("f4", "f4"), ("i2", "f4"), (ml_dtypes.bfloat16, "f4")):
            parts = [filled((rows + k, 5), "u1", k).astype(d) for k, d in enumerate(dtypes)]
            wanted = np.concatenate([part.astype("f4") for part in parts])
            out = np.empty_like(wanted)
            assert same(sj.concat(parts), wanted)
            assert sj.concat(parts, out=out) is out
            assert same(out, wanted)
            wrong = out.astype("f8"), out[:-1], np.empty((*out.shape, 2), "f4")[..., 0]
            for into in wrong:
                with pytest.raises(sj.ShapeJitError):
                    sj.concat(parts, out=into)
            if wanted.nbytes < len(memory):
                own = memory[: parts[0].nbytes].view(dtypes[0]).reshape(rows, 5)
                into = memory[4 : 4 + wanted.nbytes].view("f4").reshape(wanted.shape)
                with pytest.raises(ReshapeError, match="overlaps"):
                    sj.concat([own, parts[1]], out=into)
                assert not memory.any()


def test_equal_dtypes_give_the_first_ones(kernels):
    """Whatever was joined before: dtypes that are equal may differ in metadata."""
    plain = np.dtype("i4")
    first, second = (np.dtype("i4", metadata=of) for of in ({"a": 1}, {"b": 2}))
    for one, other in ((first, plain), (second, plain), (plain, second)):
        for axis in (0, None):
            made = sj.concat([np.zeros(2, one), np.zeros(2, other)], axis=axis)
            assert made.dtype.metadata == one.metadata
    assert sj.concat([np.zeros(2, "l"), np.zeros(2, "q")]).dtype.char == "l"
    assert sj.concat([np.zeros(2, "q"), np.zeros(2, "l")]).dtype.char == "q"


def test_joins_of_nothing_have_the_shape_that_they_should(kernels):
    wide = np.zeros((0, 1 << 62), np.int8)
    for _ in range(2):
        assert sj.concat([wide] * 4).shape == wide.shape
        with pytest.raises(ReshapeError, match="NumPy has no array"):
            sj.concat([wide] * 4, axis=1)
        assert sj.concat([wide, wide], axis=None).shape == (0,)


def test_arrays_of_any_rank_are_flattened(kernels):
    x, y = filled((5, 4), "f4", 0), filled((3, 2, 7), "f4", 1)
    for parts in ([x, x], [x.T, x], [x, y, y.T], [x[::2], y[..., 0]], [x, np.float32(2)[...]]):
        expected = np.concatenate(parts, axis=None)
        out = np.zeros_like(expected)
        assert sj.concat(parts, axis=None, out=out) is out
        assert same(out, expected)
        assert same(sj.concat(parts, axis=None), expected)


PAIRS = [
    ("f4", "f8"), ("f8", "f4"), ("i2", "i4"), ("u1", "i1"), ("bool", "u2"), ("c8", "f8"),
    (ml_dtypes.bfloat16, "f4"), ("i8", "f4"), ("f2", "f4"), (">i4", "i8"),
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(np.dtype(x).name for x in pair))
def test_arrays_of_two_dtypes(pair, kernels):
    one, other = (filled((4, 6), "u1", k).astype(d) for k, d in enumerate(pair))
    kind = np.result_type(one, other)
    views = one[:, ::-1], other[::-1]
    for parts in ([one, other], [one, one, other, one], [one[:2], other], [*views], [one, other.T]):
        for axis in range(-2, 2):
            for join in (np.concatenate, np.stack):
                ours = sj.concat if join is np.concatenate else sj.stack
                try:
                    wanted = np.ascontiguousarray(join(parts, axis))
                except ValueError:
                    with pytest.raises(ReshapeError):
                        ours(parts, axis)
                    continue
                assert wanted.dtype == kind
                for _ in range(3):
                    assert same(ours(parts, axis), wanted)
                    out = np.zeros_like(wanted)
                    assert ours(parts, axis, out=out) is out
                    assert same(out, wanted)


def frames(call):
    """How many functions of the package a call runs."""
    found = []

    def note(frame, event, _):
        if event == "call" and "shapejit" in frame.f_code.co_filename:
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there are no kernels")
@pytest.mark.parametrize("join", [sj.concat, sj.stack])
def test_small_arrays_of_one_dtype_are_joined_by_compiled_code(join):
    x, y = np.ones((2, 3), np.float32), np.ones((2, 3))
    for parts in ([x, x], (y, y)):
        join(parts)
        out = np.empty_like(join(parts))
        for call in (partial(join, parts), partial(join, parts, out=out)):
            assert frames(call) == [join.__name__]


@pytest.mark.parametrize("count", [2, 50])
def test_threads_join_arrays_of_two_dtypes(count, kernels):
    """NumPy, which casts them, lets other threads join others meanwhile."""
    shapes = [(count, 50 + 7 * k, 30 + k) for k in range(4)]
    parts = [[np.full(s, k, "f4"), np.full(s, k + 0.5, "f8")] for k, s in enumerate(shapes)]

    def run(k):
        wanted = np.concatenate(parts[k], k % 3)
        return all(same(sj.concat(parts[k], k % 3), wanted) for _ in range(40))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


def test_a_warning_that_is_an_error_leaves_no_reference(kernels):
    """NumPy warns of a NaN that it casts, and raises where warnings are errors."""
    x, y = np.array([np.nan], np.float32), np.ones(1)
    x.view(np.uint32)[0] = 0x7F800001
    for _ in range(3):
        sj.concat([x[:0], y, np.ones(1, np.float32)])
    before = sys.getrefcount(y.dtype)
    for _ in range(100):
        with warnings.catch_warnings(), np.errstate(all="raise"), suppress(FloatingPointError):
            sj.concat([y, x])
    assert abs(sys.getrefcount(y.dtype) - before) < 10


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize("kind", ["uint1", "int4", "float6_e2m3fn"])
@pytest.mark.parametrize(
    "see",
    [lambda t: t.T, lambda t: t[:, 1:], lambda t: t[::-1, ::-1], lambda t: t[3:4, 5:6]],
    ids=["turned", "within a byte", "backwards", "one element"],
)
def test_packed_views_of_one_layout(kind, see, by):
    codes = np.random.default_rng(0).integers(0, 1 << sj.dtype(kind).bits, (30, 5, 8), np.uint8)
    parts = [see(sj.pack(each, kind)) for each in codes]
    plain = [part.unpack().view(np.uint8) for part in parts]
    with by():
        for axis in range(3):
            made = sj.stack(parts, axis=axis)
            assert np.array_equal(made.unpack().view(np.uint8), np.stack(plain, axis))
        for axis in (None, 0, 1):
            expected = np.concatenate(plain, axis)
            assert np.array_equal(sj.concat(parts, axis).unpack().view(np.uint8), expected)
            out = sj.pack(np.ones(expected.shape, np.uint8), kind)
            assert sj.concat(parts, axis, out=out) is out
            assert np.array_equal(out.unpack().view(np.uint8), expected)


INTERRUPTED = """
import numpy as np
import shapejit as sj
from shapejit.engine import fast_joins, patience

found = fast_joins.address

def interrupted(name):
    fast_joins.address = found
    raise KeyboardInterrupt

parts = [np.arange(6, dtype="f4").reshape(2, 3)] * 3
with patience.force_kernels():
    sj.concat(parts)  # its kernels are compiled
fast_joins.run, fast_joins.KIND.ready = fast_joins.by_numpy, False
fast_joins.SCRATCH[fast_joins.JOIN_MOVER] = 0
fast_joins.address = interrupted
with patience.force_kernels():
    try:
        sj.concat(parts)
    except KeyboardInterrupt:
        for _ in range(3):
            assert (sj.concat(parts) == np.concatenate(parts)).all()
    else:
        raise SystemExit("nothing was interrupted")
"""


def test_a_join_that_is_interrupted_before_its_kernel_is_ready_leaves_none_that_is_half_ready():
    run_alone(INTERRUPTED)


def test_transposed_parts_of_megabytes_are_stacked_by_a_plan():
    """Neither side is in order: element by element it would hold the GIL for 10 ms."""
    parts = [filled((1000, 1400), "f4").T] * 2
    with patience.force_kernels():
        assert same(sj.stack(parts, axis=-1), np.stack(parts, axis=-1))


def test_one_dtype_between_others_is_cast():
    parts = [np.ones(3, "f4"), *[np.ones(3, "f4")] * 4, np.full(3, 1e300), *[np.ones(3, "f4")] * 9]
    with patience.force_numpy():
        assert same(sj.concat(parts), np.concatenate(parts))


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(8, 16)] * 2, 0),
        ([(8, 16)] * 2, 1),
        ([(7, 9)] * 3, 1),
        ([(3, 5), (4, 5)], 0),
        ([(3, 1)], 0),
    ],
)
def test_packed_joins_are_the_same_each_time(by, shapes, axis):
    rng = np.random.default_rng(0)
    for turned in (False, True):
        codes = [rng.integers(0, 16, shape, np.uint8) for shape in shapes]
        parts = [sj.pack(x.T, "uint4").T if turned else sj.pack(x, "uint4") for x in codes]
        for join, expected in ((sj.concat, np.concatenate), (sj.stack, np.stack)):
            if join is sj.stack and len({*shapes}) > 1:
                continue
            wanted = expected(codes, axis=axis)
            around = sj.pack(np.full(wanted.size + 8, 9, np.uint8), "uint4")
            out = around[4 : 4 + wanted.size].reshape(wanted.shape)
            for _ in range(3):
                with by():
                    made = join(parts, axis=axis)
                    assert join(parts, axis=axis, out=out) is out
                for t in (made, out):
                    np.testing.assert_array_equal(t.unpack().view(np.uint8), wanted)
            edges = around.unpack().view(np.uint8)
            assert {*edges[:4].tolist(), *edges[4 + wanted.size :].tolist()} == {9}
    flat = sj.pack(np.zeros(32, np.uint8), "uint4")
    with by(), pytest.raises(ReshapeError, match="overlaps the source"):
        sj.concat([flat[:16], flat[16:]], out=flat)
