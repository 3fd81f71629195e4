import array
import copy
import ctypes
import dataclasses
import mmap
import operator
import pickle
from itertools import product
from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from views import codes_of, packed_bytes

import shapejit as sj
from shapejit.shapes.layout import Layout

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


def mapped(data, access):
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    return memory if access == "write" else memoryview(memory).toreadonly()


BUFFERS = {
    "bytes": (bytes, False),
    "bytearray": (bytearray, True),
    "memoryview": (lambda data: memoryview(bytearray(data)), True),
    "read-only memoryview": (memoryview, False),
    "memoryview of pairs": (lambda data: memoryview(bytearray(data)).cast("H"), True),
    "memoryview of 2 dims": (lambda data: memoryview(bytearray(data)).cast("H", [2, 3]), True),
    "memoryview of no dims": (lambda data: memoryview(np.array(data)), True),
    "mmap": (lambda data: mapped(data, "write"), True),
    "read-only view of an mmap": (lambda data: mapped(data, "read"), False),
    "ndarray": (lambda data: np.frombuffer(bytearray(data), np.uint16).reshape(3, 2), True),
    "read-only ndarray": (lambda data: np.frombuffer(data, np.float32), False),
    "ndarray of no dims": (lambda data: np.array(data), True),
    "array.array": (lambda data: array.array("h", data), True),
    "ctypes": (lambda data: (ctypes.c_short * 6).from_buffer_copy(data), True),
}


@pytest.mark.parametrize(("wrap", "writeable"), BUFFERS.values(), ids=BUFFERS)
def test_frombuffer_shares_memory(wrap, writeable):
    buffer = wrap(bytes(range(1, 13)))
    memory = np.asarray(memoryview(buffer)).reshape(-1).view(np.uint8)
    for dtype, shape in (("uint8", (3, 4)), ("int4", (8, 3)), ("float6_e2m3fn", (2, 8))):
        t = sj.Tensor.frombuffer(buffer, dtype, shape)
        assert t.tobytes() == bytes(range(1, 13))
        assert t.buffer.ctypes.data == memory.ctypes.data
        assert t.buffer.flags.writeable == writeable
        assert t.T.ascontiguous().shape == shape[::-1]
    if writeable:
        t.buffer[0] = 77
        assert memoryview(buffer).cast("B").tobytes()[0] == 77
    else:
        with pytest.raises(ValueError, match="read-only"):
            t.buffer[0] = 77


def test_frombuffer_holds_what_it_wraps():
    grown, viewed, memory = bytearray(4), bytearray(4), mmap.mmap(-1, 4096)
    view = memoryview(viewed)
    tensors = [
        sj.Tensor.frombuffer(grown, "int4", (8,)),
        sj.Tensor.frombuffer(view, "int4", (8,)),
        sj.Tensor.frombuffer(memory, "int8", (4096,))[::2],
    ]
    view.release()  # the bytes under it are held all the same
    for change in (grown.clear, viewed.clear, memory.close):
        with pytest.raises(BufferError):
            change()
    assert [t.tobytes() for t in tensors] == [bytes(4), bytes(4), bytes(2048)]
    tensors.clear()
    for change in (grown.clear, viewed.clear, memory.close):
        change()


def closed():
    memory = mmap.mmap(-1, 4)
    memory.close()
    return memory


def released():
    view = memoryview(bytes(4))
    view.release()
    return view


@pytest.mark.parametrize(
    "buffer",
    [
        closed(),
        released(),
        memoryview(bytes(8))[::2],
        memoryview(bytes(4))[::-1],
        memoryview(np.zeros((2, 2), np.uint8, order="F")),
        np.zeros((2, 2), np.uint8, order="F"),
        np.zeros(8, np.uint8)[::2],
        np.ma.masked_array([0, 0], dtype=np.int16),
        np.zeros(4, object),
        [1, 2, 3, 4],
        "text",
        None,
        4,
    ],
    ids=lambda x: type(x).__name__,
)
def test_frombuffer_wants_bytes_in_a_row(buffer):
    with pytest.raises(sj.ShapeJitError):
        sj.Tensor.frombuffer(buffer, "int8", (4,))


