import gc
import weakref
from itertools import permutations
from math import prod

import ml_dtypes
import numpy as np
import pytest
from compiled import COMPILED
from hypothesis import HealthCheck, given, settings, strategies as st
from views import arrays, codes_of, packed_bytes

import shapejit as sj
from shapejit.engine.addresses import layout_of
from shapejit.engine.patience import force_numpy
from shapejit.planning import planner, thresholds
from shapejit.planning.small_plans import slower_whole
from shapejit.planning.strategies import Strategy

WHOLE = [d for d in sj.dtypes.all() if d.bits >= 8]
PACKED = [d for d in sj.dtypes.all() if d.packed]


def every_code(dtype):
    """All codes of an 8- or 16-bit dtype, else random ones, as (64, 4, ...) elements."""
    if dtype.bits == 8:
        raw = np.arange(256, dtype=np.uint8)
    elif dtype.bits == 16:
        raw = np.arange(65536, dtype=np.uint16)
    else:
        raw = np.random.default_rng(0).integers(0, 256, 256 * dtype.bits // 8, np.uint8)
    return raw.view(dtype.numpy).reshape(16, 4, -1)


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_every_code_survives_every_way(dtype, kernels):
    x = every_code(dtype)
    raw = x.view(f"V{x.itemsize}")
    for view in (
        lambda a: a,
        lambda a: a.transpose(2, 0, 1),
        lambda a: a[::-1, :, ::-2],
        lambda a: np.broadcast_to(a, (2, *a.shape)),
        lambda a: a[3:, 1:2],
    ):
        expected = view(raw).tobytes()
        for same in (
            sj.reshape(view(x), -1),
            sj.reshape(view(x), -1, copy=True),
            sj.ascontiguous(view(x)),
            sj.reshape(sj.asarray(view(x)), (-1, 1)),
            sj.asarray(view(x)),
        ):
            assert same.tobytes() == expected
            assert same.dtype == x.dtype if isinstance(same, np.ndarray) else same.dtype is dtype


@given(x=arrays(st.sampled_from(["u1", "<u2", "<u4", "<u8", "<c16", "V3", "V12", "U2"])))
def test_numpy_and_tensor_agree_on_reshape(x):
    target = (-1, 2) if x.size % 2 == 0 and x.size else (x.size,)
    expected = x.reshape(target)
    assert sj.reshape(x, target).tobytes() == expected.tobytes()
    if x.dtype.char not in "VU":
        t = sj.reshape(sj.asarray(x), target)
        assert (t.shape, t.tobytes()) == (expected.shape, expected.tobytes())


@given(x=arrays(st.just("u4"), max_rank=4), data=st.data())
def test_views_exactly_where_numpy_has_one(x, data):
    target = tuple(data.draw(st.permutations([d for d in x.shape if d != 1])))
    try:
        expected = x.reshape(target, copy=False)
    except ValueError:
        with pytest.raises(sj.ReshapeError, match="copy=False"):
            sj.reshape(x, target, copy=False)
        assert not np.shares_memory(sj.reshape(x, target), x)
        assert not np.shares_memory(sj.reshape(sj.asarray(x), target).buffer, x)
        return
    for copy in (None, False):
        got = sj.reshape(x, target, copy=copy)
        assert got.__array_interface__ == expected.__array_interface__
        t = sj.reshape(sj.asarray(x), target, copy=copy)
        assert t.numpy().__array_interface__["data"] == expected.__array_interface__["data"]
        assert t.tobytes() == expected.tobytes()
    assert x.size == 0 or not np.shares_memory(sj.reshape(x, target, copy=True), x)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_packed_views_and_copies(data, kernels):
    dtype = data.draw(st.sampled_from(PACKED))
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=4)))
    memory = np.random.default_rng(1).integers(0, 256, dtype.nbytes(prod(shape)), np.uint8)
    t = sj.Tensor.frombuffer(memory, dtype, shape)
    for _ in range(data.draw(st.integers(0, 6))):
        codes = codes_of(t)
        if t.ndim == 0:
            break
        axes = data.draw(st.permutations(range(t.ndim)))
        axis = data.draw(st.integers(0, t.ndim - 1))
        step = data.draw(st.sampled_from([1, 2, -1, -3]))
        index = (slice(None),) * axis + (slice(None, None, step),)
        t, codes = data.draw(
            st.sampled_from(
                [
                    (t.permute_dims(axes), codes.transpose(axes)),
                    (t[index], codes[index]),
                    (t.flip(axis=axis), np.flip(codes, axis)),
                    (t.reshape((-1,)), codes.reshape(-1)) if t.size else (t, codes),
                    (t.expand_dims(axis), np.expand_dims(codes, axis)),
                    (t.broadcast_to((2, *t.shape)), np.broadcast_to(codes, (2, *t.shape))),
                ]
            )
        )
        assert np.array_equal(codes_of(t), codes)
        if t.size > 4000:
            break
    codes = codes_of(t)
    expected = packed_bytes(codes, dtype.bits)
    assert t.tobytes() == expected
    assert sj.reshape(t, (-1,) if t.size else (0,)).tobytes() == expected
    assert np.array_equal(t.unpack().view(np.uint8), codes)
    out = sj.Tensor.frombuffer(np.full(t.nbytes, 255, np.uint8), dtype, t.shape)
    assert sj.ascontiguous(t, out=out) is out
    assert out.tobytes() == expected
    unused = -t.size * dtype.bits % 8  # bits that are not an element's stay as they are
    assert not t.size or out.buffer[-1] >> (8 - unused) == (1 << unused) - 1


