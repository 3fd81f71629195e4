"""The Array API's manipulation functions give what NumPy's give, on packed elements too."""

from itertools import permutations

import numpy as np
import pytest

import shapejit as sj


def tensors(shape):
    """Codes, and Tensors that hold them in whole bytes and packed, contiguous or not."""
    codes = np.random.default_rng(0).integers(0, 16, shape).astype(np.uint8)
    yield codes, codes
    yield codes.astype(np.int64), codes.astype(np.int64)
    for name in ("uint4", "uint6", "float32"):
        t = sj.pack(codes, name) if sj.dtype(name).packed else sj.asarray(codes.astype(name))
        yield codes, t
        if t.ndim > 1:
            yield codes.T, t.permute_dims(range(t.ndim)[::-1])
            yield codes[:, ::-1][1:], t[:, ::-1][1:]


def values(x):
    """The elements, unpacked."""
    if isinstance(x, np.ndarray):
        return x
    return x.unpack().view(np.uint8) if x.dtype.packed else x.numpy()


def check(expected, made, like):
    """That `made` has the kind and dtype of `like`, and the shape and values of `expected`."""
    assert type(made) is type(like)
    assert made.dtype == like.dtype
    assert made.shape == expected.shape
    assert np.array_equal(values(made), expected)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 1, 3), (0, 3)])
@pytest.mark.parametrize("reps", [3, (), (2,), (1, 2), (3, 1), (2, 3, 2), (0, 2), (2, 1, 1, 2)])
def test_tile(shape, reps):
    for codes, x in tensors(shape):
        expected = np.tile(codes, reps)
        check(expected, sj.tile(x, reps), x)
        if isinstance(x, sj.Tensor):
            check(expected, x.tile(reps), x)
            program = sj.plan(x.shape, x.dtype, lambda t: t.tile(reps))
            check(expected, program(sj.ascontiguous(x)), x)
    out = np.empty(np.tile(codes, reps).shape, np.uint8)
    assert sj.tile(np.array(codes, np.uint8), reps, out=out) is out


def test_tile_is_a_view_where_one_exists():
    t = sj.pack(np.arange(6, dtype=np.uint8).reshape(1, 6), "uint4")
    assert np.shares_memory(sj.tile(t, (4, 1)).buffer, t.buffer)
    assert not np.shares_memory(sj.tile(t, (4, 1), copy=True).buffer, t.buffer)
    with pytest.raises(sj.ReshapeError, match="copy=False"):
        sj.tile(t, (1, 2), copy=False)


@pytest.mark.parametrize("x", [np.zeros((2, 3)), sj.asarray(np.zeros((2, 3)))])
def test_tile_refuses(x):
    with pytest.raises(sj.ReshapeError, match=r"repetitions .* must not be negative"):
        sj.tile(x, (1, -1))
    with pytest.raises(sj.DTypeError, match="repetitions must hold ints"):
        sj.tile(x, 1.5)
    with pytest.raises(sj.ReshapeError):
        sj.tile(x, (2**40, 2**40))


