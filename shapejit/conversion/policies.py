"""Rules for all float tensors of a checkpoint, and those that such rules leave as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ..errors import ReshapeError
from .changes import Change
from .tensors import Rule, Tensors, each

__all__ = ["LLAMA_CPP", "cast_floats", "floats", "left_out"]

LLAMA_CPP = "llama.cpp"
# What llm-compressor's recipes, transformers' quantisers and llama.cpp do not quantise: regular
# expressions of whole names, without `weight` at the end, and what they are.
_LEFT_OUT = {
    r"(.*\.)?(\w*embed\w*|\w*embd|wte|wpe)|(.*\.)?\w*embeddings\.\w+": "an embedding",
    r"(.*\.)?(lm_head|embed_out)|output|score|classifier": "the head",
    r"(.*[._])?(\w*norm\w*|ln_\w+)": "a norm",
    r"(.*\.)?(gate|router|wg|\w*gate_inp\w*|shared_expert_gate|router\.\w+)": "a router",
}


def left_out(name: str) -> str:
    """What a weight is that is not quantised unless it is asked for by name; "" for others.

    >>> left_out("model.layers.0.mlp.gate.weight"), left_out("model.layers.0.mlp.gate_proj.weight")
    ('a router', '')
    """
    module = name.removesuffix(".weight")
    return next((what for words, what in _LEFT_OUT.items() if re.fullmatch(words, module)), "")


def floats(r: Rule, tensors: Tensors) -> Iterator[tuple[str, Change]]:
    """The tensors of a rule that hold plain floats of 16 bits and more, and are not to be kept.

    Scales, and what else may belong to a quantised weight, are none.
    """
    parts = {name for weight in tensors.weights for name in weight.names}
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
    """`--dtype`: floats to another dtype; by llama.cpp's policy vectors, norms and routers are f32.

    ReshapeError where no float has a name that the rule matches.
    """
    target, policy = r.values
    found = list(floats(r, tensors))
    if not found:
        raise ReshapeError(f"{tensors.path}: no tensor of floats has a name that {r} matches")
    wanted = dict[str, list[str]]()
    for name, change in found:
        plain = policy and (len(change.shape) < 2 or left_out(name) in ("a norm", "a router"))
        kind = "float32" if plain else target
        if change.dtype.name != kind:
            wanted.setdefault(kind, []).append(name)
    for kind, names in wanted.items():
        each(r, tensors, partial(tensors.cast, name=kind), names)
