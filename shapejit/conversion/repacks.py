"""`--repack`: codes converted from one packing format to another, tensor by tensor."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd, lcm
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType, dtype
from ..errors import FormatError, ReshapeError, quoted, shape_text
from ..operations.codes import memory
from ..packings.packing import Packing
from ..packings.repacking import repack
from ..packings.rows import formats
from .changes import Change, Planned
from .tensors import Rule, Tensors

__all__ = ["Repacked", "formats_of", "repacked"]

_PROBE = 3072  # elements of a dim that every format can store
_TRIED = 4  # rows, or groups of rows, that are repacked alone and together, and compared


@dataclass(frozen=True, eq=False)
class Repacked(Planned):
    """The codes of another tensor in another format; `elements` is their shape."""

    verb = "repack"
    base: Change
    elements: tuple[int, ...]
    codes: DType
    formats: tuple[str, str]

    @property
    def made_of(self) -> tuple[Change]:
        """The other tensor."""
        return (self.base,)

    @property
    def kind(self) -> tuple[object, ...]:
        """The formats."""
        return self.formats

    @cached_property
    def _step(self) -> tuple[int, int, int] | None:
        """Rows here that hold exactly the codes of some indices there; their number, and the dim.

        Formats change at most the order of two dims, so that it is the first or the second one.
        """
        for axis in range(min(2, len(self.elements), len(self.base.shape), len(self.shape))):
            count, before, after = self.elements[axis], self.base.shape[axis], self.shape[0]
            if not (count and before and after):
                break
            unit = lcm(count // gcd(count, before), count // gcd(count, after))
            if _apart(self.formats, self.codes, self.elements, axis, unit):
                return unit * after // count, unit * before // count, axis
        return None

    @property
    def unit(self) -> int:
        """The rows that hold the codes of a slice of the other tensor; all if there are none."""
        return self._step[0] if self._step else self.count

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, repacked at once."""
        (base, elements), (given, wanted) = self.based(begin, end), self.formats
        raw = memory(base.tensor()).data
        return asarray(repack(raw, shape=elements, dtype=self.codes, source=given, target=wanted))

    def based(self, begin: int, end: int) -> tuple[Change, tuple[int, ...]]:
        """The rows of the other tensor, and the shape of their codes."""
        if self._step is None or end - begin == self.shape[0]:
            return self.base, self.elements
        rows, size, axis = self._step
        elements = [*self.elements]
        elements[axis] = elements[axis] * (end - begin) // self.shape[0]
        some = self.base.cut(begin // rows * size, end // rows * size, axis)
        return some, tuple(elements)


@lru_cache(maxsize=1024)
def _apart(
    names: tuple[str, str], codes: DType, elements: tuple[int, ...], axis: int, unit: int
) -> bool:
    """Whether each `unit` of a dim becomes independent rows: tried on a few."""
    one, all_ = ((*elements[:axis], n * unit, *elements[axis + 1 :]) for n in (1, _TRIED))
    settings: dict[str, Any] = {"dtype": codes, "source": names[0], "target": names[1]}
    if elements[axis] % unit:
        return False
    try:
        stored = formats[names[0]].stored(all_, codes)
        raw = np.arange(stored.nbytes, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> np.uint64(56)
        if stored.pitch > stored.bits:
            raw &= np.uint64((1 << codes.bits) - 1)
        units = raw.astype(np.uint8).view(stored.unit).reshape(stored.shape)
        some = (np.ascontiguousarray(x) for x in np.split(units, _TRIED, axis=axis))
        parts = [repack(x, shape=one, **settings) for x in some]
        return np.array_equal(np.concatenate(parts), repack(units, shape=all_, **settings))
    except ValueError:
        return False


def repacked(r: Rule, tensors: Tensors) -> None:
    """The codes of each tensor in another format, in an array of its dtype and shape."""
    kind, *names = r.values
    given, wanted = map(formats.__getitem__, names)
    for name, _ in tensors.matching(r):
        with tensors.named(name, r):
            base, codes = tensors.changes[name], dtype(kind)
            elements = _elements(given, base, codes)
            stored = wanted.stored_rows(given.rows_of(elements), codes, None)
            of = dtype(stored.unit), stored.shape, base, elements, codes, (given.name, wanted.name)
            source = Repacked(*of)
            tensors.changes[name] = Change.of(name, source, tensors.saturate, base.rules + 1)


def _elements(row: Packing, stored: Change, codes: DType) -> tuple[int, ...]:
    """The shape of codes that a format stores in an array of this shape."""
    shape = stored.shape
    for axis, size in enumerate(shape):
        with suppress(FormatError):  # not packed along this dim
            per = row.stored((*shape[:axis], _PROBE, *shape[axis + 1 :]), codes).shape
            if len(per) != len(shape):
                continue
            found = (*shape[:axis], size * _PROBE // per[axis], *shape[axis + 1 :])
            there = row.stored(found, codes)
            if there.shape == shape and there.unit.itemsize * 8 == stored.dtype.bits:
                return found
    what = f"{stored.dtype} {shape_text(shape)}"
    raise FormatError(f"{row.name} does not store {codes} in an array of {what}")


def formats_of(given: str, text: str) -> tuple[str, str, str]:
    """`[DTYPE:]FORMAT->FORMAT`, uint4 if there is no dtype.

    >>> formats_of("", "awq:gemm->gptq:qweight"), formats_of("", "uint8:awq:gemm->lsb")
    (('uint4', 'awq:gemm', 'gptq:qweight'), ('uint8', 'awq:gemm', 'lsb'))
    """
    source, found, target = text.partition("->")
    if not found:
        raise ReshapeError(f"{given}: {quoted(text)} is not FORMAT->FORMAT")
    kind, colon, rest = source.partition(":")
    if not colon or not kind.startswith(("uint", "int", "float")):
        kind, rest = "uint4", source
    return dtype(kind).name, formats[rest].name, formats[target].name
