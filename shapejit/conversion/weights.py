"""The quantised weights of a checkpoint as planned tensors: decoded, or in another scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from threading import local
from typing import Any, NamedTuple

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..errors import FormatError, about, quoted, shape_text, shown
from ..files.pieces import new_memory
from ..files.places import file_system
from ..files.planned import Computed, ComputedWhole
from ..files.stored import Stored
from ..quantization.bands import APART, Slice, bands, cut
from ..quantization.naming import part_name
from ..quantization.parts import Found
from ..quantization.scheme import schemes
from ..quantization.transcoding import UNPACKED, transcode
from ..shapes.request import Ints
from .changes import Change

BAND = 1 << 22  # elements that are decoded at a time, if the scheme allows it


class _LastResult(local):
    """The last result of each thread, kept because its parts are written one by one."""

    _owner: object = None
    _value: Any = None

    def of(self, owner: object, make: Callable[[], Any]) -> Any:
        """The result of `make`, cached for this owner."""
        if self._owner is not owner:
            self.clear()
            self._value, self._owner = make(), owner
        return self._value

    def clear(self) -> None:
        """Forget it."""
        self._owner = self._value = None


LAST_RESULT = _LastResult()


def stored(weight: Found) -> dict[str, Stored]:
    """The parts of a quantised weight that are in files, by the keys of its form."""
    return {key: x for key, x in weight.parts.sources.items() if isinstance(x, Stored)}


def read(weight: Found, keys: AbstractSet[str], slices: Mapping[str, Slice]) -> dict[str, Tensor]:
    """Read some parts by the keys of the form, or slices of them, from the file."""
    made = cut(weight.group, keys, slices)
    for key, part in stored(weight).items():
        if key in keys:
            if key in slices:
                axis, begin, size = slices[key]
                part = part.with_layout(part.layout.narrow(axis, begin, size, 1))
            made[key] = part.tensor()
    return made


def _named(weight: str, reads: Sequence[Stored]) -> about:
    """A context that adds a weight to errors, and the file with its parts, or their folder."""
    paths = {stored.file.path for stored in reads}
    if len(paths) > 1:
        paths = {file_system(path).parent(path) for path in paths}
    where = "".join(f"{shown(path)}: " for path in paths if path and len(paths) == 1)
    return about(f"{where}weight {quoted(weight)}")


@dataclass(frozen=True, eq=False)
class Decoded(Computed):
    """A quantised weight, decoded to floats."""

    weight: Found

    @staticmethod
    def of(weight: Found, kind: DType) -> Decoded:
        """The whole weight."""
        return Decoded(kind, weight.group.shape, weight)

    @property
    def reads(self) -> list[Stored]:
        """The parts of the weight."""
        return [*stored(self.weight).values()]

    @property
    def kind(self) -> tuple[object, ...]:
        """The scheme, and the form of it."""
        return self.weight.scheme, id(self.weight.group.form)

    @cached_property
    def unit(self) -> int:
        """The rows of the smallest band."""
        with _named(self.weight.parts.weight, self.reads):
            found = bands(self.weight.group, 1, 0, 1)
        return found[0].end - found[0].begin if found else 1

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, decoded a band at a time."""
        shape = (end - begin, *self.shape[1:]) if self.shape else ()
        made = Tensor.frombuffer(new_memory(self.dtype.nbytes(prod(shape))), self.dtype, shape)
        group = self.weight.group
        with _named(self.weight.parts.weight, self.reads):
            found = bands(group, BAND, begin, end)
            for band in found:
                out = made if len(found) == 1 else made[band.begin - begin : band.end - begin]
                band.decode(read(self.weight, group.tensors.keys(), band.slices), self.dtype, out)
        return made


@dataclass(frozen=True, eq=False)
class Whole:
    """A weight stored in `scheme`: `make` computes all parts at once, in `peak_bytes` of memory.

    `name` is that of the weight, `origin` its scheme in the source ("": plain floats), and `reads`
    are its tensors in the source.
    """

    scheme: str
    name: str
    origin: str
    reads: Sequence[Stored]
    peak_bytes: int
    make: Callable[[], Mapping[str, Tensor]]

    def parts(self) -> Mapping[str, Tensor]:
        """Its parts, cached until those of another weight are computed."""
        with _named(self.name, self.reads):
            made: Mapping[str, Tensor] = LAST_RESULT.of(self, self.make)
        return made


def converted(weight: Found, scheme: str) -> Whole:
    """A quantised weight with the same codes in another scheme, converted band by band."""

    def make() -> Mapping[str, Tensor]:
        return transcode(weight.group, schemes[scheme].row, {}, partial(read, weight), BAND)

    # Its parts, those of the other scheme, scales in between; some codes, or those of an expert,
    # with a byte each and each bit.
    group = weight.group
    expert = prod(group.shape[len(group.batch) :]) if group.batch else 0
    peak_bytes = 3 * sum(part.nbytes for part in group.tensors.values())
    peak_bytes += 16 * min(prod(group.shape), max(expert, APART * UNPACKED))
    reads = [*stored(weight).values()]
    return Whole(scheme, weight.parts.weight, weight.scheme, reads, peak_bytes, make)


class PlannedParts(NamedTuple):
    """The dtypes and shapes of the parts that a weight will have, and its settings."""

    parts: Mapping[str, tuple[DType, Ints]]
    settings: Mapping[str, Any]

    @staticmethod
    def like(sample: Mapping[str, Tensor], shape: Callable[[str, Tensor], Ints]) -> PlannedParts:
        """Parts like those of a sample, with shapes returned by a function of key and part."""
        settings = {"zero_points": "weight_zero_point" in sample, **getattr(sample, "settings", {})}
        return PlannedParts({k: (t.dtype, shape(k, t)) for k, t in sample.items()}, settings)

    def of(self, whole: Whole, name: str) -> list[Change]:
        """The parts of a weight of this name as tensors of a destination."""
        row, made = schemes[whole.scheme].row, list[Change]()
        for key, (kind, shape) in self.parts.items():
            part = PartOf(kind, shape, whole, key, self.settings)
            change = Change.of(part_name(row, name, key), part)
            alone = not shape and row.arrays and not whole.origin
            made.append(change.then(Tensor.reshape, (1,)) if alone else change)
        return made


@dataclass(frozen=True, eq=False)
class PartOf(ComputedWhole):
    """One part of a Whole; `settings` are those of the weight in its scheme."""

    whole: Whole
    key: str
    settings: Mapping[str, Any]

    @property
    def reads(self) -> Sequence[Stored]:
        """The tensors that the whole weight is computed from."""
        return self.whole.reads

    @property
    def kind(self) -> tuple[object, ...]:
        """Both schemes, and the part."""
        return self.whole.origin, self.whole.scheme, self.key

    @property
    def peak_bytes(self) -> int:
        """The memory of the whole weight."""
        return self.whole.peak_bytes

    def rows(self, begin: int, end: int) -> Tensor:
        """The part. Raises FormatError unless it has the planned dtype and shape."""
        found = self.whole.parts().get(self.key)
        if found is None or (found.dtype, found.shape) != (self.dtype, self.shape):
            given = "missing" if found is None else f"{found.dtype} {shape_text(found.shape)}"
            raise FormatError(
                f"weight {quoted(self.whole.name)}: as {self.whole.scheme} its {self.key} "
                f"is {given}, but {self.dtype} {shape_text(self.shape)} in others"
            )
        return found