def test_frombuffer_of_nothing():
    for nothing in (b"", bytearray(), memoryview(b""), np.zeros((0, 3))):
        assert sj.Tensor.frombuffer(nothing, "int4", (0, 3)).tobytes() == b""


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


@pytest.mark.parametrize(
    "name", ["int2", "int4", "uint1", "uint4", "uint6", "nf4", "float6_e3m2fn"]
)
@pytest.mark.parametrize("source", [*"bhilqBHILQ"])
def test_pack_takes_integers_of_any_width_in_range(name, source):
    kind, given = sj.dtype(name), np.dtype(source)
    signed = kind.kind == "integer" and kind.signed and given.kind == "i"
    low, high = (
        (-1 << (kind.bits - 1), (1 << (kind.bits - 1)) - 1) if signed else (0, (1 << kind.bits) - 1)
    )
    numbers = np.arange(low, high + 1)
    numbers = np.concatenate([numbers, numbers[::-1]]).reshape(2, -1).T.astype(given)
    expected = packed_bytes(numbers.astype(np.int64) & ((1 << kind.bits) - 1), kind.bits)
    for x in (numbers, sj.asarray(numbers)):
        assert sj.pack(x, name).tobytes() == expected
    for bad in (low - 1, high + 1, np.iinfo(given).min, np.iinfo(given).max):
        if np.iinfo(given).min <= bad <= np.iinfo(given).max and not low <= bad <= high:
            wrong = numbers.copy()
            wrong[1, 1] = bad
            with pytest.raises(
                sj.FormatError, match=rf"^{bad} at index \(1, 1\) is out of .*{name}"
            ):
                sj.pack(wrong, name)


def test_pack_refuses_before_it_writes():
    out = sj.Tensor.frombuffer(bytearray(b"abcd"), "int4", (8,))
    with pytest.raises(sj.FormatError, match=r"9 at index \(7,\)"):
        sj.pack(np.array([*range(7), 9]), "int4", out=out)
    assert out.tobytes() == b"abcd"
    for x, name in (
        (np.zeros(2), "int4"),
        (np.zeros(2, ml_dtypes.int4), "uint4"),
        (np.zeros(2, np.int8), "int16"),
    ):
        with pytest.raises(sj.DTypeError, match="are not codes of"):
            sj.pack(x, name)
    with pytest.raises(sj.DTypeError, match=r"unpack takes a shapejit\.Tensor, not numpy.ndarray"):
        sj.unpack(np.zeros(2, ml_dtypes.int4))
    assert sj.unpack(sj.pack(np.arange(3), "uint4")).tolist() == [0, 1, 2]


def test_dirty_high_bits_are_ignored():
    dirty = np.array([0xF1, 0x92, 0xA3], np.uint8)
    assert sj.pack(dirty.view(ml_dtypes.uint4)).tobytes().hex() == "2103"
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
    for index in ([0, 1], 1.5, True, "a", np.array([0]), np.ones(4, bool), t, (slice(3), [0])):
        with pytest.raises(IndexError, match=r"fancy indexing is not supported; shapejit.take"):
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


@pytest.mark.parametrize("dtype", [d for d in sj.dtypes.all() if d.bits], ids=str)
def test_numpy_arrays_of_a_view(dtype):
    t = tensor(dtype, (4, 6))[1:, ::-2].T
    if dtype.numpy is None:
        with pytest.raises(sj.DTypeError, match="codes"):
            np.asarray(t)
        return
    expected = t.unpack().view(f"V{dtype.numpy.itemsize}")
    for made in (np.asarray(t), np.array(t), np.array(t, dtype=dtype.numpy), np.asarray(t[...])):
        assert made.dtype == dtype.numpy
        assert np.array_equal(made.view(expected.dtype), expected)
    assert np.shares_memory(np.asarray(t), t.buffer) == (not dtype.packed)
    assert not np.shares_memory(np.array(t), t.buffer)
    if dtype.packed:
        with pytest.raises(ValueError, match="must be copied"):
            np.asarray(t, copy=False)
    else:
        assert np.shares_memory(np.asarray(t, copy=False), t.buffer)
    with pytest.raises(ValueError, match="must be copied"):
        np.asarray(t, dtype="S9", copy=False)


