"""The classes of the table of schemes: SchemeRow, Form and Part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from ..arrays.tensor import Tensor
from ..packings.orders import BitPlane
from ..packings.packing import Check, Packing


class Part(NamedTuple):
    """A tensor of a scheme.

    `name` and `dtypes` are alternatives separated by bars; the first one is used for writing.
    `dims` are its sizes (see `sizes`), after any dims of stacked experts; "?" is any shape. A
    `flat` part may have them as one dim.
    """

    name: str
    dtypes: str
    dims: str
    optional: bool = False
    flat: bool = False

    @property
    def key(self) -> str:
        """Its first name, which is its key in `Numbers` and in a Group."""
        return self.name.partition("|")[0]

    @property
    def kinds(self) -> list[str]:
        """Its dtypes, the one for writing first."""
        return self.dtypes.split("|")


class Numbers(NamedTuple):
    """The numbers in a part: codes, scales, zero points.

    `dims` are the axes, and how many elements share a number along them: `"N K/g"`. Those in a
    `swapped` part, of two dims, are stored transposed. `dtype` is the meaning of their bits ("":
    that of the part), `format` how they are packed (None: they are the part's elements); packed
    ones have the dims (N, K) whatever the part has. `step` says how they combine with the product
    of earlier scales: as a factor ("*"), a negated factor ("-"), or a divisor ("/"). `table` has
    the values of codes that are not numbers by themselves. `read` computes numbers from several
    parts, as an array with stacked experts first.
    """

    part: str
    dims: str
    dtype: str = ""
    format: str | Packing | None = None
    step: str = "*"
    table: tuple[float, ...] = ()
    read: Callable[[Any], Any] | None = None  # of a Group
    swapped: bool = False


@dataclass(frozen=True, eq=False)
class Form:
    """One way in which a scheme stores a weight: `(codes - zero) * scale + offset`.

    `scales` and `offset` are multiplied from left to right. `zero` is a number, or "half" the range
    of the codes, if no part has zero points. `result` are the axes of the decoded weight, `usual`
    the settings if neither the parts nor the caller define them; `tells` reads settings from parts.
    `rounds` is what the reference rounds to the type of the result before the end: "" nothing,
    "scales" or "product".

    `rule` encodes weights padded to a `multiple`, in blocks of the sizes `chosen` by default;
    `writes` makes the parts that describe the storage. `assumption` is what only a config defines,
    and what is assumed without one; `layout` the word of a config that selects this form; of the
    settings and parts `asks` a checkpoint must have one, since shapes alone fit several widths of
    codes.
    """

    parts: tuple[Part, ...]
    codes: Numbers
    scales: tuple[Numbers, ...]
    zeros: Numbers | None = None
    zero: float | str | None = None
    offset: tuple[Numbers, ...] = ()
    result: str = "N K"
    rounds: str = ""
    tells: Callable[[Mapping[str, Tensor]], dict[str, Any]] | None = None
    rule: Any = None  # a `rules.EncodingRule`
    chosen: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    multiple: int = 1
    writes: Callable[[Any], dict[str, Any]] | None = None
    usual: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    assumption: str = ""
    layout: str = ""
    asks: tuple[str, ...] = ()

    @property
    def axes(self) -> str:
        """The axes of a weight, outputs first: "NK", or "n" for a flat weight."""
        return "n" if self.result == "n" else "NK"

    @cached_property
    def order(self) -> str:
        """The axes of the decoded weight, stacked experts ("*") first."""
        return "*" + "".join(size[0] for size in self.result.split())

    @property
    def factor(self) -> Numbers | None:
        """The factor of all scales (a global scale), if there is one."""
        return next((numbers for numbers in self.scales[1:] if not numbers.dims), None)

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The codes, scales, offsets and zero points of a weight."""
        return (self.codes, *self.scales, *self.offset, *filter(None, (self.zeros,)))

    @cached_property
    def _by_key(self) -> dict[str, Part]:
        return {part.key: part for part in reversed(self.parts)}

    def part(self, key: str) -> Part:
        """The part with this `key`."""
        return self._by_key[key]

    def kinds(self, numbers: Numbers) -> list[str]:
        """The dtypes that numbers may have, the one for writing first."""
        return [numbers.dtype] if numbers.dtype else self.part(numbers.part).kinds


@dataclass(frozen=True)
class SchemeRow:
    """A scheme: its name, the words of a config that indicate it, and its reference.

    `layouts` are values of some keys of a config that describe how weights are stored, and the
    settings that each implies. `separators` may stand between a prefix and the name of a part.
    `file_type` is the type of such tensors in a GGUF file, `operator` the ONNX operator that takes
    such weights.

    The name in the unquantised model is the prefix and `weight`; after the separator "_", the
    prefix alone. `stacks`: whether readers accept stacked experts as one weight ("too"), or nothing
    else ("only"); `arrays`: then scales of whole weights are arrays of one element. `library` is
    the package that decodes, if kernels do not.
    """

    name: str
    config: str
    source: str
    forms: tuple[Form, ...]
    separators: str = "."
    layouts: Mapping[str, Mapping[str, Mapping[str, int]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    file_type: str | None = None
    operator: str = ""
    weight: str = "weight"
    stacks: str = ""
    arrays: bool = False
    library: str = ""

    @property
    def words(self) -> frozenset[str]:
        """The words of `config`."""
        return frozenset(self.config.split())


def packing(*planes: str | BitPlane, bits: int) -> Packing:
    """The format of numbers of `bits` bits (0: any) among others, in bytes or words of 16 bits."""
    made = tuple(BitPlane(plane) if isinstance(plane, str) else plane for plane in planes)
    unit = "uint16" if bits == 16 else "uint8"
    return Packing("", (bits,) if bits else (), unit, made, Check("uint8", (), (), ""), "")
