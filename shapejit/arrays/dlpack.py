"""DLPack 1.1 (dmlc.github.io/dlpack): export memory (`lend`), and import that of others.

NumPy makes the capsules that are exported, and its C code frees them: a capsule
may be destroyed on any thread, while an exception is being raised or after the
interpreter has ended, when a deleter written in Python would lose the exception
or crash. What NumPy cannot export (bfloat16, float8, sub-byte elements) is
written into the DLTensor in the capsule.
"""

from __future__ import annotations

import ctypes
from operator import index
from typing import Any

import numpy as np

from ..dtypes.table import DType, dtype
from ..errors import DTypeError, ExportError, FormatError, shape_text
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.layout import Layout, checked_shape
from .buffers import Bytes, Lent, has_one_per_byte

CPU = (1, 0)  # kDLCPU, device 0
_HOST = (1, 3, 11, 13)  # kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI"}
_VERSION = (1, 1)  # the first that has all type codes of the dtype table

_READ_ONLY, _COPIED, _ONE_PER_BYTE = 1, 2, 4  # DLPACK_FLAG_BITMASK_...
_FRESH = (b"dltensor", b"dltensor_versioned")
_USED = (b"used_dltensor", b"used_dltensor_versioned")


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Description(ctypes.Structure):
    """DLTensor; strides count elements."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Unversioned(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Description), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Description),
    )


# Own prototypes: argument types set on ctypes.pythonapi would affect all other code.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)


def is_versioned(stream: object, max_version: object, dl_device: object, copy: object) -> bool:
    """Whether the arguments of a consumer's `__dlpack__` call ask for a versioned capsule.

    Raises ExportError for a stream or another device than the CPU, DTypeError for
    arguments of types that the Array API does not allow.
    """
    if copy is not None and not isinstance(copy, bool):
        raise DTypeError(f"copy must be None, True or False, not {copy!r}")
    if stream is not None:
        raise ExportError(f"stream must be None on the CPU, not {stream!r}")
    if dl_device is not None and dl_device != CPU:
        raise ExportError(f"the memory is on the CPU, device {CPU}, not on {dl_device!r}")
    if max_version is None:
        return False
    if not isinstance(max_version, tuple) or [*map(type, max_version)] != [int, int]:
        raise DTypeError(f"max_version must be None or a pair of ints, not {max_version!r}")
    return bool(max_version >= (1, 0))


def check_exportable(kind: DType, ndim: int, *, versioned: bool, writeable: bool) -> None:
    """Raise ExportError for a tensor that such a capsule cannot describe."""
    if kind.dlpack is None:
        raise ExportError(f"DLPack has no dtype for {kind}")
    if ndim > MOST_DIMS:
        raise ExportError(f"DLPack export supports at most {MOST_DIMS} dims, not {ndim}")
    if not versioned and kind.packed:
        raise ExportError(
            f"{kind} needs a consumer that supports DLPack 1 (max_version=(1, 1)): older ones "
            f"would read one byte per element"
        )
    if not versioned and not writeable:
        raise ExportError(
            "read-only memory needs a consumer that supports DLPack 1 (max_version=(1, 0)): "
            "older versions have no such flag; copy=True exports a copy"
        )


def lend(memory: Bytes, kind: DType, layout: Layout, *, versioned: bool, copied: bool) -> Any:
    """A capsule over the elements in `memory`, which it keeps alive; see `check_exportable`.

    Sub-byte elements are lent packed, with strides in elements, or one per byte
    (IS_SUBBYTE_TYPE_PADDED) if the memory has them so. Raises ExportError if the
    first does not begin on a byte, or strides are not multiples of an element.
    """
    one_per_byte = kind.packed and has_one_per_byte(memory)
    unit = 8 if one_per_byte else kind.bits
    steps = [stride for size, stride in zip(layout.shape, layout.strides, strict=True) if size > 1]
    if layout.size and (layout.offset % 8 or any(step % unit for step in steps)):
        raise ExportError(
            f"strides {layout.strides} must be multiples of {unit} bits ({kind}) and offset "
            f"{layout.offset} one of 8: call ascontiguous() first, or pass copy=True"
        )
    capsule = _carrier(memory, layout).__dlpack__(max_version=(1, 0) if versioned else None)
    address = _pointer(capsule, _FRESH[versioned])
    if versioned:
        managed = _Versioned.from_address(address)
        managed.version[:] = _VERSION
        managed.flags |= _COPIED * copied | _ONE_PER_BYTE * one_per_byte
        described = managed.tensor
    else:
        described = _Unversioned.from_address(address).tensor
    code: Any = kind.dlpack
    described.dtype = _DataType(*code, 1)
    for i, (size, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        described.shape[i], described.strides[i] = size, stride // unit
    if layout.size == 0:
        described.data = None
    return capsule


def _carrier(memory: Bytes, layout: Layout) -> Any:
    """An ndarray at the first element, of as many dims, for NumPy to export with strides."""
    if layout.size == 0:
        memory = np.zeros(1, np.uint8)
    shape = (2,) * min(layout.ndim, 1) + (1,) * (layout.ndim - 1)
    return np.ndarray(shape, np.uint8, memory.data, layout.offset // 8, (0,) * layout.ndim)


class _Borrowed(Lent):
    """Memory of a capsule's producer; its deleter is called when the last user is gone."""

    def __init__(self, managed: Any, versioned: bool, span: tuple[int, int], one_per_byte: bool):
        described = managed.tensor
        start = (described.data or 0) + described.byte_offset + span[0]
        # An unversioned capsule has no such flag: read-only, as in NumPy.
        writeable = versioned and not managed.flags & _READ_ONLY
        super().__init__(
            start,
            (span[1] - span[0],),
            owner=managed,
            writeable=writeable,
            one_per_byte=one_per_byte,
        )

    def __del__(self, deref: Any = ctypes.addressof) -> None:
        managed: Any = self.owner
        if managed.deleter:
            managed.deleter(deref(managed))


