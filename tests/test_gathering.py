"""take: elements by their indices, of ndarrays and Tensors, by every kind of kernel."""

from random import Random

import ml_dtypes
import numpy as np
import pytest
from views import of_any_bits

import shapejit as sj
from shapejit.planning import thresholds

DTYPES = np.uint8, np.float32, np.complex128, ml_dtypes.int4, ml_dtypes.uint2


def same(got, want):
    got = np.asarray(got)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("far", [False, True])
def test_take(far, kernels, monkeypatch):
    """NumPy's take, whichever way the planner goes."""
    if far:
        for name in ["LONG_RUN", "SHORT", "RUNS_STREAM_FROM", "NUMPY_BELOW"]:
            monkeypatch.setattr(thresholds, name, 0)
    random = Random(7)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        shape = tuple(random.randint(1, 6) for _ in range(random.randint(1, 4)))
        kind = random.choice(DTYPES)
        x = of_any_bits(rng, shape, kind)
        if random.random() < 0.3:
            x = x.T
        axis = random.randrange(-x.ndim, x.ndim)
        count = x.shape[axis]
        indices = rng.integers(-count, count, random.choice([(), (0,), (3,), (2, 3)]))
        indices = indices.astype(random.choice([np.int8, np.int32, np.int64]))
        want = np.asarray(np.take(x, indices, axis), x.dtype)
        same(sj.take(x, indices, axis=axis), want)
        t = sj.pack(x) if sj.dtype(kind).packed else sj.asarray(x)
        same(sj.take(t, indices, axis=axis), want)
        same(sj.take(t[..., ::-1], sj.asarray(indices), axis=axis), np.asarray(
            np.take(x[..., ::-1], indices, axis), x.dtype))  # fmt: skip


def test_out_and_kinds_of_indices():
    x = np.arange(12, dtype=np.int16).reshape(3, 4)
    out = np.zeros((2, 4), np.int16)
    assert sj.take(x, [2, 0], axis=0, out=out) is out
    assert out.tolist() == x[[2, 0]].tolist()
    assert sj.take(x[0], [-1]).tolist() == [3]
    assert sj.take(x, (), axis=0).shape == (0, 4)
    assert sj.take(x, np.array([1], np.uint64), axis=1).tolist() == x[:, [1]].tolist()
    far = np.array([0, 2**64 - 1], np.uint64)  # NumPy's own take has it wrap around to -1
    for given in (x, sj.asarray(x), sj.pack(x, "uint4")):
        with pytest.raises(
            sj.OutOfBoundsError, match="index 18446744073709551615 is out of bounds"
        ):
            sj.take(given, far, axis=0)
        with pytest.raises(sj.OutOfBoundsError):
            sj.take(given[0], far)
    for given in (np.zeros((0, 3)), sj.asarray(np.zeros((0, 3)))):
        with pytest.raises(
            sj.OutOfBoundsError, match="index 3 is out of bounds for dim 1 of size 3"
        ):
            sj.take(given, np.array([3]), axis=1)
    names = np.array(["a", "bc"], object)
    assert sj.take(names, np.array([1, 1, 0]), axis=0).tolist() == ["bc", "bc", "a"]
    packed = sj.pack(np.array([1, 2, 3], ml_dtypes.uint4))
    target = sj.pack(np.zeros(2, ml_dtypes.uint4))
    assert sj.take(packed, [2, 1], axis=0, out=target) is target
    assert target.tobytes().hex() == "23"
    assert sj.take(x, 1, axis=0).tolist() == x[1].tolist()