def test_numpy_converts():
    t = sj.pack(np.array([[1, -2], [3, -4]], ml_dtypes.int4))
    assert np.array(t.T, dtype=np.float64).tolist() == [[1, 3], [-2, -4]]
    assert np.array(t, dtype=object).tolist() == [[1, -2], [3, -4]]
    whole = sj.asarray(np.array([1.5, 2.5], ml_dtypes.bfloat16))
    assert np.asarray(whole, dtype=np.float32).tolist() == [1.5, 2.5]


BINARY = [
    operator.add, operator.sub, operator.mul, operator.matmul, operator.truediv,
    operator.floordiv, operator.mod, operator.pow, operator.lshift, operator.rshift,
    operator.and_, operator.or_, operator.xor, divmod,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
ALONE = [operator.neg, operator.pos, operator.invert, abs, bool, operator.not_]


@pytest.mark.parametrize("dtype", ["int4", "float32"])
@pytest.mark.parametrize("operation", BINARY, ids=lambda f: f.__name__)
def test_accidental_arithmetic(operation, dtype):
    t = tensor(dtype, (2, 2))
    for other in (1, 1.5, None, [1], np.ones((2, 2)), np.float32(1), tensor(dtype, (2, 2)), t):
        for operands in ((t, other), (other, t)):
            with pytest.raises(TypeError, match=r"a Tensor has no .*asarray.*array_equal"):
                operation(*operands)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 2)])
@pytest.mark.parametrize("operation", ALONE, ids=lambda f: f.__name__)
def test_accidental_arithmetic_alone(operation, shape):
    with pytest.raises(TypeError, match="a Tensor has no"):
        operation(tensor("int4", shape))


@pytest.mark.parametrize(
    "accident",
    [
        lambda t: np.add(t, 1),
        lambda t: np.negative(t),
        lambda t: np.sum(t),
        lambda t: np.ones(3).__iadd__(t),
        lambda t: sum(t),
        lambda t: max(t),
        lambda t: float(t),
        lambda t: int(t[0]),
        lambda t: range(t[0]),
        lambda t: 1 in t,
        lambda t: t if t else None,
    ],
)
def test_accidents_with_functions(accident):
    with pytest.raises(TypeError):
        accident(tensor("int4", (3,)))


def test_augmented_arithmetic():
    t = tensor("int4", (3,))
    with pytest.raises(TypeError, match="no \\+"):
        t += 1


def test_tensors_hash_by_identity():
    t = tensor("int4", (3,))
    assert {t: 1}[t] == 1
    assert len({t, t, t[:]}) == 2
    assert t in [t]


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


def test_attributes():
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
    rows = "[[1, 2, 3, 4],\n        [5, 6, 7, 8]]"
    assert repr(t) == f"Tensor({rows}, shape=(2, 4), dtype=uint4, 4 bits each)"
    assert repr(t[0, ::-3]).startswith("Tensor([4, 1], shape=(2,)")
    assert repr(tensor("nf4", (0,))) == "Tensor([], shape=(0,), dtype=nf4, 4 bits each)"
    assert repr(sj.asarray(np.ones((), np.float32))).startswith("Tensor(1., shape=(),")
    many = np.arange(12000.0).reshape(40, 3, 100)
    text = np.array2string(many, separator=", ", prefix="Tensor(")
    assert repr(sj.asarray(many)).startswith(f"Tensor({text}, ")
    with np.printoptions(edgeitems=1, threshold=4):
        assert repr(t).startswith("Tensor([[1, ..., 4],\n        [5, ..., 8]], shape=(2, 4)")


