"""Layout: the shape of an array, and its strides and offset in bits.

A Layout has no buffer. Every view operation returns another Layout; `reshape`
returns None where no view exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from ..errors import AxisError, FormatError, ReshapeError, shape_text
from .arithmetic import MAX_SIZE, merge, view_strides
from .dims import merged
from .request import Ints, integers


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape in elements; strides, offset and the element width `bits` in bits.

    Layouts are equal if the elements have the same addresses: strides that make no
    difference (of dims of size 1, of arrays without elements) are replaced by
    those of a row-major array.

    The constructor checks its arguments: FormatError for negative sizes, for
    different numbers of sizes and strides, and for more elements or bits than
    int64 can count; DTypeError for values other than ints. `of`, `row_major` and
    the view operations do not check theirs.

    >>> Layout.row_major((2, 3), 4)
    Layout(shape=(2, 3), strides=(12, 4), offset=0, bits=4)
    >>> Layout.row_major((2, 3), 4).permute((1, 0)).reshape((6,)) is None
    True
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    bits: int

    def __post_init__(self) -> None:
        shape = checked_shape(self.shape, "the shape", "Layout")
        strides = integers(self.strides, "the strides", "Layout")
        offset, bits = integers((self.offset, self.bits), "offset and bits", "Layout")
        if len(strides) != len(shape):
            raise FormatError(f"{len(strides)} strides for the {len(shape)} dims of {shape}")
        if bits < 1:
            raise FormatError(f"elements have at least 1 bit, not {bits}")
        canonical = Layout.of(shape, strides, offset, bits)
        low, high = canonical.span
        if low < -MAX_SIZE or high > MAX_SIZE:
            raise FormatError(f"shape {shape} with strides {strides} reaches beyond 2**63 bits")
        for name in ("shape", "strides", "offset", "bits"):
            object.__setattr__(self, name, getattr(canonical, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self.shape, self.strides, self.offset, self.bits)

    @staticmethod
    def of(shape: Sequence[int], strides: Sequence[int], offset: int, bits: int) -> Layout:
        """The Layout with canonical strides; `shape` and `strides` of equal length, all ints."""
        if 0 in shape:
            return Layout.row_major(shape, bits)
        canonical = list(strides)
        step = bits
        for i in reversed(range(len(canonical))):
            if shape[i] == 1:
                canonical[i] = step
            step = canonical[i] * shape[i]
        return _unchecked(tuple(shape), tuple(canonical), offset, bits)

    @staticmethod
    def row_major(shape: Sequence[int], bits: int) -> Layout:
        """The Layout of a contiguous array at bit 0."""
        strides = []
        step = bits
        for size in reversed(shape):
            strides.append(step)
            step *= max(size, 1)
        return _unchecked(tuple(shape), tuple(reversed(strides)), 0, bits)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for dim in self.shape:
            size *= dim
        return size

    @property
    def contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
        return self.strides == Layout.row_major(self.shape, self.bits).strides

    @property
    def contiguous_bytes(self) -> bool:
        """Whether it is contiguous and begins on a byte: its bytes can be stored as they are."""
        return self.offset % 8 == 0 and self.contiguous

    @property
    def span(self) -> tuple[int, int]:
        """The first bit that an element uses, and the bit after the last."""
        if 0 in self.shape:
            return self.offset, self.offset
        low = high = self.offset
        for size, stride in zip(self.shape, self.strides, strict=True):
            reach = (size - 1) * stride
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
        return low, high + self.bits

    @property
    def repeats(self) -> bool:
        """Whether an element occurs more than once along a dim."""
        return any(s == 0 and n > 1 for n, s in zip(self.shape, self.strides, strict=True))

    def at(self, offset: int) -> Layout:
        """This Layout with another offset (bits)."""
        return _unchecked(self.shape, self.strides, offset, self.bits)

    def within_byte(self, address: int) -> Layout:
        """This Layout, counted from the start of the byte with the bit `address`."""
        return self.at(address & 7)

    def permute(self, axes: Sequence[int]) -> Layout:
        """The view whose dim i is dim axes[i] of this Layout."""
        return self._kept(permutation(axes, self.shape), self.offset)

    def transposed(self) -> Layout:
        """The transposed view of a Layout of two dims."""
        (rows, columns), (down, along) = self.shape, self.strides
        if rows > 1 < columns:  # whose strides are canonical either way
            return _unchecked((columns, rows), (along, down), self.offset, self.bits)
        return self.permute((1, 0))

    def flip(self, axes: Sequence[int]) -> Layout:
        """The view with the elements reversed along `axes`."""
        strides, offset = list(self.strides), self.offset
        for i in normal_axes(axes, self.ndim, "flip"):
            offset += max(self.shape[i] - 1, 0) * strides[i]
            strides[i] = -strides[i]
        return Layout.of(self.shape, strides, offset, self.bits)

    def narrow(self, axis: int, start: int, size: int, step: int) -> Layout:
        """The view of `size` elements along `axis`: `start`, `start` + `step` ... (in bounds)."""
        shape, strides, offset = list(self.shape), list(self.strides), self.offset
        if size > 0:
            offset += start * strides[axis]
        shape[axis], strides[axis] = size, strides[axis] * step
        return Layout.of(shape, strides, offset, self.bits)

    def select(self, axis: int, index: int) -> Layout:
        """The view at `index` (in bounds) of `axis`, without that dim."""
        keep = [i for i in range(self.ndim) if i != axis]
        return self._kept(keep, self.offset + index * self.strides[axis])

    def diagonal(self, axis1: int, axis2: int, offset: int) -> Layout:
        """The view of the elements at (i, i + `offset`) of two dims, along a new last dim."""
        rows, columns = max(-offset, 0), max(offset, 0)  # of its first element
        size = max(0, min(self.shape[axis1] - rows, self.shape[axis2] - columns))
        keep = [i for i in range(self.ndim) if i not in (axis1, axis2)]
        return Layout.of(
            [*(self.shape[i] for i in keep), size],
            [*(self.strides[i] for i in keep), self.strides[axis1] + self.strides[axis2]],
            self.offset + rows * self.strides[axis1] + columns * self.strides[axis2],
            self.bits,
        )

    def insert(self, axis: int) -> Layout:
        """The view with a new dim of size 1 before dim `axis`."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return Layout.of(shape, strides, self.offset, self.bits)

    def stacked(self, count: int, spacing: int) -> Layout:
        """The view with a new dim 0 of `count` elements whose distance is `spacing` bits."""
        return Layout.of((count, *self.shape), (spacing, *self.strides), self.offset, self.bits)

    def expand_dims(self, axes: Sequence[int]) -> Layout:
        """The view with new dims of size 1, at `axes` in the result."""
        layout = self
        for at in sorted(normal_axes(axes, self.ndim + len(axes), "expand_dims")):
            layout = layout.insert(at)
        return layout

    def squeeze(self, axes: Sequence[int]) -> Layout:
        """The view without the dims `axes`, which must have size 1."""
        drop = squeezed(self.shape, axes)
        return self._kept([i for i in range(self.ndim) if i not in drop], self.offset)

    def _kept(self, axes: Sequence[int], offset: int) -> Layout:
        """The view with only these dims, in this order."""
        sizes, strides = [self.shape[i] for i in axes], [self.strides[i] for i in axes]
        return Layout.of(sizes, strides, offset, self.bits)

    def broadcast_to(self, shape: Sequence[int]) -> Layout:
        """The view of `shape` in which dims of size 1 and new leading dims have stride 0."""
        leading = len(shape) - self.ndim
        fits = leading >= 0 and all(
            have in (1, want)
            for have, want in zip(self.shape, shape[max(leading, 0) :], strict=False)
        )
        large = overflows(shape)
        if not fits or large or any(size < 0 for size in shape):
            notes = [f"dim {i}: {size} is negative" for i, size in enumerate(shape) if size < 0]
            notes += ["the product of the non-zero sizes does not fit int64"] * large
            raise ReshapeError("cannot broadcast", self.shape, shape, notes, "broadcast_to")
        strides = [0] * leading + [
            stride if have == want else 0
            for have, want, stride in zip(self.shape, shape[leading:], self.strides, strict=True)
        ]
        return Layout.of(shape, strides, self.offset, self.bits)

    def runs(self) -> list[tuple[int, int]]:
        """(size, stride) of the dims, outermost first, merged where evenly spaced, without size 1.

        >>> Layout((2, 3, 4), (120, 40, 8), 0, 8).runs()
        [(6, 40), (4, 8)]
        """
        return [(size, stride) for size, stride in merged(self.shape, self.strides)]

    def reshape(self, shape: Sequence[int]) -> Layout | None:
        """The view of `shape` (with as many elements), or None if there is none.

        >>> Layout((4, 6), (96, 16), 0, 8).reshape((2, 2, 3, 2)).strides
        (192, 96, 32, 16)
        """
        if 0 in shape:
            return Layout.row_major(shape, self.bits)
        strides = _reshaped(self.shape, self.strides, self.bits, tuple(shape))
        if strides is None:
            return None
        return _unchecked(tuple(shape), strides, self.offset, self.bits)


