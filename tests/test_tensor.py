import copy
import mmap
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from views import codes_of

import shapejit as sj

PACKED = [d for d in sj.dtypes.all() if d.packed]
WHOLE = [d for d in sj.dtypes.all() if d.bits >= 8]


def tensor(dtype, shape, seed=0):
    """Random bytes as a Tensor."""
    nbytes = sj.dtype(dtype).nbytes(int(np.prod(shape)))
    memory = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    return sj.Tensor.frombuffer(memory, dtype, shape)


@pytest.mark.parametrize(
    ("dtype", "hexadecimal", "codes"),
    [
        ("uint4", "214305", [1, 2, 3, 4, 5]),
        ("uint2", "39", [1, 2, 3, 0]),
        ("uint6", "813010", [1, 2, 3, 4]),
        ("uint1", "05", [1, 0, 1, 0, 0, 0, 0, 0]),
        ("uint3", "d102", [1, 2, 3, 1, 0]),
    ],
)
def test_bit_order_by_eye(dtype, hexadecimal, codes):
    t = sj.Tensor.frombuffer(bytes.fromhex(hexadecimal), dtype, (len(codes),))
    assert t.unpack().astype(int).tolist() == codes
    assert sj.pack(np.array(codes, np.uint8), dtype).tobytes().hex() == hexadecimal


def test_int4_by_eye():
    t = sj.pack(np.array([-8, -1, 7], ml_dtypes.int4))
    assert t.tobytes().hex() == "f807"
    assert t.unpack().astype(int).tolist() == [-8, -1, 7]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, np.frombuffer])
def test_frombuffer_shares_memory(wrap):
    source = bytearray(range(6)) if wrap is not bytes else bytes(range(6))
    buffer = wrap(source) if wrap is not np.frombuffer else np.frombuffer(source, np.uint16)
    t = sj.Tensor.frombuffer(buffer, "uint8", (2, 3))
    assert t.tobytes() == bytes(range(6))
    assert t.buffer.flags.writeable == (wrap is not bytes)
    if wrap is not bytes:
        assert np.shares_memory(t.buffer, np.frombuffer(buffer, np.uint8))


