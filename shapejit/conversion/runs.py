"""The ways to write a folder: as a whole, in this process or by workers; a part; the commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from ..errors import FileFormatError, FormatError
from ..files.checksums import Digest
from ..files.pieces import MOST, Scratch
from ..files.writing import Progress
from .destinations import Destination, destination
from .folders import Folder
from .items import Item, Mark, Span, part_of, write_item
from .open_files import OpenFiles
from .receipts import Part, Receipts
from .shards import MAX_SHARD

__all__ = ["Add", "Checks", "Settings", "Submit", "write_folder", "write_items"]

Add = Callable[[int, Sequence[Mark]], None]  # called with the number of an item and its marks
Submit = Callable[[Sequence[Item], Add], None]  # has items written by others


class Checks(NamedTuple):
    """Of which files the items are to have checksums, by which algorithm, and who gets them."""

    algorithm: str
    files: Collection[str]
    add: Add


@dataclass(frozen=True)
class Settings:
    """How a folder is written: at most `max_shard` bytes of tensors per file.

    `resume` continues an interrupted conversion from its finished items, and keeps
    those of this one if it is stopped by an error. `part` i of n writes its share of the items
    and leaves a receipt, `commit` n checks those of n parts and publishes the folder. With
    `item` the work is cut into items of about so many bytes, which `submit` has written.
    Raises FormatError for numbers of parts that cannot be.
    """

    max_shard: int = MAX_SHARD
    resume: bool = False
    part: Part | None = None
    commit: int | None = None
    item: int | None = None
    submit: Submit | None = None

    def __post_init__(self) -> None:
        numbers = self.part if self.part is not None else (1, 1)
        good = isinstance(numbers, tuple) and [*map(type, numbers)] == [int, int]
        if not good or not 0 < numbers[0] <= numbers[1]:
            reason = "is not I/N with I from 1 to N (a pair of integers in Python)"
            raise FormatError(f"part {_slashed(numbers)} {reason}")
        if self.commit is not None and (type(self.commit) is not int or self.commit < 1):
            raise FormatError(f"commit {self.commit!r} is not a number of parts from 1 on")
        if self.part is not None and self.commit is not None:
            raise FormatError("a call either writes a part or commits: not both")

    @property
    def shared(self) -> bool:
        """Whether several processes have a share of the work."""
        ways = self.part, self.commit, self.item, self.submit
        return any(way is not None for way in ways)


def _slashed(numbers: object) -> str:
    """A part as it is written on the command line; what is no pair as Python has it."""
    if isinstance(numbers, tuple) and len(numbers) == 2:
        return f"{numbers[0]!r}/{numbers[1]!r}"
    return repr(numbers)


def write_folder(
    folder: Folder, settings: Settings, progress: Progress | None, most: int = MOST
) -> list[Item]:
    """Write a folder, or a part of it, or publish what parts have written; return its items.

    `most` are the bytes of a tensor that should be in memory at a time. Killed at any moment,
    the destination is the old folder or the new one.
    """
    where = destination(folder.path)
    if settings.commit is not None:
        _commit(folder, where, settings.commit)
    elif settings.part is not None:
        return _part(folder, where, settings, settings.part, progress, most)
    else:
        _whole(folder, where, settings, progress, most)
    return folder.items


def _whole(
    folder: Folder, where: Destination, settings: Settings, progress: Progress | None, most: int
) -> None:
    others = () if settings.submit is None else [file.name for file in folder.files]
    with where.taken(True, settings.resume, folder.nbytes, others):
        files, memory = OpenFiles(where), (Scratch(most), Scratch(most))
        receipts, done = Receipts(where, folder.facts), set[int]()
        if settings.resume:
            receipts.check("it cannot be resumed (without --resume it is removed)")
            done = receipts.resumed(folder.items)
        _tidy(where, {*receipts.names(), *(file.name for file in folder.files)} if done else ())
        left = _left(folder.items, done, progress)
        try:
            if settings.submit is not None:
                settings.submit(left, _told(receipts.add, folder.items, progress))
            else:
                # After the last file little is left to resume.
                last = None if settings.resume else folder.files[-1].name
                wanted = {file.name for file in folder.files} - {last}
                checks = Checks(receipts.algorithm, wanted, receipts.add)
                write_items(files, left, memory, checks, progress)
        finally:
            if settings.resume:
                receipts.close()
        _publish(folder, where, receipts)


def _part(
    folder: Folder,
    where: Destination,
    settings: Settings,
    part: Part,
    progress: Progress | None,
    most: int,
) -> list[Item]:
    items = part_of(folder.items, part)
    with where.taken(alone=False, keep=True, needed=sum(item.nbytes for item in items)):
        receipts = Receipts(where, folder.facts, part)
        receipts.check(f"if that is to be done anew, remove {where.hidden}")
        done = receipts.resumed(items) if settings.resume else set()
        names = {item.file for item in items}
        checks, left = Checks(receipts.algorithm, names, receipts.add), _left(items, done, progress)
        write_items(OpenFiles(where), left, (Scratch(most), Scratch(most)), checks, progress)
        for name in sorted(names):
            where.sync(name)
        receipts.close()
    return items


def _commit(folder: Folder, where: Destination, count: int) -> None:
    reason = "no part has left a receipt, or all were committed before"
    if not where.names():  # nor is there a folder for them, which would be left behind
        raise FileFormatError(where.path, None, reason)
    with where.taken(alone=True, keep=True, needed=0):
        receipts = Receipts(where, folder.facts)
        if not receipts.names():
            raise FileFormatError(where.path, None, reason)
        receipts.check("nothing is published")
        shares = [part_of(folder.items, (k, count)) for k in range(1, count + 1)]
        receipts.missing(folder.items, shares)
        _publish(folder, where, receipts)


def _publish(folder: Folder, where: Destination, receipts: Receipts) -> None:
    """Write what is left beside the tensors, the index and the config last."""
    names = receipts.names()
    _tidy(where, {*names, *(file.name for file in folder.files)})
    for name, found in folder.copied.items():
        where.copy(found, name)
    for name, text in folder.texts.items():
        where.put(name, text)
    where.publish(folder.index, folder.gone, names)


def _tidy(where: Destination, keep: Collection[str]) -> None:
    """Remove what others have left."""
    for name in where.names():
        if name not in keep:
            where.remove(name)


def _left(items: Iterable[Item], done: set[int], progress: Progress | None) -> list[Item]:
    """The items that are not done; progress is told of those that are."""
    made = list[Item]()
    for item in items:
        if item.number not in done:
            made.append(item)
        elif progress is not None:
            progress(_data(item))
    return made


def _data(item: Item) -> int:
    """Bytes of tensors."""
    return sum(span.nbytes for span in item.spans if span.name)


def _told(add: Add, items: Sequence[Item], progress: Progress | None) -> Add:
    """Tells progress of the items that workers have done."""

    def done(number: int, marks: Sequence[Mark]) -> None:
        add(number, marks)
        if progress is not None:
            progress(_data(items[number]))

    return done


def write_items(
    files: OpenFiles,
    items: Iterable[Item],
    memory: tuple[Scratch, Scratch],
    checks: Checks,
    progress: Progress | None,
) -> None:
    """Convert and write items, one after the other."""
    for (name, size), group in groupby(items, lambda item: (item.file, item.size)):
        algorithm = checks.algorithm if name in checks.files else None
        with files.writer(name, size) as writer:
            for item in group:
                found = write_item(item, files.where.path, writer, memory, algorithm, progress)
                if algorithm is not None:
                    writer.then(partial(_add, checks, item.number, found))


def _add(checks: Checks, number: int, found: Sequence[tuple[Span, Digest]]) -> None:
    checks.add(number, [(s.name, s.at, s.at + s.nbytes, d.hexdigest()) for s, d in found])
