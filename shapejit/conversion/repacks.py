"""`--repack`: codes converted from one packing format to another, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType, dtype
from ..errors import FormatError, ReshapeError, about, quoted, shape_text
from ..files.planned import ComputedWhole, Planned
from ..operations.codes import memory
from ..packings.packing import Packing
from ..packings.repacking import repack
from ..packings.rows import formats
from ..shapes.request import Ints
from .changes import Change
from .tensors import Rule, Tensors
from .weights import PartOf

_PROBE = 3072  # elements of a dim that every format can store


@dataclass(frozen=True, eq=False)
class Repacked(ComputedWhole):
    """The codes of a tensor in another packing format; `elements` is their shape.

    The codes of one row may be anywhere in the other tensor.
    """

    base: Change
    elements: Ints
    codes: DType
    formats: tuple[str, str]

    @property
    def made_of(self) -> Sequence[Planned]:
        """The tensor with the codes."""
        return (self.base,)

    @property
    def kind(self) -> tuple[object, ...]:
        """Both formats, and the dtype of the codes."""
        return (*self.formats, self.codes)

    @property
    def peak_bytes(self) -> int:
        """Both tensors, and codes with a byte each, several times."""
        return self.base.peak_bytes + self.base.nbytes + self.nbytes + 5 * prod(self.elements)

    def rows(self, begin: int, end: int) -> Tensor:
        """All rows."""
        raw, (source, target) = memory(self.base.tensor()).data, self.formats
        with about(f"weight {quoted(self.base.name)}"):
            made = repack(raw, shape=self.elements, dtype=self.codes, source=source, target=target)
        return asarray(made)


def repacked(r: Rule, tensors: Tensors) -> None:
    """Convert the codes of each tensor to another format, in an array of its dtype and shape."""
    kind, *names = r.values
    given, wanted = map(formats.__getitem__, names)
    codes, both = dtype(kind), (given.name, wanted.name)

    def made(base: Change, _: object) -> list[Change]:
        for leaf in base.leaves:
            if isinstance(leaf, PartOf):  # which the config will describe
                raise FormatError(f"an earlier rule stored its weight as {leaf.whole.scheme}")
        elements = _elements(given, base, codes)
        stored = wanted.stored_rows(given.rows_of(elements), codes, None)
        codes_there = Repacked(dtype(stored.unit), stored.shape, base, elements, codes, both)
        return [Change.of(base.name, codes_there)]

    tensors.rewrite(r, made)


def _elements(row: Packing, stored: Change, codes: DType) -> Ints:
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


def formats_of(text: str) -> tuple[str, str, str]:
    """`[DTYPE:]FORMAT->FORMAT`, uint4 if there is no dtype.

    >>> formats_of("awq:gemm->gptq:qweight"), formats_of("uint8:awq:gemm->lsb")
    (('uint4', 'awq:gemm', 'gptq:qweight'), ('uint8', 'awq:gemm', 'lsb'))
    """
    source, found, target = text.partition("->")
    if not found:
        raise ReshapeError(f"{quoted(text)} is not FORMAT->FORMAT")
    kind, colon, rest = source.partition(":")
    if not colon or not kind.startswith(("uint", "int", "float")):
        kind, rest = "uint4", source
    return dtype(kind).name, formats[rest].name, formats[target].name
