"""A conversion as a small value that pickles: other processes plan it again from that."""

from __future__ import annotations

from dataclasses import dataclass, field
from socket import gethostname
from threading import Lock, local
from typing import NamedTuple

from ..errors import FileFormatError
from ..files import file_formats
from ..files.pieces import Scratch
from ..runtime.workers import limit
from .destinations import destination
from .folders import Folder
from .items import Mark
from .open_files import OpenFiles
from .planning import Conversion, plan
from .rules import rule
from .runs import Checks, Settings, write_items
from .specifications import dialect

__all__ = ["Job", "Work", "forget", "keep", "run_item"]


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

    def plan(self) -> Conversion:
        """What becomes of the source as it is now; nothing is written yet."""
        reshape = dialect(self.spec, special_zero=self.special_zero, allowzero=self.allowzero)
        rules = [rule(*given) for given in self.rules]
        found = plan(file_formats.read(self.source), rules, reshape, self.saturate, self.chunk)
        found.check(self.destination, self.strict)
        return found


@dataclass(frozen=True)
class Work:
    """What a worker gets with the number of an item: the job, and how its work is cut.

    `facts` are those that the plan of the one who sent it has, `algorithm` is that of the
    checksums. A job of a worker's process has at most `threads` threads, where that is not 0.
    """

    job: Job
    settings: Settings
    facts: tuple[tuple[str, str], ...]
    algorithm: str
    threads: int = field(default=0, compare=False)


class _Plan(NamedTuple):
    """What a process has planned for work; `memory` is that of each thread."""

    folder: Folder
    files: OpenFiles
    most: int
    memory: local


_lock = Lock()
_plans: dict[Work, _Plan] = {}  # changed under the lock; a plan holds the files of its source
RECENT = 8  # works of which a process keeps the plans


def keep(work: Work, folder: Folder, most: int) -> None:
    """Let this process have the plan of work that it has made already."""
    with _lock:
        _put(work, _Plan(folder, OpenFiles(destination(folder.path)), most, local()))


def forget(work: Work) -> None:
    """Close the files of work."""
    with _lock:
        _plans.pop(work, None)


def run_item(work: Work, number: int) -> tuple[int, list[Mark]]:
    """Convert and write an item, in any process that sees source and destination.

    Returns its number and its checksums. Raises FileFormatError where the source, or what is to
    be made of it, is not what the one who sent the work has.
    """
    with _lock:
        found = _plans.pop(work, None) or _plan(work)
        _put(work, found)
    if not hasattr(found.memory, "scratch"):
        found.memory.scratch = Scratch(found.most), Scratch(found.most)
    item, marks = found.folder.items[number], list[Mark]()
    checks = Checks(work.algorithm, (item.file,), lambda _, made: marks.extend(made))
    write_items(found.files, [item], found.memory.scratch, checks, None)
    return number, marks


def _put(work: Work, found: _Plan) -> None:
    """Keep a plan as the latest; the lock is held."""
    _plans.pop(work, None)
    _plans[work] = found
    while len(_plans) > RECENT:
        del _plans[next(iter(_plans))]


def _plan(work: Work) -> _Plan:
    if work.threads:
        limit(work.threads)
    conversion = work.job.plan()
    folder = conversion.folder(work.job.destination, work.settings)
    for name, hashed in work.facts:
        if folder.facts.get(name) != hashed:
            reason = f"a worker on {gethostname()} finds another {name}"
            raise FileFormatError(work.job.source, None, reason)
    return _Plan(folder, OpenFiles(destination(folder.path)), conversion.most, local())
