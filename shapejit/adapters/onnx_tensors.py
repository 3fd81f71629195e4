"""Tensors for onnx (TensorProto) and onnx_ir (onnx.ai/ir-py), in both directions."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..errors import DTypeError
from ..files.onnx.tensors import from_tensorproto, title, to_tensorproto
from ..runtime.ndarrays import is_a

__all__ = ["IRTensor", "from_tensorproto", "to_tensorproto"]


class IRTensor:
    """A Tensor as an `onnx_ir.TensorProtocol`, for initializers, attributes and passes.

    Unlike a Tensor, it has onnx_ir's types as `shape` and `dtype`. `raw` is the
    Tensor, `tobytes` returns its packed bytes, which a model stores unchanged,
    `numpy` the unpacked values, as onnx_ir's own tensors do. Raises DTypeError for
    dtypes that ONNX, or the installed onnx_ir, does not have.

    >>> import onnx_ir
    >>> t = IRTensor(Tensor.frombuffer(b"\x21\x43", "int4", (2, 2)).T, "w")
    >>> isinstance(t, onnx_ir.TensorProtocol), t.tobytes().hex()
    (True, '3142')
    """

    def __init__(
        self,
        tensor: Tensor,
        name: str | None = None,
        *,
        doc_string: str | None = None,
        metadata_props: dict[str, str] | None = None,
    ) -> None:
        try:
            import onnx_ir
        except ImportError as missing:
            raise ImportError(
                "IRTensor needs onnx_ir: pip install 'shapejit[onnx]'", name="onnx_ir"
            ) from missing
        if not is_a(tensor, Tensor):
            raise DTypeError(f"expected a shapejit.Tensor, not {type(tensor).__name__}")
        try:
            self.dtype = onnx_ir.DataType(tensor.dtype.onnx)
        except ValueError:
            raise DTypeError(f"{title(name)}: onnx_ir has no dtype for {tensor.dtype}") from None
        self.shape = onnx_ir.Shape(tensor.shape, frozen=True)
        self.raw = tensor
        self.name = name
        self.doc_string = doc_string
        self.metadata_props = {} if metadata_props is None else metadata_props
        self.meta: dict[str, Any] = {}

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.raw.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements packed."""
        return self.raw.nbytes

    def numpy(self) -> NDArray[Any]:
        """The values as an ndarray of NumPy's or ml_dtypes' dtype."""
        return self.raw.numpy()

    def tobytes(self) -> bytes:
        """The elements as in ONNX's raw_data: row-major, packed, little-endian."""
        return self.raw.tobytes()

    def tofile(self, file: Any) -> None:
        """Write `tobytes()` to a binary file."""
        file.write(self.tobytes())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.raw.__array__(dtype, copy)

    def __dlpack__(self, **words: Any) -> Any:
        return self.raw.__dlpack__(**words)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.raw.__dlpack_device__()

    def __repr__(self) -> str:
        return f"IRTensor({self.raw!r}, name={self.name!r})"
