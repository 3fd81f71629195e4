"""`--repack`: codes from one packing format to another, tensor by tensor."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import lcm, prod
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
_ROWS = 256  # elements of the other dim, when columns are tried


@dataclass(frozen=True, eq=False)
class Repacked(Planned):
    """The codes of another tensor in another format; `elements` is the shape that they have."""

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
    def unit(self) -> int:
        """The rows whose codes are alone in their bytes in both formats; all if there are none."""
        given, wanted = map(formats.__getitem__, self.formats)
        rows, count = given.rows_of(self.elements), self.elements[0] if self.elements else 1
        turned = [each.inputs_first and len(rows) == 2 for each in (given, wanted)]
        unit = lcm(*(_unit(each, rows, self.codes) for each in (given, wanted)))
        if turned[0] != turned[1]:
            return self._columns[0] if self._columns else self.shape[0]
        before, after = (unit * shape[0] for shape in (self.base.shape, self.shape) if shape)
        if before % count or after % count or count % unit:
            return self.shape[0]
        return after // count

    @cached_property
    def _columns(self) -> tuple[int, int] | None:
        """Rows here and columns of the other tensor that hold the same codes, and no others."""
        given, wanted = map(formats.__getitem__, self.formats)
        if given.inputs_first == wanted.inputs_first or len(self.base.shape) != 2:
            return None
        count, before, after = self.elements[1], self.base.shape[1], self.shape[0]
        if len(self.shape) != 2 or not count or count % before or count % after:
            return None
        group = lcm(count // before, count // after)
        if count % group or not _apart(given, wanted, self.codes, group):
            return None
        return group * after // count, group * before // count

    def held(self, most: int) -> int:
        """Some rows, before and after."""
        base = self.based(*self.bands()[0])[0]
        return 2 * base.nbytes + base.held(most)

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, repacked at once."""
        (base, elements), (given, wanted) = self.based(begin, end), self.formats
        raw = memory(base.tensor()).data
        return asarray(repack(raw, shape=elements, dtype=self.codes, source=given, target=wanted))

    def based(self, begin: int, end: int) -> tuple[Change, tuple[int, ...]]:
        """The rows of the other tensor, and the shape of their codes."""
        if not self.shape or end - begin == self.shape[0]:
            return self.base, self.elements
        if self._columns is not None:
            rows, columns = self._columns
            first, last = begin // rows * columns, end // rows * columns
            codes = self.elements[1] * (end - begin) // self.shape[0]
            return self.base.cut(first, last, 1), (self.elements[0], codes)
        count, stored = self.shape[0], self.base.shape[0]
        rows = self.elements[0] * (end - begin) // count
        return (
            self.base.cut(begin * stored // count, end * stored // count),
            (rows, *self.elements[1:]),
        )


@lru_cache(maxsize=1024)
def _apart(given: Packing, wanted: Packing, codes: DType, group: int) -> bool:
    """Whether each `group` of columns becomes rows that depend on no others: tried on a few."""
    shape = _ROWS, 2 * group
    settings: dict[str, Any] = {"dtype": codes, "source": given.name, "target": wanted.name}
    try:
        stored = given.stored(shape, codes)
        raw = np.arange(stored.nbytes, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> np.uint64(56)
        units = raw.astype(np.uint8).view(stored.unit).reshape(stored.shape)
        halves = np.split(units, 2, axis=1)
        parts = [repack(np.ascontiguousarray(x), shape=(_ROWS, group), **settings) for x in halves]
        return np.array_equal(np.concatenate(parts), repack(units, shape=shape, **settings))
    except ValueError:
        return False


def _unit(row: Packing, rows: tuple[int, ...], codes: DType) -> int:
    """The indices of the stored array's outer dim whose codes are alone in their bytes."""
    stored = row.stored_rows(rows, codes, None)
    axis = 1 if row.inputs_first and len(rows) == 2 else 0
    count, unit = rows[axis], 1
    for part in stored.parts:
        whole = [prod(n for n, _ in dim) for dim in part.dims] == [*stored.logical]
        outer = part.dims[0 if row.flat else axis][:1]
        if not whole or not outer or stored.words:
            return count
        ((times, step),) = outer
        others = sum((n - 1) * abs(by) for dim in part.dims for n, by in dim) - (times - 1) * step
        if times * step != 8 * stored.nbytes or part.offset + others + part.bits > step:
            return count
        size = prod(rows) if row.flat else count
        unit = lcm(unit, size // times)
    row_size = prod(rows) // count if row.flat else 1
    return lcm(unit, row_size) // row_size


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
