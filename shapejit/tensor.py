"""Tensor: a byte buffer, a dtype and a Layout. The one door in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import dlpack
from .buffers import Bytes as Bytes
from .buffers import bytes_of, memory_of
from .buffers import plain as plain
from .dtypes import DType, dtype
from .dtypes import fixed_width as fixed_width
from .errors import DTypeError, FormatError, elements, shape_text
from .layout import Layout, checked_shape
from .slicing import Index, sliced

Array = TypeVar("Array", NDArray[Any], "Tensor")


class Tensor:
    """An n-dimensional view of packed bytes.

    `strides` and `offset` count bits from the start of `buffer`, the memory
    itself. Elements narrower than a byte lie side by side, least significant
    bits first, the whole tensor one stream (ONNX's bit order).

    A Tensor is memory, not a number: arithmetic, comparisons (`==` too) and
    truth raise TypeError, because each would have to unpack or to guess.
    `numpy.asarray` gives values to compute with, `shapejit.array_equal` compares
    bits, `is` identity, which is also what a Tensor is hashed by.

    >>> t = Tensor.frombuffer(bytes([0x21, 0x43, 0x05]), "int4", (5,))
    >>> t
    Tensor([1, 2, 3, 4, 5], shape=(5,), dtype=int4, 4 bits each)
    >>> t[::-2].strides, t[::-2].offset
    ((-8,), 16)
    """

    __slots__ = ("__weakref__", "buffer", "dtype", "layout")
    __array_ufunc__ = None  # NumPy's arithmetic would be on codes: refuse it

    buffer: Bytes
    dtype: DType
    layout: Layout

    # The shape operations of shapejit.operations, bound there once.
    ascontiguous: Callable[..., Tensor]
    broadcast_to: Callable[..., Tensor]
    expand_dims: Callable[..., Tensor]
    flip: Callable[..., Tensor]
    matrix_transpose: Callable[..., Tensor]
    permute_dims: Callable[..., Tensor]
    reshape: Callable[..., Tensor]
    squeeze: Callable[..., Tensor]
    numpy: Callable[..., NDArray[Any]]
    tobytes: Callable[[], bytes]
    unpack: Callable[..., NDArray[Any]]

    def __init__(self, buffer: Bytes, dtype: object, layout: Layout) -> None:
        kind, memory = fixed_width(dtype), plain(buffer)
        if memory.ndim != 1 or memory.dtype != np.uint8 or not memory.flags.c_contiguous:
            raise FormatError(
                f"the buffer of a Tensor is a C-contiguous 1-D uint8 ndarray, not one of dtype "
                f"{memory.dtype}, shape {memory.shape} and strides {memory.strides}"
            )
        if not isinstance(layout, Layout):
            raise DTypeError(f"the layout of a Tensor is a Layout, not {type(layout).__name__}")
        # Made anew, and so checked: Layout's own functions trust their arguments.
        places = Layout(layout.shape, layout.strides, layout.offset, layout.bits)
        low, high = places.span
        if places.bits != kind.bits:
            raise FormatError(f"the layout has elements of {places.bits} bits, {kind} {kind.bits}")
        if low < 0 or high > 8 * memory.size:
            raise FormatError(
                f"the elements use the bits [{low}, {high}) of a buffer of {memory.size} bytes"
            )
        self.buffer, self.dtype, self.layout = memory, kind, places

    @staticmethod
    def trusted(buffer: Bytes, dtype: DType, layout: Layout) -> Tensor:
        """A Tensor of parts that are known to fit, as the constructor would check them."""
        made = object.__new__(Tensor)
        _set_buffer(made, buffer)
        _set_dtype(made, dtype)
        _set_layout(made, layout)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise AttributeError(f"{name} of a Tensor cannot be set: make another Tensor")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} of a Tensor cannot be deleted")

    @classmethod
    def frombuffer(cls, buffer: Any, dtype: object, shape: Sequence[int]) -> Tensor:
        """The packed bytes of any buffer as a Tensor, without copying them.

        `buffer` (bytes, bytearray, memoryview, mmap, C-contiguous ndarray: whatever
        lends its memory in one piece) holds exactly the bytes that `shape` (in
        elements) needs. It is kept as long as any view of the Tensor: until then a
        bytearray cannot be resized nor a mmap closed (BufferError). A read-only
        buffer gives a read-only Tensor. Raises FormatError where the sizes differ or
        there is no such buffer, DTypeError for strings.

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
                f"but the buffer holds {memory.size}"
            )
        return Tensor.trusted(memory, kind, layout)

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
        """Bytes of the elements packed (not of the buffer).

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
        """Whether the elements follow one another in row-major order without gaps.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).T.contiguous
        False
        """
        return self.layout.contiguous

    @property
    def T(self) -> Tensor:
        """The view with both dims exchanged; for 2-D tensors only (Array API).

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).T.shape
        (3, 2)
        """
        if self.ndim != 2:
            raise ValueError(f".T is for 2 dims, not {self.ndim}; use permute_dims or .mT")
        return self.with_layout(self.layout.permute((1, 0)))

    @property
    def mT(self) -> Tensor:
        """The view with the last two dims exchanged.

        >>> Tensor.frombuffer(bytes(3), "int4", (2, 3)).mT.strides
        (4, 12)
        """
        return self.matrix_transpose()

    def with_layout(self, layout: Layout) -> Tensor:
        """Another view of the same memory; `layout`, made of this one's, is not checked."""
        return Tensor.trusted(self.buffer, self.dtype, layout)

    def locked(self) -> Tensor:
        """The same view, read-only."""
        memory = self.buffer.view()
        memory.flags.writeable = False
        return Tensor.trusted(memory, self.dtype, self.layout)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """Basic slicing: ints, slices (negative steps too), None and one Ellipsis; a view."""
        return self.with_layout(sliced(self.layout, index))

    def __reduce__(self) -> tuple[Any, ...]:
        """Only what the elements reach travels, packed if the view leaves out much between them."""
        memory, layout = self._reached()
        if memory.size > self.nbytes * 4 // 3 + 64:
            memory, layout = self.ascontiguous()._reached()
        return _restored, (memory, self.dtype, layout, self.buffer.flags.writeable)

    def __copy__(self) -> Tensor:
        """The same view of the same memory."""
        return self.with_layout(self.layout)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """The same view of a copy of what the elements reach; a read-only one stays so."""
        memory, layout = self._reached()
        twin = Tensor.trusted(memory.copy(), self.dtype, layout)
        return twin if self.buffer.flags.writeable else twin.locked()

    def _reached(self) -> tuple[Bytes, Layout]:
        """The bytes from the first to the last that an element touches, and the Layout in them."""
        low, high = self.layout.span
        first, end = low // 8, (high + 7) // 8
        return self.buffer[first:end], self.layout.at(self.offset - 8 * first)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dims has no len()")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False and self.dtype.packed:
            raise ValueError(f"{self.dtype} is packed: as an ndarray it must be copied")
        if self.dtype.numpy is None:
            raise DTypeError(
                f"NumPy and ml_dtypes have no {self.dtype}; use unpack() for its codes"
            )
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{self.dtype} as {dtype} must be copied")
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

        Elements narrower than a byte are lent packed; `copy=True` lends a copy in
        row-major order. Raises ExportError (a BufferError) for dtypes that DLPack
        lacks, for views that begin within a byte or whose strides are no whole
        elements, and for what an unversioned capsule cannot say.

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
        size, edge = self.size, 3
        ends = range(size) if size <= 2 * edge else (*range(edge), *range(size - edge, size))
        values = [str(self._value(i)) for i in ends]
        if size > 2 * edge:
            values.insert(edge, "...")
        kind = f"dtype={self.dtype}, {self.dtype.bits} bits each"
        return f"Tensor([{', '.join(values)}], shape={self.shape}, {kind})"

    def _value(self, index: int) -> Any:
        """The element at a row-major index, read without any kernel."""
        bit = self.offset
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            index, at = divmod(index, size)
            bit += at * stride
        first, shift = divmod(bit, 8)
        raw = self.buffer[first : first + self.dtype.nbytes(1) + 1].tobytes()
        code = int.from_bytes(raw, "little") >> shift & ((1 << self.dtype.bits) - 1)
        codes = self.dtype.codes
        return np.frombuffer(code.to_bytes(codes.itemsize, "little"), codes)[0]


