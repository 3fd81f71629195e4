"""Checks of a destination: no part of a weight is lost, and its quantised weights can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

from ..errors import FormatError, quoted
from ..files.planned import Planned
from ..files.stored import Stored
from ..quantization.account import unaccounted
from ..quantization.configuration import declared
from ..quantization.detection import detected
from ..quantization.naming import names_from
from ..quantization.parts import Found
from ..quantization.rows import ROWS
from ..shapes.layout import Layout
from .actions import Joined
from .changes import Change
from .repacks import Repacked
from .tensors import Tensors
from .weights import PartOf


def uses(tensors: Tensors) -> dict[str, list[Change]]:
    """The tensors of the destination that contain each stored tensor, except in decoded form."""
    made = dict[str, list[Change]]()
    for change in tensors.changes.values():
        for leaf in change.leaves:
            if isinstance(leaf, Stored):
                made.setdefault(leaf.name, []).append(change)
    return made


def encoded(tensors: Tensors) -> list[PartOf]:
    """The parts of weights that are stored in a scheme after the rules."""
    found = (leaf for change in tensors.changes.values() for leaf in change.leaves)
    return [leaf for leaf in found if isinstance(leaf, PartOf)]


def staying(tensors: Tensors) -> list[Found]:
    """The weights that stay quantised, whether moved or not."""
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

    These are tensors that belong to such a weight without being its parts; and, if no config
    describes quantised weights any more, all tensors that look like codes.
    """
    if not tensors.became:
        return
    kept = staying(tensors)
    own = {name for weight in kept for name in weight.named.values()} | tensors.kept
    described = tensors.config.declared.tells
    held = {
        name: change
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
            f"{tensors.path_of(held[name].name)}: tensor {quoted(name)} would be copied: {reason} "
            f"(--exclude drops it, --keep copies it anyway)"
        )


def _is_meant(change: Change, described: bool) -> bool:
    """Whether rules change the elements on purpose: casts, repacked codes, permuted integers.

    If a config still describes quantised weights (`described`), permuted integers may be codes.
    """
    if change.casts or isinstance(change.source, Repacked):
        return True
    return not described and change.dtype.kind == "integer" and bool(change.ops)


