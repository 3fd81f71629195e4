"""`--to`: decodes quantised weights to floats, or stores them in another scheme.

If no weight is quantised, `quantizing` encodes floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ..dtypes.table import dtype
from ..errors import FormatError, asked_by_line, quoted
from ..quantization.parts import Found
from ..quantization.scheme import DECODED_DTYPES, schemes
from .changes import Change
from .quantizing import cast_to, floats, quantise, unfit
from .remaining import uses
from .tensors import Rule, Tensors
from .weights import Decoded, PlannedParts, converted


def to(r: Rule, tensors: Tensors) -> None:
    """Decode or convert the weights whose names match; the results replace the codes."""
    (target,) = r.values
    _refuse_unclear(r, tensors)
    now, used = tensors.unchanged, cache(lambda: uses(tensors))
    known, made, matched = dict[Any, PlannedParts](), dict[str, list[Change]](), False
    for weight in tensors.detected:
        codes = now.get(weight.codes)
        if codes is None:
            _refuse_changed(r, tensors, weight, used().get(weight.codes, ()))
            continue
        name = weight.renamed(codes.name)
        if weight.codes in tensors.kept or not r.pattern.fullmatch(name):
            continue
        matched = True
        if weight.scheme != target:
            with tensors.named(name, r, codes.name, weight.parts.weight):
                made |= {part.name: [] for part in _untouched(weight, now)}
                made[codes.name] = _made(weight, name, target, known)
            tensors.became.append(weight)
    otherwise = _cast_plain if target in DECODED_DTYPES else quantise
    if not matched and not otherwise(r, tensors, target):
        reason = f"no quantised weight has a name that {r} matches"
        floats = f"; --dtype {r.text} casts floats" if target in DECODED_DTYPES else ""
        raise FormatError(f"{tensors.path}: {reason}{floats}")
    if matched:
        tensors.replace(r, made)
    if matched and target in DECODED_DTYPES:
        _forget_cache(tensors)


def _cast_plain(r: Rule, tensors: Tensors, target: str) -> bool:
    """Cast the floats of several dims of a GGUF file without quantised weights.

    F16 and BF16 are types like others there. Returns whether there are any.
    """
    if tensors.checkpoint.format != "gguf" or tensors.detected:
        return False
    found = floats(r, tensors)
    weights = {n: target for n, c in found if len(c.shape) > 1 and c.dtype.name in DECODED_DTYPES}
    cast_to(r, tensors, weights)
    return bool(weights)


def _refuse_changed(r: Rule, tensors: Tensors, weight: Found, used: Sequence[Change]) -> None:
    """Raise FormatError for codes that a rule has permuted or cast."""
    for change in used:
        if r.pattern.fullmatch(weight.renamed(change.name)):
            with tensors.named(change.name, r):
                raise FormatError(
                    f"the codes {quoted(weight.codes)} of a quantised weight ({weight.scheme}) "
                    f"were changed by an earlier rule: give --to first"
                )


def _forget_cache(tensors: Tensors) -> None:
    """Drop the scales of a quantised KV cache if no quantised weights are left."""
    stored = tensors.unchanged
    if not any(weight.codes in stored for weight in tensors.detected):
        for scale in tensors.config.declared.cache_scales(stored):
            del tensors.changes[stored[scale].name]


def _untouched(weight: Found, now: dict[str, Change]) -> list[Change]:
    """The parts of a weight. Raises FormatError if a rule has changed or dropped one."""
    for name in weight.named.values():
        if name not in now:
            raise FormatError(f"its part {quoted(name)} was changed or dropped by an earlier rule")
    return [now[name] for name in weight.named.values()]


def _refuse_unclear(r: Rule, tensors: Tensors) -> None:
    """Raise FormatError for tensors that look quantised, but fit no scheme or several."""
    for unclear in tensors.detected.unclear:
        left = [n for n in unclear.names if n in tensors.changes and n not in tensors.kept]
        if left and any(r.pattern.fullmatch(name) for name in left):
            advice = "--exclude drops a tensor, --to 'REGEX=...' selects weights"
            reason = f"{tensors.path_of(left[0])}: {unclear}\n  {advice}"
            raise FormatError(reason + asked_by_line(r))


def _made(weight: Found, name: str, target: str, known: dict[Any, PlannedParts]) -> list[Change]:
    """The tensors of a converted weight; one per shape and settings is computed for planning."""
    if target in DECODED_DTYPES:
        return [Change.of(name, Decoded.of(weight, dtype(target)))]
    whole = converted(weight, target)
    alike = (
        weight.scheme,
        *sorted(weight.group.known.items()),
        *((k, t.dtype, t.shape) for k, t in weight.group.tensors.items()),
    )
    if alike not in known:
        try:
            known[alike] = PlannedParts.like(whole.parts(), lambda _, t: t.shape)
        except FormatError as fault:
            scheme = schemes[target]
            hint = f"--to bf16 --to {target} rounds the weight to different codes"
            floats = Change.of(name, Decoded.of(weight, dtype("bfloat16")))
            if weight.group.batch and not scheme.row.stacks:
                hint = "--unstack 'PART.#', in a run before this one, makes single weights of them"
            elif not scheme.encodes or unfit(name, floats, scheme, {}):
                raise
            raise FormatError(f"{fault}\n  {hint}") from None
    return known[alike].of(whole, name)
