"""shapejit: a dtype-complete reshape engine.

>>> import numpy as np
>>> import shapejit as sj
>>> sj.onnx.reshape(np.zeros((2, 3, 4), np.float32), [0, -1]).shape
(2, 12)
"""

from .cli import startup as _startup  # noqa: F401  # first: Ctrl-C may come at once

# isort: split

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from .arrays import methods as _methods
from .runtime import compilation as _compilation

if TYPE_CHECKING:
    from . import files as files
    from .arrays.tensor import Tensor, asarray
    from .dialects import onednn as onednn, onnx as onnx, openvino as openvino
    from .dtypes import table as dtypes
    from .dtypes.table import DType, dtype
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
    from .files.file_formats import load_file, save_file
    from .operations.casts import cast, dequantize, quantize
    from .operations.codes import pack, unpack
    from .operations.equality import array_equal
    from .operations.gathering import take
    from .operations.joining import concat, stack
    from .operations.manipulation import (
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
    from .operations.views import (
        ascontiguous,
        broadcast_to,
        expand_dims,
        flip,
        matrix_transpose,
        permute_dims,
        reshape,
        squeeze,
    )
    from .packings.repacking import repack
    from .packings.rows import formats
    from .programs.batch import reshape_batch
    from .programs.planned import plan
    from .programs.program import Program
    from .programs.target_shapes import resolve_batch
    from .quantization.table import schemes
    from .runtime.result_memory import set_result_cache
    from .shapes.resolver import resolve
    from .warming import warmup

__version__ = "0.1.0"

# The module of each public name, imported when that is first asked for, and the module itself
# where both have one name. Nothing else of the package is imported with it.
_LATER = {
    "AxisError": "errors",
    "DType": "dtypes.table",
    "DTypeError": "errors",
    "ExportError": "errors",
    "FileFormatError": "errors",
    "FormatError": "errors",
    "OutOfBoundsError": "errors",
    "Program": "programs.program",
    "ReshapeError": "errors",
    "ShapeJitError": "errors",
    "Tensor": "arrays.tensor",
    "TraceError": "errors",
    "UnknownNameError": "errors",
    "array_equal": "operations.equality",
    "asarray": "arrays.tensor",
    "ascontiguous": "operations.views",
    "broadcast_arrays": "operations.manipulation",
    "broadcast_shapes": "operations.manipulation",
    "broadcast_to": "operations.views",
    "cast": "operations.casts",
    "concat": "operations.joining",
    "dequantize": "operations.casts",
    "dtype": "dtypes.table",
    "dtypes": "dtypes",
    "expand_dims": "operations.views",
    "files": "files",
    "flip": "operations.views",
    "formats": "packings.rows",
    "load_file": "files.file_formats",
    "matrix_transpose": "operations.views",
    "moveaxis": "operations.manipulation",
    "onednn": "dialects.onednn",
    "onnx": "dialects.onnx",
    "openvino": "dialects.openvino",
    "pack": "operations.codes",
    "permute_dims": "operations.views",
    "plan": "programs.planned",
    "quantize": "operations.casts",
    "repack": "packings.repacking",
    "repeat": "operations.manipulation",
    "reshape": "operations.views",
    "reshape_batch": "programs.batch",
    "resolve": "shapes.resolver",
    "resolve_batch": "programs.target_shapes",
    "roll": "operations.manipulation",
    "save_file": "files.file_formats",
    "schemes": "quantization.table",
    "set_result_cache": "runtime.result_memory",
    "split": "operations.manipulation",
    "squeeze": "operations.views",
    "stack": "operations.joining",
    "take": "operations.gathering",
    "tile": "operations.manipulation",
    "transpose": "operations.manipulation",
    "unpack": "operations.codes",
    "unstack": "operations.manipulation",
    "warmup": "warming",
}

# What pickles call. They name nothing below the package itself: modules may move.
_PICKLED = {
    "_constant": "programs.steps",
    "_program": "programs.program",
    "_tensor": "arrays.tensor",
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


def _load(module: str) -> Any:
    """A module of the package by its name, imported where signals and forks cannot harm it."""
    name = f"{__name__}.{module}"
    found = _sys.modules.get(name)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return _compilation.apart(_import_module, name)


_methods.load = _load


def __getattr__(name: str) -> Any:
    where = _LATER.get(name) or _PICKLED.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _load(where)
    value = module if module.__name__.endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
