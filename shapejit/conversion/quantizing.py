"""Rules for plain floats: `--dtype` casts them, `--to SCHEME` quantises them to nearest.

Also finds the tensors that such rules leave unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor
from ..errors import FormatError, ReshapeError, quoted
from ..operations.casts import cast
from ..quantization.contradictions import FUSED_GATES
from ..quantization.matching import group_of
from ..quantization.scheme import Scheme, schemes
from ..shapes.request import Ints
from .changes import Change
from .tensors import Rule, Tensors
from .weights import PartOf, PlannedParts, Whole

_SAMPLE_ROWS = 128  # of a weight of zeros, which is encoded to find the shapes of parts
# Projections that inference engines fuse, with one global scale.
_FUSED = (("q_proj", "k_proj", "v_proj"), *FUSED_GATES)


def quantise(r: Rule, tensors: Tensors, target: str) -> bool:
    """Encode the floats whose names match; return whether there are any.

    Weights that are not quantised by default are left out, with a reason in `tensors.left_out`,
    unless the rule's regular expression matches nothing else.
    """
    found, plans = list(floats(r, tensors)), dict[Ints, PlannedParts]()
    if not found:
        return False
    scheme, chosen, why = schemes[target], dict[str, Change](), dict[str, str]()
    if not scheme.encodes:
        reason = (
            f"it matches no quantised weight, and floats cannot be quantised to {target}, which "
            "can only be decoded (see `shapejit schemes`)"
        )
        raise FormatError(f"{tensors.path}: {r}: {reason}")
    for by_name in (True, False):
        for name, change in found:
            what = left_out(name) if by_name and len(change.shape) > 1 else ""
            why[name] = what or unfit(name, change, scheme, plans)
        chosen = {name: change for name, change in found if not why[name]}
        if chosen or r.text == target:
            break
    if not chosen:
        name, what = next(iter(why.items()))
        raise FormatError(
            f"{tensors.path}: {r} quantises no weight: {quoted(name)} is left as it is ({what})"
        )
    tensors.left_out = {name: what for name, what in (tensors.left_out | why).items() if what}
    factors = {form.factor.part for form in scheme.row.forms if form.factor}
    together = _shared(chosen) if factors & plans[next(iter(plans))].parts.keys() else {}
    made = dict[str, list[Change]]()
    for name, change in chosen.items():
        with tensors.named(name, r):
            whole = _encoded(change, scheme, together.get(name))
            made[name] = plans[change.shape].of(whole, name)
    tensors.replace(r, made)
    return True


def unfit(name: str, change: Change, scheme: Scheme, plans: dict[Any, PlannedParts]) -> str:
    """Why readers would not accept a tensor in this scheme; "" if they would."""
    rank, stacks = len(change.shape), scheme.row.stacks
    if rank < 2:
        return "a vector"
    if not prod(change.shape):
        return "without elements"
    if rank > 3:
        return f"of {rank} dims"
    if rank == 3 and not stacks:
        return "stacked experts: --unstack, and --split gate from up, before this rule"
    if stacks == "only" and rank == 2:
        return f"{scheme.name} is of stacked experts"
    if name.rpartition(".")[2] != "weight" and stacks != "only":
        return "not called weight"
    try:
        if change.shape not in plans:
            plans[change.shape] = _planned(scheme, change.shape)
    except FormatError as fault:
        return str(fault)
    return ""


def _planned(scheme: Scheme, shape: Ints) -> PlannedParts:
    """The parts of a weight of this shape, found by encoding a few rows of zeros."""
    form = next(form for form in scheme.row.forms if form.rule is not None)
    sizes, at = list(shape[-2:]), 1 if form.result == "K N" else 0
    rows = sizes[at]
    if form.result != "n":
        sizes[at] = min(rows, _SAMPLE_ROWS)
    sample = scheme.encode(np.zeros(sizes, np.float32))
    group = group_of(scheme.row, sample, {})
    if form.result != "n":
        known = {**group.known, "N": -(-rows // form.multiple) * form.multiple}
        group = replace(group, known=known, batch=shape[:-2])

    for numbers in form.numbers:
        if numbers.format is not None and group.has(numbers):
            group.stored(numbers)  # whose rows may not be whole units

    def shape_of(key: str, t: Tensor) -> Ints:
        dims = group.form.part(key).dims
        return t.shape if dims == "?" else group.sizes(dims)

    return PlannedParts.like(sample, shape_of)


def _encoded(base: Change, scheme: Scheme, amax: Callable[[], float] | None) -> Whole:
    """A weight that is encoded; `amax` is the magnitude for its global scale."""

    def make() -> Mapping[str, Tensor]:
        settings = {} if amax is None else {"amax": amax()}
        return scheme.encode(base.tensor(), **settings)

    peak_bytes = 3 * (base.nbytes + 4 * base.size)  # it, and as many float32
    return Whole(scheme.name, base.name, "", base.reads, peak_bytes, make)


def _shared(chosen: Mapping[str, Change]) -> dict[str, Callable[[], float]]:
    """The largest magnitude among the weights that inference engines fuse with each."""
    groups = dict[tuple[str, tuple[str, ...]], list[str]]()
    for name in chosen:
        stem, _, module = name.removesuffix(".weight").rpartition(".")
        if fused := next((group for group in _FUSED if module in group), ()):
            groups.setdefault((stem, fused), []).append(name)
    made = dict[str, Callable[[], float]]()
    for names in groups.values():
        made |= dict.fromkeys(names, cache(partial(_amax, [chosen[name] for name in names])))
    return made


def _amax(weights: Sequence[Change]) -> float:
    singles = (cast(change.tensor(), "float32").numpy() for change in weights)
    return max(float(np.abs(x).max()) for x in singles)


def unquantised(tensors: Tensors) -> list[str]:
    """The modules that a config must list as not quantised.

    Stacked experts are named by their module, which readers replace as a whole.
    """
    parts = [name for name, change in tensors.changes.items() if isinstance(change.source, PartOf)]
    made = list[str]()
    for name, change in tensors.changes.items():
        if change.dtype.kind != "float" or change.dtype.bits < 16 or len(change.shape) < 2:
            continue
        module, _, last = name.rpartition(".")
        stacked = len(change.shape) == 3 and not any(x.startswith(f"{module}.") for x in parts)
        if module and name not in parts and (last == "weight" or stacked):
            made.append(module)
    return (
        made if any(name.startswith("lm_head.") for name in tensors.changes) else [*made, "lm_head"]
    )  # of tied weights, too, it is a module


LLAMA_CPP = "llama.cpp"
# Weights that llm-compressor's recipes, transformers' quantisers and llama.cpp do not quantise:
# regular expressions of whole names, without `weight` at the end, and what they are.
_LEFT_OUT = {
    r"(.*\.)?(\w*embed\w*|\w*embd|wte|wpe)|(.*\.)?\w*embeddings\.\w+": "an embedding",
    r"(.*\.)?(lm_head|embed_out)|output|score|classifier": "the head",
    r"(.*[._])?(\w*norm\w*|ln_\w+)": "a norm",
    r"(.*\.)?(gate|router|wg|\w*gate_inp\w*|shared_expert_gate|router\.\w+)": "a router",
}


def left_out(name: str) -> str:
    """Why a weight is not quantised by default; "" if it is.

    >>> left_out("model.layers.0.mlp.gate.weight"), left_out("model.layers.0.mlp.gate_proj.weight")
    ('a router', '')
    """
    module = name.removesuffix(".weight")
    return next((what for words, what in _LEFT_OUT.items() if re.fullmatch(words, module)), "")


def floats(r: Rule, tensors: Tensors) -> Iterator[tuple[str, Change]]:
    """The tensors that a rule matches, of floats of at least 16 bits, except kept ones.

    Scales, and other tensors that may belong to a quantised weight, are excluded.
    """
    parts = {name for weight in tensors.detected for name in weight.named.values()}
    parts |= {name for unclear in tensors.detected.unclear for name in unclear.names}
    for name, change in tensors.changes.items():
        kind, stored = change.dtype, change.stored
        if kind.kind != "float" or kind.bits < 16 or not r.pattern.fullmatch(name):
            continue
        if stored is not None and stored.name in parts | tensors.kept:
            continue
        if not any(pattern.fullmatch(name) for pattern in tensors.exceptions):
            yield name, change


def cast_floats(r: Rule, tensors: Tensors) -> None:
    """`--dtype`: cast floats; by llama.cpp's policy vectors, norms and routers become f32.

    Raises ReshapeError if the rule matches no floats.
    """
    target, policy = r.values
    found = list(floats(r, tensors))
    if not found:
        raise ReshapeError(f"{tensors.path}: no tensor of floats has a name that {r} matches")

    def wanted(name: str, change: Change) -> str:
        plain = policy and (len(change.shape) < 2 or left_out(name) in ("a norm", "a router"))
        return "float32" if plain else target

    cast_to(r, tensors, {name: wanted(name, change) for name, change in found})


def cast_to(r: Rule, tensors: Tensors, kinds: Mapping[str, str]) -> None:
    """Cast tensors to other dtypes, by name."""
    for name, kind in kinds.items():
        change = tensors.changes[name]
        if change.dtype.name != kind:
            with tensors.named(name, r):
                tensors.changes[name] = change.then(tensors.cast, kind)
