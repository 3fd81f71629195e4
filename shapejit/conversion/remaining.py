"""Checks of a destination: no part of a weight is lost, and what is left can still be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from ..errors import FormatError, quoted
from ..files.planned import Planned
from ..files.stored import Stored
from ..quantization.account import Held, unaccounted
from ..quantization.configuration import declared
from ..quantization.detection import detected
from ..quantization.naming import parted
from ..quantization.parts import Found
from ..quantization.rows import BY_NAME, ROWS
from ..shapes.layout import Layout
from .actions import Joined
from .changes import Change
from .tensors import Tensors
from .weights import PartOf, stored


def leaves(x: Planned) -> Iterator[Planned]:
    """The tensors that a tensor consists of: stored, decoded or encoded ones."""
    if not x.made_of:
        yield x
    for part in x.made_of:
        yield from leaves(part)


def uses(tensors: Tensors) -> dict[str, list[Change]]:
    """The tensors of the destination that contain each stored one, except as a decoded weight."""
    made = dict[str, list[Change]]()
    for change in tensors.changes.values():
        for leaf in leaves(change):
            if isinstance(leaf, Stored):
                made.setdefault(leaf.name, []).append(change)
    return made


def encoded(tensors: Tensors) -> list[PartOf]:
    """The parts of weights that are stored in a scheme now, as quantised or converted by rules."""
    found = (leaf for change in tensors.changes.values() for leaf in leaves(change))
    return [leaf for leaf in found if isinstance(leaf, PartOf)]


def staying(tensors: Tensors) -> list[Found]:
    """The weights that stay quantised, moved or not."""
    used = uses(tensors)
    return [weight for weight in tensors.detected if weight.codes in used]


def still_quantised(tensors: Tensors) -> Iterator[str]:
    """Warnings for quantised weights that `--dtype` does not cast."""
    for r in (r for r in tensors.rules if r.option == "dtype"):
        names = [w.codes for w in staying(tensors) if w.codes not in tensors.kept]
        if found := [name for name in names if r.pattern.fullmatch(name)]:
            yield (
                f"{tensors.path}: {r} casts no quantised weights: {len(found)} stay as they are, "
                f"such as {quoted(found[0])} (--to {r.values[0]} decodes them)"
            )


def check(tensors: Tensors) -> None:
    """Raise FormatError for tensors that depend on weights that were decoded.

    These are tensors that belong to such a weight, but are none of its parts; and, once no config
    describes quantised weights, all tensors that look like codes.
    """
    if not tensors.became:
        return
    kept = staying(tensors)
    own = {name for weight in kept for name in weight.named.values()} | tensors.kept
    described = tensors.config.declared.tells
    held = {
        name: Held(change.dtype, prod(change.shape))
        for name, found in uses(tensors).items()
        for change in found
        if name not in own and not _is_meant(change, described)
    }
    missing = unaccounted(tensors.became, held, described=bool(kept))
    if not kept:
        for unclear in tensors.detected.unclear:
            missing |= {name: unclear.reason for name in unclear.names if name in held}
    for name, reason in missing.items():
        raise FormatError(
            f"{tensors.path}: tensor {quoted(name)} would be copied: {reason} "
            f"(--exclude drops it, --keep copies it anyway)"
        )


def _is_meant(change: Change, described: bool) -> bool:
    """Whether rules change the elements on purpose: casts, permuted integers.

    If quantised weights are still `described` by a config, permuted integers may be codes.
    """
    moved = not described and change.dtype.kind == "integer" and bool(change.ops)
    return moved or bool(change.casts)


def check_parts(tensors: Tensors, config: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Raise FormatError for rules that change a part of a quantised weight, not all of it alike.

    All parts of a weight may be renamed and dropped, and stacked, joined, split and selected by
    whole experts, if they can be read then: `results` are the tensors of the destination, `config`
    is its description of them.
    """
    changes = tensors.changes.values()
    if len(changes) == len(tensors.checkpoint.members) and all(change.same for change in changes):
        return
    if _CODES.isdisjoint(stored.dtype.name for change in changes for stored in change.reads):
        return
    used, now = uses(tensors), tensors.unchanged
    nodes = {node.codes for node in tensors.checkpoint.weight_nodes}
    owners = {(key, x.name): w.codes for w in tensors.detected for key, x in _needed(w).items()}
    moved, names = dict[str, str](), set[str]()
    for weight in tensors.detected:
        needed, own = _needed(weight), weight.group.form.codes.part
        for change in used.get(weight.codes, ()) if weight.codes not in tensors.kept else ():
            made = _beside(change, weight, tensors.changes)
            if weight.codes in nodes:  # they name their tensors
                made = {k: now[part.name] for k, part in needed.items() if part.name in now}
            if missing := [part.name for key, part in needed.items() if key not in made]:
                why = f"{quoted(missing[0])} is not beside them"
                raise _unreadable(tensors, change.name, weight.scheme, why)
            changed = [x.name for k, x in made.items() if not _is_copy(x, needed[k])]
            if not changed:
                continue
            alike = {_experts(made[k], k, x, weight.group.batch, owners) for k, x in needed.items()}
            if needed.keys() > {own} and (len(alike) > 1 or None in alike):
                raise _unreadable(
                    tensors, change.name, weight.scheme, f"a rule changes {quoted(changed[0])}"
                )
            moved[change.name] = weight.scheme
            names |= {change.name for change in made.values()}
    found = detected({name: results[name] for name in names}, declared(config)) if moved else ()
    for name in moved.keys() - {weight.codes for weight in found}:
        raise _unreadable(tensors, name, moved[name], "no scheme has codes of this shape and name")


