"""DLPack both ways, read with structures written down here from dlpack.h 1.1."""

import ctypes
import gc
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
from views import codes_of

import shapejit as sj

PACKED = [d for d in sj.dtypes.all() if d.packed and d.dlpack]
WHOLE = [d for d in sj.dtypes.all() if d.bits >= 8 and d.dlpack]
READ_ONLY, COPIED, ONE_A_BYTE = 1, 2, 4


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("dl_tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    ]


def capsule_function(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, *arguments)((name, ctypes.pythonapi))


get_name = capsule_function("PyCapsule_GetName", ctypes.c_char_p)
set_name = capsule_function("PyCapsule_SetName", ctypes.c_int, ctypes.c_char_p)
get_pointer = capsule_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_char_p)


def opened(capsule):
    """The structure that an unused capsule carries."""
    name = get_name(capsule)
    kinds = {b"dltensor": DLManagedTensor, b"dltensor_versioned": DLManagedTensorVersioned}
    return kinds[name].from_address(get_pointer(capsule, name))


def described(capsule):
    """(code, bits, lanes), shape, strides in elements, and the first element's address."""
    t = opened(capsule).dl_tensor
    assert (t.device_type, t.device_id) == (1, 0)
    dims = range(t.ndim)
    shape, strides = [t.shape[i] for i in dims], [t.strides[i] for i in dims]
    return (t.code, t.bits, t.lanes), shape, strides, (t.data or 0) + t.byte_offset


class Lender:
    """What another library's array looks like: nothing but DLPack."""

    def __init__(self, tensor, device=(1, 0), change=lambda managed: None):
        self.tensor, self.device, self.change = tensor, device, change

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **words):
        capsule = self.tensor.__dlpack__(**words)
        self.change(opened(capsule))
        return capsule


def tensor(dtype, shape):
    nbytes = sj.dtype(dtype).nbytes(int(np.prod(shape)))
    memory = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
    return sj.Tensor.frombuffer(memory, dtype, shape)


def address(array):
    return array.__array_interface__["data"][0]


# Lending ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", WHOLE + PACKED, ids=str)
def test_what_a_capsule_says(dtype):
    t = tensor(dtype, (3, 8, 4))
    capsule = t.__dlpack__(max_version=(1, 1))
    managed = opened(capsule)
    assert (managed.major, managed.minor, managed.flags) == (1, 1, 0)
    assert described(capsule) == ((*dtype.dlpack, 1), [3, 8, 4], [32, 4, 1], address(t.buffer))
    view = t[1:, ::-2].permute_dims((2, 0, 1))
    if view.offset % 8 == 0:
        at = address(t.buffer) + view.offset // 8
        strides = [1, 32, -8]
        assert described(view.__dlpack__(max_version=(1, 1)))[1:] == ([4, 2, 4], strides, at)


def test_by_eye():
    t = sj.Tensor.frombuffer(bytearray([0x21, 0x43, 0x65, 0x87]), "int4", (2, 4))
    assert described(t.T.__dlpack__(max_version=(1, 1)))[:3] == ((0, 4, 1), [4, 2], [1, 4])
    t = sj.asarray(np.zeros((2, 3), ml_dtypes.bfloat16))[1]
    assert described(t.__dlpack__()) == ((4, 16, 1), [3], [1], address(t.buffer) + 6)


def test_scalars_and_empties():
    for dtype in ("float32", "int4"):
        scalar = tensor(dtype, ())
        code = (*scalar.dtype.dlpack, 1)
        assert described(scalar.__dlpack__(max_version=(1, 1))) == (
            code,
            [],
            [],
            address(scalar.buffer),
        )
        empty = tensor(dtype, (3, 0, 2))[1:]
        assert described(empty.__dlpack__(max_version=(1, 1)))[1] == [2, 0, 2]
        assert opened(empty.__dlpack__(max_version=(1, 1))).dl_tensor.data is None
    assert np.from_dlpack(tensor("float32", (0, 3))).shape == (0, 3)


