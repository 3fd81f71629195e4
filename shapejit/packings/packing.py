"""Packing: a packing format as a row of facts, and how it stores a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..arrays.buffers import Bytes, bytes_of
from ..arrays.tensor import Tensor, is_array
from ..dtypes.table import DType, dtype as dtype_named, fixed_width
from ..errors import FormatError, shape_text
from ..runtime.ndarrays import is_a
from ..shapes.layout import Layout, checked_shape
from ..shapes.request import Ints, integers
from .orders import BitPlane, PlaneLayout, Words, plane_layout

MAX_BLOCK_ELEMENTS = 4096  # elements that a block may have, whatever the dims


class Check(NamedTuple):
    """A test vector: `codes`, and the bytes that the format stores them in (hex)."""

    dtype: str
    shape: Ints
    codes: Sequence[int]
    stored: str
    block_size: int | None = None


@dataclass(frozen=True)
class StoredLayout:
    """The storage of one tensor: an array of `shape` and `unit`, which holds the planes `parts`.

    `logical` is the shape of its elements with (out, in) last, or their number if the format has no
    dims. `bias` is added to each code of `bits` bits, modulo 2**bits; a code takes `pitch` bits.
    `gaps`: the array has bits that belong to no element. `words` says how its units are reordered
    first. `turned`: it is stored as (in, out), the dims of `logical`; its `layout`, and codes read
    from it, have (out, in) last.
    """

    unit: np.dtype[Any]
    shape: Ints
    logical: Ints
    parts: tuple[PlaneLayout, ...]
    bits: int
    bias: int
    pitch: int
    gaps: bool
    words: Words | None
    turned: Ints = ()

    @property
    def nbytes(self) -> int:
        """The bytes of the stored array."""
        return prod(self.shape) * self.unit.itemsize

    @cached_property
    def views(self) -> tuple[tuple[PlaneLayout, DType, Layout], ...] | None:
        """The planes of all codes with dtypes and Layouts; None if there is no such view."""
        planes = [plane for part in self.parts for plane in part.planes]
        layouts = [plane.layout(self.logical) for plane in planes]
        if self.words or not all(layouts):
            return None
        kinds = [dtype_named(f"uint{plane.bits}") for plane in planes]
        return tuple(
            (plane, kind, layout)
            for plane, kind, layout in zip(planes, kinds, layouts, strict=True)
            if layout
        )

    @property
    def layout(self) -> Layout | None:
        """The Layout of all codes; None if one Layout cannot describe it."""
        if len(self.parts) > 1 or self.words:
            return None
        made = self.parts[0].layout(self.logical)
        if made is None or not self.turned:
            return made
        lead = range(len(self.turned) - 2)
        made = made.reshape(self.turned)
        return made and made.permute((*lead, len(lead) + 1, len(lead)))


@dataclass(frozen=True, eq=False)
class Packing:
    """One packing format.

    It holds elements of `bits` bits (any if empty) in an array of dtype `unit` (that of the
    elements, but at least one byte, if ""). `planes` say where the bits are; `flat` that the tensor
    is one dim; `inputs_first` that weights are (in, out), not (out, in) or as given; `pads` that
    zeros fill incomplete units and blocks. If the format is `unsigned`, signed integers are stored
    minus their smallest value; `bias` is added, modulo the range of the codes. `check` is a test
    vector from `source`, the code that defines the format; `versions` are those it applies to.
    """

    name: str
    bits: tuple[int, ...]
    unit: str
    planes: tuple[BitPlane, ...]
    check: Check
    source: str
    versions: str = ""
    flat: bool = False
    inputs_first: bool = False
    pads: bool = False
    unsigned: bool = False
    bias: int = 0

    @property
    def blocks(self) -> bool:
        """Whether tensors have a `block_size`."""
        return any("s" in plane.order for plane in self.planes)

    @property
    def layout(self) -> str:
        """The orientation of weights, "in,out" or "out,in"; "" if the format does not define it.

        >>> from shapejit import formats
        >>> [formats[name].layout for name in ("awq:gemm", "mlx", "lsb")]
        ['in,out', 'out,in', '']
        """
        if self.flat or self.planes[0].order == " -> _":
            return ""
        return "in,out" if self.inputs_first else "out,in"

    def view(
        self, buffer: Any, shape: Sequence[int], dtype: object, block_size: int | None = None
    ) -> Tensor:
        """A view of the codes of a stored tensor, including any bias.

        The dims are the factors of those of `shape`, with (out, in) last for all formats.
        Raises FormatError if there is no such view: split planes, padded factors.

        >>> from shapejit import formats
        >>> formats["awq:gemm"].view(bytes(64), (2, 64), "uint4").shape
        (8, 4, 2, 2)
        """
        sizes = checked_shape(shape, "shape", self.name)
        kind, stored = fixed_width(dtype), self.stored(sizes, dtype, block_size)
        layout = stored.layout
        if layout is None:
            raise FormatError(f"{self.name}: no view has all of {kind} {shape_text(shape)}")
        return Tensor(self.memory(buffer, stored, sizes), kind, layout)

    def stored(
        self, shape: Sequence[int], dtype: object, block_size: int | None = None
    ) -> StoredLayout:
        """How a tensor of `shape` (elements) is stored; FormatError if it cannot be.

        >>> from shapejit import formats
        >>> formats["gptq:qweight"].stored((64, 16), "uint4").shape
        (8, 16)
        """
        sizes = checked_shape(shape, "shape", self.name)
        return self.stored_rows(self.rows_of(sizes), fixed_width(dtype), block_size)

    def rows_of(self, shape: Ints) -> Ints:
        """The dims of a tensor, (out, in) last."""
        if not self.inputs_first:
            return shape
        if len(shape) < 2:
            raise FormatError(f"{self.name} has 2 dims or more, not {shape_text(shape)}")
        return (*shape[:-2], shape[-1], shape[-2])

    def stored_rows(self, rows: Ints, kind: DType, block_size: int | None) -> StoredLayout:
        """`stored` of a tensor with (out, in) last."""
        if self.blocks:
            block_size = _checked_block(self.name, block_size, rows)
        return _stored(self, rows, kind, block_size)

    def memory(self, buffer: Any, stored: StoredLayout, shape: Ints) -> Bytes:
        """The bytes of a stored array of a tensor of `shape`, in place.

        Raises FormatError for a wrong dtype or size, and for an array of several dims that are
        not the format's: those of the tensor, the last one in bytes, where that is flat.
        """
        given, expected = buffer, shape if self.flat else stored.shape
        if is_a(buffer, Tensor):
            packed = buffer.dtype.packed and stored.unit == np.uint8
            given, expected = (_bytes(buffer), shape) if packed else (buffer.numpy(), expected)
        if is_a(given, np.ndarray) and given.dtype != stored.unit:
            alike = given.dtype.kind in "iu" and given.dtype.itemsize == stored.unit.itemsize
            if not alike:
                raise FormatError(
                    f"{self.name} is an array of {stored.unit}, the buffer of {buffer.dtype}"
                )
        memory = bytes_of(given)
        facts = f"{stored.unit} {shape_text(stored.shape)}"
        if memory.size != stored.nbytes:
            raise FormatError(
                f"{self.name} has {stored.nbytes} bytes here, {facts}, the buffer {memory.size}"
            )
        dims = buffer.shape if is_array(buffer) else ()
        several = sum(size > 1 for size in dims) > 1
        if several and (len(dims), dims[:-1]) != (len(expected), expected[:-1]):
            raise FormatError(
                f"{self.name} of a tensor {shape_text(shape)} is {facts}, "
                f"not an array of shape {shape_text(dims)}"
            )
        return memory


def _bytes(t: Tensor) -> Bytes:
    """The bytes of a Tensor of packed elements, not copied."""
    if not t.layout.contiguous_bytes:
        raise FormatError("the Tensor must be contiguous and begin on a byte: see ascontiguous")
    return t.buffer[t.offset // 8 :][: t.nbytes]


def _checked_block(name: str, block_size: object, rows: Ints) -> int:
    if block_size is None:
        raise FormatError(f"{name} needs block_size, the elements per block along the inputs")
    (size,) = integers((block_size,), "block_size", name)
    if size < 16 or size & (size - 1) or size > max(MAX_BLOCK_ELEMENTS, 2 * max(rows)):
        raise FormatError(f"{name} needs a power of two from 16 on as block_size, not {size}")
    return size


@lru_cache(maxsize=256)
def _stored(row: Packing, rows: Ints, kind: DType, block_size: int | None) -> StoredLayout:
    """See `Packing.stored_rows`."""
    if row.bits and kind.bits not in row.bits:
        widths = ", ".join(map(str, row.bits))
        raise FormatError(f"{row.name} holds elements of {widths} bits, {kind} has {kind.bits}")
    logical = (prod(rows),) if row.flat else rows
    unit = np.dtype(row.unit or kind.codes)
    parts = tuple(
        plane_layout(plane, logical, kind.bits, 8 * unit.itemsize, block_size or 0, row.name,
                     row.pads)
        for plane in row.planes
        if plane.width in (0, kind.bits)
    )  # fmt: skip
    bits = sum(part.bits for part in parts)
    lifted = row.unsigned and kind.kind == "integer" and kind.signed
    bias = ((1 << (bits - 1)) * lifted + row.bias) % (1 << bits)
    shape, words = parts[-1].stored, parts[-1].words
    pitch = bits if row.unit else 8 * unit.itemsize
    gaps = prod(shape) * unit.itemsize * 8 != pitch * prod(logical)
    return StoredLayout(unit, shape, logical, parts, bits, bias, pitch, gaps, words)
