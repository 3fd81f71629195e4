"""The Array API's manipulation functions give what NumPy's give, on packed elements too."""

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
