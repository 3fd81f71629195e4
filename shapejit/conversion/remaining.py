"""What remains of a source in a destination, and whether that can still be read as it is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..dtypes.table import DType
from ..errors import FormatError, quoted
from ..files.stored import Stored
from ..quantization.account import Held, Quantised, unaccounted
from ..quantization.configuration import declared
from ..quantization.forms import Numbers
from .changes import Change
from .tensors import Tensors
from .weights import Weight

__all__ = ["Use", "check", "check_parts", "untouched", "uses"]


class Use(NamedTuple):
    """A tensor of a destination into which a stored one goes, and what is done to it."""

    change: Change
    ops: tuple[str, ...]


def uses(tensors: Tensors) -> dict[str, list[Use]]:
    """Where the stored tensors of the source go, but for parts of weights that are decoded."""
    made = dict[str, list[Use]]()
    for change in tensors.changes.values():
        for name, ops in _stored(change):
            made.setdefault(name, []).append(Use(change, ops))
    return made


def _stored(change: Change) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The stored tensors that a change still is, and what is done to each."""
    source, ops = change.source, tuple(name for name, _ in change.ops)
    if isinstance(source, Stored):
        yield source.name, ops
        return
    for part in source.made_of:
        yield from ((name, (*done, source.verb, *ops)) for name, done in _stored(part))


def untouched(tensors: Tensors) -> list[Weight]:
    """The quantised weights whose codes are as they were."""
    there = {c.stored.name for c in tensors.changes.values() if c.stored is not None}
    return [weight for weight in tensors.weights if weight.codes in there]


def check(tensors: Tensors) -> None:
    """FormatError, by its name, for what weights that are decoded leave behind.

    That is a tensor that belongs to such a weight, but is none of its parts; and, once no
    config tells of quantised weights, what looks like codes, whatever its name.
    """
    if not tensors.became:
        return
    kept = untouched(tensors)
    own = {name for weight in kept for name in weight.names} | tensors.kept
    told = tensors.config.declared.tells
    held = {
        name: Held(name, use.change.dtype, prod(use.change.shape))
        for name, found in uses(tensors).items()
        for use in found
        if name not in own and not _is_meant(use, told)
    }
    decoded = [Quantised(w.scheme, w.codes, frozenset(w.names)) for w in tensors.became]
    missing = unaccounted(decoded, held, told=bool(kept))
    if not kept:
        for unclear in tensors.detected.unclear:
            missing |= {name: unclear.reason for name in unclear.names if name in held}
    for name, reason in missing.items():
        raise FormatError(
            f"{tensors.path}: tensor {quoted(name)} would stay as it is: {reason} "
            f"(--exclude leaves it out, --keep says that it is right)"
        )


def _is_meant(use: Use, told: bool) -> bool:
    """Whether rules say what becomes of the elements: casts, repacked codes, integers that move.

    Where a config has `told` of quantised weights, these may be codes that move.
    """
    if "cast" in use.ops or "repack" in use.ops:
        return True
    return not told and use.change.dtype.kind == "integer" and bool(use.ops)


def check_parts(tensors: Tensors, config: Mapping[str, Any]) -> None:
    """FormatError for parts of weights that do not fit any more what a config goes on to tell.

    That are codes without their scales, parts that are cast, and some that are moved, or cut,
    while the others are not.
    """
    changed = any(change.ops or change.stored is None for change in tensors.changes.values())
    fewer = len(tensors.changes) < len(tensors.checkpoint.members)
    if not (changed or fewer) or not declared(config).tells:
        return
    used = uses(tensors)
    for weight, parts in _numbers(tensors, used):
        for part in parts.values():
            if part.name not in used:
                raise FormatError(
                    f"{tensors.path}: tensor {quoted(weight.codes)} is of no use without "
                    f"{quoted(part.name)}, which a rule leaves out"
                )
        _check_changed(tensors.path, weight, {n: used[x.name] for n, x in parts.items()})


def _check_changed(path: str, weight: Weight, used: Mapping[Numbers, Sequence[Use]]) -> None:
    """FormatError for parts of a weight that are cast, or moved, without the others."""
    if any("repack" in use.ops for found in used.values() for use in found):
        return
    moved = _moves(used[weight.group.form.codes])
    for numbers, found in used.items():
        part = weight.group.tensors[numbers.part]
        where = f"{path}: tensor {quoted(weight.found.named[numbers.part])}"
        for kind in (use.change.dtype for use in found if "cast" in use.ops):
            if kind is not part.dtype and not _may_be(kind, numbers, weight):
                raise FormatError(
                    f"{where}: as {kind} it would not stand for what {weight.scheme} stores in "
                    f"{part.dtype}: --to decodes weights"
                )
        alone = part.layout.size == 1 and not any("join" in ops for ops in moved)
        if _moves(found) != moved and not alone:
            raise FormatError(
                f"{where} and {quoted(weight.codes)} are parts of one weight "
                f"({weight.scheme}), of which rules move or cut one without the other"
            )


def _numbers(
    tensors: Tensors, used: Mapping[str, object]
) -> Iterator[tuple[Weight, dict[Numbers, Stored]]]:
    """The quantised weights whose codes stay, and their parts with numbers."""
    for weight in tensors.weights:
        form = weight.group.form
        numbers = (form.codes, *form.scales, *form.offset, *filter(None, (form.zeros,)))
        if weight.codes in used:
            yield weight, {n: weight.stored[n.part] for n in numbers if n.part in weight.stored}


def _moves(found: Sequence[Use]) -> list[tuple[str, ...]]:
    """What is done to a tensor, but for casts."""
    return sorted(tuple(op for op in use.ops if op != "cast") for use in found)


def _may_be(kind: DType, numbers: Numbers, weight: Weight) -> bool:
    """Whether a part may hold its numbers in another dtype: scales that are plain floats."""
    form = weight.group.form
    plain = numbers is not form.codes and not numbers.dtype and numbers.format is None
    return plain and kind.name in form.part(numbers.part).kinds