def test_packed_reshape_moves_no_byte():
    t = sj.Tensor.frombuffer(bytes(range(53)), "int4", (5, 7, 3))
    for shape in ((105,), (3, 35), (7, 15), (1, 105, 1), (3, 5, 7)):
        seen = sj.reshape(t, shape, copy=False)
        assert seen.shape == shape
        assert np.shares_memory(seen.buffer, t.buffer)


@pytest.mark.parametrize("strings", [object, "U4", "S4", np.dtypes.StringDType()], ids=str)
def test_strings_take_numpys_way(strings):
    x = np.array([["a", "bb"], ["ccc", ""], ["dd", "e"]]).astype(strings)
    for copy in (None, True):
        got = sj.reshape(x.T, (3, 2), copy=copy)
        assert got.dtype == x.dtype
        assert got.tolist() == x.T.reshape(3, 2).tolist()
    out = np.empty((6,), x.dtype)
    assert sj.reshape(x.T, -1, out=out) is out
    assert out.tolist() == x.T.ravel().tolist()


def test_objects_keep_their_references():
    values = [object() for _ in range(6)]
    got = sj.reshape(np.array(values, object).reshape(2, 3).T, 6, copy=True)
    del values
    assert len({id(v) for v in got}) == 6


@pytest.mark.parametrize("dtype", ["M8[ns]", ">f4", "V7", [("a", "u1"), ("b", "f8")], "g"])
def test_other_numpy_dtypes_keep_their_bits(dtype, kernels):
    x = np.zeros((6, 5), dtype)
    x.view(np.uint8)[...] = np.random.default_rng(0).integers(0, 256, x.view(np.uint8).shape)
    got = sj.reshape(x.T[::-1], -1)
    assert got.dtype == x.dtype
    assert got.tobytes() == x.T[::-1].tobytes()


def test_one_int_is_a_shape():
    for one in (6, np.int64(6), -1):
        assert sj.reshape(np.zeros((2, 3)), one).shape == (6,)


