from . import dtypes as dtypes, files as files
from .arrays.tensor import Tensor as Tensor, asarray as asarray
from .dialects import onednn as onednn, onnx as onnx, openvino as openvino
from .dtypes.table import DType as DType, dtype as dtype
from .errors import (
    AxisError as AxisError,
    DTypeError as DTypeError,
    ExportError as ExportError,
    FileFormatError as FileFormatError,
    FormatError as FormatError,
    OutOfBoundsError as OutOfBoundsError,
    ReshapeError as ReshapeError,
    ShapeJitError as ShapeJitError,
    TraceError as TraceError,
    UnknownNameError as UnknownNameError,
)
from .files.file_formats import load_file as load_file, save_file as save_file
from .operations.casts import cast as cast, dequantize as dequantize, quantize as quantize
from .operations.codes import pack as pack, unpack as unpack
from .operations.equality import array_equal as array_equal
from .operations.gathering import take as take, take_along_axis as take_along_axis
from .operations.joining import concat as concat, stack as stack
from .operations.manipulation import (
    broadcast_arrays as broadcast_arrays,
    broadcast_shapes as broadcast_shapes,
    moveaxis as moveaxis,
    repeat as repeat,
    roll as roll,
    split as split,
    tile as tile,
    transpose as transpose,
    unstack as unstack,
)
from .operations.views import (
    ascontiguous as ascontiguous,
    broadcast_to as broadcast_to,
    diagonal as diagonal,
    expand_dims as expand_dims,
    flip as flip,
    matrix_transpose as matrix_transpose,
    permute_dims as permute_dims,
    reshape as reshape,
    rot90 as rot90,
    squeeze as squeeze,
)
from .packings.repacking import repack as repack
from .packings.rows import formats as formats
from .programs.batch import reshape_batch as reshape_batch
from .programs.program import Program as Program, plan as plan
from .programs.target_shapes import resolve_batch as resolve_batch
from .programs.warming import warmup as warmup
from .quantization.scheme import schemes as schemes
from .runtime.kernels import kernel_status as kernel_status
from .runtime.result_memory import set_result_cache as set_result_cache
from .shapes.resolver import resolve as resolve

__version__: str
