"""Reports of what a conversion did, or would do (`--dry-run`), tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import shape_text
from .tensors import Tensors


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


@dataclass(frozen=True)
class Report:
    """The result of a conversion: numbers of tensors, bytes of their data, seconds.

    `changed` is the number of tensors that rules apply to, `moved` that of tensors with new data
    (converted or reordered), not only new names and shapes. `warnings` are contradictions and
    unclear tensors of weights that were decoded or converted, and what is no tensor; `left_out` the
    weights that a rule for all tensors skipped, with the reasons. After a dry run `rows` are the
    planned tensors.
    """

    tensors: int
    changed: int
    moved: int
    bytes_read: int
    bytes_written: int
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    rows: tuple[Described, ...] = ()

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes read and written per second, including the sync to disk."""
        return (self.bytes_read + self.bytes_written) / max(self.seconds, 1e-9) / 1e9


def described(tensors: Tensors) -> Iterator[Described]:
    """The tensors that rules make, in their order."""
    schemes = {name: w.scheme for w in tensors.detected for name in w.named.values()}
    for change in tensors.changes.values():
        found = {schemes.get(stored.name, "") for stored in change.reads}
        texts = [f"{s.dtype} {shape_text(s.layout.shape)}" for s in change.reads]
        yield Described(
            name=change.name,
            scheme=", ".join(sorted(filter(None, found))),
            before=" + ".join(dict.fromkeys(texts)),
            after=f"{change.dtype} {shape_text(change.shape)}",
            way="copy" if change.moves else "view",
            nbytes=change.nbytes,
        )
