"""What rules do to several tensors at once: names, parts, and wholes of parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..errors import FormatError, ReshapeError, quoted, shape_text
from ..shapes.layout import normal_axes
from .changes import Change
from .joins import Joined
from .tensors import Rule, Tensors

__all__ = [
    "exclude", "interleave", "join", "keep", "rename", "select", "split", "stack", "unstack",
]  # fmt: skip


def select(r: Rule, tensors: Tensors) -> None:
    """Leave out all tensors but those that match."""
    tensors.changes = {name: tensors.changes[name] for name, _ in tensors.matching(r)}


def exclude(r: Rule, tensors: Tensors) -> None:
    """Leave out the tensors that match."""
    for name, _ in tensors.matching(r):
        del tensors.changes[name]


def keep(r: Rule, tensors: Tensors) -> None:
    """Leave the tensors that match as they are, whatever they look like."""
    for name, _ in tensors.matching(r):
        with tensors.named(name, r):
            stored = tensors.changes[name].stored
            if stored is None:
                raise FormatError("it was changed by a rule before this one")
            tensors.kept.add(stored.name)


def rename(r: Rule, tensors: Tensors) -> None:
    """Other names."""
    made = {}
    for name, found in tensors.matching(r):
        with tensors.named(name, r):
            change = tensors.changes[name]
            made[name] = [replace(change, name=_named(found, r.values[0]), rules=change.rules + 1)]
    tensors.replace(r, made)


def split(r: Rule, tensors: Tensors) -> None:
    """Parts along a dim."""
    axis, names = r.values
    made = {}
    for name, found in tensors.matching(r):
        with tensors.named(name, r):
            change = tensors.changes[name]
            (at,) = normal_axes((axis,), len(change.shape), "split")
            ends = _ends(change.shape[at], [size for _, size in names])
            made[name] = [
                replace(change.then(_cut(at, begin, end)), name=_named(found, template))
                for (template, _), begin, end in zip(names, [0, *ends], ends, strict=False)
            ]
    tensors.replace(r, made)


def _ends(size: int, wanted: Sequence[int | None]) -> list[int]:
    """Where the parts of a dim end; ReshapeError unless they are the whole."""
    count = len(wanted)
    sizes = [size // count if n is None else n for n in wanted]
    if sum(sizes) != size or min(sizes) < 0:
        raise ReshapeError(f"a dim of {size} cannot be split into {count} parts of {sizes}")
    return [sum(sizes[: k + 1]) for k in range(count)]


def join(r: Rule, tensors: Tensors) -> None:
    """Tensors one after the other."""
    _together(r, tensors, lambda axis, parts: Joined(*_alike(parts, axis), parts, axis))


def interleave(r: Rule, tensors: Tensors) -> None:
    """Tensors whose indices along a dim take turns."""

    def made(axis: int, parts: list[Change]) -> Joined:
        _alike(parts, None)
        apart = [part.then(_expanded(axis + 1)) for part in parts]
        return Joined(*_alike(apart, axis + 1), apart, axis + 1)

    _together(r, tensors, made)


def _together(r: Rule, tensors: Tensors, joined: Callable[[int, list[Change]], Joined]) -> None:
    """Put the whole in the place of the first of its parts, which the others lose."""
    axis, others, whole = r.values
    made: dict[str, list[Change]] = {}
    for name, found in tensors.matching(r):
        with tensors.named(name, r):
            names = [name, *(_named(found, other) for other in others)]
            for other in names:
                if other not in tensors.changes or other in made or names.count(other) > 1:
                    raise ReshapeError(f"there is no tensor {quoted(other)} for it")
            parts = [tensors.changes[other] for other in names]
            (at,) = normal_axes((axis,), len(parts[0].shape), r.option)
            source, rules = joined(at, parts), 1 + max(part.rules for part in parts)
            change = Change.of(_named(found, whole), source, tensors.saturate, rules)
            if len(change.shape) > len(parts[0].shape):
                change = change.then(_merged(at))
            made |= {other: [] for other in names}
            made[name] = [change]
    tensors.replace(r, made)


def stack(r: Rule, tensors: Tensors) -> None:
    """Tensors whose names differ in a number, along a new dim 0."""
    groups: dict[str, dict[int, str]] = {}
    for name, found in tensors.matching(r):
        groups.setdefault(found[1] + found[3], {})[int(found[2])] = name
    made: dict[str, list[Change]] = {}
    for whole, numbered in groups.items():
        with tensors.named(whole, r):
            missing = set(range(len(numbered))) - numbered.keys()
            if missing:
                raise ReshapeError(f"of {len(numbered)} tensors number {min(missing)} is missing")
            parts = [tensors.changes[numbered[k]] for k in range(len(numbered))]
            apart = [part.then(_expanded(0)) for part in parts]
            source = Joined(*_alike(apart, 0), apart, 0)
            made |= {name: [] for name in numbered.values()}
            rules = 1 + max(part.rules for part in parts)
            made[next(iter(numbered.values()))] = [
                Change.of(whole, source, tensors.saturate, rules)
            ]
    tensors.replace(r, made)


def unstack(r: Rule, tensors: Tensors) -> None:
    """One tensor for each index of dim 0."""
    made = {}
    for name, found in tensors.matching(r):
        with tensors.named(name, r):
            change = tensors.changes[name]
            if not change.shape:
                raise ReshapeError("it has no dims")
            made[name] = [
                replace(change.then(_picked(k)), name=f"{found[1]}.{k}{found[2]}")
                for k in range(change.shape[0])
            ]
    tensors.replace(r, made)


@cache
def _expanded(axis: int) -> Callable[[Tensor], Tensor]:
    """A new dim of size 1."""
    return lambda t: t.reshape((*t.shape[:axis], 1, *t.shape[axis:]))


@cache
def _merged(axis: int) -> Callable[[Tensor], Tensor]:
    """A dim and the one behind it as one."""
    return lambda t: t.reshape(
        (*t.shape[:axis], t.shape[axis] * t.shape[axis + 1], *t.shape[axis + 2 :])
    )


@cache
def _picked(index: int) -> Callable[[Tensor], Tensor]:
    """One index of dim 0."""
    return lambda t: t[index]


@lru_cache(maxsize=1024)
def _cut(axis: int, begin: int, end: int) -> Callable[[Tensor], Tensor]:
    """Some indices of a dim."""
    return lambda t: t[(*(slice(None),) * axis, slice(begin, end))]


def _named(found: re.Match[str], template: str) -> str:
    """A name with the groups of a match."""
    try:
        return found.expand(template)
    except (re.error, IndexError) as fault:
        raise ReshapeError(f"{quoted(template)} is not a name: {fault}") from None


def _alike(parts: Sequence[Change], axis: int | None) -> tuple[DType, tuple[int, ...]]:
    """The dtype and the shape of a whole; ReshapeError for parts that differ beside `axis`."""
    first = parts[0]
    for other in parts[1:]:
        if other.dtype is not first.dtype:
            raise ReshapeError(f"{quoted(other.name)} is {other.dtype}, not {first.dtype}")
        for k, sizes in enumerate(zip(first.shape, other.shape, strict=False)):
            if len(first.shape) != len(other.shape) or (k != axis and len(set(sizes)) > 1):
                raise ReshapeError(
                    f"{quoted(other.name)} has shape {shape_text(other.shape)}, not "
                    f"{shape_text(first.shape)}"
                )
    shape = list(first.shape)
    if axis is not None:
        shape[axis] = sum(part.shape[axis] for part in parts)
    return first.dtype, tuple(shape)
