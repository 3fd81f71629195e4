import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from compiled import takes_no_kernels
from hypothesis import given, strategies as st
from views import arrays, codes_of, packed_bytes

import shapejit as sj
from shapejit.operations import equality

FIXED = [d for d in sj.dtypes.all() if d.bits]
PACKED = [d for d in FIXED if d.packed]


def tensor(dtype, shape, seed=0):
    nbytes = sj.dtype(dtype).nbytes(int(np.prod(shape)))
    memory = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    return sj.Tensor.frombuffer(memory, dtype, shape)


def forms(t):
    """The same elements in order, backwards, transposed, amid others, and as ndarrays."""
    yield t
    yield t.reshape(t.shape, copy=True)
    yield sj.flip(sj.flip(t).ascontiguous())
    axes = tuple(range(t.ndim))[::-1]
    yield t.permute_dims(axes).ascontiguous().permute_dims(axes)
    yield sj.concat([tensor(t.dtype, (1, *t.shape), 7), t[None]])[1]
    if t.dtype.numpy is not None:
        array = t.unpack()
        yield array
        yield array[..., ::-1].copy()[..., ::-1]
        yield sj.asarray(array.T.copy().T)


@pytest.fixture(params=[1 << 20, 3, 16], ids="pieces of {}".format)
def pieces(request, monkeypatch):
    monkeypatch.setattr(equality, "COMPARED_BYTES", request.param)


