"""`--to`: quantised weights decoded to floats, or stored in another scheme.

If none is quantised, floats are encoded: see `quantizing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from ..dtypes.table import dtype
from ..errors import FormatError, quoted
from ..quantization.naming import part_name
from ..quantization.parts import Found
from ..quantization.rows import BY_NAME
from ..quantization.scheme import DECODED
from ..quantization.table import schemes
from .changes import Change
from .quantizing import floats, quantise
from .remaining import uses
from .tensors import Rule, Tensors, each
from .weights import Decoded, PartOf, converted, settings_of


def to(r: Rule, tensors: Tensors) -> None:
    """Decode or convert the weights whose names match; they take the place of their codes."""
    (target,) = r.values
    _refuse_unclear(r, tensors)
    now = tensors.unchanged
    known, used = dict[Any, Any](), cache(lambda: uses(tensors))
    made: dict[str, list[Change]] = {}
    matched = False
    for weight in tensors.detected:
        codes = now.get(weight.codes)
        if codes is None:
            _refuse_changed(r, tensors, weight, used().get(weight.codes, ()))
            continue
        if weight.codes in tensors.kept or not r.pattern.fullmatch(weight.renamed(codes.name)):
            continue
        matched = True
        if weight.scheme == target:
            continue
        with tensors.named(weight.renamed(codes.name), r):
            parts = _untouched(weight, now)
            made |= {part.name: [] for part in parts}
            made[codes.name] = _made(weight, weight.renamed(codes.name), target, known)
            tensors.became.append(weight)
            sources = (change.source for change in made[codes.name][:1])
            tensors.scheme_parts += [source for source in sources if isinstance(source, PartOf)]
    if not matched and target in DECODED and _cast_plain(r, tensors, target):
        return
    if not matched and target not in DECODED and quantise(r, tensors, target):
        return
    if not matched:
        reason = f"no quantised weight has a name that {r} matches"
        floats = f"; --dtype {r.text} casts floats" if target in DECODED else ""
        raise FormatError(f"{tensors.path}: {reason}{floats}")
    tensors.replace(r, made)
    if target in DECODED:
        _forget_cache(tensors)


def _cast_plain(r: Rule, tensors: Tensors, target: str) -> bool:
    """Cast the floats of several dims of a GGUF file without quantised weights.

    F16 and BF16 are types like others there. Returns whether there are any.
    """
    if tensors.checkpoint.format != "gguf" or tensors.detected:
        return False
    found = floats(r, tensors)
    weights = [n for n, c in found if len(c.shape) > 1 and c.dtype.name in DECODED]
    each(r, tensors, lambda t: tensors.cast(t, target), weights)
    return bool(weights)


def _refuse_changed(r: Rule, tensors: Tensors, weight: Found, used: Sequence[Change]) -> None:
    """Raise FormatError for codes that a rule has permuted or cast: they would stay quantised."""
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
            raise FormatError(
                f"{tensors.path}: {unclear} ({r}; --exclude drops a tensor, and "
                f"--to 'REGEX=...' selects weights)"
            )


def _made(weight: Found, name: str, target: str, known: dict[Any, Any]) -> list[Change]:
    """The tensors of a converted weight; one per shape and settings is computed for planning."""
    if target in DECODED:
        return [Change.of(name, Decoded.of(weight, dtype(target)))]
    whole, row = converted(weight, target), BY_NAME[target]
    alike = (
        weight.scheme,
        *sorted(weight.group.known.items()),
        *((k, t.dtype, t.shape) for k, t in weight.group.tensors.items()),
    )
    if alike not in known:
        try:
            parts = whole.parts()
        except FormatError as fault:
            if not schemes[target].encodes:
                raise
            anew = f"--to bf16 --to {target} rounds the weight to other codes"
            raise FormatError(f"{fault}; {anew}") from None
        settings = settings_of(parts)
        known[alike] = {
            key: PartOf(t.dtype, t.shape, whole, key, settings) for key, t in parts.items()
        }
    return [
        Change.of(part_name(row, name, key), replace(part, whole=whole))
        for key, part in known[alike].items()
    ]