# Fields are set once: `trusted` does it past `Tensor.__setattr__`.
_set_buffer = vars(Tensor)["buffer"].__set__
_set_dtype = vars(Tensor)["dtype"].__set__
_set_layout = vars(Tensor)["layout"].__set__


def _refusal(sign: str) -> Callable[..., Any]:
    """The method of an operator that a Tensor does not have."""

    def refuse(*operands: Tensor) -> Any:
        raise TypeError(
            f"a Tensor has no {sign}: compute on numpy.asarray(tensor), which unpacks; "
            f"compare bits with shapejit.array_equal(a, b), identity with 'is'"
        )

    return refuse


# Without them Python would compare identities for ==, and take any length above 0 for true.
_REFUSED = {
    "+": "add radd pos", "-": "sub rsub neg", "*": "mul rmul", "@": "matmul rmatmul",
    "/": "truediv rtruediv", "//": "floordiv rfloordiv", "%": "mod rmod", "**": "pow rpow",
    "divmod()": "divmod rdivmod", "<<": "lshift rlshift", ">>": "rshift rrshift",
    "&": "and rand", "|": "or ror", "^": "xor rxor", "~": "invert", "abs()": "abs", "==": "eq",
    "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "truth value": "bool",
}  # fmt: skip
for _sign, _names in _REFUSED.items():
    for _name in _names.split():
        setattr(Tensor, f"__{_name}__", _refusal(_sign))


