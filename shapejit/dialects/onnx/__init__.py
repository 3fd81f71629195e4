"""ONNX operators (onnx.ai/onnx/operators) in every version: shapes, casts, quantization."""

from .casts import cast, cast_like, dequantize_linear, quantize_linear
from .reshapes import request, reshape, shape, shape_of
from .versions import Version, version
from .views import (
    expand,
    flatten,
    identity,
    size,
    slice,  # noqa: A004
    split,
    squeeze,
    transpose,
    unsqueeze,
)

__all__ = [
    "Version",
    "cast",
    "cast_like",
    "dequantize_linear",
    "expand",
    "flatten",
    "identity",
    "quantize_linear",
    "request",
    "reshape",
    "shape",
    "shape_of",
    "size",
    "slice",
    "split",
    "squeeze",
    "transpose",
    "unsqueeze",
    "version",
]