ONES = [
    (lambda xp, x: xp.moveaxis(x, 0, -1), (2, 3, 4)),
    (lambda xp, x: xp.moveaxis(x, (2, 0), (0, 1)), (2, 3, 4)),
    (lambda xp, x: xp.transpose(x), (2, 3, 4)),
    (lambda xp, x: xp.expand_dims(x, axis=(0, -1, 2)), (2, 3)),
    (lambda xp, x: xp.expand_dims(x, axis=()), (2, 3)),
    (lambda xp, x: xp.diagonal(x), (3, 4)),
    (lambda xp, x: xp.diagonal(x, 2), (3, 4)),
    (lambda xp, x: xp.diagonal(x, -1, 2, 0), (3, 2, 4)),
    (lambda xp, x: xp.diagonal(x, 9), (3, 4)),
    (lambda xp, x: xp.diagonal(x, axis1=1, axis2=-1), (2, 1, 1)),
    (lambda xp, x: xp.diagonal(x), (0, 3, 2)),
    (lambda xp, x: xp.rot90(x), (2, 3)),
    (lambda xp, x: xp.rot90(x, 2, (0, 2)), (2, 3, 4)),
    (lambda xp, x: xp.rot90(x, -1, axes=(-1, 0)), (2, 3, 4)),
    (lambda xp, x: xp.rot90(x, k=8), (0, 3)),
    (lambda xp, x: xp.roll(x, 2), (5,)),
    (lambda xp, x: xp.roll(x, -7), (2, 3, 4)),
    (lambda xp, x: xp.roll(x, 1, axis=1), (2, 3, 4)),
    (lambda xp, x: xp.roll(x, (1, -2), axis=(0, 2)), (3, 2, 5)),
    (lambda xp, x: xp.roll(x, 1, axis=(0, 0)), (3, 2)),
    (lambda xp, x: xp.roll(x, 3), ()),
    (lambda xp, x: xp.roll(x, 3), (0, 2)),
    (lambda xp, x: xp.roll(x, 3, axis=0), (0, 2)),
    (lambda xp, x: xp.repeat(x, 3), (2, 3)),
    (lambda xp, x: xp.repeat(x, 3), ()),
    (lambda xp, x: xp.repeat(x, 2, axis=0), (2, 3)),
    (lambda xp, x: xp.repeat(x, 2, axis=-1), (2, 3)),
    (lambda xp, x: xp.repeat(x, 0, axis=1), (2, 3)),
    (lambda xp, x: xp.repeat(x, np.array([2, 0, 3]), axis=1), (2, 3)),
    (lambda xp, x: xp.repeat(x, [2, 0, 1, 0, 1, 3]), (2, 3)),
    (lambda xp, x: xp.repeat(x, [4], axis=0), (2, 3)),
    (lambda xp, x: xp.repeat(x, np.array([], int), axis=0), (0, 3)),
]
SEVERAL = [
    (lambda xp, x: xp.unstack(x, axis=1), (2, 3, 4)),
    (lambda xp, x: xp.unstack(x), (3,)),
    (lambda xp, x: xp.split(x, 3), (6, 2)),
    (lambda xp, x: xp.split(x, [1, 4, 9, -1]), (6, 2)),
    (lambda xp, x: xp.split(x, np.array([2]), axis=-1), (2, 4)),
    (lambda xp, x: xp.split(x, 2, axis=1), (2, 0)),
    (lambda xp, x: xp.broadcast_arrays(x, x[:1]), (3, 2)),
]


@pytest.mark.parametrize(("call", "shape"), ONES)
def test_one_result_is_numpys(call, shape):
    for codes, x in tensors(shape):
        if codes.shape == shape:
            check(call(np, codes), call(sj, x), x)


@pytest.mark.parametrize(("call", "shape"), SEVERAL)
def test_several_results_are_numpys_and_views(call, shape):
    for codes, x in tensors(shape):
        if codes.shape == shape:
            expected, made = call(np, codes), call(sj, x)
            assert len(made) == len(expected)
            for want, got in zip(expected, made, strict=True):
                check(want, got, x)
                memory = [a if isinstance(a, np.ndarray) else a.buffer for a in (got, x)]
                assert not got.size or np.shares_memory(*memory)


def test_methods_do_the_same():
    t = sj.pack(np.arange(24).reshape(2, 3, 4) % 16, "uint4")
    codes = values(t)
    for name, given in (
        ("moveaxis", (0, 2)), ("roll", (1, 0)), ("repeat", (2, 1)), ("tile", (2,)),
        ("rot90", (3, (1, 2))), ("transpose", ()), ("transpose", ((1, 0, 2),)),
        ("astype", ("uint8",)),
    ):  # fmt: skip
        expected = getattr(np, name)(codes, *given)
        made = getattr(t, name)(*given)
        assert np.array_equal(values(made), expected)
    assert np.array_equal(values(t.transpose(2, 0, 1)), codes.transpose(2, 0, 1))
    assert np.array_equal(values(t.T if t.ndim == 2 else t.mT), codes.mT)
    assert [p.shape for p in t.split([1], axis=1)] == [(2, 1, 4), (2, 2, 4)]
    assert [p.shape for p in t.unstack(axis=2)] == 4 * [(2, 3)]
    assert values(t.flatten()).tolist() == codes.ravel().tolist()
    assert t.tolist() == codes.tolist()
    assert np.shares_memory(t.flatten().buffer, t.buffer)
    assert [values(row).tolist() for row in t] == codes.tolist()
    assert t[1, 2, 3].item() == codes[1, 2, 3]
    assert t[1, 2, 3].tolist() == codes[1, 2, 3]
    assert t.astype("uint4", copy=False) is t
    assert t.astype("uint4") is not t
    with pytest.raises(sj.ReshapeError, match="24 elements"):
        t.item()
    with pytest.raises(TypeError, match="0 dims"):
        iter(t[0, 0, 0])
    with pytest.raises(sj.DTypeError, match="nf4"):
        sj.pack(np.zeros(2, np.uint8), "nf4").tolist()