def test_rank_64_and_scalars_and_empties(kernels):
    x = np.arange(8.0).reshape((2,) * 3 + (1,) * 61)
    for given_ in (x, sj.asarray(x)):
        assert sj.reshape(given_, (8,)).tobytes() == x.tobytes()
        back = sj.reshape(sj.reshape(given_, 8), (1,) * 61 + (2,) * 3, copy=True)
        assert back.shape == (1,) * 61 + (2,) * 3
        flipped = sj.permute_dims(given_, tuple(range(63, -1, -1)))
        assert sj.reshape(flipped, -1).tobytes() == x.T.tobytes()
    scalar = np.full((), 3, np.float32)
    assert sj.reshape(scalar, (1, 1), copy=True).tolist() == [[3]]
    assert sj.reshape(np.ones((1, 1)), (), copy=True).shape == ()
    for copy in (None, True, False):
        assert sj.reshape(np.zeros((0, 3)).T, (5, 0, 2), copy=copy).shape == (5, 0, 2)
        packed = sj.Tensor.frombuffer(b"", "int4", (0, 3))
        assert sj.reshape(packed, (7, 0), copy=copy).shape == (7, 0)


def test_out():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    out = np.zeros((6, 4), np.float32)
    assert sj.reshape(x.T, (6, 4), out=out) is out
    assert np.array_equal(out, x.T)
    assert sj.reshape(x, (6, 4), out=out) is out
    assert np.array_equal(out, x.reshape(6, 4))
    t, target = sj.asarray(x), sj.asarray(out)
    assert sj.reshape(t.T, (6, 4), out=target) is target
    assert np.array_equal(out, x.T)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda x: np.empty((4, 6), np.float32), sj.ReshapeError),
        (lambda x: np.empty((6, 4), np.int32), sj.DTypeError),
        (lambda x: np.empty((4, 6), np.float32).T, sj.ReshapeError),
        (lambda x: sj.asarray(np.empty((6, 4), np.float32)), sj.DTypeError),
        (lambda x: np.broadcast_to(np.float32(0), (6, 4)), sj.ReshapeError),
        (lambda x: x.reshape(6, 4), sj.ReshapeError),
        (lambda x: [[0.0] * 4] * 6, sj.DTypeError),
        (lambda x: np.ma.masked_all((6, 4), np.float32), sj.DTypeError),
    ],
)
def test_out_refused_and_untouched(make, error):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    before = x.copy()
    out = make(x)
    with pytest.raises(error):
        sj.reshape(x, (6, 4), out=out)
    assert np.array_equal(x, before)


def test_out_between_the_elements_of_the_source():
    memory = np.arange(48, dtype=np.int32).reshape(4, 12)
    out = memory[1].reshape(6, 2)
    expected = memory[::2].reshape(-1)[:12].reshape(6, 2).copy()
    sj.reshape(memory[::2].reshape(-1)[:12], (6, 2), out=out)
    assert np.array_equal(out, expected)
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        sj.reshape(memory[:, 3], (4, 1), out=memory[0, :4].reshape(4, 1))


def test_a_packed_out_keeps_its_neighbours():
    """An out= may end within a byte: the other bits there are somebody else's."""

    def changed(write):
        base = sj.Tensor.frombuffer(bytearray([0x21, 0x43, 0x65]), "int4", (6,))
        write(base[:5])
        return base.tobytes().hex()

    ones = sj.pack(np.ones(5, np.uint8), "int4")
    program = sj.plan((5,), "int4", lambda t: t.flip())
    for write in (
        lambda out: sj.pack(np.ones(5, np.uint8), "int4", out=out),
        lambda out: sj.reshape(ones, (5,), out=out),
        lambda out: sj.ascontiguous(ones[::-1], out=out),
        lambda out: program(ones, out=out),
        lambda out: program.map([ones], out=[out]),
        lambda out: program.map([ones], out=out.reshape((1, 5))),
        lambda out: sj.reshape_batch([ones], (5,), out=[out]),
        lambda out: sj.concat([ones[:2], ones[2:]], out=out),
    ):
        assert changed(write) == "111161"


