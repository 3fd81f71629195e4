"""The dtype table: one row per dtype, with all its properties.

Everything else (lookups in every vocabulary, storage types, lists) is derived
from the rows: to add a dtype, add a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import DTypeError, did_you_mean, quoted
from ..runtime.ndarrays import is_a
from .float_formats import FLOAT_FORMATS, FloatFormat as FloatFormat
from .names import DTYPE_ALIASES, MODULES, TORCH


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type: its width in bits and its name in every system.

    `kind` is "bool", "integer", "float", "complex" or "string". `numpy` is the
    NumPy or ml_dtypes dtype (ml_dtypes stores types below 8 bits in one byte per
    element), `onnx` the TensorProto.DataType integer, `dlpack` the pair (code,
    bits); `openvino`, `onednn`, `safetensors`, `gguf` and `torch` are the names in those
    systems. Each is None if the system has no such type. `bits` is 0 for strings,
    which have no fixed width. `format` says how floats are written, those that a
    complex number consists of, too.

    A DType equals whatever `dtype` makes it of: names, NumPy's and ml_dtypes' dtypes and
    scalar types. Its hash is that of its name: in a set or a dict it stands for the name,
    but not for a NumPy dtype, whose hash is another (also than that of its own name).

    >>> dtype("int4").bits, dtype("int4").onnx, dtype("int4").openvino
    (4, 22, 'i4')
    >>> dtype("int4") == "int4", dtype("int4") == ml_dtypes.int4, dtype("int4") == "int8"
    (True, True, False)
    """

    name: str
    bits: int
    kind: str
    signed: bool
    numpy: np.dtype[Any] | None
    onnx: int | None = None
    onnx_name: str | None = None
    openvino: str | None = None
    onednn: str | None = None
    safetensors: str | None = None
    gguf: str | None = None
    gguf_code: int | None = None
    dlpack: tuple[int, int] | None = None
    format: FloatFormat | None = None
    torch: str | None = None

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is DType:
            return self is other
        try:
            return dtype(other) is self
        except DTypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"shapejit.dtype({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)

    @property
    def packed(self) -> bool:
        """Whether elements have fewer than 8 bits, so that several share a byte.

        >>> dtype("int4").packed, dtype("int8").packed
        (True, False)
        """
        return 0 < self.bits < 8

    @property
    def codes(self) -> np.dtype[Any]:
        """The NumPy dtype of unpacked elements: `numpy`, or uint8 (their codes) if that is None.

        >>> dtype("nf4").numpy, dtype("nf4").codes
        (None, dtype('uint8'))
        """
        return np.dtype(np.uint8) if self.numpy is None else self.numpy

    def nbytes(self, count: int) -> int:
        """The bytes that `count` packed elements take. Raises TypeError for what is no number.

        >>> dtype("float6_e2m3fn").nbytes(5)
        4
        """
        return (count * self.bits + 7) // 8


# DLPack's type codes (dlpack.h 1.1, DLDataTypeCode).
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

