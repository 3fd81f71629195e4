"""Checks of a destination: no part of a weight is lost, and what is left can still be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..dtypes.table import DType
from ..errors import FormatError, quoted
from ..files.stored import Stored
from ..quantization.account import Held, unaccounted
from ..quantization.configuration import Declared, declared
from ..quantization.detection import detected
from ..quantization.forms import Numbers
from ..quantization.naming import names_from
from ..quantization.parts import Found
from ..quantization.rows import ROWS
from .changes import Change
from .origins import astray
from .repacks import Repacked
from .tensors import Tensors
from .weights import stored


class Use(NamedTuple):
    """A tensor of the destination that contains a stored one, and the operations on that."""

    change: Change
    ops: tuple[str, ...]


def uses(tensors: Tensors) -> dict[str, list[Use]]:
    """The uses of each stored tensor of the source, except parts of decoded weights."""
    made = dict[str, list[Use]]()
    for change in tensors.changes.values():
        for name, ops in _stored(change):
            made.setdefault(name, []).append(Use(change, ops))
    return made


def _stored(change: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The stored tensors that a Change contains, and the operations on each."""
    source, ops = change.source, tuple(name for name, _ in change.ops)
    if isinstance(source, Stored):
        yield source.name, ops
        return
    for part in source.made_of:
        yield from ((name, (*done, source.verb, *ops)) for name, done in _stored(part))


def untouched(tensors: Tensors) -> list[Found]:
    """The quantised weights whose codes are unchanged."""
    there = tensors.unchanged
    return [weight for weight in tensors.detected if weight.codes in there]