def test_packed_targets_of_many_stay_within_their_bytes():
    """Flipped views begin behind their first byte; so does nothing that is written."""
    rng = np.random.default_rng(0)
    for dtype, bits in (
        ("int4", 4),
        ("uint1", 1),
        ("uint2", 2),
        ("uint3", 3),
        ("float6_e2m3fn", 6),
    ):
        codes = [rng.integers(0, 1 << bits, (9, 33), np.uint8) for _ in range(2)]
        t, u = (sj.pack(x, dtype) for x in codes)
        want = [sj.pack(x[:, ::-1].T.reshape(-1), dtype).tobytes() for x in codes]
        program = sj.plan((9, 33), dtype, lambda t: sj.flip(t, axis=1).T.reshape((-1,)))
        assert [x.tobytes() for x in program.map([t, u])] == want
        memory = np.full(t.nbytes + 400, 0xAB, np.uint8)
        out = sj.Tensor.frombuffer(memory[: t.nbytes], dtype, (297,))
        sj.reshape_batch([sj.flip(t, axis=1).T], (-1,), out=[out])
        assert out.tobytes() == want[0]
        assert (memory[t.nbytes :] == 0xAB).all()


def test_packed_out_refused():
    def fresh(n):
        return sj.Tensor.frombuffer(bytearray(n), "int4", (2 * n,))

    t = fresh(3)[:3]
    for out in (
        sj.Tensor.frombuffer(bytes(2), "int4", (4,))[:3],
        fresh(3)[1:4],
        sj.Tensor.frombuffer(bytearray(2), "uint4", (3,)),
        fresh(2),
        np.zeros(3, ml_dtypes.int4),
    ):
        with pytest.raises(sj.ShapeJitError):
            sj.ascontiguous(t, out=out)
    shared = bytearray(4)
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        sj.ascontiguous(
            sj.Tensor.frombuffer(shared, "int4", (8,))[::-1],
            out=sj.Tensor.frombuffer(shared, "int4", (8,)),
        )


def test_unpack_into():
    t = sj.Tensor.frombuffer(bytes([0x21, 0x43]), "int4", (2, 2))
    out = np.zeros((2, 2), ml_dtypes.int4)
    assert t.unpack(out) is out
    assert out.astype(int).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(sj.DTypeError):
        t.unpack(np.zeros((2, 2), np.int8))
    with pytest.raises(sj.ReshapeError):
        t.unpack(np.zeros((4,), ml_dtypes.int4))


def test_copy_false_and_out_exclude_each_other():
    with pytest.raises(sj.ReshapeError, match="exclude"):
        sj.reshape(np.zeros(4), (2, 2), copy=False, out=np.zeros((2, 2)))


def test_view_operations_are_numpys():
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    t = sj.asarray(x)
    pairs = [(f, f(x), f(t)) for f in VIEWS]
    for f, array, seen in pairs:
        assert isinstance(array, np.ndarray)
        assert isinstance(seen, sj.Tensor)
        assert np.shares_memory(array, x), f
        assert np.shares_memory(seen.buffer, x), f
        assert (seen.shape, seen.tobytes()) == (array.shape, array.tobytes())


VIEWS = [
    *(lambda a, p=p: sj.permute_dims(a, p) for p in permutations(range(3))),
    lambda a: sj.permute_dims(a, (-1, 0, 1)),
    lambda a: sj.flip(a),
    lambda a: sj.flip(a, axis=1),
    lambda a: sj.flip(a, axis=(0, -1)),
    lambda a: sj.broadcast_to(a, (5, 2, 3, 4)),
    lambda a: sj.expand_dims(a, axis=1),
    lambda a: sj.expand_dims(a, (0, -1)),
    lambda a: sj.squeeze(sj.expand_dims(a, 2), 2),
    lambda a: sj.matrix_transpose(a),
    lambda a: sj.ascontiguous(a),
]


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8", "c16"])
def test_one_element_is_repeated(dtype):
    x = np.broadcast_to(np.array(3, dtype), (1 << 20,))
    assert sj.ascontiguous(x).tobytes() == x.tobytes()
    assert sj.concat([x, x]).tobytes() == 2 * x.tobytes()