# The methods that select elements of any Layout, or reorder them; others call these.
VIEWS = (
    "broadcast_to",
    "diagonal",
    "flip",
    "insert",
    "narrow",
    "permute",
    "select",
    "squeeze",
)


@lru_cache(maxsize=4096)
def _reshaped(source: Ints, strides: Ints, bits: int, shape: Ints) -> Ints | None:
    """The canonical strides of `Layout.reshape`."""
    sizes, steps, made = [*source], [*strides], [0] * len(shape)
    kept = merge(sizes, (steps,), len(sizes))
    if not view_strides(sizes, steps, kept, bits, shape, made):
        return None
    return Layout.of(shape, made, 0, bits).strides


class _Unset(Layout):
    """What becomes a Layout once its fields are set: half of the time of setting those of one."""

    __slots__ = ()
    __init__ = object.__init__
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


def _unchecked(shape: Ints, strides: Ints, offset: int, bits: int) -> Layout:
    """The Layout of canonical arguments, which are not checked."""
    made: Any = _Unset()
    made.shape, made.strides, made.offset, made.bits = shape, strides, offset, bits
    made.__class__ = Layout
    return made  # type: ignore[no-any-return]  # a Layout now


def in_target_order(source: Layout, target: Layout) -> tuple[Layout, Layout]:
    """Two Layouts of one shape, dims sorted and flipped by the second's strides, largest first."""
    back = [axis for axis, stride in enumerate(target.strides) if stride < 0]
    source, target = source.flip(back), target.flip(back)
    order = sorted(range(target.ndim), key=lambda axis: -target.strides[axis])
    return source.permute(order), target.permute(order)