@pytest.mark.parametrize(
    "fn",
    [
        lambda t: sj.tile(sj.moveaxis(t, 0, 1), (2, 1, 3)),
        lambda t: sj.repeat(t.transpose(), 3, axis=1),
        lambda t: t.repeat(2),
        lambda t: sj.split(t, [1], axis=1)[1].flatten(),
        lambda t: t.unstack(axis=2)[1].T,
        lambda t: next(iter(t)),
        lambda t: np.diagonal(t.reshape((4, 6)).T, -1).reshape((2, 2)),
        lambda t: t.diagonal(1, 2, 1)[:, ::-1].T,
        lambda t: np.rot90(t.rot90(3, (2, 1)), axes=(0, 2)),
        lambda t: np.tile(np.swapaxes(t, 0, -1), (1, 2, 1)),
        lambda t: t.astype("float32").transpose(1, 0, 2),
        lambda t: sj.broadcast_arrays(t, t[:, :1])[1],
    ],
)
def test_programs(fn):
    t = sj.pack(np.arange(24).reshape(2, 3, 4) % 16, "uint4")
    program = sj.plan(t.shape, t.dtype, fn)
    assert sj.array_equal(program(t), fn(t))
    assert len(program.steps) <= 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda t: sj.roll(t, 1, axis=0),
        lambda t: sj.roll(t, 1),
        lambda t: sj.repeat(t, [1, 2], axis=0),
        lambda t: sj.concat([t, t]),
        lambda t: np.stack([t, t]),
        lambda t: t.tolist(),
        lambda t: np.sum(t),
    ],
)
def test_programs_read_no_elements(fn):
    with pytest.raises(sj.TraceError, match="traced tensor has no data"):
        sj.plan((2, 3), "float32", fn)


def test_a_view_that_cannot_be_flattened():
    x = np.arange(7 * 6 * 5).reshape(7, 6, 5).transpose(1, 2, 0)[::-1, 1:]
    t = sj.pack((x % 16).astype(np.uint8), "uint4")
    for shift in range(-3, x.size + 3, 7):
        assert sj.roll(x, shift).tolist() == np.roll(x, shift).tolist()
        assert values(sj.roll(t, shift)).tolist() == np.roll(x % 16, shift).tolist()
    turned = t.permute_dims((2, 0, 1))
    assert sj.concat([x, x.T], axis=None).tolist() == np.concatenate([x, x.T], None).tolist()
    joined = values(sj.concat([turned, t[0], t[0, 0, 0, ...]], axis=None))
    assert joined.tolist() == [*values(turned).flat, *values(t[0]).flat, values(t)[0, 0, 0]]


def test_out():
    x = np.arange(6).reshape(2, 3)
    for call, shape in (
        (lambda out: sj.roll(x, 1, out=out), (2, 3)),
        (lambda out: sj.roll(x, 1, 1, out=out), (2, 3)),
        (lambda out: sj.repeat(x, 2, 0, out=out), (4, 3)),
        (lambda out: sj.repeat(x, [1, 3], 0, out=out), (4, 3)),
        (lambda out: sj.concat([x, x[:, :1]], 1, out=out), (2, 4)),
        (lambda out: sj.concat([x, x[0]], None, out=out), (9,)),
    ):
        out = np.zeros(shape, x.dtype)
        assert call(out) is out
        assert np.array_equal(out, call(None))
        for wrong in (np.zeros(shape, np.int8), np.zeros((*shape[::-1], 1), x.dtype)):
            with pytest.raises(sj.ShapeJitError, match="out= has"):
                call(wrong)


