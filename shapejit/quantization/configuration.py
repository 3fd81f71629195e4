"""What a checkpoint's config.json says about how its weights are stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..arrays import is_a, is_mapping

# The keys of config.json for each setting that `Scheme.decode` takes.
_SETTINGS = {
    "bits": ("bits", "num_bits", "w_bit"),
    "group_size": ("group_size", "q_group_size"),
    "weight_block_size": ("weight_block_size", "block_structure"),
}
_VERSIONS = {"gptq": 1, "gptq_v2": 2}
_WORDS = ("quant_method", "format", "quant_algo", "strategy")
_LAYOUTS = ("checkpoint_format", "version")
# What tells that the cache of keys and values is quantised, and how its scales are called.
_CACHE = ("kv_cache_scheme", "kv_cache_quant_algo")
_CACHE_SCALES = ("k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale")


@dataclass(frozen=True)
class Declared:
    """Words that name methods, and layouts; settings of all weights (several ways), and of some."""

    words: frozenset[str]
    layouts: frozenset[str]
    settings: tuple[Mapping[str, Any], ...]
    modules: Mapping[str, Mapping[str, Any]]

    def settings_of(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """The settings that a weight may have; a module's own ones leave no others."""
        if prefix in self.modules:
            yield self.modules[prefix]
        else:
            yield from self.settings


def declared(config: Mapping[str, Any]) -> Declared:
    """The facts in config.json, the files of quantisers beside it, or ComfyUI's metadata."""
    found = _rooms(config)
    words, modules = set[str](), dict[str, Mapping[str, Any]]()
    settings = list[Mapping[str, Any]]()
    for room in found:
        words |= {str(room[key]).lower() for key in _WORDS if key in room}
        producer = room.get("producer")
        if is_mapping(producer) and "name" in producer:
            words.add(str(producer["name"]).lower())
        groups = room.get("config_groups")
        weights = (
            [g.get("weights") for g in groups.values() if is_mapping(g)]
            if is_mapping(groups)
            else []
        )
        for each in [room, *(w for w in weights if is_mapping(w))]:
            words |= {str(each[key]).lower() for key in _WORDS if key in each}
            made = _settings(each)
            if made and made not in settings:
                settings.append(made)
        modules |= {key: _settings(v) for key, v in room.items() if is_mapping(v) and "bits" in v}
    affine = config.get("quantization")
    if is_mapping(affine) and "group_size" in affine and "quant_algo" not in affine:
        words.add("mlx")
    if "weight_block_size" in {key for each in settings for key in each}:
        words.add("block")
    if "_quantization_metadata" in config:
        words.add("comfyui")
    layouts = {str(room[key]).lower() for room in found for key in _LAYOUTS if key in room}
    named = frozenset(text for text in layouts if text[:1].isalpha())  # others are versions
    return Declared(frozenset(words), named, tuple(settings) or ({},), modules)


def cache_scales(names: Iterable[str], config: Mapping[str, Any]) -> set[str]:
    """Those names that are scales of a quantised cache of keys and values, if the config has one.

    >>> cache_scales(["q.weight", "q.k_scale"], {"quantization": {"kv_cache_quant_algo": "FP8"}})
    {'q.k_scale'}
    """
    if not any(room.get(key) for room in _rooms(config) for key in _CACHE):
        return set()
    return {name for name in names if name.rpartition(".")[2] in _CACHE_SCALES}


def _rooms(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Where a config tells of weights, itself last."""
    keys = ("quantization_config", "compression_config", "quantization")
    return [room for room in (*map(config.get, keys), config) if is_mapping(room)]


def _settings(room: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in one object; sizes below 1 and None mean one group for all."""
    made = dict[str, Any]()
    for name, keys in _SETTINGS.items():
        given = next((room[key] for key in keys if key in room), None)
        if type(given) is int and given > 0:
            made[name] = given
        elif is_a(given, list) and len(given) == 2 and all(type(n) is int and n > 0 for n in given):
            made[name] = tuple(given)
    version = _VERSIONS.get(str(room.get("checkpoint_format")))
    if version is not None:
        made["version"] = version
    return made


def comfy_layers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The formats of layers in ComfyUI's `_quantization_metadata`, which is JSON in a string."""
    given = config.get("_quantization_metadata")
    if is_a(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {}
    layers = given.get("layers") if is_mapping(given) else None
    return layers if is_mapping(layers) else {}
