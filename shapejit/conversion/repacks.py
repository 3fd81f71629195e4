"""`--repack`: codes from one packing format to another, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ..dtypes import DType, dtype
from ..errors import FormatError, ReshapeError, quoted, shape_text
from ..files.pieces import Scratch, pieces
from ..packings.packing import Packing
from ..packings.rows import packing
from ..quantization.groups import memory
from ..repacking import repack
from ..tensor import Bytes, Tensor, asarray
from .changes import Change
from .sources import Made
from .tensors import Rule, Tensors

__all__ = ["Repacked", "formats_of", "repacked"]

_PROBE = 3072  # elements of a dim that every format can store


@dataclass(frozen=True, eq=False)
class Repacked(Made):
    """The codes of another tensor in another format; `elements` is the shape that they have."""

    base: Change
    elements: tuple[int, ...]
    codes: DType
    formats: tuple[str, str]

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed bytes."""
        return pieces(self.tensor(), result)

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The whole, repacked at once."""
        given, wanted = self.formats
        raw = memory(self.base.tensor()).data
        made = repack(raw, shape=self.elements, dtype=self.codes, source=given, target=wanted)
        return asarray(made)


def repacked(r: Rule, tensors: Tensors) -> None:
    """The codes of each tensor in another format, in an array of its dtype and shape."""
    kind, *names = r.values
    given, wanted = map(packing, names)
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
    return dtype(kind).name, packing(rest).name, packing(target).name
