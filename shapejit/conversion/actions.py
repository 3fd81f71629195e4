"""What rules about names and several tensors do: select, rename, split, concat and others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd, prod
from operator import getitem

from ..arrays.tensor import Bytes, Tensor
from ..errors import FormatError, ReshapeError, quoted, shape_text
from ..files.pieces import PIECE_BYTES
from ..files.planned import Computed
from ..operations import joining
from ..shapes.layout import normal_axes
from .changes import Change
from .tensors import Rule, Tensors


def select(r: Rule, tensors: Tensors) -> None:
    """Drop all tensors that do not match."""
    tensors.changes = {name: tensors.changes[name] for name, _ in tensors.matching(r)}


def exclude(r: Rule, tensors: Tensors) -> None:
    """Drop the tensors that match."""
    for name, _ in tensors.matching(r):
        del tensors.changes[name]


def keep(r: Rule, tensors: Tensors) -> None:
    """Copy the tensors that match, even if they look quantised."""
    for name, _ in tensors.matching(r):
        with tensors.named(name, r):
            stored = tensors.changes[name].stored
            if stored is None:
                raise FormatError("an earlier rule changed it")
            tensors.kept.add(stored.name)


def rename(r: Rule, tensors: Tensors) -> None:
    """Rename tensors."""
    (template,) = r.values
    tensors.rewrite(r, lambda change, found: [replace(change, name=_named(found, template))])


def split(r: Rule, tensors: Tensors) -> None:
    """Split tensors along a dim."""
    axis, names = r.values

    def parts(change: Change, found: re.Match[str]) -> list[Change]:
        (at,) = normal_axes((axis,), len(change.shape), "split")
        ends = _ends(change.shape[at], [size for _, size in names])
        return [
            replace(change.cut(begin, end, at), name=_named(found, template))
            for (template, _), begin, end in zip(names, [0, *ends], ends, strict=False)
        ]

    tensors.rewrite(r, parts)


def _ends(size: int, wanted: Sequence[int | None]) -> list[int]:
    """The ends of the parts of a dim. Raises ReshapeError unless they cover it."""
    count = len(wanted)
    sizes = [size // count if n is None else n for n in wanted]
    if None in wanted and size % count:
        raise ReshapeError(f"a dim of {size} cannot be split into {count} equal parts")
    if sum(sizes) != size or min(sizes) < 0:
        raise ReshapeError(f"a dim of {size} cannot be split into {count} parts of {sizes}")
    return [sum(sizes[: k + 1]) for k in range(count)]


def join(r: Rule, tensors: Tensors, interleaved: bool = False) -> None:
    """Concatenate tensors along a dim, or interleave them."""
    axis, others, whole = r.values
    made: dict[str, list[Change]] = {}
    for name, found in tensors.matching(r):
        with tensors.named(name, r):
            names = [name, *(_named(found, other) for other in others)]
            for other in names:
                if other not in tensors.changes or other in made or names.count(other) > 1:
                    raise ReshapeError(f"there is no tensor {quoted(other)} for it")
            (at,) = normal_axes((axis,), len(tensors.changes[name].shape), r.option)
            change = _together(tensors, names, _named(found, whole), at + interleaved, interleaved)
            made |= {other: [] for other in names}
            made[name] = [change.then(_merged, at) if interleaved else change]
    tensors.replace(r, made)


def stack(r: Rule, tensors: Tensors) -> None:
    """Stack tensors whose names differ in a number, along a new dim 0."""
    groups: dict[str, dict[int, str]] = {}
    for name, found in tensors.matching(r):
        groups.setdefault(found[1] + found[3], {})[int(found[2])] = name
    made: dict[str, list[Change]] = {}
    for whole, numbered in groups.items():
        with tensors.named(whole, r):
            missing = set(range(len(numbered))) - numbered.keys()
            if missing:
                raise ReshapeError(f"number {min(missing)} of {len(numbered)} tensors is missing")
            made |= {name: [] for name in numbered.values()}
            names = [numbered[k] for k in range(len(numbered))]
            made[next(iter(numbered.values()))] = [_together(tensors, names, whole, 0, True)]
    tensors.replace(r, made)


def _together(tensors: Tensors, names: Sequence[str], whole: str, axis: int, new: bool) -> Change:
    """Tensors joined along an existing or a `new` dim.

    Raises ReshapeError if dtypes, or shapes along other dims, differ.
    """
    parts = [tensors.changes[name] for name in names]
    for other in parts[1:]:
        if other.dtype is not parts[0].dtype:
            raise ReshapeError(f"{quoted(other.name)} is {other.dtype}, not {parts[0].dtype}")
        shapes = [list(part.shape) for part in (other, parts[0])]
        if not new and len(shapes[0]) == len(shapes[1]):
            shapes[0][axis] = shapes[1][axis]
        if shapes[0] != shapes[1]:
            shape, first = map(shape_text, (other.shape, parts[0].shape))
            raise ReshapeError(f"{quoted(other.name)} has shape {shape}, not {first}")
    if new:
        parts = [part.then(_expanded, axis) for part in parts]
    return Change.of(whole, Joined.of(parts, axis))


def unstack(r: Rule, tensors: Tensors) -> None:
    """Replace tensors by one for each index of dim 0."""

    def rows(change: Change, found: re.Match[str]) -> list[Change]:
        if not change.shape:
            raise ReshapeError("it has no dims")
        return [
            replace(change.then(getitem, k), name=f"{found[1]}.{k}{found[2]}")
            for k in range(change.shape[0])
        ]

    tensors.rewrite(r, rows)


def _expanded(t: Tensor, axis: int) -> Tensor:
    """A tensor with a new dim of size 1."""
    return t.reshape((*t.shape[:axis], 1, *t.shape[axis:]))


def _merged(t: Tensor, axis: int) -> Tensor:
    """A tensor with a dim merged with the next one."""
    return t.reshape((*t.shape[:axis], t.shape[axis] * t.shape[axis + 1], *t.shape[axis + 2 :]))


def _named(found: re.Match[str], template: str) -> str:
    """A template of a name with the groups of a match inserted."""
    try:
        return found.expand(template)
    except (re.error, IndexError) as fault:
        raise ReshapeError(f"{quoted(template)} is not a name: {fault}") from None


@dataclass(frozen=True, eq=False)
class Joined(Computed):
    """Tensors concatenated along `axis`."""

    parts: Sequence[Change]
    axis: int

    @staticmethod
    def of(parts: Sequence[Change], axis: int) -> Joined:
        """Tensors that differ only in the size of this dim."""
        first, shape = parts[0], list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return Joined(first.dtype, tuple(shape), parts, axis)

    @property
    def made_of(self) -> Sequence[Change]:
        """Its parts."""
        return self.parts

    @property
    def unit(self) -> int:
        """The rows of whole bytes."""
        return 8 // gcd(prod(self.shape[1:]) * self.dtype.bits, 8)

    @property
    def one_by_one(self) -> bool:
        """Whether its bytes are those of its parts in sequence, and no part is small."""
        whole = all(part.size * part.dtype.bits % 8 == 0 for part in self.parts)
        return not self.axis and whole and self.nbytes >= len(self.parts) * PIECE_BYTES // 8

    @property
    def peak_bytes(self) -> int:
        """The memory of a part, or of rows of all parts."""
        if self.one_by_one:
            return max(part.peak_bytes for part in self.parts)
        return super().peak_bytes

    def pieces(self) -> Iterator[Bytes]:
        """The packed elements; parts longer than a piece are never in memory as a whole."""
        if not self.one_by_one:
            return super().pieces()
        return chain.from_iterable(part.pieces() for part in self.parts)

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows; those of one part are not copied."""
        rows, at = list[Tensor](), 0
        for part in self.parts:
            first, last = (begin, end) if self.axis else (begin - at, end - at)
            first, last = max(first, 0), min(last, part.count)
            if first < last:
                rows.append(part.rows(first, last))
            elif begin == end:
                rows.append(part.rows(0, 0))
            at += part.count
        made: Tensor = joining.concat(rows, axis=self.axis) if len(rows) > 1 else rows[0]
        return made
