"""Group: the tensors of one weight, and the numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import UINT8, DType, dtype
from ..errors import FormatError
from ..operations.codes import memory
from ..packings.orders import PlaneLayout
from ..packings.packing import Packing, StoredLayout
from ..packings.repacking import codes_of
from ..packings.rows import formats
from ..shapes.request import Ints
from . import sizes
from .forms import Form, Numbers


class Axes(NamedTuple):
    """A Tensor, and the axis of the weight to which each of its dims belongs."""

    tensor: Tensor
    axes: str

    def permuted(self, order: str) -> Axes:
        """The view with the axes in another order; the dims of each axis keep theirs."""
        at = sorted(range(len(self.axes)), key=lambda k: order.index(self.axes[k]))
        if at == [*range(len(at))]:
            return self
        t = self.tensor
        seen = Tensor.unchecked(t.buffer, t.dtype, t.layout.permute(at))
        return Axes(seen, "".join(self.axes[k] for k in at))

    def sizes(self, axis: str) -> list[int]:
        """The sizes of the dims of an axis."""
        dims = zip(self.axes, self.tensor.shape, strict=True)
        return [size for name, size in dims if name == axis]


def axes_of(dims: str) -> str:
    """The axes of dims: `"NK"` for `"N K/g"`."""
    return "".join(size[0] for size in dims.split())


@dataclass(frozen=True)
class Group:
    """The tensors of one weight, matched with a form: `known` are its sizes and settings.

    `batch` are the dims of stacked experts, `shape` is that of the decoded weight.
    """

    scheme: str
    form: Form
    tensors: Mapping[str, Tensor]
    known: Mapping[str, int]
    batch: Ints
    result: Ints | None = None

    @property
    def shape(self) -> Ints:
        """The shape of the decoded weight."""
        return self.sizes(self.form.result) if self.result is None else self.result

    @property
    def stored_shape(self) -> Ints:
        """The shape of the weight as it is stored: (out, in) last, or flat."""
        return self.sizes(" ".join(self.form.axes))

    @property
    def order(self) -> NDArray[np.int64] | None:
        """The group of each input, if `g_idx` is not in order (GPTQ's act-order); else None.

        Raises FormatError for groups that do not exist. Those of stacked experts are in order.
        """
        if "g_idx" not in self.tensors:
            return None
        order = self.tensors["g_idx"].numpy().astype(np.int64)
        per, count = self.known["g"], -(-self.known["K"] // self.known["g"])
        if (order == np.arange(order.shape[-1]) // per).all():
            return None
        if order.size and (order.min() < 0 or order.max() >= count):
            raise fault(self.scheme, f"g_idx has groups {order.min()} to {order.max()} of {count}")
        return order

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that `decode` may need besides the parts."""
        names = {"b": "bits", "g": "group_size", "v": "version", "K": "K"}
        made: dict[str, Any] = {name: self.known[k] for k, name in names.items() if k in self.known}
        if "m" in self.known and "k" in self.known:
            made["weight_block_size"] = (self.known["m"], self.known["k"])
        return made

    @property
    def outline(self) -> tuple[object, ...]:
        """A key that is equal for weights of one kind: which parts there are, and how they lie."""
        parts = [
            (key, t.dtype.name, layout if layout.offset < 8 else layout.at(layout.offset & 7))
            for key, t in self.tensors.items()
            for layout in (t.layout,)
        ]
        return self.form, self.batch, self.result, *self.known.items(), *parts

    def has(self, numbers: Numbers | None) -> bool:
        """Whether the part of these numbers exists."""
        return numbers is not None and numbers.part in self.tensors

    def bits(self, numbers: Numbers) -> int:
        """The width of the numbers."""
        return self.known["b"] if "{b}" in numbers.dtype else self.kind(numbers).bits

    def width(self, numbers: Numbers) -> int:
        """The bits per number as stored, in one or several planes."""
        planes = self.packing(numbers).planes if numbers.format else ()
        return sum(plane.bits for plane in planes) or self.bits(numbers)

    @property
    def blocks(self) -> Ints:
        """The elements per scale along the axes, at most all."""
        step = sizes.steps(self.form.scales[0].dims, self.known)
        return tuple(min(step[axis], max(1, self.known[axis])) for axis in self.form.axes)

    def kind(self, numbers: Numbers) -> DType:
        """The dtype of the numbers; codes of 5 and 7 bits, which have none, take a byte each."""
        if not numbers.dtype and numbers.part in self.tensors:
            return self.tensors[numbers.part].dtype
        name = self.form.kinds(numbers)[0].format_map(self.known)
        return UINT8 if name in ("uint5", "uint7") else dtype(name)

    @property
    def integers(self) -> bool:
        """Whether codes are integers."""
        return self.kind(self.form.codes).kind == "integer" and not self.form.codes.table

    @property
    def code_bias(self) -> int:
        """The number added to codes, which count from 0 on, when they are stored."""
        codes = self.form.codes
        return self.sign + (self.stored(codes).bias if codes.format else 0)

    @property
    def sign(self) -> int:
        """The sign bit of codes, 0 if they have none; xor with it makes them count from 0."""
        codes = self.form.codes
        return (1 << (self.bits(codes) - 1)) * (self.integers and self.kind(codes).signed)

    def check_width(self) -> None:
        """Raise FormatError unless the packing allows the width of the codes."""
        codes = self.form.codes
        widths, bits = self.packing(codes).bits if codes.format else (), self.bits(codes)
        if widths and bits not in widths:
            raise fault(self.scheme, f"has codes of {any_of(widths)} bits, not {bits}")

    @property
    def values(self) -> Any:
        """The meaning of codes: "integer", the name of a float dtype, or the values of a table."""
        kind = self.kind(self.form.codes)
        return self.form.codes.table or ("integer" if self.integers else kind.name)

    def sizes(self, dims: str) -> Ints:
        """The sizes of dims, stacked experts first."""
        found = (sizes.value(size, self.known) for size in dims.split())
        return (*self.batch, *(size for size in found if size is not None))

    def numbers(self, numbers: Numbers) -> Axes:
        """A view of the numbers; if there is none, codes of a byte each."""
        if numbers.read is not None:
            return Axes(asarray(numbers.read(self)), self.names(numbers))
        planes, kind = self.planes(numbers) or [], self.kind(numbers)
        if len(planes) == 1:
            (plane, axes), _ = planes[0]
            return Axes(Tensor.unchecked(plane.buffer, kind, plane.layout), axes)
        shape, (data, stored) = self.sizes(numbers.dims), self._memory(numbers)
        codes = np.ascontiguousarray(codes_of(data, stored, shape))
        read = kind if kind.bits == 8 else UINT8
        return Axes(Tensor.frombuffer(codes, read, shape), self.names(numbers))

    def planes(self, numbers: Numbers) -> list[tuple[Axes, int]] | None:
        """The planes of the numbers: a view of some of their bits, and the lowest of these.

        None for numbers that are computed, or padded.
        """
        if numbers.read is not None:
            return None
        if numbers.format is None:
            return [(self._elements(numbers), 0)]
        data, stored = self._memory(numbers)
        if stored.views is None:
            return None
        return [
            (Axes(Tensor.unchecked(data, kind, layout), self._axes(numbers, part)), part.low)
            for part, kind, layout in stored.views
        ]

    def _elements(self, numbers: Numbers) -> Axes:
        """The elements of a part, which are the numbers; if there are more, the first ones."""
        t, kind, shape = self.tensors[numbers.part], self.kind(numbers), self.sizes(numbers.dims)
        if t.dtype is not kind:
            t = Tensor.frombuffer(memory(t), kind, t.shape)
        one = (1,) * len(shape)
        t = t.reshape(one) if t.size == 1 else _begin(t, shape).reshape(shape)
        return Axes(t, self.names(numbers))

    def stored(self, numbers: Numbers) -> StoredLayout:
        """How packed numbers are stored. Raises FormatError for blocks that the format lacks."""
        row, kind, bits = self.packing(numbers), self.kind(numbers), self.bits(numbers)
        kind = kind if kind.bits == bits else replace(kind, bits=bits)
        block = self.known["g"] if row.blocks else None
        return row.stored_rows(self.sizes(numbers.dims), kind, block)

    def _memory(self, numbers: Numbers) -> tuple[Any, StoredLayout]:
        """The bytes of packed numbers, and how they are stored."""
        t, stored = self.tensors[numbers.part], self.stored(numbers)
        t = t.T if numbers.swapped else t
        data = memory(_begin(t, stored.shape) if t.dtype.bits > 8 else t).data
        return self.packing(numbers).memory(data, stored, self.sizes(numbers.dims)), stored

    def names(self, numbers: Numbers) -> str:
        """The axes of numbers, stacked experts first."""
        return "*" * len(self.batch) + axes_of(numbers.dims)

    def _axes(self, numbers: Numbers, part: PlaneLayout) -> str:
        """The axis of each factor of a part."""
        shape, names = self.sizes(numbers.dims), self.names(numbers)
        if self.packing(numbers).flat:
            return names * len(part.dims[0])
        dims = zip(part.dims, shape, names, strict=True)
        each = (name * (len(dim) if prod(n for n, _ in dim) == n_ else 1) for dim, n_, name in dims)
        return "".join(each)

    def packing(self, numbers: Numbers) -> Packing:
        """The format of packed numbers."""
        if isinstance(numbers.format, str):
            return formats[numbers.format.format_map(self.known)]
        assert numbers.format is not None
        return numbers.format


def _begin(t: Tensor, shape: Ints) -> Tensor:
    """The first elements along each dim, if there are more than in `shape`."""
    longer = t.ndim == len(shape) and all(n >= m for n, m in zip(t.shape, shape, strict=True))
    return t[tuple(slice(size) for size in shape)] if longer and t.shape != shape else t


def fault(scheme: str, text: str) -> FormatError:
    """The error of a scheme."""
    return FormatError(f"{scheme}: {text}")


def any_of(sizes: Sequence[object]) -> str:
    """Alternatives as text, for a message.

    >>> any_of((2, 3, 4)), any_of([8])
    ('2, 3 or 4', '8')
    """
    *others, last = map(str, sizes)
    return f"{', '.join(others)} or {last}" if others else last