def overflows(shape: Sequence[int]) -> bool:
    """Whether the product of the non-zero sizes exceeds int64."""
    return prod(size for size in shape if size != 0) > MAX_SIZE


def broadcast(*shapes: Sequence[int], asked_by: object) -> Ints:
    """The broadcast shape. Raises ReshapeError for sizes that differ and are not 1.

    >>> broadcast((3, 1), (2, 1, 4), asked_by="doctest")
    (2, 3, 4)
    """
    made = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for i, size in enumerate(reversed(shape), 1):
            if size < 0 or (made[-i] != 1 and size not in (1, made[-i])):
                texts = ", ".join(map(shape_text, shapes))
                raise ReshapeError(f"shapes {texts} cannot be broadcast", asked_by=asked_by)
            made[-i] = size if made[-i] == 1 else made[-i]
    return tuple(made)


def checked_shape(values: Any, what: str, asked_by: str) -> Ints:
    """The sizes (elements) of a shape; FormatError if one is negative or they exceed int64.

    >>> checked_shape([2, 3], "the shape", "doctest")
    (2, 3)
    """
    sizes = integers(values, what, asked_by)
    if any(size < 0 for size in sizes) or overflows(sizes):
        raise FormatError(
            f"invalid shape {shape_text(sizes)}: sizes must not be negative, and the product of "
            f"the non-zero ones must fit int64 ({asked_by})"
        )
    return sizes


def permutation(
    axes: Sequence[int],
    shape: Sequence[int],
    asked_by: object = "permute_dims",
    name: str = "axes",
    negative: bool = True,
) -> Ints:
    """A permutation of all axes of a shape, counted from the front.

    Negative axes count from the end, if `negative` allows them.
    """
    ndim, order = len(shape), tuple(axes)
    if negative:
        order = tuple(normal_axis(axis, ndim, asked_by) for axis in order)
    if sorted(order) != list(range(ndim)):
        given = f"{name} {tuple(axes)} {'are' if name == 'axes' else 'is'}"
        raise ReshapeError(
            f"{given} not a permutation of the {ndim} dims of {shape_text(shape)}",
            asked_by=asked_by,
        )
    return order


def squeezed(shape: Sequence[int], axes: Sequence[int], asked_by: object = "squeeze") -> Ints:
    """The axes counted from the front. Raises ReshapeError unless all have size 1."""
    drop = normal_axes(axes, len(shape), asked_by)
    for i in drop:
        if shape[i] != 1:
            note = f"dim {i} of {shape_text(shape)} has size {shape[i]}, not 1"
            raise ReshapeError(note, asked_by=asked_by)
    return drop


def normal_axis(axis: int, ndim: int, asked_by: object, name: str = "axis") -> int:
    """`axis` in [0, ndim); a negative one counts from the end."""
    if not -ndim <= axis < ndim:
        raise AxisError(f"{name} {axis} is out of bounds for {ndim} dims", asked_by=asked_by)
    return axis % ndim


def normal_axes(axes: Sequence[int], ndim: int, asked_by: object, name: str = "axis") -> Ints:
    """`normal_axis` of several axes, which must differ; messages call them `name`."""
    normal = tuple([normal_axis(axis, ndim, asked_by, name) for axis in axes])
    if len(set(normal)) < len(normal):
        raise ReshapeError(f"repeated axis in `{name}` {tuple(axes)}", asked_by=asked_by)
    return normal
