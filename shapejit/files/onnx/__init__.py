"""ONNX models (onnx.ai): their graphs are kept, their tensors read and replaced."""

try:
    import onnx  # noqa: F401  # before the modules that need it
except ImportError as missing:
    raise ImportError(
        "ONNX files and TensorProtos need onnx: pip install 'shapejit[onnx]'", name="onnx"
    ) from missing

from .reader import read
from .writer import write

__all__ = ["read", "write"]