@pytest.mark.parametrize("dtype", [d for d in sj.dtypes.all() if d.bits], ids=str)
def test_repr_of_every_dtype(dtype):
    t = tensor(dtype, (3, 4))[:, ::-1].T
    rows = np.array2string(t.unpack(), separator=", ", prefix="Tensor(")
    assert repr(t) == f"Tensor({rows}, shape=(4, 3), dtype={dtype}, {dtype.bits} bits each)"


def test_reshape_takes_a_shape_as_one_argument_or_as_several():
    t = tensor("int4", (4, 6))
    for made in (t.reshape(3, 8), t.reshape(3, -1), t.reshape((3, 8)), t.reshape(shape=[3, 8])):
        assert sj.array_equal(made, sj.reshape(t, (3, 8)))
    assert t.reshape(24).shape == t.reshape(-1).shape == (24,)
    assert t[:1, :1].reshape(()).shape == ()
    assert t.T.reshape(3, 8, copy=True).tobytes() == sj.reshape(t.T, (3, 8)).tobytes()
    with pytest.raises(sj.ReshapeError, match="copy=False"):
        t.T.reshape(3, 8, copy=False)
    with pytest.raises(TypeError):
        t.reshape()
    with pytest.raises(TypeError):
        t.reshape((3,), 8)


def test_asarray_casts_to_a_dtype():
    x = np.array([[0.1, 300], [-2.5, 4]], np.float32)
    made = sj.asarray(x, dtype="bf16")
    assert np.array_equal(np.asarray(made), x.astype(ml_dtypes.bfloat16))
    assert np.shares_memory(sj.asarray(x, dtype=np.float32).buffer, x)
    assert sj.asarray(made, dtype="bfloat16") is made
    assert sj.asarray([1, 2, -3], dtype="int4").tolist() == [1, 2, -3]
    with pytest.raises(sj.DTypeError):
        sj.asarray(x, dtype="string")


def test_repr_reads_a_few_elements():
    huge = tensor("uint3", (1,)).broadcast_to((2**40, 2**20))
    assert ", ..., " in repr(huge)


def views_to_copy():
    yield tensor("int4", (5, 3))[1:, ::-1]
    yield tensor("uint3", (7, 5)).T[1:]
    yield tensor("float32", (4, 5))[::-1, 1:].T
    yield tensor("nf4", (3, 1)).broadcast_to((3, 4))
    yield tensor("bfloat16", ())
    yield tensor("int4", (0, 3))
    yield sj.Tensor.frombuffer(bytes([0x21, 0xF3]), "uint4", (3,))
    yield sj.asarray(np.array([[1, -2], [3, -4]], ml_dtypes.int4)).T


AGAIN = {f"pickle {p}": p for p in range(pickle.HIGHEST_PROTOCOL + 1)}


@pytest.mark.parametrize("protocol", AGAIN.values(), ids=AGAIN)
@pytest.mark.parametrize("t", [*views_to_copy()], ids=str)
def test_pickles(t, protocol):
    duplicate = pickle.loads(pickle.dumps(t, protocol))
    assert (duplicate.shape, duplicate.dtype, duplicate.tobytes()) == (
        t.shape,
        t.dtype,
        t.tobytes(),
    )
    assert duplicate.buffer.flags.writeable == t.buffer.flags.writeable
    assert not np.shares_memory(duplicate.buffer, t.buffer)


def test_pickles_out_of_band():
    t, buffers = tensor("int4", (40, 3))[1:, ::-1], []
    head = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert len(head) < 600
    assert np.shares_memory(np.frombuffer(buffers[0], np.uint8), t.buffer)
    assert pickle.loads(head, buffers=buffers).tobytes() == t.tobytes()


@pytest.mark.parametrize("t", [*views_to_copy()], ids=str)
def test_shallow_and_deep_copies(t):
    shallow, deep = copy.copy(t), copy.deepcopy(t)
    for duplicate in (shallow, deep):
        assert duplicate is not t
        assert (duplicate.shape, duplicate.dtype, duplicate.strides) == (
            t.shape,
            t.dtype,
            t.strides,
        )
        assert duplicate.tobytes() == t.tobytes()
        assert duplicate.buffer.flags.writeable == t.buffer.flags.writeable
    assert np.shares_memory(shallow.buffer, t.buffer) == bool(t.size)
    assert not np.shares_memory(deep.buffer, t.buffer)


