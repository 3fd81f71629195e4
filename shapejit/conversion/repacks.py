"""`--repack`: codes converted from one packing format to another, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import prod

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType, dtype
from ..errors import FormatError, ReshapeError, quoted, shape_text
from ..operations.codes import memory
from ..packings.packing import Packing
from ..packings.repacking import repack
from ..packings.rows import formats
from .changes import Change
from .remaining import leaves
from .tensors import Rule, Tensors
from .weights import PartOf, Whole

_PROBE = 3072  # elements of a dim that every format can store


def repacked(r: Rule, tensors: Tensors) -> None:
    """The codes of each tensor in another format, in an array of its dtype and shape."""
    kind, *names = r.values
    given, wanted = map(formats.__getitem__, names)
    for name, _ in tensors.matching(r):
        with tensors.named(name, r):
            base, codes = tensors.changes[name], dtype(kind)
            for leaf in leaves(base):
                if isinstance(leaf, PartOf):  # which the config will describe
                    raise FormatError(f"an earlier rule stored its weight as {leaf.whole.scheme}")
            elements = _elements(given, base, codes)
            stored = wanted.stored_rows(given.rows_of(elements), codes, None)
            unit = dtype(stored.unit)
            make = partial(_made, base, elements, codes, given.name, wanted.name)
            # Both tensors, and codes with a byte each, several times.
            nbytes = base.nbytes + unit.nbytes(prod(stored.shape))
            held = base.held + nbytes + 5 * prod(elements)
            whole = Whole(wanted.name, name, given.name, base.reads, held, make, (base,))
            tensors.changes[name] = Change.of(name, PartOf(unit, stored.shape, whole, "", {}))


def _made(
    base: Change, elements: Sequence[int], codes: DType, source: str, target: str
) -> dict[str, Tensor]:
    """All codes: those of a row may be anywhere in the other tensor."""
    raw = memory(base.tensor()).data
    return {"": asarray(repack(raw, shape=elements, dtype=codes, source=source, target=target))}


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
