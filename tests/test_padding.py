"""Pads by every kind of kernel, of ndarrays and Tensors: NumPy's pad."""

from random import Random

import ml_dtypes
import numpy as np
import pytest
from views import of_any_bits

import shapejit as sj
from shapejit.operations import padding

DTYPES = np.uint8, np.float32, np.float64, ml_dtypes.int4, ml_dtypes.uint2
MODES = "constant", "edge", "reflect", "wrap"


def packed(x):
    return sj.pack(x) if sj.dtype(x.dtype).packed else sj.asarray(x)


NOWHERE = {"constant": {"constant_values": -1}}


def test_numpys_pad(kernels):
    random = Random(8)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        shape = tuple(random.randint(1, 5) for _ in range(random.randint(1, 4)))
        kind, mode = random.choice(DTYPES), random.choice(MODES)
        x = of_any_bits(rng, shape, kind)
        if random.random() < 0.3:
            x = x.T[..., ::-1]
        widths = [(random.randint(0, 9), random.randint(0, 3)) for _ in shape]
        value = np.array(1, kind)
        # By the places of elements: NumPy pads no dtype of ml_dtypes, and may touch a NaN's bits.
        places = np.pad(np.arange(x.size).reshape(x.shape), widths, mode, **NOWHERE.get(mode, {}))
        want = np.append(x.reshape(-1), value)[places]
        got = padding.pad(x, widths, mode=mode, value=value)
        assert (got.dtype, got.shape, got.tobytes()) == (x.dtype, want.shape, want.tobytes())
        got = padding.pad(packed(x), widths, mode=mode, value=packed(value))
        assert np.asarray(got).tobytes() == want.tobytes()
        out = packed(np.zeros(want.shape, kind))
        assert padding.pad(packed(x), widths, mode=mode, value=packed(value), out=out) is out
        assert np.asarray(out).tobytes() == want.tobytes()


@pytest.mark.parametrize("mode", MODES)
def test_every_dim_is_padded(mode):
    codes = np.random.default_rng(1).integers(0, 16, (9, 9, 9), np.uint8)
    made = padding.pad(packed(codes.astype(ml_dtypes.uint4)), [(1, 2)] * 3, mode=mode)
    assert np.array_equal(made.unpack().astype(np.uint8), np.pad(codes, [(1, 2)] * 3, mode))


def test_long_pads():
    x = np.array([1, 2, 3], ml_dtypes.uint4)
    for mode in ("wrap", "reflect"):
        made = padding.pad(packed(x), [(1000, 1000)], mode=mode)
        want = np.pad(x.astype(int), 1000, mode)
        assert made.unpack().astype(int).tolist() == want.tolist()


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4", "int8", "uint8", "int64"])
@pytest.mark.parametrize("given", [np.asarray, sj.asarray])
def test_constants_out_of_the_range_of_integers(name, given):
    """The ends of the range are constants, what lies beyond is none, whatever holds it."""
    kind = sj.dtype(name)
    x = given(np.zeros(2, kind.numpy))
    low = -(1 << (kind.bits - 1)) if kind.signed else 0
    high = low + (1 << kind.bits) - 1
    for value in (low, high, np.int64(high)):
        padded = sj.onnx.pad(x, [1, 0], value)
        assert sj.asarray(padded).unpack().astype(np.int64).tolist() == [value, 0, 0]
    beyond = [low - 1, high + 1]
    for value in beyond if kind.bits == 64 else [*beyond, np.int64(high + 1)]:
        with pytest.raises(sj.DTypeError, match=f"constant_value of .* must be of {name}, not"):
            sj.onnx.pad(x, [1, 0], value)


def test_what_is_removed_and_what_is_not_there():
    x = np.arange(12).reshape(3, 4)
    assert padding.pad(x, [(-1, 0), (1, -2)], mode="edge").tolist() == [[4, 4, 5], [8, 8, 9]]
    assert padding.pad(x, [(-3, 0), (0, 0)]).shape == (0, 4)
    assert padding.pad(x[:0], [(2, 0), (0, 0)]).tolist() == [[0] * 4] * 2
    assert padding.pad(x[:0], [(0, 0), (1, 0)], mode="edge").shape == (0, 5)
    assert padding.pad(np.array(5), []).tolist() == 5
    for widths, mode in (([(-2, -2), (0, 0)], "edge"), ([(-4, 9), (0, 0)], "constant")):
        with pytest.raises(sj.ReshapeError, match="remove more elements than there are"):
            padding.pad(x, widths, mode=mode)
    for mode in MODES[1:]:
        with pytest.raises(sj.ReshapeError, match="no elements to repeat"):
            padding.pad(x[:0], [(1, 0), (0, 0)], mode=mode)
    with pytest.raises(sj.ReshapeError, match="cannot pad"):
        padding.pad(x, [(2**62, 2**62), (2**40, 0)])
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        padding.pad(x[1:], [(1, 0), (0, 0)], out=x)


@pytest.mark.parametrize("kind", ["float32", "int4", "string"])
def test_a_constant_is_one_element(kind):
    x = np.array(list("123"), object) if kind == "string" else np.ones(3, sj.dtype(kind).numpy)
    out = np.zeros(5, x.dtype)
    for value in ([1, 2], (), ["a", "b", "c"], [[1], [2]], x[:2]):
        with pytest.raises(sj.ShapeJitError, match="constant_value"):
            sj.onnx.pad(x, [1, 1], value, out=out)
        assert (out == 0).all()
    assert sj.onnx.pad(x, [1, 1], [x[0]])[[0, 4]].tolist() == [x[0], x[0]]
