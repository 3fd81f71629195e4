import itertools
from functools import partial

import ml_dtypes
import numpy as np
import oracle
import pytest
from oracle import check_same
from views import specimens

import shapejit as sj

both_flags = pytest.mark.parametrize("special_zero", [False, True])

# docs.openvino.ai, element types; Reshape-1 takes any.
TYPES = {
    "boolean", "bf16", "f16", "f32", "f64", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0", "nf4",
    "i4", "i8", "i16", "i32", "i64", "u1", "u2", "u3", "u4", "u6", "u8", "u16", "u32", "u64",
}  # fmt: skip


@both_flags
def test_arrays(special_zero):
    """A sample of the exhaustive run of test_resolver through real arrays."""
    cases = itertools.product(oracle.SOURCES, oracle.TARGETS)
    for source, target in itertools.islice(cases, 0, None, 31):
        x = np.arange(np.prod(source, dtype=int)).reshape(source)
        for shape in (list(target), np.array(target, np.int8)):

            def mine(x=x, shape=shape):
                y = sj.openvino.reshape(x, shape, special_zero=special_zero)
                assert y.ravel().tolist() == list(range(x.size))
                return y.shape

            check_same(mine, partial(oracle.openvino, source, target, special_zero))


def test_by_eye():
    """The examples of the operation's page and the cancelling rule of its unit tests."""
    for source, shape, special_zero, answer in [
        ((2, 5, 5, 24), [0, -1, 4], True, (2, 150, 4)),
        ((2, 2, 3), [0, 0, 1, -1], True, (2, 2, 1, 3)),
        ((3, 1, 1), [0, -1], True, (3, 1)),
        ((2, 2, 3), [12], False, (12,)),
        ((0,), [0, 4], False, (0, 4)),
        ((0, 3), [0, -1], True, (0, 3)),
        ((4, 0, 2), [-1, 0], True, (8, 0)),
        ((0,), [0, -1], True, (0, 1)),
        ((4, 0, 2), [0, -1], False, (0, 1)),
        ((3, 0), [-1, 0], True, (3, 0)),
        ((), [], True, ()),
    ]:
        y = sj.openvino.reshape(np.zeros(source), shape, special_zero=special_zero)
        assert y.shape == answer
    for source, shape, special_zero in [
        ((2, 3), [0, 0, 0], True),  # the index of a 0 must be below the rank
        ((2, 3), [6, 1, 0], True),
        ((), [0], True),
        ((2, 3), [0, 4], True),  # 8 elements of 6: the implementation forgets to look
        ((2, 3), [0, -1], False),
        ((0, 3), [0, 2, -1], True),
    ]:
        with pytest.raises(sj.ReshapeError, match=f"special_zero={str(special_zero).lower()}"):
            sj.openvino.reshape(np.zeros(source), shape, special_zero=special_zero)


@both_flags
def test_types(special_zero):
    accepted = set()
    for kind in sj.dtypes.all():
        for x in specimens(kind):
            if kind.openvino in TYPES:
                y = sj.openvino.reshape(x, [3, 2], special_zero=special_zero)
                assert (type(y), y.dtype, y.shape) == (type(x), x.dtype, (3, 2))
                accepted.add(kind.openvino)
            else:
                with pytest.raises(sj.DTypeError, match=f"numeric types, not {kind}"):
                    sj.openvino.reshape(x, [3, 2], special_zero=special_zero)
    assert accepted == TYPES


