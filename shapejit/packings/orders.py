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

_GROUP = re.compile(r"\([^)]*\)|[a-z]\w*")
_FACTOR = re.compile(r"([a-z])(\d*)")
_TOKEN = re.compile(
    r"(?P<back>-?)(?P<name>[a-z])(?:\*(?P<step>[\d.]+))?|@(?P<skip>[\d.]+)|[()\[\]_1]"
)

Factor = tuple[int, int]  # size, stride (bits)


class Words(NamedTuple):
    """How the units of a stored array, in `shape`, are permuted into the order of its elements."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]


class PhysicalLayout(NamedTuple):
    """Where elements are: factors of each dim, first element, the stored array's shape."""

    dims: tuple[tuple[Factor, ...], ...]
    offset: int
    stored: tuple[int, ...]
    words: Words | None


def physical_layout(
    order: str, shape: Sequence[int], bits: int, unit: int, block: int, name: str, pads: bool
) -> PhysicalLayout:
    """Where elements of `bits` bits are in units of `unit` bits.

    `name` is that of the format, for errors. Raises FormatError unless dims are whole factors and
    units, or the format `pads`.
    """
    left, right = order.split(" -> ")
    known = {"e": lcm(unit, bits) // bits, "s": block}
    groups = [_FACTOR.findall(group) for group in _GROUP.findall(left)]
    lead = len(shape) - len(groups)
    if lead < 0:
        raise FormatError(f"{name} has {len(groups)} dims or more, not {shape_text(shape)}")
    sizes: dict[str, int] = {}
    for group, size in zip(groups, shape[lead:], strict=True):
        fixed = {n: int(digits or known[n]) for n, digits in group if digits or n in known}
        (rest,) = (n for n, _ in group if n not in fixed)
        whole = prod(fixed.values())
        if size % whole and not pads:
            raise FormatError(f"{name} needs a multiple of {whole}: {shape_text(shape)} has {size}")
        sizes |= {rest: -(-size // whole), **fixed}
    walk = _Walk(sizes, bits, unit, pads)
    for token in reversed(list(_TOKEN.finditer(right))):
        walk.take(token)
    if walk.ragged:
        raise FormatError(f"{name} needs rows of whole units of {unit} bits: {shape_text(shape)}")
    ahead = [(size, walk.begin(size)) for size in reversed(shape[:lead])]
    dims: list[tuple[Factor, ...]] = [(factor,) for factor in reversed(ahead)]
    dims += [tuple((sizes[n], walk.strides[n]) for n, _ in group) for group in groups]
    stored = (*shape[:lead], *walk.stored)
    if walk.apart == 1:
        return PhysicalLayout(tuple(dims), walk.offset, stored, None)
    # Brackets of several units: [..., w, units, n] in memory, [..., w, n, units] here.
    outer, inner = stored[:-1], stored[-1]
    rank = len(outer) + 2
    words = Words((*outer, walk.apart, inner), (*range(rank - 2), rank - 1, rank - 2))
    return PhysicalLayout(
        tuple(dims), walk.offset, (*outer[:-1], outer[-1] * walk.apart, inner), words
    )


class _Walk:
    """The right side of an order, read from the innermost factor outwards."""

    def __init__(self, sizes: dict[str, int], bits: int, unit: int, pads: bool) -> None:
        self.sizes, self.unit, self.pads = sizes, unit, pads
        self.pitch = bits  # bits of all factors so far
        self.offset, self.apart, self.ragged = 0, 1, False
        self.strides: dict[str, int] = {}
        self.stored: list[int] = []
        self.group = 0  # bits that the open parenthesis counts; -1 within brackets

    def begin(self, size: int) -> int:
        """The stride of the next factor, which has `size` steps."""
        stride, self.pitch = self.pitch, self.pitch * size
        return stride

    def take(self, token: re.Match[str]) -> None:
        """The next factor or sign to the left."""
        match token[0]:
            case ")":
                self.group = max(self.pitch, self.unit)
            case "]":
                self.group = -1
            case "(":
                self._round_up()
                self.stored.insert(0, self.pitch // self.group)
                self.group = 0
            case "[":
                self.apart, self.group = max(1, self.pitch // self.unit), 0
            case "_":
                self._round_up()
            case "1":
                self.stored.insert(0, 1)
            case _ if token["skip"]:
                self.offset += _bits(token["skip"])
            case _:
                self._factor(token["name"], _bits(token["step"] or "0"), bool(token["back"]))

    def _round_up(self) -> None:
        whole = -(-self.pitch // self.unit) * self.unit
        self.ragged |= whole != self.pitch and not self.pads
        self.pitch = whole

    def _factor(self, name: str, step: int, back: bool) -> None:
        size = self.sizes[name]
        if step:
            self.pitch = step
        stride = self.begin(size)
        if back:
            self.offset += max(0, size - 1) * stride
            stride = -stride
        self.strides[name] = stride
        if not self.group:
            self.stored.insert(0, size)


def _bits(text: str) -> int:
    """Bytes, or bytes and bits, in bits: 34 for `4.2`."""
    whole, _, rest = text.partition(".")
    return 8 * int(whole) + int(rest or 0)
