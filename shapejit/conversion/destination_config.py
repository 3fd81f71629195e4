"""The content of a destination's config.json and metadata: how its weights are stored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import FormatError, shown
from ..quantization.configuration import (
    COMFY,
    CONFIG,
    QUANTIZER_CONFIG_FILES,
    Facts,
    comfy_layers,
    declared,
    sections,
)
from ..quantization.declaring import ONE_GROUP, declaration, left_out, of_dtype, without
from .changes import Change
from .quantizing import unquantised
from .remaining import encoded, staying, uses
from .tensors import Tensors
from .weights import Decoded, PartOf

# The keys of metadata of ComfyUI's files and of GGUF that describe quantisation.
_FORMAT_KEYS = (COMFY, "general.file_type")
_PLAIN = ("bfloat16", "float16", "float32")


def rewritten(tensors: Tensors) -> dict[str, Any]:
    """The config after the rules. Raises FormatError for weights that it cannot describe."""
    config, parts = tensors.config, encoded(tensors)
    made = dict(config.content)
    if tensors.became or parts:
        left = {weight.scheme for weight in staying(tensors)}
        if left and config.beside and not any(sections(made).values()):
            names = ", ".join(config.beside)
            raise FormatError(
                f"{names} cannot describe only some of the weights: apply --to to all"
            )
        schemes = {part.whole.scheme for part in parts}
        decoded = [c.name for c in tensors.changes.values() if isinstance(c.source, Decoded)]
        if len(schemes) + bool(left - schemes) > 1:
            both = ", ".join(sorted(schemes | left))
            raise FormatError(f"{CONFIG} cannot describe weights of several schemes: {both}")
        for scheme in schemes:
            own = {_module(part.whole.name) for part in parts}
            made = declaration(scheme, _settings(scheme, parts), made, own)
        if not schemes and not left:
            made = without(made)
        elif decoded:
            modules = [name.removesuffix(".weight") for name in decoded]
            made = left_out(made, modules, config.facts)
        if not all(part.whole.origin for part in parts):
            made = left_out(made, unquantised(tensors), {})
    if any(isinstance(c.source, Decoded) or c.casts for c in tensors.changes.values()):
        name = _most(tensors.changes.values())
        made = made if name is None else of_dtype(made, name)
    return made


def facts_after(content: Facts, tensors: Tensors) -> dict[str, Any]:
    """The facts about the weights in a destination with this config, as `detect` takes them."""
    config, is_folder = tensors.config, tensors.checkpoint.format == "sharded"
    gone = {*config.content, *(QUANTIZER_CONFIG_FILES if tensors.became and is_folder else ())}
    return {**{key: fact for key, fact in config.facts.items() if key not in gone}, **content}


def metadata_after(metadata: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """A file's metadata without facts about weights that are stored differently now.

    ComfyUI's metadata list layers by name: quantised ones stay, with the names that rules give
    them. Names that match no tensor stay until weights are stored differently: they may lack a
    prefix.
    """
    layers, now = comfy_layers(metadata), dict[str, Any]()
    used = uses(tensors) if layers else {}
    for name, how in layers.items():
        codes = f"{name}.weight"
        if codes not in tensors.checkpoint.members and not tensors.became:
            now[name] = how
        modules = (change.name.rpartition(".")[0] for change in used.get(codes, ()))
        now |= {module: how for module in modules if module}
    gone = _FORMAT_KEYS if tensors.became or encoded(tensors) else (COMFY,) if now != layers else ()
    made = {key: value for key, value in metadata.items() if key not in gone}
    if now and gone:
        made[COMFY] = json.dumps({**json.loads(metadata[COMFY]), "layers": now})
    return made


def described_by_config(facts: Facts, tensors: Tensors) -> list[str]:
    """The schemes of a destination that only the config next to it identifies."""
    if not declared({key: fact for key, fact in facts.items() if key != COMFY}).tells:
        return []
    made = {part.whole.scheme for part in encoded(tensors)}
    return sorted(made | {weight.scheme for weight in staying(tensors)})


def undescribed(path: str, tensors: Tensors) -> Iterator[str]:
    """A warning about quantised weights in a folder without a config that describes them."""
    schemes = sorted({part.whole.scheme for part in encoded(tensors)})
    if schemes and not tensors.config.text:
        yield (
            f"{shown(path)}: no config describes its quantised weights ({', '.join(schemes)}), "
            f"since the source has no {CONFIG}"
        )


def _module(weight: str) -> str:
    """The module of a weight; of stacked experts, their parent."""
    module, _, last = weight.rpartition(".")
    return module or last


def _settings(scheme: str, parts: Iterable[PartOf]) -> dict[str, Any]:
    """The settings of a scheme's weights. Raises FormatError if they differ.

    `group_size` is -1 if weights of several widths have one group of all inputs each.
    """
    found = [dict(part.settings) for part in parts]
    inputs = [settings.pop("K", None) for settings in found]
    sizes = [settings.get("group_size") for settings in found]
    if scheme in ONE_GROUP and sizes == inputs and len({*sizes}) > 1:
        found = [{**settings, "group_size": -1} for settings in found]
    for key in dict.fromkeys(key for settings in found for key in settings):
        first, *others = dict.fromkeys(settings.get(key) for settings in found)
        if others:
            reason = f"weights of {scheme} with {key} {first} and {others[0]}"
            raise FormatError(f"{CONFIG} cannot describe {reason}")
    return found[0]


def _most(changes: Iterable[Change]) -> str | None:
    """The dtype that takes most bytes among plain floats."""
    nbytes = Counter[str]()
    for change in changes:
        if change.dtype.name in _PLAIN:
            nbytes[change.dtype.name] += change.nbytes
    return nbytes.most_common(1)[0][0] if nbytes else None