@pytest.mark.parametrize("dtype", FIXED, ids=str)
def test_one_bit_in_any_form(dtype, pieces):
    """Equal in every form; different in every form once any single bit of an element differs."""
    t = tensor(dtype, (3, 3, 5))
    same = list(forms(t))
    for a in same:
        for b in same:
            assert sj.array_equal(a, b)
    bits = t.size * dtype.bits
    for bit in {0, dtype.bits - 1, bits // 2, bits - 1}:
        memory = t.buffer.copy()
        memory[bit // 8] ^= 1 << bit % 8
        place = tuple(np.unravel_index(bit // dtype.bits, t.shape))
        other = sj.Tensor.frombuffer(memory, dtype, t.shape)
        assert equality.first_difference(other, t) == place
        assert equality.first_difference(t, other.mT.ascontiguous().mT) == place
        for a in forms(other):
            assert not sj.array_equal(a, t)
            assert not sj.array_equal(t.mT.ascontiguous().mT, a)


@given(st.data())
def test_random_views(data):
    x = data.draw(arrays(st.sampled_from(["u1", "u2", "f4", "c16"]), 4, 5))
    y = x.copy()
    assert sj.array_equal(x, y)
    assert sj.array_equal(sj.asarray(x), y)
    if x.size:
        at = data.draw(st.integers(0, y.nbytes - 1))
        y.reshape(-1).view(np.uint8)[at] ^= data.draw(st.sampled_from([1, 8, 128]))
        assert not sj.array_equal(x, y)
        assert not sj.array_equal(sj.asarray(y), sj.asarray(x))


def test_bits_not_values():
    quiet, other = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert sj.array_equal(np.array([quiet]), np.array([quiet]))
    assert not sj.array_equal(np.array([quiet]), np.array([other]))
    assert not sj.array_equal(np.array([0.0]), np.array([-0.0]))
    minus = np.array([0, 0x80], np.uint8).view(ml_dtypes.float8_e4m3fn)
    assert not sj.array_equal(minus[:1], minus[1:])
    assert not sj.array_equal(np.array([1 + 0j]), np.array([complex(1, -0.0)]))


def test_bits_beside_the_elements_do_not_count():
    for last in (0x03, 0xF3):
        t = sj.Tensor.frombuffer(bytes([0x21, last]), "uint4", (3,))
        assert sj.array_equal(t, sj.pack(np.array([1, 2, 3], np.uint8), "uint4"))
    dirty = np.array([0xF1, 0x92], np.uint8).view(ml_dtypes.int4)
    clean = np.array([0x01, 0x02], np.uint8).view(ml_dtypes.int4)
    assert sj.array_equal(dirty, clean)
    assert sj.array_equal(dirty, sj.pack(clean))


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_packed_views_by_the_bit(dtype, pieces):
    t = tensor(dtype, (5, 7, 3))
    for view in (t[1:, ::-2], t.permute_dims((2, 0, 1)), t[:, 3, None, ::-1], t[2:2], t[4, 6, 2]):
        again = packed_bytes(codes_of(view), dtype.bits)
        assert sj.array_equal(view, sj.Tensor.frombuffer(again, dtype, view.shape))


def test_shapes_and_dtypes():
    t = tensor("int4", (2, 3))
    assert not sj.array_equal(t, t.reshape((3, 2)))
    assert not sj.array_equal(t, t[None])
    assert not sj.array_equal(t, sj.Tensor.frombuffer(t.buffer, "uint4", (2, 3)))
    assert not sj.array_equal(np.zeros(3, np.int32), np.zeros(3, np.float32))
    assert not sj.array_equal(np.zeros((2, 0)), np.zeros((0, 2)))
    assert sj.array_equal(np.zeros((2, 0)), np.ones((2, 0)))
    assert not sj.array_equal(np.zeros(2), np.array(["0", "0"]))


def test_strings():
    fixed = np.array([["a", "bc"], ["", "ü"]])
    objects = fixed.astype(object)
    for x in (fixed, objects, fixed.astype(np.dtypes.StringDType()), fixed.T.copy().T):
        for y in (fixed, objects):
            assert sj.array_equal(x, y)
            assert not sj.array_equal(x.T, y)
    assert not sj.array_equal(np.array(["a"]), np.array([b"a"]))
    assert sj.array_equal(np.array([], str), np.array([], object))


@pytest.mark.parametrize(
    "other",
    [[1, 2], 1, None, "a", np.array([1, None]), np.zeros(2, "M8[s]"),
     np.zeros(2, ">f4"), np.ma.masked_array([1, 2])],
    ids=repr,
)  # fmt: skip
def test_what_is_no_array_of_a_known_dtype(other):
    for pair in ((np.zeros(2), other), (other, tensor("int4", (2,)))):
        with pytest.raises(sj.DTypeError):
            sj.array_equal(*pair)


def test_repeated_elements_are_compared_once():
    one = tensor("uint3", (1, 3))
    many = one.broadcast_to((2**40, 3))
    assert sj.array_equal(many, one.reshape((1, 3), copy=True).broadcast_to((2**40, 3)))
    assert not sj.array_equal(many, tensor("uint3", (1, 3), 5).broadcast_to((2**40, 3)))


def test_many_dims():
    assert sj.array_equal(tensor("int4", (1,) * 900 + (3,)), tensor("int4", (1,) * 900 + (3,)))
    assert sj.array_equal(
        tensor("int4", (2,) * 3 + (1,) * 900).mT, tensor("int4", (2,) * 3 + (1,) * 900)
    )


def test_memory_stays_bounded():
    code = """
import resource, sys, numpy as np, shapejit as sj
memory = np.zeros(128 << 20, np.uint8)
memory[...] = 0x77
t = sj.Tensor.frombuffer(memory, "int4", (16384, 16384))
assert sj.array_equal(t[:64, :64].T, t[64:128, :64].T)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sj.array_equal(t[1:, 1:], t[:-1, :-1])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sys.exit(after - before > 40 << 10)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_comparison_in_order_takes_no_kernels():
    code = """
import shapejit as sj
t = sj.Tensor.frombuffer(bytes(1000), "int4", (2000,))
assert sj.array_equal(t, sj.Tensor.frombuffer(bytearray(1000), "int4", (2000,)))
"""
    assert takes_no_kernels(code)