def test_frombuffer_maps_files(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(bytes(range(8)))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    t = sj.Tensor.frombuffer(mapped, "int4", (16,))
    assert not t.buffer.flags.writeable
    assert t[::2].tobytes() == bytes([0x10, 0x32, 0x54, 0x76])


@pytest.mark.parametrize("nbytes", [2, 4])
def test_frombuffer_wants_the_exact_size(nbytes):
    with pytest.raises(sj.FormatError, match="are 3 bytes"):
        sj.Tensor.frombuffer(bytes(nbytes), "int4", (5,))


def test_frombuffer_refuses():
    with pytest.raises(sj.DTypeError):
        sj.Tensor.frombuffer(b"", "string", (0,))
    with pytest.raises(sj.FormatError):
        sj.Tensor.frombuffer(b"", "int8", (-1,))
    with pytest.raises(sj.FormatError):
        sj.Tensor.frombuffer("text", "int8", (4,))
    with pytest.raises(sj.FormatError):
        sj.Tensor.frombuffer(np.zeros((4, 4), np.uint8).T[1:], "int8", (12,))
    with pytest.raises(sj.FormatError):
        sj.Tensor.frombuffer(b"", "int8", (2**40, 2**40))


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_whole_bytes_are_numpys(dtype):
    t = tensor(dtype, (3, 4))
    view = t[::-1, 1:].mT
    array = view.numpy()
    assert array.dtype == dtype.numpy
    assert np.shares_memory(array, t.buffer)
    assert array.tobytes() == view.tobytes()
    assert sj.asarray(array).dtype is dtype
    assert sj.asarray(array).tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_packed_elements_by_the_bit(dtype, kernels):
    t = tensor(dtype, (5, 7, 3))
    for view in (t, t[1:, ::-2], t.permute_dims((2, 0, 1)), t[:, 3, None, ::-1], t[2:2]):
        codes = codes_of(view)
        assert np.array_equal(view.unpack().view(np.uint8), codes)
        assert np.array_equal(sj.pack(codes, dtype).unpack().view(np.uint8), codes)


def test_dirty_high_bits_are_ignored():
    dirty = np.array([0xF1, 0x92, 0xA3], np.uint8)
    assert sj.pack(dirty, "uint4").tobytes().hex() == "2103"
    assert sj.pack(dirty.view(ml_dtypes.int4)).tobytes().hex() == "2103"


def test_dirty_padding_is_ignored():
    t = sj.Tensor.frombuffer(bytes([0x21, 0xF3]), "uint4", (3,))
    assert t.tobytes().hex() == "2103"
    assert sj.reshape(t, (3, 1), copy=True).tobytes().hex() == "2103"


@given(st.data())
def test_slicing_is_numpys(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    t = tensor("uint3", shape)
    oracle = codes_of(t)
    ints = st.integers(-6, 6)
    slices = st.builds(slice, ints | st.none(), ints | st.none(), (ints | st.none()).filter(bool))
    index = tuple(data.draw(st.lists(ints | slices | st.none() | st.just(...), max_size=5)))
    try:
        expected = oracle[index]
    except IndexError:
        with pytest.raises(IndexError):
            t[index]
        return
    assert t[index].shape == expected.shape
    assert np.array_equal(codes_of(t[index]), expected)


def test_slicing_refuses():
    t = tensor("int4", (4, 4))
    with pytest.raises(ValueError, match="zero"):
        t[::0]
    for index in ([0, 1], 1.5, True, "a", np.array([0])):
        with pytest.raises(IndexError):
            t[index]
    with pytest.raises(sj.ShapeJitError):
        t[9]


def test_numpy_sees_it_the_right_way():
    t = sj.pack(np.array([1, -2], ml_dtypes.int4))
    assert np.asarray(t).dtype == ml_dtypes.int4
    assert np.asarray(t, np.float32).tolist() == [1, -2]
    with pytest.raises(ValueError, match="copied"):
        np.asarray(t, copy=False)
    with pytest.raises(sj.DTypeError):
        np.asarray(sj.pack(np.zeros(3, np.uint8), "nf4"))
    whole = tensor("float32", (4,))
    assert np.shares_memory(np.asarray(whole), whole.buffer)
    assert not np.shares_memory(np.array(whole), whole.buffer)
    with pytest.raises(TypeError):
        np.add(t, 1)
    with pytest.raises(TypeError):
        t + 1


def test_asarray():
    x = np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::-1]
    t = sj.asarray(x)
    assert (t.strides, t.offset, t.shape) == ((64, -16), 48, (3, 4))
    assert sj.asarray(t) is t
    x.flags.writeable = False
    assert not sj.asarray(x).buffer.flags.writeable
    with pytest.raises(sj.DTypeError):
        sj.asarray(np.array(["a"]))
    with pytest.raises(sj.DTypeError, match="order"):
        sj.asarray(np.zeros(3, ">f4"))
    with pytest.raises(sj.DTypeError, match="mask"):
        sj.asarray(np.ma.masked_array([1, 2], [True, False]))


def test_a_view_keeps_its_memory_alive():
    t = sj.asarray(np.arange(1000, dtype=np.float64).reshape(10, 100).T)[3:5]
    expected = np.arange(1000.0).reshape(10, 100).T[3:5].tobytes()
    junk = [np.full(1000, 7.0) for _ in range(50)]
    assert t.tobytes() == expected
    del junk


def test_facts():
    t = tensor("float6_e2m3fn", (2, 5))
    assert (t.shape, t.ndim, t.size, t.nbytes, len(t)) == ((2, 5), 2, 10, 8, 2)
    assert (t.strides, t.offset, t.contiguous) == ((30, 6), 0, True)
    assert t.T.strides == t.mT.strides == (6, 30)
    assert not t.T.contiguous
    assert t[1].offset == 30
    assert t[1:].nbytes == 4
    with pytest.raises(ValueError, match="2 dims"):
        _ = t[0].T
    with pytest.raises(TypeError):
        len(tensor("int8", ()))


def test_repr():
    t = sj.Tensor.frombuffer(bytes([0x21, 0x43, 0x65, 0x87]), "uint4", (2, 4))
    assert repr(t) == "Tensor([1, 2, 3, 4, 5, 6, ...], shape=(2, 4), dtype=uint4, 4 bits each)"
    assert repr(t[0, ::-3]).startswith("Tensor([4, 1], shape=(2,)")
    assert repr(tensor("nf4", (0,))) == "Tensor([], shape=(0,), dtype=nf4, 4 bits each)"
    assert "1.0" in repr(sj.asarray(np.ones((), np.float32)))


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_copies_and_pickles(again):
    t = tensor("int4", (5, 3))[1:, ::-1]
    twin = again(t)
    assert (twin.shape, twin.dtype, twin.tobytes()) == (t.shape, t.dtype, t.tobytes())


def test_a_pickle_holds_what_the_elements_reach():
    t = tensor("int4", (1000, 1000))
    assert len(pickle.dumps(t[:4])) < 3000
    assert not pickle.loads(pickle.dumps(t[:1, :1].broadcast_to((5, 5)))).buffer.flags.writeable
    assert pickle.loads(pickle.dumps(t[3:5, ::-2])).buffer.flags.writeable


def test_packing_one_dirty_element_copies_it():
    dirty = np.array([0xFF], np.uint8)
    t = sj.pack(dirty, "int4")
    assert t.buffer.tolist() == [0x0F]
    assert not np.shares_memory(t.buffer, dirty)
