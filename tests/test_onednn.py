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


def static(x, shape, **options):
    return sj.onednn.static_reshape(x, shape=shape, **options)


both = pytest.mark.parametrize(
    "reshape", [static, sj.onednn.dynamic_reshape], ids=["static", "dynamic"]
)


@both
@both_flags
def test_arrays(reshape, special_zero):
    """A sample of the exhaustive run of test_resolver through real arrays."""
    cases = itertools.product(oracle.SOURCES, oracle.TARGETS)
    for source, target in itertools.islice(cases, 0, None, 43):
        x = np.arange(np.prod(source, dtype=int)).astype(np.float32).reshape(source)
        for shape in (target, np.array(target, np.int32)):

            def mine(x=x, shape=shape):
                y = reshape(x, shape, special_zero=special_zero)
                assert y.ravel().tolist() == list(range(x.size))
                return y.shape

            check_same(mine, partial(oracle.onednn, source, target, special_zero))


@both
def test_by_eye(reshape):
    x = np.zeros((2, 3, 4), np.float32)
    assert reshape(x, [0, -1], special_zero=True).shape == (2, 12)
    assert reshape(x, [4, 0, 2], special_zero=True).shape == (4, 3, 2)
    assert reshape(x, [-1], special_zero=False).shape == (24,)
    empty = np.zeros((0, 3), np.float32)
    assert reshape(empty, [3, 0], special_zero=False).shape == (3, 0)
    assert reshape(empty, [-1, 3], special_zero=False).shape == (0, 3)
    assert reshape(empty, [0, 5], special_zero=True).shape == (0, 5)
    for shape, special_zero in [([0, -1], True), ([0, -1], False), ([3, 3, 0], True)]:
        with pytest.raises(sj.ReshapeError, match=f"special_zero={str(special_zero).lower()}"):
            reshape(empty, shape, special_zero=special_zero)


@pytest.mark.parametrize(
    ("reshape", "name"),
    [(static, "StaticReshape"), (sj.onednn.dynamic_reshape, "DynamicReshape")],
)
def test_errors_name_the_operation(reshape, name):
    with pytest.raises(sj.ReshapeError) as caught:
        reshape(np.zeros(6, np.float32), [7], special_zero=False)
    assert str(caught.value) == (
        "cannot reshape (6,) into [7]\n"
        "  the source has 6 elements, the target 7\n"
        f"  asked by onednn.{name} (special_zero=false)"
    )


@both
def test_types(reshape):
    for kind in sj.dtypes.all():
        for x in specimens(kind):
            if kind.name in ("float32", "float16", "bfloat16"):
                y = reshape(x, [3, 2], special_zero=False)
                assert (type(y), y.dtype, y.shape) == (type(x), x.dtype, (3, 2))
            else:
                with pytest.raises(sj.DTypeError, match=f"f32, f16 and bf16, not {kind}"):
                    reshape(x, [3, 2], special_zero=False)


@both
def test_bits_are_kept(reshape):
    codes = np.arange(2**16, dtype=np.uint16)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = codes.view(dtype).reshape(256, 256)
        y = reshape(x.T, [-1, 16], special_zero=True)
        assert (y.view(np.uint16) == codes.reshape(256, 256).T.reshape(-1, 16)).all()


@both
@pytest.mark.parametrize(
    "shape",
    [
        np.ones((1, 6), np.int64), np.array(6), np.ones(1, np.float32), np.ones(1, bool),
        sj.pack(np.array([6], np.uint8), "nf4"), [6.0], "6", None, 6, {6}, b"\x06", {6: 1},
    ],
    ids=repr,
)  # fmt: skip
def test_bad_shapes(reshape, shape):
    x = np.zeros(6, np.float32)
    with pytest.raises(sj.ShapeJitError):
        reshape(x, shape, special_zero=False)
    with pytest.raises(sj.ShapeJitError):
        sj.onednn.request(shape, special_zero=False)


@both
def test_bad_arguments(reshape):
    x = np.zeros(6, np.float32)
    for special_zero in (0, 1, None, "true", 1.0):
        with pytest.raises(sj.DTypeError, match="special_zero"):
            reshape(x, [6], special_zero=special_zero)
        with pytest.raises(sj.DTypeError, match="special_zero"):
            sj.onednn.request([6], special_zero=special_zero)
    with pytest.raises(TypeError, match="special_zero"):
        reshape(x, [6])
    for data in (None, [1.0], 1.0, "a"):
        with pytest.raises(sj.DTypeError, match=r"ndarray or a shapejit\.Tensor"):
            reshape(data, [1], special_zero=False)


@both
def test_copy_and_out(reshape):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.zeros((3, 2), np.float32)
    assert reshape(x.T, [0, -1], special_zero=True, out=out) is out
    assert out.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert np.shares_memory(reshape(x, [-1], special_zero=True, copy=False), x)
    assert not np.shares_memory(reshape(x, [-1], special_zero=True, copy=True), x)
    with pytest.raises(sj.ReshapeError, match="copy=False"):
        reshape(x.T, [-1], special_zero=True, copy=False)


def test_the_shape_may_be_a_tensor():
    x = np.zeros((2, 3), np.float32)
    shape = sj.asarray(np.array([0, -1], np.int32))
    assert sj.onednn.dynamic_reshape(x, shape, special_zero=True).shape == (2, 3)