def _restored(memory: Bytes, dtype: DType, layout: Layout, writeable: bool) -> Tensor:
    """A Tensor from its pickle."""
    t = Tensor(memory, dtype, layout)
    return t if writeable else t.locked()


def asarray(x: Any, /) -> Tensor:
    """An ndarray, or what NumPy or DLPack can read, as a Tensor over the same memory.

    A Tensor is returned as it is. ml_dtypes' sub-byte arrays keep one byte an
    element: their Tensor has strides of 8 bits (`shapejit.pack` makes a packed
    one). What NumPy has no dtype for comes by DLPack from the CPU: torch's
    bfloat16 and float8; its float4_e2m1fn_x2 of shape (m, n) is float4_e2m1fn
    of shape (m, 2 * n). Raises DTypeError for strings, objects and dtypes
    outside the table, FormatError for memory of other devices.

    >>> import numpy as np, ml_dtypes
    >>> asarray(np.array([[1, 2], [3, 4]], ml_dtypes.int4)).strides
    (16, 8)
    """
    if isinstance(x, Tensor):
        return x
    array = x if isinstance(x, np.ndarray) else _numpys(x)
    if array is None:
        return Tensor(*dlpack.borrow(x))
    array = plain(array)
    kind = fixed_width(array.dtype)
    memory, layout = memory_of(array, kind.bits)
    return Tensor.trusted(memory, kind, layout)


def _numpys(x: Any) -> NDArray[Any] | None:
    """What NumPy makes of x; None where it cannot and DLPack may."""
    lends = hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")
    if lends and not hasattr(x, "__array__"):
        return None
    try:
        return np.asarray(x)
    except TypeError:
        if lends:
            return None
        raise


def dtype_of(x: NDArray[Any] | Tensor) -> DType:
    """The dtype of an array; an object array is `string` if it holds str or bytes alone."""
    if isinstance(x, Tensor):
        return x.dtype
    array = plain(x)
    kind = dtype(array.dtype)
    if array.dtype == object:
        for value in array.flat:
            if not isinstance(value, str | bytes):
                raise DTypeError(f"an object array holds {type(value).__name__}, not only strings")
    return kind