def test_one_element_a_byte_is_said():
    for array in (np.zeros((3, 4), ml_dtypes.int4), np.zeros((3, 4), ml_dtypes.float6_e2m3fn)):
        for view, strides in [
            (array, [4, 1]),
            (array.T, [1, 4]),
            (array[1:, ::-2], [4, -2]),
            (array[:, :1], [4, 0]),
            (array[:1], [4, 1]),
        ]:
            capsule = sj.asarray(view).__dlpack__(max_version=(1, 1))
            assert opened(capsule).flags == ONE_A_BYTE
            _, shape, said, at = described(capsule)
            assert shape == list(view.shape)
            assert [s for s, n in zip(said, shape, strict=True) if n > 1] == [
                s for s, n in zip(strides, shape, strict=True) if n > 1
            ]
            assert at == address(view)
    # Packed elements two apart share their bytes with others: those are not padding.
    apart = tensor("int4", (8,))[::2]
    capsule = apart.__dlpack__(max_version=(1, 1))
    assert (opened(capsule).flags, described(capsule)[2]) == (0, [2])
    packed = sj.pack(np.zeros(4, ml_dtypes.int4))
    assert opened(packed.__dlpack__(max_version=(1, 1))).flags == 0


def test_flags():
    t = sj.Tensor.frombuffer(bytes(4), "uint8", (4,))
    assert opened(t.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
    copied = t.__dlpack__(max_version=(1, 0), copy=True)
    assert opened(copied).flags == COPIED
    assert described(copied)[3] != address(t.buffer)
    assert get_name(t.__dlpack__(copy=True)) == b"dltensor"
    odd = tensor("int4", (3, 5))[1:].T
    copied = odd.__dlpack__(max_version=(1, 1), copy=True)
    assert described(copied)[:3] == ((0, 4, 1), [5, 2], [2, 1])
    t = opened(copied).dl_tensor
    assert ctypes.string_at(t.data, 5) == odd.tobytes()


@pytest.mark.parametrize(
    ("t", "words", "says"),
    [
        (tensor("int4", (5,))[1:], {"max_version": (1, 1)}, "ascontiguous"),
        (tensor("uint3", (5,))[1:], {"max_version": (1, 1), "copy": False}, "ascontiguous"),
        (sj.asarray(np.zeros(3, "i2,i4")["f1"]), {"max_version": (1, 1)}, "ascontiguous"),
        (tensor("nf4", (4,)), {"max_version": (1, 1)}, "no dtype for nf4"),
        (tensor("nf4", (4,)), {"max_version": (1, 1), "copy": True}, "no dtype for nf4"),
        (tensor("int4", (4,)), {}, "one byte per element"),
        (sj.Tensor.frombuffer(bytes(4), "int8", (4,)), {}, "read-only"),
        (sj.Tensor.frombuffer(bytes(4), "int8", (4,)), {"max_version": (0, 8)}, "read-only"),
        (tensor("int8", (1,) * 65), {"max_version": (1, 0)}, "64 dims"),
        (tensor("int8", (4,)), {"dl_device": (2, 0)}, "device"),
        (tensor("int8", (4,)), {"stream": 1}, "stream"),
    ],
)
def test_what_cannot_be_said(t, words, says):
    with pytest.raises(BufferError, match=says) as raised:
        t.__dlpack__(**words)
    assert isinstance(raised.value, sj.FormatError)


@pytest.mark.parametrize("words", [{"copy": 1}, {"max_version": 1}, {"max_version": (1, "0")}])
def test_words_that_mean_nothing(words):
    with pytest.raises(TypeError):
        tensor("int8", (4,)).__dlpack__(**words)


def test_the_device_is_the_cpu():
    t = tensor("int8", (4,))
    assert t.__dlpack_device__() == (1, 0)
    assert get_name(t.__dlpack__(dl_device=(1, 0))) == b"dltensor"


NUMPYS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"


@pytest.mark.parametrize("dtype", [*map(sj.dtype, f"{NUMPYS} complex128".split())], ids=str)
def test_numpy_takes_it(dtype):
    t = sj.asarray(np.arange(24).reshape(4, 6).astype(dtype.numpy))[::-1, 1::2].T
    array = np.from_dlpack(t)
    assert array.dtype == dtype.numpy
    assert array.tobytes() == t.tobytes()
    assert np.shares_memory(array, t.buffer)
    assert not np.shares_memory(np.from_dlpack(t, copy=True), t.buffer)


def test_numpy_respects_read_only():
    assert not np.from_dlpack(sj.Tensor.frombuffer(bytes(4), "int8", (4,))).flags.writeable


# Who lives how long -------------------------------------------------------------------


def watched(dtype="int32"):
    """A Tensor and a weak reference to its memory."""
    t = tensor(dtype, (4, 4))
    owner = t.buffer.base if t.buffer.base is not None else t.buffer
    return t, weakref.ref(owner)


@pytest.mark.parametrize("version", [None, (1, 1)])
def test_an_unused_capsule_keeps_the_memory_and_gives_it_back(version):
    t, memory = watched()
    capsule = t.__dlpack__(max_version=version)
    del t
    assert memory() is not None
    del capsule
    assert memory() is None


@pytest.mark.parametrize("version", [None, (1, 1)])
def test_a_used_capsule_gives_it_back_when_the_consumer_says(version):
    t, memory = watched("bfloat16")
    capsule = t.__dlpack__(max_version=version)
    managed, used = opened(capsule), b"used_" + get_name(capsule)
    set_name(capsule, used)
    del t, capsule
    assert memory() is not None
    managed.deleter(ctypes.addressof(managed))
    assert memory() is None


def test_numpy_keeps_and_gives_back():
    t, memory = watched()
    array = np.from_dlpack(t)
    del t
    assert array[1:].sum() == array[1:].sum()
    assert memory() is not None
    del array
    assert memory() is None


def test_a_consumer_that_refuses_says_so_and_leaks_nothing():
    t, memory = watched("float4_e2m1fn")
    with pytest.raises((BufferError, RuntimeError), match="dtype"):
        np.from_dlpack(t)
    del t
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("version", [None, (1, 1)])
def test_borrowed_memory_is_given_back_once(version):
    calls = []

    class Counting(Lender):
        def __dlpack__(self, **words):
            capsule = self.tensor.__dlpack__(max_version=version)
            managed = opened(capsule)
            deleter = type(managed.deleter)(ctypes.cast(managed.deleter, ctypes.c_void_p).value)

            def count(address):
                calls.append(address)
                deleter(address)

            self.kept = managed.deleter = type(deleter)(count)
            return capsule

    for dtype in ("float8_e5m2", "int32"):
        t, memory = watched(dtype)
        lender = Counting(t)
        borrowed = sj.asarray(lender)[1:]
        expected = t[1:].tobytes()
        del t, lender.tensor
        gc.collect()
        assert (calls, memory() is None) == ([], False)
        assert borrowed.tobytes() == expected
        view = np.asarray(borrowed)
        del borrowed
        assert (calls, memory() is None) == ([], False)
        del view
        assert (len(calls), memory()) == (1, None)
        calls.clear()
    empty = Counting(tensor("int8", (0,)))
    sj.asarray(empty)
    assert len(calls) == 1


def test_memory_that_is_not_taken_is_given_back():
    t, memory = watched()
    for change in (
        lambda m: setattr(m, "major", 2),
        lambda m: setattr(m.dl_tensor, "code", 99),
        lambda m: setattr(m.dl_tensor, "lanes", 3),
        lambda m: setattr(m.dl_tensor, "lanes", 0),
        lambda m: m.dl_tensor.shape.__setitem__(0, -1),
        lambda m: m.dl_tensor.shape.__setitem__(0, 2**62),
    ):
        with pytest.raises(sj.ShapeJitError):
            sj.asarray(Lender(t.T, change=change))
    del t
    gc.collect()
    assert memory() is None


def test_capsules_outlive_the_interpreter():
    code = """
import sys, numpy as np, shapejit as sj, builtins
class Lender:
    def __init__(self, t): self.t = t
    def __dlpack_device__(self): return 1, 0
    def __dlpack__(self, **words): return self.t.__dlpack__(**words)
t = sj.Tensor.frombuffer(bytearray(8), "bfloat16", (4,))
builtins.kept = [t.__dlpack__(), t.__dlpack__(max_version=(1, 1)), sj.asarray(Lender(t))]
kept.append(kept)
sys.kept = [t.__dlpack__(max_version=(1, 1)), sj.asarray(Lender(t))]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# Borrowing ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", WHOLE + PACKED, ids=str)
def test_what_is_lent_comes_back(dtype):
    t = tensor(dtype, (4, 8, 4))
    for view in (t, t[1:, ::2].permute_dims((2, 0, 1)), t[::-1], t[2:2], t[0, 0, 0]):
        duplicate = sj.asarray(Lender(view))
        assert (duplicate.dtype, duplicate.shape) == (dtype, view.shape)
        assert duplicate.tobytes() == view.tobytes()
        assert np.shares_memory(duplicate.buffer, t.buffer) == bool(view.size)
    duplicate.buffer[...] = 255
    assert t.buffer[0] == 255


@pytest.mark.parametrize("scalar", [ml_dtypes.int4, ml_dtypes.float6_e3m2fn, ml_dtypes.uint1])
def test_one_element_a_byte_comes_back(scalar):
    array = np.random.default_rng(2).integers(0, 256, (3, 5), np.uint8).view(scalar)
    for view in (array, array.T[::-1], array[:, ::2], array[:, :1]):
        duplicate = sj.asarray(Lender(sj.asarray(view)))
        mask = (1 << duplicate.dtype.bits) - 1
        assert np.array_equal(codes_of(duplicate), view.view(np.uint8) & mask)
        assert np.shares_memory(duplicate.buffer, array)
        assert opened(duplicate.__dlpack__(max_version=(1, 1))).flags == ONE_A_BYTE


def test_read_only_memory_stays_so():
    t = sj.Tensor.frombuffer(bytes(4), "int8", (4,))
    assert not sj.asarray(Lender(t)).buffer.flags.writeable
    assert sj.asarray(Lender(tensor("int8", (4,)))).buffer.flags.writeable


def test_a_lender_of_the_first_protocol():
    class Old(Lender):
        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__()

    t = tensor("bfloat16", (3, 4))
    duplicate = sj.asarray(Old(t.T))
    assert duplicate.tobytes() == t.T.tobytes()
    assert not duplicate.buffer.flags.writeable  # it could not say


def test_strides_may_be_missing():
    def change(managed):
        managed.dl_tensor.strides = None

    t = tensor("float16", (3, 4))
    assert sj.asarray(Lender(t, change=change)).strides == t.strides


def test_lanes_multiply_the_last_dim():
    def change(managed):
        managed.dl_tensor.code, managed.dl_tensor.bits, managed.dl_tensor.lanes = 17, 4, 2

    pairs = tensor("uint8", (3, 4))
    duplicate = sj.asarray(Lender(pairs, change=change))
    assert (duplicate.dtype.name, duplicate.shape, duplicate.contiguous) == (
        "float4_e2m1fn",
        (3, 8),
        True,
    )
    assert duplicate.tobytes() == pairs.tobytes()
    assert sj.asarray(Lender(pairs[::2, 1:], change=change)).strides == (64, 4)
    assert sj.asarray(Lender(pairs[0, 0], change=change)).shape == (2,)
    with pytest.raises(sj.FormatError, match="not contiguous"):
        sj.asarray(Lender(pairs.T, change=change))


def test_what_is_not_lent():
    t = tensor("int8", (4,))
    with pytest.raises(sj.FormatError, match=r"device \(2, 1\)"):
        sj.asarray(Lender(t, device=(2, 1)))
    for wrong in ((), (1,), (1, 0, 0), None, 1, ("a", "b"), (1.0, 0)):
        with pytest.raises(sj.FormatError, match="no pair of ints"):
            sj.asarray(Lender(t, device=wrong))
    with pytest.raises(sj.FormatError, match="cannot be exported: DLPack has no dtype for nf4"):
        sj.asarray(Lender(tensor("nf4", (4,))))

    class Twice(Lender):
        def __dlpack__(self, **words):
            capsule = t.__dlpack__(**words)
            self.first = sj.asarray(Lender(t))
            set_name(capsule, b"used_dltensor_versioned")
            managed.append(capsule)
            return capsule

    managed = []
    with pytest.raises(sj.FormatError, match="did not return a new DLPack capsule"):
        sj.asarray(Twice(t))


def test_numpys_own_way_comes_first():
    class Both(Lender):
        def __array__(self, dtype=None, copy=None):
            return np.arange(3, dtype=np.int16)

    class Refusing(Lender):
        def __array__(self, dtype=None, copy=None):
            raise TypeError("no dtype for it")

    t = tensor("bfloat16", (4,))
    assert sj.asarray(Both(t)).dtype.name == "int16"
    assert sj.asarray(Refusing(t)).tobytes() == t.tobytes()
    with pytest.raises(sj.DTypeError):
        sj.asarray(object())