NAMES = "int2 int4 int8 uint2 uint4 uint8 int32 uint16 float4_e2m1fn float6_e2m3fn float6_e3m2fn"
NAMES += " float8_e3m4 float8_e4m3 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e8m0fnu"
NAMES += " bfloat16 float16 float32 float64"


def every_code(name):
    kind = sj.dtype(name)
    if kind.bits > 16:
        return np.array([0, 1, 2, 77], kind.numpy)
    return np.arange(1 << kind.bits).astype(f"u{kind.numpy.itemsize}").view(kind.numpy)


def test_promotion_keeps_every_value():
    for a in NAMES.split():
        for b in NAMES.split():
            if sj.dtype(a).kind != sj.dtype(b).kind:
                continue
            x, y = every_code(a), every_code(b)
            made = sj.concat([x, y])
            packed = sj.concat([sj.pack(x), sj.pack(y)])
            assert packed.dtype == made.dtype == sj.concat([y, x]).dtype
            assert sj.array_equal(sj.cast(sj.asarray(made), "float64"), packed.cast("float64"))
            with np.errstate(invalid="ignore"):  # NaNs
                expected = np.concatenate([np.asarray(v, np.float64) for v in (x, y)])
                assert np.array_equal(made.astype(np.float64), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("a", "b", "made"),
    [
        ("int4", "uint4", "int8"), ("uint1", "int4", "int4"), ("int8", "uint16", "int32"),
        ("bfloat16", "float16", "float32"), ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fn"),
        ("float8_e5m2", "float8_e4m3fn", "float32"), ("float32", "complex64", "complex64"),
        ("float64", "complex64", "complex128"), ("int8", "float32", "float32"),
        ("bool", "int16", "int16"), ("float32", "float64", "float64"),
    ],
)  # fmt: skip
def test_promotions_by_eye(a, b, made):
    for x in (np.ones((2, 3), sj.dtype(a).numpy), sj.pack(np.ones((2, 3), sj.dtype(a).numpy))):
        y = np.ones((2, 3), sj.dtype(b).numpy)
        y = y if isinstance(x, np.ndarray) else sj.pack(y)
        for join in (sj.concat, sj.stack):
            for axis in (0, 1, -1):
                got = join([x, y], axis)
                assert got.dtype == made
                assert np.array_equal(np.asarray(got, np.complex128).real, np.ones(got.shape))


@pytest.mark.parametrize(("a", "b"), [("int4", "bfloat16"), ("uint4", "nf4"), ("bool", "int4")])
def test_no_dtype_in_common(a, b):
    x, y = (sj.Tensor.frombuffer(bytes(sj.dtype(k).nbytes(2)), k, (2,)) for k in (a, b))
    with pytest.raises(sj.DTypeError, match=f"{a}.* have no dtype in common: cast"):
        sj.concat([x, y])


def test_numpys_scalars_are_arrays():
    assert sj.reshape(np.float32(3), (1, 1)).tolist() == [[3]]
    assert sj.stack([np.int8(1), np.int8(2)]).tolist() == [1, 2]
    assert sj.concat([np.int8(1), np.arange(2)], axis=None).tolist() == [1, 0, 1]
    assert sj.tile(np.float64(2), 3).tolist() == [2, 2, 2]
    assert sj.cast(np.float32(1.9), "int8").tolist() == 1
    total = np.arange(6).sum()
    for call in (sj.flip, sj.ascontiguous, sj.transpose, lambda x: sj.broadcast_to(x, ())):
        assert call(total).tolist() == 15
    assert sj.pack(np.uint8(3), "int4").item() == 3
    assert sj.array_equal(total, total)
    program = sj.plan((), "int64", lambda t: t.reshape((1, 1)))
    assert program(total).tolist() == [[15]]
    assert [x.tolist() for x in program.map([total, total])] == [[[15]], [[15]]]
    assert sj.reshape_batch([total], [(1,)])[0].tolist() == [15]
    assert sj.onnx.reshape(total, [1]).tolist() == [15]
    assert sj.openvino.reshape(total, [1], special_zero=False).tolist() == [15]