def test_broadcast_views_are_read_only():
    assert not sj.broadcast_to(np.zeros(3), (2, 3)).flags.writeable
    t = sj.asarray(np.zeros(3))
    assert not t.broadcast_to((2, 3)).numpy().flags.writeable
    assert t.buffer.flags.writeable


@pytest.mark.parametrize(
    "call",
    [
        lambda a: sj.permute_dims(a, (0, 0)),
        lambda a: sj.permute_dims(a, (0, 5)),
        lambda a: sj.permute_dims(a, 1.5),
        lambda a: sj.flip(a, axis=7),
        lambda a: sj.squeeze(a, 0),
        lambda a: sj.expand_dims(a, 9),
        lambda a: sj.broadcast_to(a, (3,)),
        lambda a: sj.reshape(a, "12"),
        lambda a: sj.reshape(a, None),
        lambda a: sj.reshape(a, (2.0, 3)),
        lambda a: sj.reshape(a, {2, 3}),
        lambda a: sj.reshape(a, np.zeros((2, 1), int)),
        lambda a: sj.reshape(a, (2**40, 2**40)),
        lambda a: sj.reshape(a, (2**70,)),
        lambda a: sj.reshape(a, (3, 2), copy=2),
        lambda a: sj.flip(a, axis=2**70),
        lambda a: sj.expand_dims(a, [2**70]),
        lambda a: sj.squeeze(a, -(2**70)),
        lambda a: sj.permute_dims(a, (2**70, 0)),
        lambda a: sj.broadcast_to(a, (2**31, 2**31, 2, 3)),
        lambda a: sj.matrix_transpose([1, 2]),
    ],
)
def test_bad_arguments(call):
    x = np.zeros((2, 3))
    for given_ in (x, sj.asarray(x)):
        with pytest.raises((ValueError, TypeError)):
            call(given_)


@pytest.mark.parametrize(
    "x", [[1, 2], 3, None, "ab", memoryview(b"ab")], ids=lambda x: type(x).__name__
)
def test_other_kinds_are_refused(x):
    with pytest.raises(sj.DTypeError, match="expected"):
        sj.reshape(x, (2, 1))


def test_subclasses():
    with pytest.raises(sj.DTypeError, match="mask"):
        sj.reshape(np.ma.masked_array([1, 2], [True, False]), (2, 1))
    got = sj.reshape(np.zeros((2, 2)).view(np.recarray), (1, 2, 2))
    assert type(got) is np.ndarray


def test_small_copies_are_numpys_and_large_ones_are_ours():
    small = np.zeros((8, 8), np.float32).T
    large = np.zeros((512, 512), np.float32).T
    assert planner.plan(layout_of(small)).by_numpy
    assert planner.plan(layout_of(large)).strategy is Strategy.TILES
    assert sj.ascontiguous(small).flags.c_contiguous


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_concat_and_stack_are_numpys(data, kernels):
    dtype = data.draw(st.sampled_from(["u1", "<u2", "<u4", "<u8", "<c16", "V3", "O"]))
    x = data.draw(arrays(st.just("u4"), max_rank=4, max_side=6))
    x = x.astype(object) if dtype == "O" else x.astype("u4").view("u4")
    if dtype not in ("O", "u4"):
        x = np.asarray(x.astype("u8") * 77).astype(dtype if dtype != "V3" else "u1")
    axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
    parts = [x, np.flip(x)[...] if x.ndim else x, x]
    assert sj.stack(parts, axis=axis).tolist() == np.stack(parts, axis=axis).tolist()
    if x.ndim == 0:
        return
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    index = (slice(None),) * (axis % x.ndim) + (slice(1, None, 2),)
    parts = [x, x[index], np.flip(x, axis), x[index]]
    expected = np.concatenate(parts, axis=axis)
    assert sj.concat(parts, axis=axis).tolist() == expected.tolist()
    out = np.empty_like(expected, order="C")
    assert sj.concat(parts, axis=axis, out=out) is out
    assert out.tolist() == expected.tolist()
    if dtype != "O":
        joined = sj.concat([sj.asarray(p) for p in parts], axis=axis)
        assert (joined.shape, joined.tobytes()) == (expected.shape, expected.tobytes())


