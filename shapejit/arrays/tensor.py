"""Tensor: a byte buffer, a dtype and a Layout; conversion from and to other arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..dtypes.table import DType, fixed_width as fixed_width
from ..errors import DTypeError, FormatError, elements, shape_text, type_name
from ..runtime.launches import address_of
from ..runtime.ndarrays import is_a, plain
from ..runtime.uninterrupted import module
from ..shapes.layout import Layout, checked_shape
from ..shapes.slicing import Index, sliced
from . import dlpack
from .buffers import Bytes as Bytes, as_ndarray, bytes_of, check_bytes, memory_of
from .elements import preview
from .operations import Methods

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Array = TypeVar("Array", NDArray[Any], "Tensor")

# The operators that a Tensor refuses, and their methods.
_PYTHON_OPERATORS = {
    "+": "add radd pos", "-": "sub rsub neg", "*": "mul rmul", "@": "matmul rmatmul",
    "/": "truediv rtruediv", "//": "floordiv rfloordiv", "%": "mod rmod", "**": "pow rpow",
    "divmod()": "divmod rdivmod", "<<": "lshift rlshift", ">>": "rshift rrshift",
    "&": "and rand", "|": "or ror", "^": "xor rxor", "~": "invert", "abs()": "abs", "==": "eq",
    "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "truth value": "bool",
}  # fmt: skip


class Tensor(Methods):
    """An n-dimensional view of packed bytes.

    `buffer` is the memory, a 1-D uint8 ndarray; `layout` has the shape, and
    strides and offset in bits. Sub-byte elements are adjacent, least significant
    bits first, the whole tensor one stream of bits (ONNX's bit order). The fields
    are read-only; the constructor raises FormatError if they do not match.

    Arithmetic, comparisons (`==` too) and truth raise TypeError: compute on
    `numpy.asarray(tensor)`, compare bits with `shapejit.array_equal`.

    >>> t = Tensor.frombuffer(bytes([0x21, 0x43, 0x05]), "int4", (5,))
    >>> t
    Tensor([1, 2, 3, 4, 5], shape=(5,), dtype=int4, 4 bits each)
    >>> t[::-2].strides, t[::-2].offset
    ((-8,), 16)
    """

    __slots__ = ("__weakref__", "buffer", "dtype", "layout")
    __array_ufunc__ = None  # NumPy's arithmetic would use the codes: refuse it
    _instead = (  # of arithmetic, in errors
        "a Tensor has no {}: compute on numpy.asarray(tensor), which unpacks; compare bits with "
        "shapejit.array_equal(a, b), identity with 'is'"
    )

    buffer: Bytes
    dtype: DType
    layout: Layout

    def __init__(self, buffer: Bytes, dtype: object, layout: Layout) -> None:
        kind, memory = fixed_width(dtype), plain(buffer)
        if not is_a(layout, Layout):
            raise DTypeError(f"layout must be a Layout, not {type(layout).__name__}")
        # Layout's static methods and views do not check their arguments; its constructor does.
        checked = Layout(layout.shape, layout.strides, layout.offset, layout.bits)
        if checked.bits != kind.bits:
            raise FormatError(f"the layout has {checked.bits} bits per element, {kind} {kind.bits}")
        # Kernels assume that an element of 1, 2 or 4 bits is within one byte.
        unit = kind.bits if 8 % kind.bits == 0 else 1 if kind.packed else 8
        if any(s % unit for s in (checked.offset, *checked.strides)):
            raise FormatError(
                f"offset {checked.offset} and strides {checked.strides} must be multiples of "
                f"{unit} bits for {kind}"
            )
        check_bytes(memory, checked)
        self.buffer, self.dtype, self.layout = memory, kind, checked

    def __init_subclass__(cls, *, own: bool = False) -> None:
        """Raise TypeError: kernels rely on fields that a subclass could override."""
        if not own:
            raise TypeError("Tensor cannot be subclassed: hold one as an attribute instead")

    @staticmethod
    def unchecked(buffer: Bytes, dtype: DType, layout: Layout) -> Tensor:
        """The Tensor of fields that are known to match: they are not checked.

        >>> t = Tensor.frombuffer(bytes([1, 2]), "int8", (1, 2))
        >>> Tensor.unchecked(t.buffer, t.dtype, t.layout.permute((1, 0))).tolist()
        [[1], [2]]
        """
        made: Any = _Unset()
        made.buffer, made.dtype, made.layout = buffer, dtype, layout
        made.__class__ = Tensor
        return made  # type: ignore[no-any-return]  # a Tensor now

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise AttributeError(f"{name} of a Tensor cannot be set: make a new Tensor")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} of a Tensor cannot be deleted")

    @classmethod
    def frombuffer(cls, buffer: Any, dtype: object, shape: Sequence[int]) -> Tensor:
        """The packed bytes of any buffer as a Tensor, without copying them.

        `buffer` (bytes, bytearray, memoryview, mmap, C-contiguous ndarray: anything
        with a contiguous buffer) has exactly the bytes that `shape` (in elements)
        needs. Views of the Tensor keep it alive: until they are gone, a bytearray
        cannot be resized nor a mmap closed (BufferError). A read-only buffer gives a
        read-only Tensor. Raises FormatError for a wrong size, DTypeError for strings.

        >>> Tensor.frombuffer(bytearray(4), "float6_e2m3fn", (5,)).nbytes
        4
        """
        kind = fixed_width(dtype)
        sizes = checked_shape(shape, "the shape", "Tensor.frombuffer")
        memory = bytes_of(buffer)
        layout = Layout.row_major(sizes, kind.bits)
        need = kind.nbytes(layout.size)
        if memory.size != need:
            raise FormatError(
                f"{elements(layout.size)} of {kind} in shape {shape_text(sizes)} are {need} bytes, "
                f"but the buffer has {memory.size}"
            )
        return Tensor.unchecked(memory, kind, layout)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dims, in elements.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).shape
        (2, 3)
        """
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """The number of dims.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).ndim
        2
        """
        return self.layout.ndim

    @property
    def size(self) -> int:
        """The number of elements.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).size
        6
        """
        return self.layout.size

    @property
    def nbytes(self) -> int:
        """The bytes of the packed elements (not of the buffer).

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).nbytes
        3
        """
        return self.dtype.nbytes(self.size)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bits from one element to the next, along each dim.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).strides
        (12, 4)
        """
        return self.layout.strides

    @property
    def offset(self) -> int:
        """Bits from the start of the buffer to the first element.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3))[1].offset
        12
        """
        return self.layout.offset

    @property
    def contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).T.contiguous
        False
        """
        return self.layout.contiguous

    @property
    def T(self) -> Tensor:
        """The transposed view of a 2-D tensor (Array API). Raises ValueError for other ranks.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).T.shape
        (3, 2)
        """
        if len(self.layout.shape) != 2:
            raise ValueError(f".T needs 2 dims, not {self.ndim}; use permute_dims or .mT")
        if type(self) is not Tensor:
            return self.with_layout(self.layout.transposed())
        made = Tensor.unchecked(self.buffer, self.dtype, self.layout)
        object.__setattr__(made, "layout", made.layout.transposed())
        return made

    @property
    def mT(self) -> Tensor:
        """The view with the last two dims swapped.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).mT.strides
        (4, 12)
        """
        return self.matrix_transpose()

    def with_layout(self, layout: Layout) -> Tensor:
        """The view with another Layout, which is derived from this one and not checked.

        >>> t = Tensor.frombuffer(bytes(6), "int8", (2, 3))
        >>> t.with_layout(t.layout.permute((1, 0))).shape
        (3, 2)
        """
        return Tensor.unchecked(self.buffer, self.dtype, layout)

    def readonly(self) -> Tensor:
        """The same view, read-only.

        >>> Tensor.frombuffer(bytearray(1), "int8", (1,)).readonly().buffer.flags.writeable
        False
        """
        memory = self.buffer.view()
        memory.flags.writeable = False
        return Tensor.unchecked(memory, self.dtype, self.layout)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """A view by basic slicing: ints, slices (negative steps too), None and one Ellipsis."""
        return self.with_layout(sliced(self.layout, index))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the bytes that the elements span, or a packed copy if that is much smaller."""
        memory, layout = self._reached()
        if memory.size > self.nbytes * 4 // 3 + 64:
            memory, layout = self.ascontiguous()._reached()
        where = layout.shape, layout.strides, layout.offset
        return _tensor, (memory, self.dtype, *where, self.buffer.flags.writeable)

    def __copy__(self) -> Tensor:
        """The same view of the same memory."""
        return self.with_layout(self.layout)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """The same view of a copy of the bytes that the elements span; as writable as this one."""
        memory, layout = self._reached()
        copied = Tensor(memory.copy(), self.dtype, layout)
        return copied if self.buffer.flags.writeable else copied.readonly()

    def _reached(self) -> tuple[Bytes, Layout]:
        """The bytes from the first to the last element, and the Layout in them."""
        low, high = self.layout.span
        first, end = low // 8, (high + 7) // 8
        return self.buffer[first:end], self.layout.at(self.offset - 8 * first)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a Tensor of 0 dims has no len()")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False and self.dtype.packed:
            raise ValueError(f"{self.dtype} is packed: to be an ndarray it must be copied")
        if self.dtype.numpy is None:
            raise DTypeError(
                f"NumPy and ml_dtypes have no dtype {self.dtype}; unpack() returns its codes"
            )
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{self.dtype} must be copied to become {dtype}")
            return array.astype(dtype)
        return array.copy() if copy and not self.dtype.packed else array

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over this memory (Array API 2024.12; DLPack 1.1), or over a copy.

        Sub-byte elements are exported packed; `copy=True` exports a copy in row-major
        order. Raises ExportError (a BufferError) for dtypes that DLPack lacks, for
        views that begin within a byte or whose strides are not multiples of an
        element, and for what an unversioned capsule cannot describe.

        >>> import numpy as np
        >>> np.from_dlpack(Tensor.frombuffer(bytearray([1, 0, 2, 0]), "int16", (2,))[::-1])
        array([2, 1], dtype=int16)
        """
        versioned = dlpack.is_versioned(stream, max_version, dl_device, copy)
        writeable = bool(copy) or self.buffer.flags.writeable
        dlpack.check_exportable(self.dtype, self.ndim, versioned=versioned, writeable=writeable)
        t = self.reshape(self.shape, copy=True) if copy else self
        return dlpack.lend(t.buffer, t.dtype, t.layout, versioned=versioned, copied=bool(copy))

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    def __repr__(self) -> str:
        values = preview(8 * address_of(self.buffer), self.layout, self.dtype.codes, "Tensor(")
        kind = f"dtype={self.dtype}, {self.dtype.bits} bits each"
        return f"Tensor({values}, shape={self.shape}, {kind})"