# ONNX TensorProto.DataType; OpenVINO element types; oneDNN Graph data types;
# safetensors header names; GGUF (GGMLQuantizationType) names and codes.
# fmt: off
_ROWS: tuple[tuple[Any, ...], ...] = (
    #     name             bits kind      signed onnx                    openvino    onednn  safetensors    gguf          dlpack
    ("bool",                8, "bool",    False, (9, "BOOL"),            "boolean",  None,   "BOOL",        None,         (_BOOL, 8)),
    ("int1",                1, "integer", True,  None,                   None,       None,   None,          None,         (_INT, 1)),
    ("int2",                2, "integer", True,  (26, "INT2"),           None,       None,   None,          None,         (_INT, 2)),
    ("int4",                4, "integer", True,  (22, "INT4"),           "i4",       None,   None,          None,         (_INT, 4)),
    ("int8",                8, "integer", True,  (3, "INT8"),            "i8",       None,   "I8",          ("I8", 24),   (_INT, 8)),
    ("int16",              16, "integer", True,  (5, "INT16"),           "i16",      None,   "I16",         ("I16", 25),  (_INT, 16)),
    ("int32",              32, "integer", True,  (6, "INT32"),           "i32",      None,   "I32",         ("I32", 26),  (_INT, 32)),
    ("int64",              64, "integer", True,  (7, "INT64"),           "i64",      None,   "I64",         ("I64", 27),  (_INT, 64)),
    ("uint1",               1, "integer", False, None,                   "u1",       None,   None,          None,         (_UINT, 1)),
    ("uint2",               2, "integer", False, (25, "UINT2"),          "u2",       None,   None,          None,         (_UINT, 2)),
    ("uint3",               3, "integer", False, None,                   "u3",       None,   None,          None,         (_UINT, 3)),
    ("uint4",               4, "integer", False, (21, "UINT4"),          "u4",       None,   None,          None,         (_UINT, 4)),
    ("uint6",               6, "integer", False, None,                   "u6",       None,   None,          None,         (_UINT, 6)),
    ("uint8",               8, "integer", False, (2, "UINT8"),           "u8",       None,   "U8",          None,         (_UINT, 8)),
    ("uint16",             16, "integer", False, (4, "UINT16"),          "u16",      None,   "U16",         None,         (_UINT, 16)),
    ("uint32",             32, "integer", False, (12, "UINT32"),         "u32",      None,   "U32",         None,         (_UINT, 32)),
    ("uint64",             64, "integer", False, (13, "UINT64"),         "u64",      None,   "U64",         None,         (_UINT, 64)),
    ("float4_e2m1fn",       4, "float",   True,  (23, "FLOAT4E2M1"),     "f4e2m1",   None,   "F4",          None,         (17, 4)),
    ("nf4",                 4, "float",   True,  None,                   "nf4",      None,   None,          None,         None),
    ("float6_e2m3fn",       6, "float",   True,  (27, "FLOAT6E2M3"),     None,       None,   "F6_E2M3",     None,         (15, 6)),
    ("float6_e3m2fn",       6, "float",   True,  (28, "FLOAT6E3M2"),     None,       None,   "F6_E3M2",     None,         (16, 6)),
    ("float8_e3m4",         8, "float",   True,  None,                   None,       None,   None,          None,         (7, 8)),
    ("float8_e4m3",         8, "float",   True,  None,                   None,       None,   None,          None,         (8, 8)),
    ("float8_e4m3b11fnuz",  8, "float",   True,  None,                   None,       None,   None,          None,         (9, 8)),
    ("float8_e4m3fn",       8, "float",   True,  (17, "FLOAT8E4M3FN"),   "f8e4m3",   None,   "F8_E4M3",     None,         (10, 8)),
    ("float8_e4m3fnuz",     8, "float",   True,  (18, "FLOAT8E4M3FNUZ"), None,       None,   "F8_E4M3FNUZ", None,         (11, 8)),
    ("float8_e5m2",         8, "float",   True,  (19, "FLOAT8E5M2"),     "f8e5m2",   None,   "F8_E5M2",     None,         (12, 8)),
    ("float8_e5m2fnuz",     8, "float",   True,  (20, "FLOAT8E5M2FNUZ"), None,       None,   "F8_E5M2FNUZ", None,         (13, 8)),
    ("float8_e8m0fnu",      8, "float",   False, (24, "FLOAT8E8M0"),     "f8e8m0",   None,   "F8_E8M0",     None,         (14, 8)),
    ("bfloat16",           16, "float",   True,  (16, "BFLOAT16"),       "bf16",     "bf16", "BF16",        ("BF16", 30), (_BFLOAT, 16)),
    ("float16",            16, "float",   True,  (10, "FLOAT16"),        "f16",      "f16",  "F16",         ("F16", 1),   (_FLOAT, 16)),
    ("float32",            32, "float",   True,  (1, "FLOAT"),           "f32",      "f32",  "F32",         ("F32", 0),   (_FLOAT, 32)),
    ("float64",            64, "float",   True,  (11, "DOUBLE"),         "f64",      None,   "F64",         ("F64", 28),  (_FLOAT, 64)),
    ("complex32",          32, "complex", True,  None,                   None,       None,   None,          None,         (_COMPLEX, 32)),
    ("bcomplex32",         32, "complex", True,  None,                   None,       None,   None,          None,         None),
    ("complex64",          64, "complex", True,  (14, "COMPLEX64"),      None,       None,   "C64",         None,         (_COMPLEX, 64)),
    ("complex128",        128, "complex", True,  (15, "COMPLEX128"),     None,       None,   None,          None,         (_COMPLEX, 128)),
    ("string",              0, "string",  False, (8, "STRING"),          "string",   None,   None,          None,         None),
)
# fmt: on