@pytest.mark.parametrize("code", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integer_shapes(code):
    x = np.zeros((2, 3))
    shape = np.array([3, 2], code)
    assert sj.openvino.reshape(x, shape, special_zero=False).shape == (3, 2)
    assert sj.openvino.reshape(x, sj.asarray(shape), special_zero=False).shape == (3, 2)
    if code[0] == "i":
        shape = np.array([0, -1], code)
        assert sj.openvino.reshape(x, shape, special_zero=True).shape == (2, 3)


@pytest.mark.parametrize(
    "shape",
    [
        np.ones((1, 6), np.int64), np.array(6), np.ones(1), np.ones(1, bool),
        np.array([6], ml_dtypes.int4), np.array([6], ml_dtypes.bfloat16), np.array(["6"]),
        sj.pack(np.array([6], np.uint8), "uint4"), sj.pack(np.array([6], np.uint8), "nf4"),
        sj.pack(np.array([6], np.uint8), "uint6"), sj.asarray(np.ones((1, 1), np.int64)),
        [6.0], "6", None, 6, {6}, b"\x06", {6: 1},
    ],
    ids=repr,
)  # fmt: skip
def test_bad_shapes(shape):
    for call in (
        lambda: sj.openvino.reshape(np.zeros(6), shape, special_zero=False),
        lambda: sj.openvino.request(shape, special_zero=False),
    ):
        with pytest.raises(sj.ShapeJitError):
            call()


@pytest.mark.parametrize("special_zero", [0, 1, None, "true", 1.0, [], np.int64(1)])
def test_special_zero_is_a_bool(special_zero):
    with pytest.raises(sj.DTypeError, match="special_zero"):
        sj.openvino.request([1], special_zero=special_zero)
    with pytest.raises(sj.DTypeError, match="special_zero"):
        sj.openvino.reshape(np.zeros(1), [1], special_zero=special_zero)


def test_special_zero_is_required():
    with pytest.raises(TypeError, match="special_zero"):
        sj.openvino.request([1])
    with pytest.raises(TypeError, match="special_zero"):
        sj.openvino.reshape(np.zeros(1), [1])
    assert sj.openvino.request([0], special_zero=np.True_).dims == (-2,)


@pytest.mark.parametrize("data", [None, [1], 1, "a", memoryview(b"a")])
def test_data_is_an_array(data):
    with pytest.raises(sj.DTypeError, match=r"ndarray or a shapejit\.Tensor"):
        sj.openvino.reshape(data, [1], special_zero=False)


def test_copy_and_out():
    x = np.arange(6).reshape(2, 3)
    out = np.zeros((3, 2), x.dtype)
    assert sj.openvino.reshape(x.T, [0, -1], special_zero=True, out=out) is out
    assert out.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert np.shares_memory(sj.openvino.reshape(x, [-1], special_zero=True, copy=False), x)
    assert not np.shares_memory(sj.openvino.reshape(x, [-1], special_zero=True, copy=True), x)
    with pytest.raises(sj.ReshapeError, match="copy=False"):
        sj.openvino.reshape(x.T, [-1], special_zero=True, copy=False)


# Layout operations: test_peers compares their meaning with OpenVINO's ----------------------


@pytest.mark.parametrize(
    ("name", "arguments", "want"),
    [
        ("transpose", ([1, 0],), lambda x: x.T),
        ("transpose", (np.zeros(0, np.int8),), lambda x: x.T),
        ("squeeze", ([0],), lambda x: x),
        ("unsqueeze", (np.array(-1, np.int16),), lambda x: x[..., None]),
        ("broadcast", ([2, 2, 3],), lambda x: np.stack([x, x])),
        ("broadcast", ([2, 4, 3], [0, 2], "explicit"), lambda x: np.stack([x] * 4, 1)),
        ("split", (1, 3), lambda x: x[:, 2:]),
        ("concat", (0,), lambda x: np.concatenate([x, x])),
    ],
)
def test_layouts_of_every_type(name, arguments, want):
    """Views, read-only where elements repeat; of packed Tensors, too."""
    *inputs, last = arguments or (None,)
    named = {"mode": last} if isinstance(last, str) else {}
    inputs = inputs if named or not arguments else arguments

    def call(x):
        y = getattr(sj.openvino, name)([x, x] if name == "concat" else x, *inputs, **named)
        return y[-1] if name == "split" else y

    for kind in sj.dtypes.all():
        if kind.numpy is None or kind.name == "string":
            continue
        codes = np.random.default_rng(1).integers(0, 2, 6 * kind.numpy.itemsize, np.uint8)
        x = codes.view(kind.numpy).reshape(2, 3)
        t = sj.pack(x) if kind.packed else sj.asarray(x)
        if kind.openvino not in TYPES:
            with pytest.raises(sj.DTypeError, match="numeric types"):
                call(x)
            continue
        for made in (call(x), call(t)):
            assert np.asarray(made).tobytes() == want(x).tobytes()
            assert made.shape == want(x).shape
        if name != "concat":
            assert np.shares_memory(call(x), x)
            assert call(x).flags.writeable == (name != "broadcast")


def test_layouts_refuse():
    x = np.zeros((1, 3), np.float32)
    for call in (
        lambda: sj.openvino.transpose(x, [0, 0]),
        lambda: sj.openvino.squeeze(x, [2]),
        lambda: sj.openvino.unsqueeze(x, []),
        lambda: sj.openvino.unsqueeze(x, [0, 0]),
        lambda: sj.openvino.broadcast(x, [2, 3], mode="other"),
        lambda: sj.openvino.broadcast(x, [2, 3], mode="explicit"),
        lambda: sj.openvino.broadcast(x, [2, 3], [0, 1]),
        lambda: sj.openvino.broadcast(x, [2, 3], [1, 0], mode="explicit"),
        lambda: sj.openvino.broadcast(x, [2, -3]),
        lambda: sj.openvino.concat([x, x[:, 1:]], 0),
        lambda: sj.openvino.split(x, 1, 2),
        lambda: sj.openvino.split(x, [0, 1], 1),
    ):
        with pytest.raises(sj.ReshapeError, match=r"openvino\.\w+-\d"):
            call()
    for call in (
        lambda: sj.openvino.transpose([1], [0]),
        lambda: sj.openvino.squeeze(x, 0.5),
        lambda: sj.openvino.concat([x, None], 0),
        lambda: sj.openvino.concat([x, x], None),
        lambda: sj.openvino.concat([x, x.astype(np.int8)], 0),
        lambda: sj.openvino.split(x, 0, "1"),
    ):
        with pytest.raises(sj.DTypeError):
            call()
