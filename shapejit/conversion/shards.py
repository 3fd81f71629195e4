"""The files of a destination with tensors: which has which, and whether one has been written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..errors import FileFormatError, FormatError, quoted
from ..files.places import places
from ..files.safetensors.writer import Placed, placed
from .changes import Change

__all__ = ["MAX_SHARD", "Shard", "nbytes_of", "shards"]

MAX_SHARD = 5 * 10**9  # bytes, as the ecosystem has it
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Shard:
    """A safetensors file of a folder, the unit of work: one process writes it as a whole."""

    name: str
    changes: tuple[Change, ...]
    placed: Placed

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(change.nbytes for change in self.changes)

    def is_written(self, folder: str) -> bool:
        """Whether a folder has it: a file of this name, size and header."""
        place, header = places(folder), self.placed.header
        with suppress(OSError, FileFormatError):
            file = place.open(place.inside(folder, self.name, None))
            same = file.size == self.placed.size
            return same and file.bytes(0, len(header)) == header
        return False


def nbytes_of(given: int | str) -> int:
    """A number of bytes, also with a unit; FormatError for others.

    >>> nbytes_of("5GB"), nbytes_of("512 MiB")
    (5000000000, 536870912)
    """
    text = str(given)
    found = re.fullmatch(r"\s*([0-9]{1,15})\s*([A-Za-z]{0,3})\s*", text)
    if found is None or found[2].upper() not in _UNITS or int(found[1]) == 0:
        raise FormatError(f"{quoted(text)} is not a number of bytes, as 5GB or 500MB")
    return int(found[1]) * _UNITS[found[2].upper()]


def shards(
    folder: str, changes: Sequence[Change], most: int, stem: str, metadata: Mapping[str, str] | None
) -> list[Shard]:
    """The tensors in their order in files of at most `most` bytes; a larger one has its own.

    FileFormatError for what a file cannot hold.
    """
    groups, place = [*_groups(changes, most)], places(folder)
    count, made = len(groups), list[Shard]()
    for k, group in enumerate(groups, 1):
        name = f"{stem}.safetensors"
        if count > 1:
            name = f"{stem}-{k:05d}-of-{count:05d}.safetensors"
        made.append(Shard(name, tuple(group), placed(place.join(folder, name), group, metadata)))
    return made


def _groups(changes: Sequence[Change], most: int) -> Iterator[list[Change]]:
    group, size = list[Change](), 0
    for change in changes:
        if group and size + change.nbytes > most:
            yield group
            group, size = [], 0
        group.append(change)
        size += change.nbytes
    yield group