def _numpy_type(name: str) -> np.dtype[Any] | None:
    """The dtype of this name in ml_dtypes or NumPy; object for strings, as in onnx."""
    if name == "string":
        return np.dtype(object)
    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        scalar = {"bool": np.bool_}.get(name) or getattr(np, name, None)
    return None if scalar is None else np.dtype(scalar)


# fmt: off
_TABLE = tuple(
    DType(*(name, bits, kind, signed, _numpy_type(name), *(onnx or (None, None)), openvino, onednn,
            safetensors, *(gguf or (None, None)), dlpack, FLOAT_FORMATS.get(name), TORCH.get(name)))
    for name, bits, kind, signed, onnx, openvino, onednn, safetensors, gguf, dlpack in _ROWS
)
# fmt: on

# The keys (names and codes) of a dtype in each vocabulary.
_KEYS: dict[str, Callable[[DType], tuple[Any, ...]]] = {
    "onnx": lambda d: (d.onnx, d.onnx_name),
    "openvino": lambda d: (d.openvino,),
    "onednn": lambda d: (d.onednn,),
    "safetensors": lambda d: (d.safetensors,),
    "gguf": lambda d: (d.gguf, d.gguf_code),
    "dlpack": lambda d: (d.dlpack,),
    "torch": lambda d: (d.torch, d.torch and f"torch.{d.torch}"),
}
_BY_VOCABULARY: dict[str, dict[Any, DType]] = {
    vocabulary: {key: d for d in _TABLE for key in keys(d) if key is not None}
    for vocabulary, keys in _KEYS.items()
}
_BY_NAME = {d.name: d for d in _TABLE}


def _other_names() -> dict[str, list[tuple[str, DType]]]:
    """Every name that is not canonical, with the systems and dtypes that it belongs to."""
    found: dict[str, list[tuple[str, DType]]] = {}
    for vocabulary, keys in _BY_VOCABULARY.items():
        for name, kind in keys.items():
            if isinstance(name, str):
                found.setdefault(name, []).append((vocabulary, kind))
    for name, canonical, who in DTYPE_ALIASES:
        found.setdefault(name, []).append((who, _BY_NAME[canonical]))
    return found


_OTHER_NAMES = _other_names()
_ROOTS = {module.partition(".")[0] for module in MODULES}
_BY_NUMPY = {d.numpy: d for d in _TABLE if d.numpy is not None}
_PYTHON_TYPES = (bool, int, float, complex, str, bytes, object)
STRING = _BY_NAME["string"]
FLOAT32, UINT8 = _BY_NAME["float32"], _BY_NAME["uint8"]


def dtype(x: object, /, vocabulary: str | None = None) -> DType:
    """The row of the dtype table for `x`.

    Without `vocabulary`, `x` is a canonical name (ml_dtypes' and NumPy's), a
    NumPy or ml_dtypes dtype or scalar type, a dtype of another library
    (`torch.bfloat16`), a DType, or any name that some system has for one dtype and
    none for another (`"BF16"`, `"bf16"`, `"i4"`, `"torch.bfloat16"`, `"half"`). Numbers
    in such names count bits; NumPy's codes, which count bytes, are not read. With
    `vocabulary` (`"onnx"`, `"openvino"`, `"onednn"`, `"safetensors"`, `"gguf"`,
    `"dlpack"`, `"torch"`) it is that system's own name or code. Raises DTypeError for
    unknown and ambiguous dtypes and unknown vocabularies.

    >>> dtype("bf16"), dtype("F8_E4M3", vocabulary="safetensors")
    (shapejit.dtype('bfloat16'), shapejit.dtype('float8_e4m3fn'))
    >>> dtype(16, vocabulary="onnx").name, dtype((4, 16), vocabulary="dlpack").name
    ('bfloat16', 'bfloat16')
    """
    if vocabulary is not None:
        return _by_vocabulary(x, vocabulary)
    if type(x) is DType:
        if _BY_NAME.get(x.name) is x:
            return x
        raise DTypeError(f"{x!r} is not the dtype of that name: its facts were changed")
    if isinstance(x, str):
        return _BY_NAME.get(x) or _by_other_name(x)
    if is_a(x, np.dtype):
        return _by_numpy(x)
    if isinstance(x, type):
        # np.dtype returns object for any class, and reads fields that a ctypes class may lack.
        if not issubclass(x, np.generic) and x not in _PYTHON_TYPES:
            return _of_library(x, f"{x.__module__}.{x.__name__}")
        try:
            known = np.dtype(x)
        except TypeError:
            raise DTypeError(f"unsupported type {x!r}") from None
        return _by_numpy(known)
    root = type(x).__module__.partition(".")[0]
    return _of_library(x, str(x) if root in _ROOTS else "")