def test_a_generator_of_arrays_joins():
    assert sj.concat(np.full(n, n) for n in range(3)).tolist() == [1, 2, 2]


REFUSED = [
    lambda x: sj.permute_dims(x, (0, 1)), lambda x: sj.permute_dims(x, (0, 1, 1)),
    lambda x: sj.permute_dims(x, (0, 1, 3)), lambda x: sj.transpose(x, (0,)),
    lambda x: sj.squeeze(x, 0), lambda x: sj.squeeze(x, 5), lambda x: sj.squeeze(x, (1, 1)),
    lambda x: sj.broadcast_to(x, (2, 2, 2)), lambda x: sj.broadcast_to(x, (2, -1, 3)),
    lambda x: sj.broadcast_to(x, (3,)), lambda x: sj.flip(x, axis=3),
    lambda x: sj.flip(x, axis=(0, 0)), lambda x: sj.flip(x, axis="a"),
    lambda x: sj.flip(x, axis=1.5), lambda x: sj.expand_dims(x, axis=9),
    lambda x: sj.expand_dims(x, axis=(0, 0)), lambda x: sj.expand_dims(x, axis=(0, -5)),
    lambda x: sj.reshape(x, (5, -1)), lambda x: sj.matrix_transpose(x[0, 0]),
    lambda x: sj.moveaxis(x, (0, 1), (0,)), lambda x: sj.moveaxis(x, (0, 0), (0, 1)),
    lambda x: sj.moveaxis(x, 5, 0), lambda x: sj.moveaxis(x, 0, 5),
    lambda x: sj.roll(x, 1, 5), lambda x: sj.roll(x, (1, 2), (0, 1, 2)),
    lambda x: sj.roll(x, (), 5), lambda x: sj.roll(x, (), (-6,)),
    lambda x: sj.roll(x, 1.5), lambda x: sj.repeat(x, (1, 2), axis=2),
    lambda x: sj.repeat(x, -1), lambda x: sj.repeat(x, 2, axis=4),
    lambda x: sj.repeat(x, [1, 1], 0, copy=False), lambda x: sj.repeat(x, [[1]], 0),
    lambda x: sj.split(x, 2, axis=2), lambda x: sj.split(x, 0), lambda x: sj.split(x, 1, 5),
    lambda x: sj.split(x, 1.5), lambda x: sj.split(x, np.zeros(2)),
    lambda x: sj.unstack(x, axis=3), lambda x: sj.unstack(x[0, 0, 0, ...]),
    lambda x: sj.broadcast_arrays(x, x[:, :, :2]), lambda x: sj.concat([x, x], 5),
    lambda x: sj.concat([x, x[:, :, :1]], 0), lambda x: sj.concat([x, x], 1.5),
    lambda x: sj.stack([x, x], 9), lambda x: sj.stack([x, x[0]]),
]  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_ndarrays_and_tensors_are_refused_alike(call):
    x = np.zeros((2, 1, 3))
    faults = []
    for given in (x, sj.asarray(x)):
        with pytest.raises(sj.ShapeJitError) as fault:
            call(given)
        faults.append((fault.type, str(fault.value)))
    assert faults[0] == faults[1]
    assert issubclass(faults[0][0], sj.ReshapeError | sj.DTypeError)


def test_diagonals_of_programs():
    """Stacked arrays, dims of several strides, and values that were written."""
    x = np.arange(2 * 12 * 12, dtype=np.int16).reshape(2, 12, 12)
    for fn in (
        lambda t: t.diagonal(),
        lambda t: t.T.diagonal(-3),
        lambda t: t.T.reshape((3, 4, 12)).diagonal(0, 1, 2),
        lambda t: t.T.reshape((16, 9)).diagonal(2).reshape((7,)).cast("int32"),
    ):
        program = sj.plan(x.shape[1:], x.dtype, fn)
        want = [fn(sj.asarray(row)).numpy() for row in x]
        assert np.array_equal(program(x[1]), want[1])
        assert np.array_equal(program.map(x), want)
        assert np.array_equal(program.map([*x]), want)
    for given in (x, sj.asarray(x)):
        np.asarray(sj.diagonal(given, 1, 0, 2))[...] = -1
        assert (np.diagonal(x, 1, 0, 2) == -1).all()
        with pytest.raises(sj.ReshapeError, match="repeated axis"):
            sj.diagonal(given, 0, 1, -2)
        with pytest.raises(sj.AxisError, match="axis 3 is out of bounds"):
            sj.diagonal(given, 0, 0, 3)
    x.flags.writeable = False
    assert not sj.diagonal(x).flags.writeable


