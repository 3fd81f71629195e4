"""The work of a conversion of a folder, cut into items that any process can do by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd, lcm, prod
from typing import NamedTuple

import numpy as np

from ..dtypes.table import dtype
from ..files.checksums import Digest, digest
from ..files.pieces import Scratch
from ..files.stored import Stored
from ..files.writing import New, Progress, Writer, written
from .changes import Change
from .sources import Made

__all__ = ["ITEM", "Cutting", "File", "Item", "Mark", "Span", "items_of", "part_of", "write_item"]

ITEM = 1 << 26  # bytes of an item that is not told another size

Mark = tuple[str, int, int, str]  # of a span: its tensor, where it begins and ends, its checksum


class File(NamedTuple):
    """A file of the destination: its header, the tensors in it, and where they begin."""

    name: str
    header: bytes
    changes: tuple[Change, ...]
    starts: dict[str, int]
    size: int


class Span(NamedTuple):
    """Bytes of a file from byte `at` on: the header, a tensor, or some `rows` of one."""

    at: int
    nbytes: int
    content: Change | bytes
    rows: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The tensor; empty for a header."""
        return "" if isinstance(self.content, bytes) else self.content.name

    def new(self, memory: tuple[Scratch, Scratch]) -> New:
        """What is written."""
        if isinstance(self.content, bytes):
            header = np.frombuffer(self.content, np.uint8)
            return New("", dtype("uint8"), header.shape, lambda: [header])
        change = self.content if self.rows is None else self.content.rows(*self.rows)
        return New(
            change.name, change.dtype, change.shape, partial(change.pieces, *memory), change.extent
        )


class Item(NamedTuple):
    """A piece of work: spans of one file, which is `size` bytes long."""

    number: int
    file: str
    size: int
    spans: tuple[Span, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that are written."""
        return sum(span.nbytes for span in self.spans)


@dataclass(frozen=True)
class Cutting:
    """How work is cut: about `size` bytes per item, files as a `whole`, or tensors by `rows`.

    A whole file is written from begin to end.
    """

    size: int = ITEM
    whole: bool = False
    rows: bool = True


def items_of(files: Sequence[File], cutting: Cutting) -> list[Item]:
    """The items, in the order of the files and of their tensors; each has a tensor.

    Tensors that share what is computed for them stay in one item, so that nothing is computed
    twice, and a tensor is cut only where some of its rows take but a part of the source.
    """
    found = list[Item]()
    for file in files:
        for spans in _cut(file, cutting):
            found.append(Item(len(found), file.name, file.size, tuple(spans)))
    return found


def _cut(file: File, cutting: Cutting) -> Iterator[list[Span]]:
    """The spans of each item of a file; the first one has the header."""
    spans, size = [Span(0, len(file.header), file.header)], 0
    for group in _together(file, cutting):
        count = sum(span.nbytes for span in group)
        if size and count and not cutting.whole and size + count > cutting.size:
            yield spans
            spans, size = [], 0
        spans += group
        size += count
    yield sorted(spans, key=lambda span: span.at) if cutting.whole else spans


def _together(file: File, cutting: Cutting) -> Iterator[list[Span]]:
    """Spans that belong in one item, in their order."""
    group, known = list[Span](), set[int]()
    for change in file.changes:
        own = set(map(id, change.source.shared))
        if group and not own & known:
            yield from _rows(group, cutting)
            group, known = [], set()
        group.append(Span(file.starts[change.name], change.nbytes, change))
        known |= own
    yield from _rows(group, cutting)


def _rows(group: list[Span], cutting: Cutting) -> Iterator[list[Span]]:
    """A large tensor that is alone as some rows at a time, if it can be cut."""
    (span, *others) = group or [Span(0, 0, b"")]
    cuts = cutting.rows and not cutting.whole and not others and span.nbytes > cutting.size
    step = _step(span.content, cutting.size) if cuts and isinstance(span.content, Change) else 0
    if not step or not isinstance(span.content, Change):
        yield group
        return
    change = span.content
    row = prod(change.shape[1:]) * change.dtype.bits
    for begin in range(0, change.shape[0], step):
        end = min(begin + step, change.shape[0])
        at, count = begin * row // 8, (end * row + 7) // 8 - begin * row // 8
        yield [Span(span.at + at, count, change, (begin, end))]


def _step(change: Change, size: int) -> int:
    """The rows of a tensor that an item should have; 0 where they need more than their share."""
    stages, count = change.stages, change.shape[0] if change.shape else 0
    row = prod(change.shape[1:])
    if count < 2 or len(stages) > 1 or not row:
        return 0
    unit, source = 8 // gcd(row * change.dtype.bits, 8), change.source
    if isinstance(source, Stored) and source.file.sequential:
        return 0
    least = 0  # elements of the source that are computed at a time
    if isinstance(source, Made):
        least = source.unit * prod(source.shape[1:])
        unit = lcm(unit, lcm(least, row) // row)
    step = size * 8 // (row * change.dtype.bits * unit) * unit or unit
    if step >= count:
        return 0
    if isinstance(source, Made):
        first, *more = change.rows(0, step).stages
        low, high = first.span
        if more or high - low > 2 * source.dtype.bits * (step * row + least):
            return 0
    return step


def part_of(items: Sequence[Item], part: tuple[int, int]) -> list[Item]:
    """The items of part i of n: those whose middle is in the i-th n-th of all bytes."""
    number, count = part
    total, at, found = sum(item.nbytes for item in items), 0, []
    for item in items:
        share = (2 * at + item.nbytes) * count // (2 * max(1, total))
        if min(share, count - 1) == number - 1:
            found.append(item)
        at += item.nbytes
    return found


def write_item(
    item: Item,
    path: str,
    writer: Writer,
    memory: tuple[Scratch, Scratch],
    algorithm: str | None,
    progress: Progress | None,
) -> list[tuple[Span, Digest]]:
    """Convert and write an item; with an algorithm the checksums, as soon as all is written.

    `path` is the destination, as errors call it.
    """
    made = []
    for span in item.spans:
        check = None if algorithm is None else digest(algorithm)
        for count in written(path, span.new(memory), writer, span.at, check):
            if progress is not None and span.name:
                progress(count)
        if check is not None:
            made.append((span, check))
    return made
