"""config.json beside a checkpoint: what it says of weights, before and after a conversion."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import FormatError
from ..files.checkpoint import Checkpoint
from ..files.configuration import configuration, json_file
from ..files.places import opened, places
from ..quantization.configuration import BESIDE, comfy_layers, sections
from ..quantization.declaring import NESTED, declaration, left_out, without
from .changes import Change
from .remaining import untouched
from .tensors import Tensors
from .weight_sources import Decoded, PartOf

__all__ = ["CONFIG", "Config", "config_of", "folder_of", "rewritten", "told"]

CONFIG = "config.json"

_DTYPE = ("torch_dtype", "dtype")
# What the metadata of ComfyUI's files and of GGUF tell of how weights are quantised.
_COMFY = "_quantization_metadata"
_TELLING = (_COMFY, "general.file_type")
_PLAIN = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Config:
    """`text` is the content of config.json (None: there is none), `facts` what tells of weights.

    `raw` is config.json as it is written, `beside` the files of quantisers beside it.
    """

    text: Mapping[str, Any] | None
    facts: Mapping[str, Any]
    raw: str = ""
    beside: tuple[str, ...] = ()


def folder_of(checkpoint: Checkpoint) -> str | None:
    """The folder of a checkpoint that is one; None for a single file."""
    if checkpoint.format != "sharded":
        return None
    path, place = checkpoint.path, places(checkpoint.path)
    return path if place.is_folder(path) else place.parent(path) or os.curdir


def config_of(checkpoint: Checkpoint) -> Config:
    """What is said of the weights: by config.json in the folder, or by a file's metadata."""
    facts, folder = configuration(checkpoint), folder_of(checkpoint)
    if folder is None:
        return Config(None, facts)
    raw, place = _raw(folder, CONFIG), places(folder)
    beside = tuple(name for name in BESIDE if place.exists(place.join(folder, name)))
    return Config(None if raw is None else json.loads(raw), facts, raw or "", beside)


def _raw(folder: str, name: str) -> str | None:
    """A file of a folder with a JSON object, as it is written, if there is one."""
    place = places(folder)
    if not place.is_named(place.join(folder, name)):
        return None
    found = place.inside(folder, name, None)
    json_file(found)
    file = opened(found)
    return file.bytes(0, file.size).decode()


def rewritten(config: Config, tensors: Tensors) -> dict[str, Any]:
    """config.json as it must be after the rules; FormatError for what it cannot say."""
    made, became = dict(config.text or {}), tensors.became
    if became:
        left = {weight.scheme for weight in untouched(tensors)}
        if left and config.beside and not any(sections(made).values()):
            names = ", ".join(config.beside)
            raise FormatError(f"{names} cannot tell of some weights only: choose all for --to")
        schemes = {s.whole.scheme for s in became if isinstance(s, PartOf)}
        decoded = [c.name for c in tensors.changes.values() if isinstance(c.source, Decoded)]
        if len(schemes) + bool(left - schemes) > 1:
            both = ", ".join(sorted(schemes | left))
            raise FormatError(f"config.json cannot tell of weights of several schemes: {both}")
        for scheme in schemes:
            made = declaration(scheme, _settings(tensors, scheme), made)
        if not schemes and not left:
            made = without(made)
        elif decoded:
            modules = [name.removesuffix(".weight") for name in decoded]
            made = left_out(made, modules, config.facts)
    if any(isinstance(c.source, Decoded) or c.casts for c in tensors.changes.values()):
        made = _of_dtype(made, _most(tensors.changes.values()))
    return made


def told(metadata: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """A file's metadata, without what tells of weights that are stored in another way now."""
    if not tensors.became:
        return dict(metadata)
    made = {key: value for key, value in metadata.items() if key not in _TELLING}
    kept = {weight.codes.rpartition(".")[0] for weight in untouched(tensors)}
    layers = {name: how for name, how in comfy_layers(metadata).items() if name in kept}
    if layers:
        made[_COMFY] = json.dumps({**json.loads(metadata[_COMFY]), "layers": layers})
    return made


def _settings(tensors: Tensors, scheme: str) -> dict[str, Any]:
    """The settings of a scheme's weights; FormatError if they differ."""
    found: list[dict[str, Any]] = []
    for source in tensors.became:
        if isinstance(source, PartOf) and source.whole.scheme == scheme:
            said = dict(source.settings)
            if said not in found:
                found.append(said)
    if len(found) > 1:
        raise FormatError(f"config.json cannot tell of several settings of {scheme}: {found[:2]}")
    return found[0]


def _most(changes: Iterable[Change]) -> str | None:
    """The dtype of most bytes of the plain numbers."""
    nbytes = Counter[str]()
    for change in changes:
        if change.dtype.name in _PLAIN:
            nbytes[change.dtype.name] += change.nbytes
    return nbytes.most_common(1)[0][0] if nbytes else None


def _of_dtype(config: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """A config with another dtype of the model, where it has one."""
    made = dict(config)
    for key in _DTYPE:
        if isinstance(made.get(key), str) and name is not None:
            made[key] = name
    for key in NESTED:
        if isinstance(made.get(key), dict):
            made[key] = _of_dtype(made[key], name)
    return made
