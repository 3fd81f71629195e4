"""A conversion as a small value that pickles: other processes plan it again, and write shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from socket import gethostname

from ..errors import FileFormatError, FormatError
from ..files import file_formats
from ..files.pieces import MOST
from .folders import Folder
from .planning import Conversion, plan
from .rules import rule
from .runs import destination, write_shard
from .shards import MAX_SHARD
from .specifications import dialect

__all__ = ["Job", "write_planned"]


@dataclass(frozen=True)
class Job:
    """A conversion of `source` to `destination`, by pairs of a rule's kind and its text.

    A `strict` one is refused where there is something to warn of.
    """

    source: str
    destination: str
    rules: tuple[tuple[str, str], ...] = ()
    spec: str = "array"
    special_zero: bool = False
    allowzero: bool = False
    saturate: bool = True
    chunk: int | None = None
    strict: bool = False
    max_shard: int = MAX_SHARD

    @property
    def most(self) -> int:
        """The bytes of a tensor that may be in memory at a time."""
        return self.chunk or MOST

    def plan(self) -> Conversion:
        """What becomes of the source as it is now; nothing is written yet."""
        reshape = dialect(self.spec, special_zero=self.special_zero, allowzero=self.allowzero)
        rules = [rule(*given) for given in self.rules]
        found = plan(file_formats.read(self.source), rules, reshape, self.saturate, self.chunk)
        found.check(self.destination, self.strict)
        return found


def write_planned(job: Job, number: int, wanted: str) -> None:
    """Write a shard of a folder, in any process that sees the source and the destination.

    FileFormatError where the plan made here has not the hash `wanted`; what is no error of
    shapejit's, nor of the disk, becomes a FormatError that names the shard.
    """
    folder = _planned(job)
    if folder.hash != wanted:
        reason = f"a worker on {gethostname()} plans otherwise: it needs the same source, as it is"
        raise FileFormatError(job.source, None, f"{reason} now, and the same version of shapejit")
    write_shard(folder.shards[number], destination(folder).folder, job.most, None)


@lru_cache(maxsize=1)
def _planned(job: Job) -> Folder:
    folder = job.plan().folder(job.destination, job.max_shard)
    if folder is None:
        raise FormatError(f"{job.destination} is no folder any more")
    return folder