def still_quantised(tensors: Tensors) -> Iterator[str]:
    """Warnings for quantised weights that `--dtype` does not cast."""
    for r in (r for r in tensors.rules if r.option == "dtype"):
        names = [w.codes for w in untouched(tensors) if w.codes not in tensors.kept]
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
    kept = untouched(tensors)
    own = {name for weight in kept for name in weight.named.values()} | tensors.kept
    described = tensors.config.declared.tells
    held = {
        name: Held(use.change.dtype, prod(use.change.shape))
        for name, found in uses(tensors).items()
        for use in found
        if name not in own and not _is_meant(use, described)
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


def _is_meant(use: Use, described: bool) -> bool:
    """Whether rules change the elements on purpose: casts, repacked codes, permuted integers.

    If quantised weights are still `described` by a config, permuted integers may be codes.
    """
    if "cast" in use.ops or "repack" in use.ops:
        return True
    return not described and use.change.dtype.kind == "integer" and bool(use.ops)


def check_parts(tensors: Tensors, config: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Raise FormatError for parts of quantised weights that could not be read any more.

    These are codes without their scales, parts that are cast, permuted, cut or renamed while the
    others are not, and codes that `--repack` stores as no scheme does. `results` are the tensors of
    the destination, `config` is its description of them.
    """
    reads = (stored for change in tensors.changes.values() for stored in change.reads)
    if _whole_modules(tensors) or _CODES.isdisjoint(stored.dtype.name for stored in reads):
        return
    used, moved = uses(tensors), list[Found]()
    for weight in tensors.detected:
        if weight.codes not in used or weight.codes in tensors.kept:
            continue
        for part in _needed(weight):
            if part.name not in used:
                raise FormatError(
                    f"{tensors.path}: tensor {quoted(weight.codes)} cannot be read without "
                    f"{quoted(part.name)}, which a rule drops{_KEEP}"
                )
        _check_casts(tensors.path, weight, used)
        if not _stays_together(weight, used):
            moved.append(weight)
    _check_found(tensors, moved, used, results, declared(config))


_CODES = {kind for row in ROWS for form in row.forms for kind in form.part(form.codes.part).kinds}
_KEEP = " (--keep before that rule allows it)"


def _whole_modules(tensors: Tensors) -> bool:
    """Whether rules rename modules at most, so that every weight keeps its parts.

    Weights need not be detected for that: all parts of one begin as its codes do, up to their last
    dot. Where they are renamed otherwise, or something is dropped, weights have to be looked at.
    """
    now = tensors.unchanged
    if not len(now) == len(tensors.changes) == len(tensors.checkpoint.members):
        return False
    coded = {name: change.name for name, change in now.items() if change.dtype.name in _CODES}
    modules = {_stem(name): _stem(new) for name, new in coded.items()}
    names = sorted(now)
    return all(
        now[name].name == new + name.removeprefix(old)
        for old, new in modules.items()
        for name in names_from(names, old)
    )


def _needed(weight: Found) -> Iterator[Stored]:
    """The stored parts without which the codes mean nothing, or something else."""
    for key, found in stored(weight).items():
        part = weight.group.form.part(key)
        if not part.optional or part.dims != "?":  # inputs' scales may go
            yield found


def _stays_together(weight: Found, used: Mapping[str, Sequence[Use]]) -> bool:
    """Whether parts are as they were, but for casts, in names that begin in another way at most."""
    before, after = [part.name for part in _needed(weight)], list[str]()
    for name in before:
        if len(used[name]) != 1 or {*used[name][0].ops} - {"cast"}:
            return False
        after.append(used[name][0].change.name)
    own = [name.removeprefix(_stem(weight.codes)) for name in before]
    new = _stem(after[before.index(weight.codes)])
    return own == [name.removeprefix(new) for name in after]


def _stem(name: str) -> str:
    """A name without its last component."""
    return name[: name.rfind(".") + 1]


def _check_found(
    tensors: Tensors, weights: Sequence[Found], used: Mapping[str, Sequence[Use]],
    results: Mapping[str, Any], said: Declared,
) -> None:  # fmt: skip
    """FormatError for a weight that the destination does not hold as one with the same numbers."""
    sources = {weight.codes: weight for weight in tensors.detected}
    own = {use.change.name for w in weights for n in w.named.values() for use in used.get(n, ())}
    changes = {name: change for name, change in tensors.changes.items() if name in own}
    detection = detected({name: results[name] for name in changes}, said)
    found = {each.named[each.group.form.codes.part]: each for each in detection}
    unclear = {name: each.reason for each in detection.unclear for name in each.names}
    for weight, use in ((w, use) for w in weights for use in used[w.codes]):
        name, made = use.change.name, found.get(use.change.name)
        reason = unclear.get(name, "no scheme has codes of such a name beside its scales")
        if made is not None and "repack" not in use.ops:
            parts = {part: changes[named] for part, named in made.named.items()}
            lost = astray(made.group, parts, sources)
            if lost is None:
                continue
            reason = f"{quoted(made.named[lost])} does not hold the numbers of these codes"
        raise FormatError(
            f"{tensors.path}: tensor {quoted(name)} would hold codes of {weight.scheme} that "
            f"cannot be read any more, since rules change some parts of the weight alone: "
            f"{reason} ({_cure(use.change)})"
        )


def _cure(change: Change) -> str:
    """A hint what to use instead of rules that change parts of a weight."""
    source = change.source
    target = source.formats[1] if isinstance(source, Repacked) else ""
    schemes = [row.name for row in ROWS if target in {form.codes.format for form in row.forms}]
    cure = f"--to {' or --to '.join(schemes)} stores whole weights so" if target and schemes else ""
    return f"{cure or 'match all its parts'}; --keep before that rule allows it"


def _check_casts(path: str, weight: Found, used: Mapping[str, Sequence[Use]]) -> None:
    """FormatError for numbers of a weight in a dtype that does not stand for them."""
    parts = stored(weight)
    for numbers in weight.group.form.numbers:
        part = parts.get(numbers.part)
        for use in used.get(part.name, ()) if part is not None else ():
            kind, cast = use.change.dtype, "cast" in use.ops and "repack" not in use.ops
            if part and cast and kind is not part.dtype and not _may_be(kind, numbers, weight):
                raise FormatError(
                    f"{path}: tensor {quoted(part.name)}: {weight.scheme} stores it as "
                    f"{part.dtype}, and cannot as {kind}: --to decodes weights{_KEEP}"
                )


def _may_be(kind: DType, numbers: Numbers, weight: Found) -> bool:
    """Whether a part may have another dtype, as scales that are plain floats."""
    form = weight.group.form
    plain = numbers is not form.codes and not numbers.dtype and numbers.format is None
    return plain and kind.name in form.part(numbers.part).kinds
