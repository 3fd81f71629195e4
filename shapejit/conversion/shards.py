"""Which tensors of a destination go to which of its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import FormatError, quoted
from .changes import Change

__all__ = ["MAX_SHARD", "Shard", "nbytes_of", "shards"]

MAX_SHARD = 5 * 10**9  # bytes, as the ecosystem has it
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


class Shard(NamedTuple):
    """A file of a folder, and the tensors in it."""

    name: str
    changes: tuple[Change, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(change.nbytes for change in self.changes)


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


def shards(changes: Sequence[Change], most: int, stem: str) -> list[Shard]:
    """The tensors in their order in files of at most `most` bytes; a larger one has its own."""
    groups: list[list[Change]] = [[]]
    size = 0
    for change in changes:
        if groups[-1] and size + change.nbytes > most:
            groups.append([])
            size = 0
        groups[-1].append(change)
        size += change.nbytes
    count = len(groups)
    if count == 1:
        return [Shard(f"{stem}.safetensors", tuple(groups[0]))]
    return [
        Shard(f"{stem}-{k:05d}-of-{count:05d}.safetensors", tuple(group))
        for k, group in enumerate(groups, 1)
    ]