def check_parts(tensors: Tensors, config: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Raise FormatError for rules that change only some parts of a quantised weight.

    All parts of a weight may be renamed and dropped; they may be stacked, joined, split and
    selected by whole experts, if the results can be read: `results` are the tensors of the
    destination, `config` is its description of them.
    """
    reads = (stored for change in tensors.changes.values() for stored in change.reads)
    if _whole_modules(tensors) or _QUANTIZED.isdisjoint(stored.dtype.name for stored in reads):
        return
    used, now = uses(tensors), tensors.unchanged
    nodes = {node.codes for node in tensors.checkpoint.weight_nodes}  # which name their tensors
    moved = [
        (weight, why)
        for weight in tensors.detected
        if weight.codes in used
        and weight.codes not in tensors.kept
        and (why := _moved(weight, now, weight.codes in nodes))
    ]
    names = {
        c.name for weight, _ in moved for name in weight.named.values() for c in used.get(name, ())
    }
    said = declared(config)
    made = detected({name: results[name] for name in names}, said) if names else ()
    owners = {pair: w.codes for w in tensors.detected for pair in _needed(w).items()}
    found = {weight.codes: (weight, _moved_apart(weight, tensors, owners)) for weight in made}
    for weight, how in moved:
        needed = _needed(weight)
        gone = [name for name in needed.values() if name not in used]
        for change in used[weight.codes]:
            there, apart = found.get(change.name, (None, ""))
            if gone:
                why = f"{quoted(gone[0])} is not beside them"
            elif (
                there is None or there.scheme != weight.scheme or needed.keys() - there.named.keys()
            ):
                why = how
            elif apart and len(needed) > 1:
                why = f"a rule changes {quoted(apart)}"
            else:
                continue
            raise FormatError(
                f"{tensors.path}: tensor {quoted(change.name)} would hold codes of {weight.scheme} "
                f"that cannot be read any more, since {why}: decode the weight first (--to bf16), "
                f"store it in another scheme (--to gptq, say), or move its parts alike by whole "
                f"experts; --keep before that rule allows it"
            )


_QUANTIZED = {
    kind for row in ROWS for form in row.forms for kind in form.part(form.codes.part).kinds
}


def _whole_modules(tensors: Tensors) -> bool:
    """Whether rules at most rename modules, so that every weight keeps its parts.

    That needs no detection, which takes a millisecond per weight: the names of all parts of a
    weight begin as that of its codes does, up to the last dot.
    """
    now = tensors.unchanged
    coded = (name for name, change in now.items() if change.dtype.name in _QUANTIZED)
    modules, names = {_module(name): _module(now[name].name) for name in coded}, sorted(now)
    return len(now) == len(tensors.changes) == len(tensors.checkpoint.members) and all(
        now[name].name == new + name.removeprefix(old)
        for old, new in modules.items()
        for name in names_from(names, old)
    )


def _moved(weight: Found, now: Mapping[str, Change], named: bool) -> str:
    """Why the parts of a weight do not fit together; "" if at most their module is renamed.

    `now` are the copies by their names in the source; with `named` a node names them.
    """
    needed, old = list(_needed(weight).values()), _module(weight.codes)
    changed = [name for name in needed if name not in now]
    if changed and len(changed) < len(needed):
        return f"a rule changes {quoted(changed[0])}"
    apart = changed
    if not changed and not named:
        new = _module(now[weight.codes].name)
        apart = [name for name in needed if now[name].name != new + name.removeprefix(old)]
    if weight.codes in apart:
        return "no scheme has codes of this shape and name"
    return f"{quoted(apart[0])} is not beside them" if apart else ""


def _module(name: str) -> str:
    """A name without its last component."""
    return name[: name.rfind(".") + 1]


def _needed(weight: Found) -> dict[str, str]:
    """The names of parts, by key, without which the codes mean nothing or something else."""
    parts = ((weight.group.form.part(key), name) for key, name in weight.named.items())
    # Scales of inputs may go.
    return {part.key: name for part, name in parts if not part.optional or part.dims != "?"}


def _moved_apart(weight: Found, tensors: Tensors, owners: Mapping[tuple[str, str], str]) -> str:
    """A part in the destination whose experts differ from those of its codes, or "".

    `owners` are the codes of each part of a weight of the source, by its key and name.
    """
    found = dict[str, object]()
    for key, name in _needed(weight).items():
        change = tensors.changes[name]
        inner = change.shape[len(weight.group.batch) :]
        found[name] = in_runs(change, prod(inner), partial(_owner, owners, key, inner))
    first = next(iter(found.values()))
    return next((name for name, how in found.items() if how is None or how != first), "")


def _owner(
    owners: Mapping[tuple[str, str], str], key: str, inner: tuple[int, ...], leaf: Planned
) -> str | None:
    """The codes of the weight that a tensor is a part of, if it has the same dims of experts."""
    if not isinstance(leaf, Stored) or not leaf.layout.contiguous:
        return None
    alike = leaf.shape[len(leaf.shape) - len(inner) :] == inner
    return owners.get((key, leaf.name)) if alike else None


def in_runs(x: Planned, size: int, of: Callable[[Planned], object]) -> object:
    """A tensor as whole runs of `size` elements; None if runs are cut, cast or mixed.

    Equal for tensors with runs of different sizes that are moved alike. `of` identifies the leaves.
    """
    if isinstance(x, Joined):
        counts = [prod(part.shape[x.axis :]) for part in x.parts]
        found = [in_runs(part, size, of) for part in x.parts]
        whole = None not in found and not any(count % size for count in counts)
        return (*found, *(count // size for count in counts)) if whole else None
    if not isinstance(x, Change):
        return None if x.made_of else of(x)
    steps = [_runs(layout, size) for layout in x.stages]
    source = in_runs(x.source, size, of)
    return None if x.casts or source is None or None in steps else (source, *steps)


def _runs(layout: Layout, size: int) -> tuple[object, ...] | None:
    """Offset, sizes and strides of a layout in runs; None unless it consists of whole runs."""
    if not size:
        return None
    unit, (*outer, (count, stride)) = size * layout.bits, layout.runs() or [(1, layout.bits)]
    if size > 1 and (stride != layout.bits or count % size):
        return None
    dims = [(n, distance) for n, distance in (*outer, (count // size, stride * size)) if n > 1]
    if any(distance % unit for distance in (layout.offset, *(d for _, d in dims))):
        return None
    return (layout.offset // unit, *((n, distance // unit) for n, distance in dims))