dtype.__module__ = "shapejit"  # the module named in pickles


@lru_cache(maxsize=256)
def _by_numpy(x: np.dtype[Any]) -> DType:
    if x.type in (np.str_, np.bytes_) or isinstance(x, np.dtypes.StringDType):
        return STRING
    known = _BY_NUMPY.get(x)
    if known is not None:
        return known
    if not x.isnative and x.newbyteorder("=") in _BY_NUMPY:
        raise DTypeError(
            f"{x} is not in native byte order; convert it first: "
            f"x.astype(x.dtype.newbyteorder('='))"
        )
    raise DTypeError(f"unsupported NumPy dtype {x}")


def _by_vocabulary(x: object, vocabulary: str) -> DType:
    keys = _BY_VOCABULARY.get(vocabulary)
    if keys is None:
        known = ", ".join(map(repr, _BY_VOCABULARY))
        raise DTypeError(f"unknown vocabulary {vocabulary!r}; known are {known}")
    # True == 1 and 1.0 == 1 would find FLOAT: only an int is a code.
    parts = x if is_a(x, tuple) else (x,)
    if not any(isinstance(p, bool) or not isinstance(p, str | int | np.integer) for p in parts):
        found = keys.get(x)
        if found is not None:
            return found
    raise DTypeError(f"unknown {vocabulary} dtype {x!r}")


def _by_other_name(name: str) -> DType:
    """The dtype of a name that is not canonical, if it means only one."""
    module, _, last = name.rpartition(".")
    if module in MODULES and last in _BY_NAME:
        return _BY_NAME[last]
    meanings = _OTHER_NAMES.get(name, [])
    kinds = {kind for _, kind in meanings}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds:
        listed = " or ".join(f"{kind} ({who})" for who, kind in meanings)
        raise DTypeError(f"the dtype {name!r} is ambiguous: {listed}")
    stem = name.rstrip("0123456789")
    alike = [known for known in _BY_NAME if known != stem == known.rstrip("0123456789")]
    known = f"; known are {', '.join(alike)}" if len(alike) > 1 else ""
    hint = _numpy_code(name) or known or did_you_mean(name, [*_BY_NAME, *_OTHER_NAMES])
    raise DTypeError(f"unknown dtype {quoted(name)}{hint}")


def _numpy_code(name: str) -> str:
    """A hint about NumPy's codes, which count bytes: 'f4' is float32, and 'F4' a float4."""
    if re.fullmatch("[biufc][0-9]", name):
        with suppress(TypeError):
            meant = np.dtype(name).name
            return f": NumPy's code for {meant!r}" if meant in _BY_NAME else ""
    return ""


def _of_library(x: object, name: str) -> DType:
    """A dtype of another library, whose text is such as `torch.bfloat16`."""
    if not name.startswith(tuple(f"{module}." for module in MODULES)):
        raise DTypeError(
            f"a dtype is a name, a dtype or scalar type of NumPy or of a library that has "
            f"dtypes of these names, or a DType, not {x!r}"
        )
    return _by_other_name(name)


def fixed_width(x: object) -> DType:
    """`dtype(x)`; DTypeError for strings, which have no fixed width."""
    kind = dtype(x)
    if kind is STRING:
        raise DTypeError(
            "strings and objects have no fixed width: ndarrays hold them, Tensors and save_file do not"
        )
    return kind


def all() -> tuple[DType, ...]:
    """Every dtype, in the order of the table.

    >>> len(all()) >= 38
    True
    """
    return _TABLE
