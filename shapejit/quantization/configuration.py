"""What a checkpoint's config.json declares about how its weights are stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import quoted
from ..runtime.ndarrays import is_a, is_mapping

Facts = Mapping[str, Any]  # an object of JSON
# The keys of the quantisation sections of a config, or of the config of a part of the model.
KEYS = ("quantization_config", "compression_config", "quantization")
# The config of a model, and the config files of quantisers next to it (AutoAWQ's, AutoGPTQ's,
# nvidia-modelopt's), whose content `configuration` has under their names.
CONFIG = "config.json"
QUANTIZER_CONFIG_FILES = ("quant_config.json", "quantize_config.json", "hf_quant_config.json")
_PARTS = ("_config", *QUANTIZER_CONFIG_FILES)
TOP_LEVEL = "the config"
# The keys under which quantisers list modules that are not quantised.
LEFT_OUT = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
COMFY = "_quantization_metadata"  # of ComfyUI's files: JSON in a string
# The keys of config.json for each setting that `Scheme.decode` takes.
_SETTINGS = {
    "bits": ("bits", "num_bits", "w_bit"),
    "group_size": ("group_size", "q_group_size"),
    "weight_block_size": ("weight_block_size", "block_structure"),
}
_METHOD_KEYS = ("quant_method", "format", "quant_algo", "strategy")
# The keys that `SchemeRow.layouts` may have.
_LAYOUT_KEYS = ("checkpoint_format", "format", "packing_format", "version", "actorder")
_OF_MODELS = ("format", "version")  # a model's config.json has these for other facts, too
# The keys that declare a quantised KV cache, and the names of its scales.
_CACHE = ("kv_cache_scheme", "kv_cache_quant_algo")
_CACHE_SCALES = ("k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale")


@dataclass(frozen=True)
class Declared:
    """The facts in a config: words that name methods, layouts by key, and settings of weights.

    `settings` apply to all weights; there are several for several groups of weights. `modules` have
    settings of their own. `sections` are all descriptions of weights, by where they are.
    """

    sections: Mapping[str, Facts] = field(compare=False)
    words: frozenset[str]
    layouts: Mapping[str, frozenset[str]]
    settings: tuple[Facts, ...]
    modules: Mapping[str, Facts]

    def settings_of(self, prefix: str) -> Iterator[Facts]:
        """The possible settings of a weight; a module's own replace the general ones."""
        own = self.modules.get(prefix, {})
        yield from ({**settings, **own} for settings in self.settings)

    @property
    def tells(self) -> bool:
        """Whether a config describes quantised weights.

        >>> declared({"quantization_config": {"quant_method": "fp8"}}).tells
        True
        >>> declared({"model_type": "gpt2"}).tells
        False
        """
        return bool(self.words or self.modules or any(self.settings))

    def texts(self, key: str) -> dict[str, str]:
        """The values of a key in lower case, and the section that has each.

        >>> declared({"quantization_config": {"fmt": "E4M3"}}).texts("fmt")
        {'e4m3': 'quantization_config'}
        """
        found = ((where, each.get(key)) for where, each in self.sections.items())
        return {str(value).lower(): where for where, value in found if value not in (None, "")}

    def named_by(self, words: Iterable[str]) -> str:
        """The key and value of the first of these words in the config; the words if none has one.

        >>> declared({"quantization_config": {"quant_method": "fp8"}}).named_by({"fp8", "block"})
        "quant_method 'fp8'"
        """
        found = (
            f"{key} {quoted(text)}"
            for key in _METHOD_KEYS
            for text in self.texts(key)
            if text in words
        )
        return next(found, ", ".join(sorted(words)))

    def general(self) -> Iterator[tuple[str, Facts]]:
        """The settings for all weights of the model, with the section that has each.

        Components of the model may differ, and so may the groups of a section.

        >>> beside = {"quant_config.json": {"w_bit": 4}}
        >>> [*declared({"quantization_config": {"bits": 8}} | beside).general()]
        [('quantization_config', {'bits': 8}), ('quant_config.json', {'bits': 4})]
        """
        for where in (*KEYS, *QUANTIZER_CONFIG_FILES):
            if own := _settings(self.sections.get(where, {})):
                yield where, own

    @cached_property
    def left_out(self) -> dict[str, str]:
        """The modules listed as not quantised, with the section and key that list each.

        >>> declared({"quantization_config": {"ignore": ["lm_head"]}}).left_out
        {'lm_head': 'quantization_config.ignore'}
        """
        lists = (
            (f"{where}.{key}", section[key])
            for where, section in self.sections.items()
            for key in LEFT_OUT
            if is_a(section.get(key), list)
        )
        return {name: where for where, names in lists for name in names if is_a(name, str)}

    def cache_scales(self, names: Iterable[str]) -> set[str]:
        """The names that are scales of a quantised KV cache, if the config declares one.

        >>> said = declared({"quantization": {"kv_cache_quant_algo": "FP8"}})
        >>> said.cache_scales(["q.weight", "q.k_scale"])
        {'q.k_scale'}
        """
        if not any(section.get(key) for section in self.sections.values() for key in _CACHE):
            return set()
        return {name for name in names if name.rpartition(".")[2] in _CACHE_SCALES}


Part = tuple[tuple[str, ...], Facts]