def _refusal(operator: str) -> Callable[..., Any]:
    """The method of an operator, which raises TypeError."""

    def refuse(t: Tensor, *_: object) -> Any:
        raise TypeError(t._instead.format(operator))

    return refuse


# Without these methods Python would compare identities for `==`, and any tensor with a length above
# 0 would be true. The hash stays that of the identity.
for _operator, _names in _PYTHON_OPERATORS.items():
    for _name in _names.split():
        setattr(Tensor, f"__{_name}__", _refusal(_operator))


class _Unset(Tensor, own=True):
    """What becomes a Tensor once its fields are set: half of the time of setting those of one."""

    __slots__ = ()
    __init__ = object.__init__
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # its parameters have no names
    __delattr__ = object.__delattr__


def _tensor(
    memory: Bytes,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    writeable: bool,
) -> Tensor:
    """Unpickle a Tensor."""
    kind = fixed_width(dtype)
    made = Tensor(memory, kind, Layout(shape, strides, offset, kind.bits))
    return made if writeable else made.readonly()


_tensor.__module__ = "shapejit"  # the module named in pickles


def asarray(x: Any, /, *, dtype: object = None) -> Tensor:
    """An ndarray, or any object that NumPy or DLPack can read, as a Tensor over its memory.

    A Tensor is returned unchanged. With `dtype`, an array of another dtype is cast as by
    `shapejit.cast`: out-of-range integers wrap around to their low bits, and floats are clamped.
    ml_dtypes' sub-byte arrays have one byte per element: their Tensor has strides of 8 bits
    (`shapejit.pack` makes a packed one). Dtypes that NumPy lacks are read by DLPack: torch's
    bfloat16 and float8; its float4_e2m1fn_x2 of shape (m, n) becomes float4_e2m1fn of shape
    (m, 2 * n). Raises DTypeError for strings, objects and unsupported dtypes,
    FormatError for memory on other devices, and for torch's tensors that need a computation
    first (`x.detach()`, `x.resolve_conj()`, `x.to_dense()`).

    >>> import numpy as np, ml_dtypes
    >>> asarray(np.array([[1, 2], [3, 4]], ml_dtypes.int4)).strides
    (16, 8)
    >>> asarray([0.1, 2], dtype="bfloat16")
    Tensor([0.100098, 2], shape=(2,), dtype=bfloat16, 16 bits each)
    >>> asarray([300, -1], dtype="uint8").tolist(), asarray([300.0, -1.0], dtype="uint8").tolist()
    ([44, 255], [255, 0])
    """
    made = _tensor_over(x)
    return made if dtype is None else made.astype(dtype, copy=False)


def _tensor_over(x: Any) -> Tensor:
    """`asarray` without a dtype."""
    kind: Any = type(x)
    adapter = _adapter(kind)
    if adapter is not None:
        x = adapter.enter(x)
    if is_a(x, Tensor):
        return x
    array = as_ndarray(x)
    if array is None:
        return Tensor(*dlpack.borrow(x))
    if array.dtype.hasobject and not array.ndim and not isinstance(x, np.ndarray | int):
        raise DTypeError(f"expected an array, not {type_name(x)}")
    dtype = fixed_width(array.dtype)
    memory, layout = memory_of(array, dtype.bits)
    return Tensor.unchecked(memory, dtype, layout)


@lru_cache(maxsize=1024)
def _adapter(kind: Any) -> Any:
    """The adapter of the library of arrays of this type, if it has one."""
    if issubclass(kind, (np.ndarray, Tensor)) or not hasattr(kind, "__dlpack__"):
        return None
    return module("arrays.libraries").adapter(kind)


def is_array(x: object) -> TypeIs[NDArray[Any] | Tensor]:
    """Whether `x` is an ndarray or a Tensor, whatever its `__class__` says."""
    return is_a(x, Tensor) or is_a(x, np.ndarray)
