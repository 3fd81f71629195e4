"""Orders: where the elements of a tensor are in a stored array, as a line of text.

Nearly every packing format is an affine map: the last dims of a tensor, split into
factors, have a stride each. An order such as `"n (w e) -> w n [e]"` names them,
outermost first: on the left the dims, with the factors of a dim in parentheses, on the
right the memory. Other dims of the tensor stay in front, as they are.

The size of a factor is the number after its name. `e` are the elements of one unit, that is of one
item of the stored array (of as few units as hold whole elements); `s` those of a block; a factor
without a number has the rest of its dim. For example `"(w a4 b2) k -> k w [b a]"`, AWQ's: output
channel 8w + 2a + b of input k is in word w of row k; within the word of 8 nibbles, b counts steps
of 4 nibbles and a single nibbles, so channels 0 to 7 are at the nibbles 0 4 1 5 2 6 3 7. On the
right

- `-e` runs backwards, `c*18` takes 18 bytes per step, `h*4.2` 4 bytes and 2 bits, `@2` skips 2
  bytes at the start;
- `_` rounds up to a whole unit;
- factors in parentheses are one dim of the stored array, counted in units;
- factors in square brackets are within a unit. If they take several units, these are not adjacent,
  but rows of the dim to the left of the bracket.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import lcm, prod
from typing import NamedTuple

from ..errors import FormatError, shape_text
from ..shapes.dims import merged
from ..shapes.layout import Layout
from ..shapes.request import Ints

_DIM_OR_GROUP = re.compile(r"\([^)]*\)|[a-z]\w*")
_FACTOR = re.compile(r"([a-z])(\d*)")
_TOKEN = re.compile(
    r"(?P<back>-?)(?P<name>[a-z])(?:\*(?P<step>[\d.]+))?|@(?P<skip>[\d.]+)|[()\[\]_1]"
)

BY_BIT = (5, 7)  # widths that no kernel reads or writes in one piece

Factor = tuple[int, int]  # size, stride (bits)


class BitPlane(NamedTuple):
    """Some bits of each code, `bits` of them from bit `low` on (0: all), and their order.

    It is for elements of `width` bits (0: of any width).
    """

    order: str
    bits: int = 0
    low: int = 0
    width: int = 0


class Words(NamedTuple):
    """The permutation of the units of a stored array, in `shape`, to the order of its elements."""

    shape: Ints
    axes: tuple[int, ...]


class PlaneLayout(NamedTuple):
    """The position of one plane of a tensor: `bits` of each code, from bit `low` on.

    `dims` are sizes and strides (bits) of the factors of each dim, `offset` is the first element's;
    `stored` is the shape of the stored array.
    """

    bits: int
    low: int
    dims: tuple[tuple[Factor, ...], ...]
    offset: int
    stored: Ints
    words: Words | None

    @property
    def padded(self) -> Layout:
        """The Layout of all factors, including padding."""
        return self._layout([factor for dim in self.dims for factor in dim])

    @property
    def planes(self) -> list[PlaneLayout]:
        """The plane itself, or one for each bit if no kernel reads elements of its width."""
        if self.bits not in BY_BIT:
            return [self]
        bits = range(self.bits)
        return [self._replace(bits=1, low=self.low + k, offset=self.offset + k) for k in bits]

    def layout(self, shape: Sequence[int]) -> Layout | None:
        """The Layout of a tensor of `shape`; None if a dim ends within a factor."""
        factors = list[Factor]()
        for dim, size in zip(self.dims, shape, strict=True):
            if prod(n for n, _ in dim) == size:
                factors += dim
                continue
            runs = merged(*zip(*dim, strict=True)) or [(1, 0)]
            if len(runs) > 1:
                return None
            factors.append((size, runs[0][1]))
        return self._layout(factors)

    def _layout(self, factors: list[Factor]) -> Layout:
        sizes, strides = [n for n, _ in factors], [stride for _, stride in factors]
        return Layout.of(sizes, strides, self.offset, self.bits)


def plane_layout(
    plane: BitPlane, shape: Sequence[int], bits: int, unit: int, block: int, name: str, pads: bool
) -> PlaneLayout:
    """The position of a plane of elements of `bits` bits in units of `unit` bits.

    `name` is that of the format, for errors. Raises FormatError unless dims are whole factors and
    units, or the format `pads`.
    """
    left, right = plane.order.split(" -> ")
    bits = plane.bits or bits
    known = {"e": lcm(unit, bits) // bits, "s": block}
    dims = [_FACTOR.findall(dim) for dim in _DIM_OR_GROUP.findall(left)]
    lead = len(shape) - len(dims)
    if lead < 0:
        raise FormatError(f"{name} has {len(dims)} dims or more, not {shape_text(shape)}")
    sizes: dict[str, int] = {}
    for dim, size in zip(dims, shape[lead:], strict=True):
        fixed = {n: int(digits or known[n]) for n, digits in dim if digits or n in known}
        (rest,) = (n for n, _ in dim if n not in fixed)
        whole = prod(fixed.values())
        if size % whole and not pads:
            raise FormatError(f"{name} needs a multiple of {whole}: {shape_text(shape)} has {size}")
        sizes |= {rest: -(-size // whole), **fixed}
    # From the innermost factor outwards: the bits of all so far, and those that an open parenthesis
    # counts, -1 within brackets.
    pitch, counted, offset, apart = bits, 0, 0, 1
    strides, stored = dict[str, int](), list[int]()
    for token in reversed(list(_TOKEN.finditer(right))):
        sign = token[0]
        if sign in "(_":
            whole = -(-pitch // unit) * unit
            if whole != pitch and not pads:
                count = f"a multiple of {lcm(unit, bits) // bits} elements, not {pitch // bits}"
                raise FormatError(f"{name} needs rows of {count}: {shape_text(shape)}")
            pitch = whole
        if sign == "(":
            stored.insert(0, pitch // counted)
            counted = 0
        elif sign == ")":
            # The innermost factors count units, also those of one element; others what is within.
            counted = pitch if pitch > max(bits, unit) else unit
        elif sign == "]":
            counted = -1
        elif sign == "[":
            apart, counted = max(1, pitch // unit), 0
        elif sign == "1":
            stored.insert(0, 1)
        elif token["skip"]:
            offset += _bits(token["skip"])
        elif token["name"]:
            size, stride = sizes[token["name"]], _bits(token["step"] or "0") or pitch
            pitch = stride * size
            if token["back"]:
                offset += max(0, size - 1) * stride
                stride = -stride
            strides[token["name"]] = stride
            if not counted:
                stored.insert(0, size)
    factors = [tuple((sizes[n], strides[n]) for n, _ in dim) for dim in dims]
    for size in reversed(shape[:lead]):
        factors.insert(0, ((size, pitch),))
        pitch *= size
    outer, words = [*shape[:lead], *stored[:-1]], None
    if apart > 1:
        # Brackets of several units: [..., w, units, n] in memory, [..., w, n, units] here.
        rank = len(outer)
        words = Words((*outer, apart, stored[-1]), (*range(rank), rank + 1, rank))
        outer[-1] *= apart
    return PlaneLayout(bits, plane.low, tuple(factors), offset, (*outer, *stored[-1:]), words)


def _bits(text: str) -> int:
    """A number of bytes, or of bytes and bits, as bits: 34 for `4.2`."""
    whole, _, rest = text.partition(".")
    return 8 * int(whole) + int(rest or 0)