def sections(config: Facts) -> dict[tuple[str, ...], Facts]:
    """The quantisation sections of a config, at any depth, by their path of keys.

    The configs of parts of the model, at any depth, have sections of their own.

    >>> sections({"thinker_config": {"text_config": {"quantization_config": {"bits": 4}}}})
    {('thinker_config', 'text_config', 'quantization_config'): {'bits': 4}}
    """
    made = (
        ((*path, key), part[key]) for path, part in parts(config) for key in KEYS if key in part
    )
    return {path: section for path, section in made if is_mapping(section)}


def parts(config: Facts) -> Iterator[Part]:
    """A config, and those of the model's components at any depth, by their path of keys.

    >>> [path for path, _ in parts({"a_config": {"b_config": {}}})]
    [(), ('a_config',), ('a_config', 'b_config')]
    """
    left = list[Part]([((), config)])
    while left:
        path, part = left.pop()
        yield path, part
        left += [((*path, key), each) for key, each in part.items() if is_part(key, each)]


def is_part(key: object, value: object) -> bool:
    """Whether a value is the config of a component of the model, or of a file.

    >>> is_part("text_config", {}), is_part("quantization_config", {}), is_part("a_config", 1)
    (True, False, False)
    """
    return is_mapping(value) and key not in KEYS and str(key).endswith(_PARTS)


def completed(section: Facts, config: Facts) -> dict[str, Any]:
    """A section completed by settings and layouts that only the files of quantisers have.

    >>> beside = {"quantize_config.json": {"bits": 4, "checkpoint_format": "gptq_v2"}}
    >>> completed({"bits": 8}, beside)
    {'bits': 8, 'checkpoint_format': 'gptq_v2'}
    """
    made = dict(section)
    for beside in (config[name] for name in QUANTIZER_CONFIG_FILES if name in config):
        for keys in (*_SETTINGS.values(), *zip(_LAYOUT_KEYS)):
            if made.keys().isdisjoint(keys):
                made |= {key: beside[key] for key in keys if key in beside}
    return made


def declared(config: Facts) -> Declared:
    """The facts in config.json, in the files of quantisers beside it, or in ComfyUI's metadata."""
    words, modules = set[str](), dict[str, Facts]()
    settings, layouts = list[Facts](), dict[str, set[str]]()
    found = _descriptions(config)
    for where, section in found.items():
        producer = section.get("producer")
        if is_mapping(producer) and "name" in producer:
            words.add(str(producer["name"]).lower())
        weights = (group.get("weights") for group in groups_of(section).values())
        for each in (section, *filter(is_mapping, weights)):
            words |= {str(each[key]).lower() for key in _METHOD_KEYS if key in each}
            own = _settings(each)
            if own and own not in settings:
                settings.append(own)
            of_model = each is config and not own and "quant_method" not in each
            for key in _LAYOUT_KEYS:
                text = str(each.get(key) or "").lower()
                number = key == "version" and not text[:1].isalpha()
                if text and not number and not (of_model and key in _OF_MODELS):
                    layouts.setdefault(key, set()).add(text)
        for entries in filter(is_mapping, (section, section.get("extra_config"))):
            given = ((name, _settings(x)) for name, x in entries.items() if is_mapping(x))
            modules |= {name: each for name, each in given if each}
        affine = where.rpartition(".")[2] == KEYS[2] and "quant_algo" not in section
        if affine and "group_size" in section:
            words.add("mlx")
    if any("weight_block_size" in each for each in settings):
        words.add("block")
    if COMFY in config:
        words.add("comfyui")
    texts = {key: frozenset(each) for key, each in layouts.items()}
    return Declared(found, frozenset(words), texts, tuple(settings) or ({},), modules)


def _descriptions(config: Facts) -> dict[str, Facts]:
    """All descriptions of weights by where they are, the config itself last.

    These are its sections, and the files of quantisers.

    >>> [*_descriptions({"text_config": {"quantization": {}}, "quant_config.json": {}})]
    ['text_config.quantization', 'quant_config.json', 'the config']
    """
    found = {".".join(path): section for path, section in sections(config).items()}
    found |= {name: config[name] for name in QUANTIZER_CONFIG_FILES if name in config}
    return {where: each for where, each in found.items() if is_mapping(each)} | {TOP_LEVEL: config}


def groups_of(section: Facts) -> dict[str, Facts]:
    """The groups of compressed-tensors in a section, by name.

    >>> groups_of({"config_groups": {"group_0": {"weights": {}}, "other": 1}})
    {'group_0': {'weights': {}}}
    """
    groups = section.get("config_groups")
    given = groups.items() if is_mapping(groups) else ()
    return {name: group for name, group in given if is_mapping(group)}


def _settings(section: Facts) -> dict[str, Any]:
    """The settings in one object; sizes below 1 and None mean one group for all."""
    made = dict[str, Any]()
    for name, keys in _SETTINGS.items():
        given = next((section[key] for key in keys if key in section), None)
        if type(given) is int and given > 0:
            made[name] = given
        elif is_a(given, list) and len(given) == 2 and all(type(n) is int and n > 0 for n in given):
            made[name] = tuple(given)
    return made


def comfy_layers(config: Facts) -> Facts:
    """The formats of layers in ComfyUI's metadata."""
    given = config.get(COMFY)
    if is_a(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {}
    layers = given.get("layers") if is_mapping(given) else None
    return layers if is_mapping(layers) else {}