def _unreadable(tensors: Tensors, name: str, scheme: str, why: str) -> FormatError:
    return FormatError(
        f"{tensors.path}: tensor {quoted(name)} would hold codes of {scheme} that cannot be read "
        f"any more, since {why}: decode the weight first (--to bf16), store it in another scheme "
        f"(--to gptq, say), or move its parts alike by whole experts; --keep before that rule "
        f"allows it"
    )


_CODES = {kind for row in ROWS for form in row.forms for kind in form.part(form.codes.part).kinds}


def _needed(weight: Found) -> dict[str, Stored]:
    """The stored parts without which the codes mean nothing, or something else, by their keys."""
    parts = ((weight.group.form.part(key), found) for key, found in stored(weight).items())
    # Scales of inputs may go.
    return {part.key: found for part, found in parts if not part.optional or part.dims != "?"}


def _beside(codes: Change, weight: Found, changes: Mapping[str, Change]) -> dict[str, Change]:
    """The tensors that have the names of a weight's parts beside these codes, by their keys."""
    old = "".join(parted(BY_NAME[weight.scheme], weight.codes)[:2])
    end = weight.codes.removeprefix(old)
    if not codes.name.endswith(end):
        return {}
    new = codes.name.removesuffix(end)
    names = {key: new + part.name.removeprefix(old) for key, part in _needed(weight).items()}
    return {key: changes[name] for key, name in names.items() if name in changes}


def _is_copy(change: Change, part: Stored) -> bool:
    """Whether a tensor is a stored one, under whatever name."""
    return change.stored is not None and change.stored.name == part.name


def _experts(
    change: Change, key: str, part: Stored, batch: tuple[int, ...],
    owners: Mapping[tuple[str, str], str],
) -> tuple[object, ...] | None:  # fmt: skip
    """Which experts of which weights a tensor like a stored part has: equal for all their parts.

    None if other dims have changed, or elements are cast, computed or moved.
    """
    inner, outer = part.shape[len(batch) :], len(change.shape) - len(part.shape) + len(batch)
    if outer < 0 or (part.shape[: len(batch)], change.shape[outer:]) != (batch, inner):
        return None

    def owner(leaf: Planned) -> object:
        if isinstance(leaf, Stored) and leaf.layout.contiguous:
            return owners.get((key, leaf.name))
        return None

    found = in_runs(change, prod(inner), owner)
    return None if found is None else (change.shape[:outer], found)


def in_runs(x: Planned, size: int, of: Callable[[Planned], object]) -> object:
    """How a tensor consists of whole runs of `size` elements; None if runs are cut, cast or mixed.

    Equal for tensors of runs of different sizes that are moved alike. What leaves are, `of` says.
    """
    if isinstance(x, Joined):
        counts = [prod(part.shape[x.axis :]) for part in x.parts]
        found = [in_runs(part, size, of) for part in x.parts]
        whole = None not in found and not any(count % size for count in counts)
        return (*found, *(count // size for count in counts)) if whole else None
    if not isinstance(x, Change):
        return of(x)
    steps = [_runs(layout, size) for layout in x.stages]
    source = in_runs(x.source, size, of)
    return None if x.casts or source is None or None in steps else (source, *steps)


def _runs(layout: Layout, size: int) -> tuple[object, ...] | None:
    """Offset, sizes and strides of a layout in units of runs; None unless it consists of those."""
    if not size:
        return None
    unit, (*outer, (count, stride)) = size * layout.bits, layout.runs() or [(1, layout.bits)]
    if size > 1 and (stride != layout.bits or count % size):
        return None
    dims = [(n, distance) for n, distance in (*outer, (count // size, stride * size)) if n > 1]
    if any(distance % unit for distance in (layout.offset, *(d for _, d in dims))):
        return None
    return (layout.offset // unit, *((n, distance // unit) for n, distance in dims))
