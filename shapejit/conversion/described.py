"""What a conversion would do, tensor by tensor: for people and for machines, before it is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import shape_text
from ..files.stored import Stored
from .joins import Joined
from .repacks import Repacked
from .sources import Source
from .tensors import Tensors
from .weight_sources import Decoded, PartOf

__all__ = ["Described", "described"]


@dataclass(frozen=True)
class Described:
    """A tensor of a destination.

    `scheme` is that of the source ("" if it is not quantised), `before` and `after` are dtypes
    and shapes, `way` is "view" (the same bytes) or "copy".
    """

    name: str
    scheme: str
    before: str
    after: str
    way: str
    nbytes: int


def described(tensors: Tensors) -> Iterator[Described]:
    """The tensors that rules make, in their order."""
    schemes = {name: w.scheme for w in tensors.weights.found for name in w.names}
    for change in tensors.changes.values():
        parts = list(_parts(change.source))
        found = {schemes.get(name, "") for name, _ in parts}
        yield Described(
            name=change.name,
            scheme=", ".join(sorted(filter(None, found))),
            before=" + ".join(dict.fromkeys(text for _, text in parts)),
            after=f"{change.dtype} {shape_text(change.shape)}",
            way="copy" if change.moves else "view",
            nbytes=change.nbytes,
        )


def _parts(source: Source) -> Iterator[tuple[str, str]]:
    """The stored tensors that a source reads: their names, and their dtypes and shapes."""
    found: list[Stored] = []
    if isinstance(source, Joined):
        for part in source.parts:
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