@pytest.mark.parametrize(
    ("indices", "axis", "error", "message"),
    [
        ([3], 0, IndexError, "index 3 is out of bounds for dim 0 of size 3"),
        ([-4], 0, IndexError, "index -4 is out of bounds"),
        (np.array([0, 9]), 1, sj.ReshapeError, "index 9 is out of bounds for dim 1 of size 4"),
        ([0], 2, sj.ReshapeError, "axis 2 is out of bounds for 2 dims"),
        ([0], None, sj.ReshapeError, "axis must be given for 2 dims"),
        ([0.5], 0, sj.DTypeError, "indices must be integers, not float64"),
        ([True], 0, sj.DTypeError, "indices must be integers"),
        (["a"], 0, sj.DTypeError, "indices must be integers"),
        (None, 0, sj.DTypeError, "expected a numpy.ndarray, not NoneType"),
        (range(2), 0, sj.DTypeError, "expected a numpy.ndarray, not range"),
    ],
)
def test_refusals(indices, axis, error, message):
    for x in (np.zeros((3, 4), np.int8), sj.asarray(np.zeros((3, 4), np.int8))):
        with pytest.raises(error, match=message):
            sj.take(x, indices, axis=axis)
        with pytest.raises(sj.ReshapeError, match="out= overlaps"):
            sj.take(x, [0, 1, 2], axis=0, out=x)


@pytest.mark.parametrize("kind", [*DTYPES, object], ids=str)
def test_take_along_axis(kind):
    """NumPy's, of arrays and Tensors; all dims but the axis are broadcast."""
    rng = np.random.default_rng(3)
    for shape, of_indices, axis in (
        ((5,), (3,), -1), ((3, 4), (3, 2), 1), ((3, 4), (2, 4), 0), ((3, 4), (1, 7), -1),
        ((3, 1, 4), (3, 5, 4), 0), ((2, 1, 5), (1, 3, 0), 2), ((0, 4), (0, 2), 1),
    ):  # fmt: skip
        x = of_any_bits(rng, shape, np.uint8 if kind is object else kind).astype(kind)
        indices = rng.integers(-shape[axis], shape[axis], of_indices)
        want = np.asarray(np.take_along_axis(x, indices, axis), x.dtype)
        out = np.empty(want.shape, x.dtype)
        assert sj.take_along_axis(x, indices, axis=axis, out=out) is out
        assert out.tolist() == want.tolist()
        if kind is object:
            continue
        same(sj.take_along_axis(x.T[...].T, indices.astype(np.int8), axis=axis), want)
        t = sj.pack(x) if sj.dtype(kind).packed else sj.asarray(x)
        made = sj.take_along_axis(t, sj.asarray(indices), axis=axis)
        assert type(made) is type(np.take_along_axis(t, sj.asarray(indices), axis)) is sj.Tensor
        same(made, want)
        flipped = np.take_along_axis(x[..., ::-1], indices, axis)
        same(sj.take_along_axis(t[..., ::-1], indices, axis=axis), np.asarray(flipped, x.dtype))


def test_take_along_axis_of_codes_without_a_dtype_of_numpys():
    t = sj.pack(np.arange(6, dtype=np.uint8).reshape(2, 3), "nf4")
    made = sj.take_along_axis(t, np.array([[2, 0], [1, -1]]))
    assert made.unpack().tolist() == [[2, 0], [4, 5]]
    assert sj.take_along_axis(sj.asarray(np.ones(2, np.float32)), [1, 1, 0]).shape == (3,)


@pytest.mark.parametrize(
    ("indices", "axis", "error", "message"),
    [
        ([[3]], 0, IndexError, "index 3 is out of bounds for dim 0 of size 3"),
        ([[-5]], 1, sj.OutOfBoundsError, "index -5 is out of bounds"),
        ([0], 0, sj.ReshapeError, "indices have 1 dims, x 2"),
        ([[0]], 2, sj.AxisError, "axis 2 is out of bounds for 2 dims"),
        ([[0], [0]], 1, sj.ReshapeError, r"cannot broadcast indices of \(2, 1\) into \[3, 4\]"),
        ([[0.5]], 0, sj.DTypeError, "indices must be integers, not float64"),
        ([[0]], None, sj.DTypeError, "axis must hold ints only"),
    ],
)
def test_refusals_of_take_along_axis(indices, axis, error, message):
    for x in (np.zeros((3, 4), np.int8), sj.asarray(np.zeros((3, 4), np.int8))):
        with pytest.raises(error, match=message):
            sj.take_along_axis(x, indices, axis=axis)
        with pytest.raises(sj.ReshapeError, match="out= overlaps"):
            sj.take_along_axis(x, np.zeros((3, 4), int), axis=1, out=x)