def test_a_pickle_holds_what_the_elements_reach():
    t = tensor("int4", (1000, 1000))
    assert len(pickle.dumps(t[:4])) < 3000
    assert len(pickle.dumps(t[:, 7])) < 1500  # 500 bytes of elements in 500 000 of memory
    assert len(pickle.dumps(t[::2])) < 251_000
    assert pickle.loads(pickle.dumps(t[:, 7])).tobytes() == t[:, 7].tobytes()
    assert copy.deepcopy(t[:4]).buffer.size == 2000
    assert len(pickle.dumps(t[:1, :1].broadcast_to((2**20, 2**20)))) < 1000
    assert not pickle.loads(pickle.dumps(t[:1, :1].broadcast_to((5, 5)))).buffer.flags.writeable
    assert pickle.loads(pickle.dumps(t[3:5, ::-2])).buffer.flags.writeable


def test_packing_one_dirty_element_copies_it():
    dirty = np.array([0xFF], np.uint8)
    t = sj.pack(dirty.view(ml_dtypes.int4))
    assert t.buffer.tolist() == [0x0F]
    assert not np.shares_memory(t.buffer, dirty)


MEMORY = np.zeros(4, np.uint8)
LIES = {
    "buffer too small": (MEMORY[:1], "int4", Layout.row_major((10**9,), 4)),
    "one element too many": (MEMORY, "int4", Layout.row_major((9,), 4)),
    "before the buffer": (MEMORY, "int4", Layout((2,), (-4,), 0, 4)),
    "behind the buffer": (MEMORY, "int4", Layout((2,), (4,), 28, 4)),
    "other bits": (MEMORY, "int4", Layout.row_major((4,), 8)),
    "no layout": (MEMORY, "int4", (8,)),
    "a layout made unchecked": (MEMORY, "int4", Layout.of((2, -3), (4, 4), 0, 4)),
    "list": ([0, 0, 0, 0], "int4", Layout.row_major((8,), 4)),
    "bytes": (bytes(4), "int4", Layout.row_major((8,), 4)),
    "int8": (MEMORY.view(np.int8), "int4", Layout.row_major((8,), 4)),
    "two dims": (MEMORY.reshape(2, 2), "int4", Layout.row_major((8,), 4)),
    "gaps": (MEMORY[::2], "int4", Layout.row_major((4,), 4)),
    "backwards": (MEMORY[::-1], "int4", Layout.row_major((8,), 4)),
    "masked": (np.ma.masked_array(MEMORY), "int4", Layout.row_major((8,), 4)),
    "strings": (MEMORY, "string", Layout.row_major((0,), 4)),
    "no dtype": (MEMORY, "int5", Layout.row_major((1,), 5)),
    "offset within an element": (MEMORY, "uint2", Layout((3,), (2,), 7, 2)),
    "stride within an element": (MEMORY, "int4", Layout((3,), (6,), 0, 4)),
    "stride within a byte": (MEMORY, "int16", Layout((2,), (12,), 0, 16)),
    "another dtype of that name": (
        MEMORY, dataclasses.replace(sj.dtype("int4"), bits=8), Layout.row_major((4,), 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("given", LIES.values(), ids=LIES)
def test_a_tensor_is_checked_when_it_is_made(given):
    with pytest.raises((sj.FormatError, sj.DTypeError)):
        sj.Tensor(*given)


@pytest.mark.parametrize("dtype", ["uint1", "uint2", "uint3", "int4", "float6_e3m2fn"])
def test_elements_that_begin_anywhere(dtype):
    random, bits = Random(7), sj.dtype(dtype).bits
    unit = bits if 8 % bits == 0 else 1
    stream = np.unpackbits(memory := np.arange(40, dtype=np.uint8), bitorder="little")
    for _ in range(60):
        first, outer, inner = (unit * random.randrange(24 // unit) for _ in range(3))
        at = first + np.add.outer(outer * np.arange(3), inner * np.arange(5))
        t = sj.Tensor(memory, dtype, Layout((3, 5), (outer, inner), first, bits))
        expected = stream[at.reshape(-1, 1) + np.arange(bits)].reshape(-1)
        assert t.tobytes() == np.packbits(expected, bitorder="little").tobytes()


def test_a_tensor_of_its_parts():
    layout = Layout((2, 3), (-12, 4), 16, 4)
    for dtype in ("int4", sj.dtype("int4"), ml_dtypes.int4):
        t = sj.Tensor(np.arange(4, dtype=np.uint8).view(np.recarray), dtype, layout)
        assert (t.dtype, t.layout, type(t.buffer)) == (sj.dtype("int4"), layout, np.ndarray)
        assert t.tobytes() == bytes.fromhex("020301")


class Returns:
    """Its pickle calls a function with arguments."""

    def __init__(self, function, *given):
        self.made = function, given

    def __reduce__(self):
        return self.made


@pytest.mark.parametrize("dtype", ["int4", "int16"])
def test_a_pickle_is_checked(dtype):
    restored, honest = tensor(dtype, (5, 3)).__reduce__()
    memory, kind, shape, strides, offset, writeable = honest
    duplicate = pickle.loads(pickle.dumps(Returns(restored, *honest)))
    assert duplicate.tobytes() == tensor(dtype, (5, 3)).tobytes()
    for lie in (
        (memory[:-1], kind, shape, strides, offset, writeable),
        (memory, sj.dtype("float64"), shape, strides, offset, writeable),
        (memory, kind, shape, strides, offset + 8, writeable),
        (memory, kind, (9, *shape), strides, offset, writeable),
        (memory, kind, (9, *shape), (0, *strides), -offset - 8, writeable),
        (memory.tobytes(), kind, shape, strides, offset, False),
    ):
        with pytest.raises((sj.FormatError, sj.DTypeError)):
            pickle.loads(pickle.dumps(Returns(restored, *lie)))


def test_the_parts_of_a_tensor_cannot_be_exchanged():
    t = tensor("int4", (4,))
    for name in ("buffer", "dtype", "layout", "shape"):
        with pytest.raises(AttributeError):
            setattr(t, name, getattr(tensor("int4", (40,)), name))
        with pytest.raises(AttributeError):
            delattr(t, name)
    assert t.shape == (4,)


MANY_DIMS = [(1,) * 68 + (2, 3), (2, *(1,) * 80, 3), (0,) * 70, (0, 2**62), (2**62, 0, 1)]


@pytest.mark.parametrize("dtype", ["float64", "int16", "int4"])
@pytest.mark.parametrize("shape", MANY_DIMS, ids=["70", "82", "70 empty", "huge", "huge before"])
def test_shapes_that_no_ndarray_has(shape, dtype):
    t = tensor(dtype, (2, 3) if 2 in shape else (0,)).reshape(shape)
    last = t.ndim - 1
    for view in (t, t.permute_dims((last, *range(last))), sj.flip(t), t[..., None], t[:1]):
        places = product(*map(range, view.shape)) if view.size else ()
        expected = b"".join(view[place].tobytes() for place in places)
        if dtype == "int4":
            expected = sj.pack(np.frombuffer(expected, np.uint8), dtype).tobytes()
        assert view.tobytes() == expected
        for duplicate in (
            pickle.loads(pickle.dumps(view)),
            copy.deepcopy(view),
            view.reshape(view.shape, copy=True),
            view.ascontiguous(),
            view.ascontiguous(out=sj.Tensor.frombuffer(bytearray(view.nbytes), dtype, view.shape)),
        ):
            assert duplicate.shape == view.shape
            assert sj.array_equal(duplicate, view)
            assert duplicate.tobytes() == view.tobytes()
        assert repr(view).startswith("Tensor([")
    if t.ndim > 64 or dtype == "float64":
        for made in (t.numpy, t.unpack, lambda: np.asarray(t)):
            with pytest.raises(sj.ReshapeError, match="NumPy has no array of"):
                made()
