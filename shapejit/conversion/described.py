"""What a conversion would do, group by group: for people and for machines, before it is done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import shape_text
from ..files.stored import Stored
from .changes import Change
from .repacks import Repacked
from .sources import Joined, Source
from .tensors import Tensors
from .weight_sources import Decoded, PartOf

__all__ = ["Described", "described"]

_NUMBER = re.compile(r"(?<![^./])[0-9]+(?![^./])")  # a whole component of a name


@dataclass(frozen=True)
class Described:
    """Tensors of a destination that differ in the numbers of their names alone.

    `scheme` is that of the source ("" if it is not quantised), `before` and `after` are dtypes
    and shapes, `way` is "view" (the same bytes) or "copy", `nbytes` those of all `count`.
    """

    name: str
    count: int
    scheme: str
    before: str
    after: str
    way: str
    nbytes: int


def described(tensors: Tensors) -> list[Described]:
    """The groups of tensors that rules make, in their order."""
    schemes = {name: w.scheme for w in tensors.weights.found for name in w.names}
    groups: dict[tuple[str, ...], list[Change]] = {}
    for change in tensors.changes.values():
        parts = list(_parts(change.source))
        scheme = {schemes.get(name, "") for name, _ in parts}
        key = (
            _NUMBER.sub("#", change.name),
            ", ".join(sorted(filter(None, scheme))),
            " + ".join(dict.fromkeys(text for _, text in parts)),
            f"{change.dtype} {shape_text(change.shape)}",
            "copy" if change.moves else "view",
        )
        groups.setdefault(key, []).append(change)
    return [
        Described(
            name=key[0] if len(own) > 1 else own[0].name,
            count=len(own),
            scheme=key[1],
            before=key[2],
            after=key[3],
            way=key[4],
            nbytes=sum(change.nbytes for change in own),
        )
        for key, own in groups.items()
    ]


def _parts(source: Source) -> Iterator[tuple[str, str]]:
    """The stored tensors that a source reads: their names, and their dtypes and shapes."""
    found: list[Stored] = []
    if isinstance(source, Joined):
        for part in source.parts:
            if isinstance(part, Change):
                yield from _parts(part.source)
    elif isinstance(source, Decoded | PartOf):
        weight = source.weight if isinstance(source, Decoded) else source.whole.weight
        found = [*weight.stored.values()]
    elif isinstance(source, Repacked):
        yield from _parts(source.base.source)
    elif isinstance(source, Stored):
        found = [source]
    for stored in found:
        yield stored.name, f"{stored.dtype} {shape_text(stored.layout.shape)}"