@pytest.mark.parametrize("dtype", ["u1", "u4", "c16"])
def test_large_parts_with_elements_between_each_others(dtype, kernels):
    x = np.arange(300 * 301).astype(dtype).reshape(300, 301)
    for parts in ([x, x + 1, x + 2], [x.T, x.T + 1], [x[:, ::-1], x], [x[::2], x[1::2] + 1]):
        out = np.zeros((*parts[0].shape, len(parts)), dtype)
        assert sj.stack(parts, axis=-1, out=out) is out
        assert np.array_equal(out, np.stack(parts, axis=-1))


@pytest.mark.parametrize("nbytes", [7, 64, 100, 1500, 4095, 4096, 4097])
def test_rows_join_side_by_side(nbytes, kernels):
    """Whatever the length of a row, what is beside it in the output stays its neighbour's."""
    rows = np.random.default_rng(0).integers(0, 256, (40, nbytes), np.uint8)
    out = np.zeros((40, 2 * nbytes), np.uint8)
    sj.concat([rows, rows[::-1]], axis=1, out=out)
    assert np.array_equal(out, np.concatenate([rows, rows[::-1]], axis=1))


@pytest.mark.parametrize("dtype", PACKED, ids=str)
@pytest.mark.parametrize("sides", [(4, 8, 2), (3, 5, 7), (0, 1, 3), (1, 16, 8)])
def test_packed_tensors_join_packed(dtype, sides, kernels):
    rng = np.random.default_rng(0)
    for shape in ((16,), (3, 5), (8, 2, 4)):
        for axis in range(len(shape)):
            codes = []
            for side in sides:
                part = (*shape[:axis], side, *shape[axis + 1 :])
                codes.append(rng.integers(0, 1 << dtype.bits, part, np.uint8))
            tensors = [sj.pack(c, dtype) for c in codes]
            tensors[1] = tensors[1].flip(axis=axis).flip(axis=axis)[...]
            expected = np.concatenate(codes, axis)
            joined = sj.concat(tensors, axis=axis)
            assert joined.tobytes() == packed_bytes(expected, dtype.bits)
            assert joined.buffer.size == joined.nbytes
            out = sj.Tensor.frombuffer(bytearray(joined.nbytes), dtype, expected.shape)
            assert sj.concat(tensors, axis=axis, out=out) is out
            assert out.tobytes() == joined.tobytes()


@pytest.mark.parametrize(
    "join",
    [
        lambda a, t: sj.concat([]),
        lambda a, t: sj.stack([]),
        lambda a, t: sj.concat([a, t]),
        lambda a, t: sj.concat([a, a.T], axis=1),
        lambda a, t: sj.concat([a, a[0]]),
        lambda a, t: sj.concat([a, a], axis=2),
        lambda a, t: sj.concat([a[0, 0], a[0, 0]]),
        lambda a, t: sj.stack([a, a[:1]]),
        lambda a, t: sj.stack([a, a], axis=4),
        lambda a, t: sj.concat([a, a], out=np.zeros((3, 3))),
        lambda a, t: sj.concat([a[:1], a[:1]], out=a),
        lambda a, t: sj.concat([t, t], out=np.zeros((4, 3))),
        lambda a, t: sj.concat([[1, 2], [3]]),
    ],
)
def test_joins_refused(join):
    a = np.zeros((2, 3))
    with pytest.raises((sj.ShapeJitError, TypeError)):
        join(a, sj.asarray(a))


