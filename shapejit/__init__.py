"""shapejit: a dtype-complete reshape engine.

>>> import numpy as np
>>> import shapejit as sj
>>> sj.onnx.reshape(np.zeros((2, 3, 4), np.float32), [0, -1]).shape
(2, 12)
"""

from .cli import startup as _startup  # noqa: F401  # first: Ctrl-C may come at once

# isort: split

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from . import dtypes as dtypes
from . import foreign as _foreign
from . import methods as _methods
from .casts import cast, dequantize, quantize
from .codes import pack, unpack
from .dtypes import DType, dtype
from .equality import array_equal
from .errors import (
    AxisError,
    DTypeError,
    ExportError,
    FileFormatError,
    FormatError,
    OutOfBoundsError,
    ReshapeError,
    ShapeJitError,
    TraceError,
    UnknownNameError,
)
from .operations import (
    ascontiguous,
    broadcast_to,
    expand_dims,
    flip,
    matrix_transpose,
    permute_dims,
    reshape,
    squeeze,
)
from .resolver import resolve
from .result_memory import set_result_cache
from .tensor import Tensor, asarray

if TYPE_CHECKING:
    from . import files as files
    from .dialects import onednn, onnx, openvino
    from .files.file_formats import load_file, save_file
    from .gathering import take
    from .joining import concat, stack
    from .manipulation import (
        broadcast_arrays,
        broadcast_shapes,
        moveaxis,
        repeat,
        roll,
        split,
        tile,
        transpose,
        unstack,
    )
    from .packings.rows import formats
    from .programs.batch import reshape_batch
    from .programs.planned import plan
    from .programs.program import Program
    from .programs.target_shapes import resolve_batch
    from .quantization.table import schemes
    from .repacking import repack
    from .warming import warmup

__version__ = "0.1.0"

# Imported when they are first asked for, each from a module or as one: more than half of the
# time that importing all would take.
_LATER = {
    "Program": "programs.program",
    "broadcast_arrays": "manipulation",
    "broadcast_shapes": "manipulation",
    "concat": "joining",
    "files": "files",
    "formats": "packings.rows",
    "load_file": "files.file_formats",
    "moveaxis": "manipulation",
    "onednn": "dialects.onednn",
    "onnx": "dialects.onnx",
    "openvino": "dialects.openvino",
    "plan": "programs.planned",
    "repack": "repacking",
    "repeat": "manipulation",
    "reshape_batch": "programs.batch",
    "resolve_batch": "programs.target_shapes",
    "roll": "manipulation",
    "save_file": "files.file_formats",
    "schemes": "quantization.table",
    "split": "manipulation",
    "stack": "joining",
    "take": "gathering",
    "tile": "manipulation",
    "transpose": "manipulation",
    "unstack": "manipulation",
    "warmup": "warming",
}

__all__ = [
    "AxisError",
    "DType",
    "DTypeError",
    "ExportError",
    "FileFormatError",
    "FormatError",
    "OutOfBoundsError",
    "Program",
    "ReshapeError",
    "ShapeJitError",
    "Tensor",
    "TraceError",
    "UnknownNameError",
    "array_equal",
    "asarray",
    "ascontiguous",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "cast",
    "concat",
    "dequantize",
    "dtype",
    "dtypes",
    "expand_dims",
    "flip",
    "formats",
    "load_file",
    "matrix_transpose",
    "moveaxis",
    "onednn",
    "onnx",
    "openvino",
    "pack",
    "permute_dims",
    "plan",
    "quantize",
    "repack",
    "repeat",
    "reshape",
    "reshape_batch",
    "resolve",
    "resolve_batch",
    "roll",
    "save_file",
    "schemes",
    "set_result_cache",
    "split",
    "squeeze",
    "stack",
    "take",
    "tile",
    "transpose",
    "unpack",
    "unstack",
    "warmup",
]


def _library(kind: type) -> _foreign.Library:
    """The library that a type of arrays belongs to: the adapters' answer, who take over."""
    _foreign.library = _import_module(f"{__name__}.adapters.libraries").library
    return _foreign.library(kind)


_foreign.library = _library
_methods.load = lambda module: _import_module(f"{__name__}.{module}")


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _import_module(f"{__name__}.{_LATER[name]}")
    value = module if module.__name__.endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