def borrow(x: Any) -> tuple[Bytes, DType, Layout]:
    """The memory, the dtype and the Layout of an object with `__dlpack__`, without copying.

    Lanes (torch's float4_e2m1fn_x2 has two) multiply the last dim. Raises
    FormatError for other devices than the CPU and for invalid or unsupported
    shapes and lanes, DTypeError for unknown dtypes.
    """
    given = x.__dlpack_device__()
    try:
        device, number = map(index, given)
    except (TypeError, ValueError):
        raise FormatError(f"{type(x).__name__}.__dlpack_device__() is no pair of ints") from None
    if device not in _HOST:
        maker = _DEVICES.get(device)
        name = f"{maker} device {number}, " if maker else ""
        raise FormatError(
            f"the {type(x).__name__} is on {name}DLPack device "
            f"{(device, number)}, not on the CPU: "
            f"copy it to the CPU first"
        )
    capsule = _capsule(x)
    versioned = bool(_is_valid(capsule, _FRESH[True]))
    if not versioned and not _is_valid(capsule, _FRESH[False]):
        raise FormatError(f"{type(x).__name__}.__dlpack__() did not return a new DLPack capsule")
    structure = _Versioned if versioned else _Unversioned
    managed: Any = structure.from_address(_pointer(capsule, _FRESH[versioned]))
    if versioned and managed.version[0] != _VERSION[0]:
        raise FormatError(f"unsupported DLPack version {managed.version[0]}, not {_VERSION[0]}")
    one_per_byte = bool(versioned and managed.flags & _ONE_PER_BYTE)
    kind, layout = _described(managed.tensor, one_per_byte)
    low, high = layout.span
    first, end = low // 8, -(-high // 8)
    # From here on the capsule's destructor does nothing: nothing may fail before _Borrowed exists.
    _rename(capsule, _USED[versioned])
    lent = _Borrowed(managed, versioned, (first, end), one_per_byte)
    memory = np.asarray(lent) if layout.size else np.empty(0, np.uint8)  # the address may be NULL
    return memory, kind, layout.at(-8 * first)


def _capsule(x: Any) -> Any:
    """The capsule of `__dlpack__`, called with the newest version that it accepts."""
    try:
        try:
            return x.__dlpack__(max_version=_VERSION)
        except TypeError:
            return x.__dlpack__()
    except BufferError as fault:
        raise FormatError(f"the {type(x).__name__} cannot be exported: {fault}") from None


def _described(tensor: Any, one_per_byte: bool) -> tuple[DType, Layout]:
    """The dtype and the Layout, in bits, of a DLTensor."""
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    kind = dtype((code, bits), vocabulary="dlpack")
    if lanes != 1 and (one_per_byte or bits * lanes % 8 or not lanes):
        raise FormatError(f"{lanes} lanes of {kind} are not a whole number of bytes")
    unit = 8 if one_per_byte and kind.packed else bits * lanes
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    checked_shape((*shape, lanes), "the shape", "DLPack")
    if tensor.strides:
        strides = tuple(tensor.strides[i] * unit for i in range(tensor.ndim))
    else:
        strides = Layout.row_major(shape, unit).strides
    if lanes == 1:
        return kind, Layout(shape, strides, 0, bits)
    whole = Layout((*shape, lanes), (*strides, bits), 0, bits)
    seen = whole.reshape((*shape[:-1], shape[-1] * lanes)) if shape else whole
    if seen is None:
        raise FormatError(
            f"{lanes} lanes of {kind} cannot be merged into the last dim of {shape_text(shape)}, "
            f"which is not contiguous"
        )
    return kind, seen