MANY = (2, 3, *(1,) * 70)
HUGE = (0, 2**62)
BEYOND_NUMPY = {
    "reshape": lambda x: sj.reshape(x, MANY),
    "reshape, copied": lambda x: sj.reshape(x.T, MANY),
    "broadcast_to": lambda x: sj.broadcast_to(x, (1,) * 70 + x.shape),
    "expand_dims": lambda x: sj.expand_dims(x, tuple(range(70))),
    "stack": lambda x: sj.stack([sj.reshape(x, (2, 3) + (1,) * 62)] * 2),
    "batch": lambda x: sj.reshape_batch([x, x.T], MANY),
    "large batch": lambda x: sj.reshape_batch([x.T] * 40, MANY),
    "program": lambda x: sj.plan((2, 3), x.dtype, lambda t: t.reshape(MANY))(x),
    "programs": lambda x: sj.plan((2, 3), x.dtype, lambda t: t.T.reshape(MANY)).map([x] * 9),
    "huge": lambda x: sj.reshape(x[:, :0].T, HUGE),
    "huge batch": lambda x: sj.reshape_batch([x[:, :0]] * 3, HUGE),
    "huge program": lambda x: sj.plan((0,), x.dtype, lambda t: t.reshape(HUGE))(x[0, :0]),
}


@pytest.mark.parametrize("call", BEYOND_NUMPY.values(), ids=BEYOND_NUMPY)
def test_shapes_that_tensors_have_and_ndarrays_have_not(call):
    x = np.arange(6.0).reshape(2, 3)
    call(sj.asarray(x))
    with pytest.raises(sj.ReshapeError, match=r"NumPy has no array of (2|65|72) dims"):
        call(x)


@pytest.mark.parametrize("turned", [False, True])
def test_more_dims_on_the_way_than_an_ndarray_has(turned):
    x = np.arange(6.0).reshape(2, 3)
    x.flags.writeable = False
    program = sj.plan(
        (2, 3), "float64", lambda t: (t.T if turned else t).reshape(MANY).reshape((3, 2))
    )
    expected = (x.T if turned else x).reshape(3, 2).tolist()
    for made in (program(x), program(x[:, ::-1][:, ::-1]), *program.map([x] * 3)):
        assert made.tolist() == expected
        assert np.shares_memory(made, x) is not turned
    assert program(x, out=np.empty((3, 2))).tolist() == expected


def test_tensors_of_many_dims_are_joined():
    x = np.arange(6.0).reshape(2, 3)
    for axis in (0, 1):
        parts = [sj.asarray(x.T).reshape((3, 2, *(1,) * 70)), sj.asarray(x.T).reshape(MANY).flip()]
        parts[1] = parts[1].permute_dims((*range(1, -1, -1), *range(2, 72)))
        joined = np.concatenate([x.T, x.T.reshape(2, 3)[::-1, ::-1].T], axis)
        assert sj.concat(parts, axis=axis).tobytes() == joined.tobytes()


def test_an_array_without_dims_is_viewed():
    x = np.array([43], np.uint8).view(bool).reshape(())  # not a bool that NumPy would write
    for view in (sj.flip(x), sj.permute_dims(x, ()), sj.reshape(x, ()), sj.broadcast_to(x, ())):
        assert np.shares_memory(view, x)
        assert view.view(np.uint8) == 43


def test_repeated_small_copies_are_checked_like_the_first_one():
    """Calls with arrays like those before go straight to a kernel."""
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    out = np.empty((6, 4), np.int32)
    for k in range(5):
        assert sj.ascontiguous(x.T + k, out=out) is out
        assert (out == x.T + k).all()
        assert sj.ascontiguous((x + k).T, out=out) is out
        assert (out == x.T + k).all()
    memory = np.arange(40, dtype=np.int32)
    for shift in (1, 12, 16):
        with pytest.raises(sj.ReshapeError, match="overlaps"):
            sj.ascontiguous(
                memory[:24].reshape(4, 6).T, out=memory[shift : shift + 24].reshape(6, 4)
            )
    readonly = np.empty((6, 4), np.int32)
    readonly.flags.writeable = False
    for wrong in (readonly, np.empty((4, 6), np.int32), np.empty((6, 4), np.uint32)):
        with pytest.raises((sj.ReshapeError, sj.DTypeError)):
            sj.ascontiguous(x.T, out=wrong)