def test_rot90_is_a_view_of_two_axes():
    for x in (np.zeros((2, 3, 4)), sj.pack(np.zeros((2, 3, 4), np.uint8), "uint4")):
        for k in range(-4, 5):
            made = sj.rot90(x, k)
            memory = [a if isinstance(a, np.ndarray) else a.buffer for a in (made, x)]
            assert np.shares_memory(*memory)
        for axes, fault in (
            ((0,), "needs 2 axes"),
            ((0, 0), "repeated"),
            ((0, 3), "out of bounds"),
        ):
            with pytest.raises(sj.ReshapeError, match=fault):
                sj.rot90(x, axes=axes)
        with pytest.raises(sj.DTypeError):
            sj.rot90(x, 1.5)


def test_axes_out_of_bounds_are_index_errors():
    for fault in (IndexError, ValueError, np.exceptions.AxisError, sj.AxisError):
        with pytest.raises(fault, match="axis 9 is out of bounds for 3 dims"):
            sj.expand_dims(np.zeros((2, 3)), axis=9)


def test_numpys_functions_keep_tensors_packed():
    t = sj.pack(np.arange(12).reshape(3, 4) % 8, "int4")
    codes = np.asarray(t)
    for call in (
        lambda x: np.concatenate([x, x]), lambda x: np.concatenate((x, x), axis=None),
        lambda x: np.concat([x, x], 1), lambda x: np.stack([x, x], axis=-1),
        lambda x: np.split(x, 2, axis=1)[1], lambda x: np.tile(x, (2, 1)),
        lambda x: np.repeat(x, 2, axis=0), lambda x: np.roll(x, 1), lambda x: np.reshape(x, (4, 3)),
        lambda x: np.transpose(x), lambda x: np.permute_dims(x, (1, 0)),
        lambda x: np.swapaxes(x, 0, -1), lambda x: np.moveaxis(x, 0, 1), lambda x: np.flip(x, 0),
        lambda x: np.diagonal(x, axis1=1, axis2=0), lambda x: np.diagonal(a=x, offset=1),
        lambda x: np.rot90(x, axes=(1, 0)), lambda x: np.rot90(m=x, k=2),
        lambda x: np.expand_dims(x, (0, 1)), lambda x: np.squeeze(x[:1]),
        lambda x: np.broadcast_to(x, (2, 3, 4)), lambda x: np.ravel(x), lambda x: np.copy(x),
        lambda x: np.unstack(x)[1], lambda x: np.matrix_transpose(x),
        lambda x: np.take(x, [2, 0], axis=1), lambda x: np.take(x, 5),
        lambda x: np.broadcast_arrays(x, x[0])[1],
    ):  # fmt: skip
        made = call(t)
        assert type(made) is sj.Tensor
        assert made.dtype == "int4"
        assert np.array_equal(np.asarray(made), call(codes))
    assert (np.shape(t), np.ndim(t), np.size(t), np.size(t, 1)) == ((3, 4), 2, 12, 4)
    assert np.astype(t, "float32").tolist() == codes.tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda t: np.vstack([t, t]), lambda t: np.sum(t), lambda t: np.array_split(t, 2),
        lambda t: np.save("never-written.npy", t), lambda t: np.where(t, 1, 0),
        lambda t: np.append(np.zeros(3), values=t), lambda t: np.array_equal(t, t),
        lambda t: np.concatenate([t, np.zeros((1, 4))]), lambda t: np.concatenate([t], dtype="i1"),
        lambda t: np.reshape(t, (4, 3), order="K"), lambda t: np.take(t, [9], mode="clip"),
        lambda t: np.swapaxes(t, 0, 3), lambda t: np.swapaxes(t, 0, None),
        lambda t: np.ravel(t, order="CF"),
        lambda t: np.copy(t, order="F"),
        lambda t: np.size(t, (0, 0)), lambda t: np.size(t, 2),
    ],
)  # fmt: skip
def test_numpys_functions_unpack_nothing_silently(call):
    with pytest.raises(sj.ShapeJitError):
        call(sj.pack(np.arange(12).reshape(3, 4) % 8, "int4"))


