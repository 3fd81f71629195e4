"""shapejit: a dtype-complete reshape engine.

>>> import numpy as np
>>> import shapejit as sj
>>> sj.onnx.reshape(np.zeros((2, 3, 4), np.float32), [0, -1]).shape
(2, 12)
"""

from .cli import startup as _startup  # noqa: F401  # first: Ctrl-C may come at once

# isort: split

from . import dtypes as dtypes
from .casts import cast, dequantize, quantize
from .dialects import onednn, onnx, openvino
from .dtypes import DType, dtype
from .equality import array_equal
from .errors import DTypeError, FileFormatError, FormatError, ReshapeError, ShapeJitError
from .files.file_formats import load_file, save_file
from .joining import concat, stack
from .operations import (
    ascontiguous,
    broadcast_to,
    expand_dims,
    flip,
    matrix_transpose,
    pack,
    permute_dims,
    reshape,
    squeeze,
)
from .packings.rows import formats
from .programs.batch import reshape_batch
from .programs.planned import plan
from .programs.program import Program
from .programs.target_shapes import resolve_batch
from .quantization.table import schemes
from .repacking import repack
from .resolver import resolve
from .result_memory import set_result_cache
from .tensor import Tensor, asarray
from .warming import warmup

__version__ = "0.1.0"

__all__ = [
    "DType",
    "DTypeError",
    "FileFormatError",
    "FormatError",
    "Program",
    "ReshapeError",
    "ShapeJitError",
    "Tensor",
    "array_equal",
    "asarray",
    "ascontiguous",
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
    "onednn",
    "onnx",
    "openvino",
    "pack",
    "permute_dims",
    "plan",
    "quantize",
    "repack",
    "reshape",
    "reshape_batch",
    "resolve",
    "resolve_batch",
    "save_file",
    "schemes",
    "set_result_cache",
    "squeeze",
    "stack",
    "warmup",
]