def test_small_copies_of_dialects_are_not_taken_for_others():
    x = np.arange(24, dtype=np.int32).reshape(4, 6).T
    for _ in range(5):
        assert sj.onnx.reshape(x, [0, 2, -1], copy=True).shape == (6, 2, 2)
        assert sj.ascontiguous(x).shape == (6, 4)
        assert sj.reshape(x, (-1,)).shape == (24,)


@pytest.mark.parametrize(
    ("view", "slower"),
    [
        (np.zeros((2048, 64), np.uint8)[:, ::-1], True),
        (np.zeros((1024, 32), np.float32)[:, ::-1], True),
        (np.zeros((32768, 4), np.uint8)[:, ::-1], True),
        (np.zeros((16384, 4, 2), np.uint8).mT, True),  # planes of eight elements
        (np.zeros((256, 128), np.float32).T, False),
        (np.zeros((3, 40000), np.uint8).T, False),  # three channels
        (np.zeros((40000, 3), np.uint8).T, False),
        (np.zeros((1000, 128), np.uint8)[:, :48], False),  # runs
        (np.zeros((9000, 15), np.uint8).T, True),  # less than a vector of columns
    ],
)
def test_a_small_plan_is_not_used_for_elements_that_vectors_move(view, slower):
    made = planner.plan(layout_of(view))
    assert slower_whole(made) is slower


@pytest.mark.parametrize("name", ["flip", "squeeze", "expand_dims"])
def test_axes_of_which_there_are_too_many_to_count(name):
    with pytest.raises(sj.ReshapeError, match="axis has too many items"):
        getattr(sj, name)(np.zeros((2, 3)), axis=range(2**64))


@pytest.mark.skipif(not COMPILED, reason="too many elements")
@pytest.mark.parametrize(
    "nbytes", [thresholds.SCALARS_BELOW, 100_000, thresholds.NO_PLAN_MAX_BYTES]
)
def test_copies_of_one_kind_again_and_again(nbytes):
    """The first one has no Plan, later ones have, or are fast calls: all are the same."""
    source = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    views = [
        source[: nbytes // 64 * 64].reshape(-1, 64)[:, ::-1],
        source[: nbytes // 64 * 64].reshape(-1, 64).T,
        source[: nbytes // 3 * 3].reshape(-1, 3)[:, ::-1],
        source[: nbytes // 4 * 4].view(np.float32).reshape(-1, 2).T,
        source[: nbytes // 8 * 8].reshape(-1, 4, 2).mT,
        np.resize(source, (8 * nbytes // 2048, 2048))[:, 24:-24],  # long runs
    ]
    for view in views:
        for _ in range(4):
            out = np.zeros(view.shape, view.dtype)
            sj.ascontiguous(view, out=out)
            assert out.tobytes() == view.tobytes()


def test_scaled_conversions_by_numpy_keep_no_scales_and_read_those_of_the_call():
    x, seen = np.ones((30, 30), np.int8), []
    with force_numpy():
        assert sj.quantize(np.array(3.0, np.float32), 2.0, dtype="int8") == 2
        for _ in range(5):
            scale = np.ones((1, 30), np.float32)
            seen.append(weakref.ref(scale))
            for _ in range(3):
                sj.dequantize(x, scale)
        del scale
        gc.collect()
        assert not any(ref() is not None for ref in seen)
        scale = np.arange(30, dtype=np.float32).reshape(30, 1)
        for _ in range(3):
            sj.dequantize(x, scale)
        same = scale[...]
        scale.shape = (1, 30)
        assert (sj.dequantize(x, same) == same).all()
        assert (sj.dequantize(x, scale) == scale).all()