def test_numpys_orders():
    """Tensors of every order in memory are read as ndarrays that lie so are."""
    x = np.arange(24, dtype=np.int16).reshape(2, 1, 3, 4)
    for axes in permutations(range(4)):
        for seen in (x.transpose(axes), np.flip(x.transpose(axes), (0, 2))[:, ::2]):
            t, shape = sj.asarray(seen), seen.shape[::-1]
            for order in ("C", "F", "A", "a", None):
                want = np.reshape(seen, shape, order=order)
                made = np.reshape(t, shape, order=order)
                assert np.array_equal(made, want)
                assert np.shares_memory(made.buffer, x) == np.shares_memory(want, x)
            for order in ("C", "F", "A", "K"):
                made, want = np.ravel(t, order=order), np.ravel(seen, order=order)
                assert np.array_equal(made, want)
                assert np.shares_memory(made.buffer, x) == np.shares_memory(want, x)


def test_numpys_size():
    t = sj.asarray(np.zeros((2, 3, 4)))
    for axis in (None, 1, -1, (0, 1), (0, -1), ()):
        assert np.size(t, axis) == np.size(t.numpy(), axis)


def test_what_numpy_copies_is_a_copy():
    t = sj.pack(np.arange(6), "int4")
    for call in (
        lambda t: np.repeat(t, 1), lambda t: np.repeat(t, 1, axis=0), lambda t: np.tile(t, 1),
        lambda t: np.tile(t, (1, 1)), lambda t: np.ravel(t[::2]), lambda t: np.roll(t, 0),
        lambda t: np.concatenate([t]), lambda t: np.take(t, [*range(6)]), lambda t: np.copy(t),
    ):  # fmt: skip
        made = call(t)
        assert not np.shares_memory(made.buffer, t.buffer)
        assert np.array_equal(np.asarray(made), call(np.asarray(t)))


def test_whole_bytes_are_numpys_to_compute_with():
    x = np.arange(6.0).reshape(2, 3)
    t = sj.asarray(x)
    assert np.mean(t, axis=0).tolist() == x.mean(0).tolist()
    assert np.allclose(t, x)
    assert np.vstack((t, x)).shape == (4, 3)


class Foreign:
    """An array of another library's."""

    def __array_function__(self, func, types, args, kwargs):
        return "foreign"


def test_other_librarys_arrays_have_their_say():
    assert np.concatenate([sj.asarray(np.zeros(2)), Foreign()]) == "foreign"


def test_the_package_lists_its_api_alone():
    assert dir(sj) == sorted([*sj.__all__, "__version__"])
    for name in dir(sj):
        assert getattr(sj, name) is not None
    known = [kind for kind in vars(sj.errors).values() if isinstance(kind, type)]
    for kind in known:
        if issubclass(kind, sj.ShapeJitError):
            assert getattr(sj, kind.__name__) is kind
            assert kind.__name__ in sj.__all__


def test_tile_checks_copy_and_dims_where_numpy_repeats_small_arrays():
    x = np.arange(4).reshape(2, 2)
    for wrong in ("x", 1, 0, [], np.True_):
        with pytest.raises(sj.DTypeError):
            sj.tile(x, (2, 2), copy=wrong)
    with pytest.raises(sj.ReshapeError):
        sj.tile(np.zeros((1,) * 63 + (2,)), (2,))
    assert (sj.tile(x, (2, 3), copy=True) == np.tile(x, (2, 3))).all()
    assert (sj.tile(x, (300, 300)) == np.tile(x, (300, 300))).all()
