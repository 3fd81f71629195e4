"""DLPack 1.1 (dmlc.github.io/dlpack): memory lent to other libraries, and theirs borrowed.

NumPy makes the capsules that leave here, and its C code gives the memory back:
a capsule dies on any thread, while an exception is on its way, after the last
line of Python has run, where a callback into Python would lose the exception or
the process. What NumPy has no words for (bfloat16, float8, elements narrower
than a byte) is written into the description that the capsule carries.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .buffers import Bytes, Lent, spread
from .dtypes import DType, dtype
from .errors import DTypeError, ExportError, FormatError, shape_text
from .layout import Layout, checked_shape

CPU = (1, 0)  # kDLCPU, and the only device of its kind
_HOST = (1, 3, 11, 13)  # CPU; CUDA's and ROCm's pinned memory, CUDA's managed one
_VERSION = (1, 1)  # whose enumeration has every code of the dtype table
_MAX_RANK = 64  # NumPy's

_READ_ONLY, _COPIED, _ONE_A_BYTE = 1, 2, 4  # DLPACK_FLAG_BITMASK_...
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


# Prototypes of our own: the argument types set on ctypes.pythonapi are everybody's.
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
    """Which kind of capsule a consumer's `__dlpack__` arguments ask for.

    Raises ExportError for another device than the CPU, TypeError for arguments
    that the Array API does not know.
    """
    if copy is not None and not isinstance(copy, bool):
        raise DTypeError(f"copy is None, True or False, not {copy!r}")
    if stream is not None:
        raise ExportError(f"memory of the CPU has no streams: stream is None, not {stream!r}")
    if dl_device is not None and dl_device != CPU:
        raise ExportError(f"the memory is the CPU's, device {CPU}, not that of {dl_device!r}")
    if max_version is None:
        return False
    if not isinstance(max_version, tuple) or [*map(type, max_version)] != [int, int]:
        raise DTypeError(f"max_version is None or a pair of ints, not {max_version!r}")
    return bool(max_version >= (1, 0))


def check_exportable(kind: DType, ndim: int, *, versioned: bool, writeable: bool) -> None:
    """Raise ExportError for what a capsule of this kind has no words for."""
    if kind.dlpack is None:
        raise ExportError(f"DLPack has no dtype for {kind}")
    if ndim > _MAX_RANK:
        raise ExportError(f"NumPy makes the capsules, for {_MAX_RANK} dims at most, not {ndim}")
    if not versioned and kind.packed:
        raise ExportError(
            f"{kind} needs a consumer of DLPack 1 (max_version=(1, 1)): an older one would "
            f"take each element for a whole byte"
        )
    if not versioned and not writeable:
        raise ExportError(
            "read-only memory needs a consumer of DLPack 1 (max_version=(1, 0)): older versions "
            "cannot say so; copy=True lends a copy"
        )


def lend(memory: Bytes, kind: DType, layout: Layout, *, versioned: bool, copied: bool) -> Any:
    """A capsule over the elements (exportable ones) in `memory`, which it keeps alive.

    Elements narrower than a byte are lent packed, strides counted in elements,
    or one a byte (IS_SUBBYTE_TYPE_PADDED) where they lie so. Raises ExportError
    where they begin within a byte, or are no whole number of elements apart.
    """
    one_a_byte = kind.packed and spread(memory)
    unit = 8 if one_a_byte else kind.bits
    steps = [stride for size, stride in zip(layout.shape, layout.strides, strict=True) if size > 1]
    if layout.size and (layout.offset % 8 or any(step % unit for step in steps)):
        raise ExportError(
            f"strides {layout.strides} and offset {layout.offset}, in bits, are not in whole "
            f"elements of {kind} from a whole byte on: call ascontiguous() first, or pass copy=True"
        )
    capsule = _carrier(memory, layout).__dlpack__(max_version=(1, 0) if versioned else None)
    address = _pointer(capsule, _FRESH[versioned])
    if versioned:
        managed = _Versioned.from_address(address)
        managed.version[:] = _VERSION
        managed.flags |= _COPIED * copied | _ONE_A_BYTE * one_a_byte
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
    """An ndarray at the first element, of as many dims; not contiguous, so that it has strides."""
    if layout.size == 0:
        memory = np.zeros(1, np.uint8)
    shape = (2,) * min(layout.ndim, 1) + (1,) * (layout.ndim - 1)
    return np.ndarray(shape, np.uint8, memory.data, layout.offset // 8, (0,) * layout.ndim)


class _Borrowed(Lent):
    """Memory of a capsule's producer, who is told when nothing needs it any more."""

    def __init__(self, managed: Any, versioned: bool, span: tuple[int, int], one_a_byte: bool):
        described = managed.tensor
        start = (described.data or 0) + described.byte_offset + span[0]
        # An unversioned capsule cannot say whether writing is allowed: NumPy, too, says no.
        writeable = versioned and not managed.flags & _READ_ONLY
        super().__init__(managed, start, span[1] - span[0], writeable=writeable, spread=one_a_byte)

    def __del__(self, deref: Any = ctypes.addressof) -> None:
        managed: Any = self.owner
        if managed.deleter:
            managed.deleter(deref(managed))


