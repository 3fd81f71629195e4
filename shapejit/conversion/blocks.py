"""The types that GGUF gives tensors of blocks: kept as long as the blocks stay whole."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..files.stored import Stored
from ..quantization import sizes
from ..quantization.rows import BY_NAME, ROWS
from ..shapes.layout import Layout
from .changes import Change, Source
from .joins import Joined
from .tensors import Tensors
from .weights import PartOf

__all__ = ["file_types"]

_TYPES = {row.file_type: row for row in ROWS if row.file_type is not None}


def file_types(tensors: Tensors) -> dict[str, str]:
    """The type of each tensor of a destination that is rows of blocks, by its name there."""
    known = tensors.checkpoint.types
    found = ((name, _type(change, known)) for name, change in tensors.changes.items())
    return {name: kind for name, kind in found if kind is not None}


def _type(change: Change, known: Mapping[str, str]) -> str | None:
    """The type of a tensor of bytes; None for other ones, and where blocks were cut or permuted."""
    kind = None if change.casts else _of_source(change.source, known)
    if kind not in _TYPES:
        return None
    return kind if all(_in_blocks(each, 8 * _nbytes(kind)) for each in change.stages) else None


def _of_source(source: Source, known: Mapping[str, str]) -> str | None:
    if isinstance(source, Stored):
        return known.get(source.name)
    if isinstance(source, PartOf):
        return BY_NAME[source.whole.scheme].file_type if source.dtype.name == "uint8" else None
    if not isinstance(source, Joined):
        return None
    kinds = set[str | None]()
    for part in source.parts:
        kind = _type(part, known)
        apart = kind is None or prod(part.shape[source.axis :]) % _nbytes(kind)
        kinds.add(None if apart else kind)
    return kinds.pop() if len(kinds) == 1 else None


def _nbytes(kind: str) -> int:
    """The bytes of a block."""
    (form,) = _TYPES[kind].forms
    (size,) = form.part(form.codes.part).dims.split()[1:]
    (elements,) = sizes.divisors(size)
    return sizes.value(size, {"K": int(elements)}) or 1


def _in_blocks(layout: Layout, size: int) -> bool:
    """Whether elements lie in runs of `size` bits, each from a multiple of them on."""
    run = layout.bits
    for count, stride in reversed([*zip(layout.shape, layout.strides, strict=True)]):
        if count > 1 and run % size == 0 and stride % size:
            return False
        if count > 1 and run % size:
            if stride != run:
                return False
            run *= count
    return run % size == 0 and layout.offset % size == 0