def borrow(x: Any) -> tuple[Bytes, DType, Layout]:
    """The memory, the dtype and the Layout of an object with `__dlpack__`, without copying.

    Vector lanes (torch's float4_e2m1fn_x2 has two) multiply the last dim. Raises
    FormatError for other devices than the CPU and for what no Layout describes,
    DTypeError for unknown dtypes.
    """
    device = tuple(x.__dlpack_device__())
    if device[0] not in _HOST:
        raise FormatError(
            f"the {type(x).__name__} is on DLPack device {tuple(map(int, device))}, not on the CPU"
        )
    capsule = _capsule(x)
    versioned = bool(_is_valid(capsule, _FRESH[True]))
    if not versioned and not _is_valid(capsule, _FRESH[False]):
        raise FormatError(f"{type(x).__name__}.__dlpack__ gave no unused DLPack capsule")
    structure = _Versioned if versioned else _Unversioned
    managed: Any = structure.from_address(_pointer(capsule, _FRESH[versioned]))
    if versioned and managed.version[0] != _VERSION[0]:
        raise FormatError(f"DLPack {managed.version[0]} is unknown here, {_VERSION[0]} is known")
    one_a_byte = bool(versioned and managed.flags & _ONE_A_BYTE)
    kind, layout = _described(managed.tensor, one_a_byte)
    low, high = layout.span
    first, end = low // 8, -(-high // 8)
    # From here on the capsule's own destructor does nothing; nothing may fail in between.
    _rename(capsule, _USED[versioned])
    lent = _Borrowed(managed, versioned, (first, end), one_a_byte)
    memory = np.asarray(lent) if layout.size else np.empty(0, np.uint8)  # nothing is at NULL
    return memory, kind, layout.at(-8 * first)


def _capsule(x: Any) -> Any:
    """What `__dlpack__` gives, asked in the newest words that it understands."""
    try:
        try:
            return x.__dlpack__(max_version=_VERSION)
        except TypeError:
            return x.__dlpack__()
    except BufferError as fault:
        raise FormatError(f"the {type(x).__name__} cannot be lent: {fault}") from None


def _described(tensor: Any, one_a_byte: bool) -> tuple[DType, Layout]:
    """The dtype and the Layout, in bits, of a DLTensor."""
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    kind = dtype((code, bits), vocabulary="dlpack")
    if lanes != 1 and (one_a_byte or bits * lanes % 8 or not lanes):
        raise FormatError(f"{lanes} lanes of {kind} are no whole bytes")
    unit = 8 if one_a_byte and kind.packed else bits * lanes
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
            f"{lanes} lanes of {kind} are no view of the last dim of {shape_text(shape)}, whose "
            f"elements do not lie side by side"
        )
    return kind, seen
