"""The quantization_config of each scheme in config.json, as vLLM and other programs read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..errors import FormatError
from ..runtime.ndarrays import is_a
from .configuration import CONFIG, KEYS, LEFT_OUT, Facts, completed, is_part, sections

_DTYPE_KEYS = ("torch_dtype", "dtype")
# The configs of parts of the model that have the model's dtype.
_NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
_COMPRESSED = "compressed-tensors"

Settings = Facts


def _compressed(format_: str, weights: Facts, activations: Facts | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"symmetric": True, "dynamic": False, **weights}}
    if activations is not None:
        group["input_activations"] = {"symmetric": True, "dynamic": True, **activations}
    return {"quant_method": _COMPRESSED, "format": format_, "config_groups": {"group_0": group},
            "quantization_status": "compressed"}  # fmt: skip


def _int4(s: Settings) -> dict[str, Any]:
    groups = {"strategy": "group", "group_size": s["group_size"]}
    groups = {"strategy": "channel"} if s["group_size"] == -1 else groups
    return _compressed("pack-quantized", {"num_bits": s["bits"], "type": "int", **groups,
                                          "symmetric": not s.get("zero_points")})  # fmt: skip


def _bytes(kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": 8, "type": kind, "strategy": strategy, **more}


# Schemes whose config describes one group of all inputs, by a group_size of -1 in settings.
ONE_GROUP = ("gptq", "awq", "int4:compressed-tensors")

_MX = {"group_size": 32, "scale_dtype": "torch.uint8", "zp_dtype": "torch.uint8"}

# One row per scheme: the key of the config, the list of modules left out, the rest.
_ROWS: dict[str, tuple[str, str, Callable[[Settings], dict[str, Any]]]] = {
    "fp8:block": (KEYS[0], LEFT_OUT[1], lambda s: {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": list(s["weight_block_size"])}),
    # compressed-tensors, quantization/quant_scheme.py: FP8_DYNAMIC, INT8_W8A8, MXFP4A16, MXFP8A16
    "fp8:channel": (KEYS[0], LEFT_OUT[0], lambda s: _compressed(
        "float-quantized", _bytes("float", "channel"), _bytes("float", "token"))),
    "fp8:tensor": (KEYS[0], LEFT_OUT[0], lambda s: _compressed(
        "float-quantized", _bytes("float", "tensor"))),
    "int8:compressed-tensors": (KEYS[0], LEFT_OUT[0], lambda s: _compressed(
        "int-quantized", _bytes("int", "channel"), _bytes("int", "token"))),
    "mxfp4:compressed-tensors": (KEYS[0], LEFT_OUT[0], lambda s: _compressed(
        "mxfp4-pack-quantized", {**_bytes("float", "group", **_MX), "num_bits": 4})),
    "mxfp8:compressed-tensors": (KEYS[0], LEFT_OUT[0], lambda s: _compressed(
        "mxfp8-quantized", _bytes("float", "group", **_MX))),
    "mxfp4:gpt-oss": (KEYS[0], LEFT_OUT[1], lambda s: {"quant_method": "mxfp4"}),
    "nvfp4:modelopt": (KEYS[0], LEFT_OUT[0], lambda s: {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"}}),
    "nvfp4:compressed-tensors": (KEYS[0], LEFT_OUT[0], lambda s: _compressed(
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})),
    "int4:compressed-tensors": (KEYS[0], LEFT_OUT[0], _int4),
    "gptq": (KEYS[0], LEFT_OUT[1], lambda s: {
        "quant_method": "gptq", "bits": s["bits"], "group_size": s["group_size"],
        "desc_act": False, "sym": False, "checkpoint_format": "gptq"}),
    "awq": (KEYS[0], LEFT_OUT[1], lambda s: {
        "quant_method": "awq", "bits": s["bits"], "group_size": s["group_size"],
        "zero_point": True, "version": "gemm"}),
    "mlx": (KEYS[2], "", lambda s: {"bits": s["bits"], "group_size": s["group_size"]}),
}  # fmt: skip


def declaration(
    scheme: str, settings: Settings, config: Facts, modules: Collection[str] = ()
) -> dict[str, Any]:
    """A config with its quantisation section replaced by that of weights in `scheme`.

    `settings` are those of the weights' parts, as `Scheme.decode` takes them. `modules` have such
    weights, and are removed from lists of unquantised modules. Raises FormatError for schemes that
    loaders do not find by a config.

    >>> declaration("mxfp4:gpt-oss", {}, {"model_type": "gpt_oss"})
    {'model_type': 'gpt_oss', 'quantization_config': {'quant_method': 'mxfp4'}}
    """
    if scheme not in _ROWS:
        known = ", ".join(_ROWS)
        raise FormatError(f"{CONFIG} cannot describe {scheme}, only {known}")
    key, names, made = _ROWS[scheme]
    lists = (each.get(name) for each in sections(config).values() for name in LEFT_OUT)
    listed = next((given for given in lists if given and isinstance(given, list)), [])
    skipped = [each for each in listed if not (is_a(each, str) and each in modules)]
    try:
        said = made(settings)
    except KeyError as missing:
        reason = f"{CONFIG} must have the {missing.args[0]} of {scheme}, which these weights lack"
        raise FormatError(reason) from None
    return {**without(config), key: {**said, names: skipped} if skipped and names else said}


def without(config: Facts) -> dict[str, Any]:
    """A config without its quantisation sections.

    >>> without({"a": 1, "text_config": {"b": 2, "quantization_config": {}}})
    {'a': 1, 'text_config': {'b': 2}}
    """
    return {
        key: without(value) if is_part(key, value) else value
        for key, value in config.items()
        if key not in KEYS
    }


def left_out(config: Facts, modules: Sequence[str], facts: Facts) -> dict[str, Any]:
    """A config that lists more modules as not quantised, and includes the files of quantisers.

    `facts` are those of `configuration`, with the files of quantisers.

    >>> left_out({"quantization_config": {"quant_method": "fp8"}}, ["lm_head"], {})
    {'quantization_config': {'quant_method': 'fp8', 'modules_to_not_convert': ['lm_head']}}
    """
    made = dict(config)
    for path, said in sections(config).items():
        compressed = said.get("quant_method") in (_COMPRESSED, "modelopt")
        name = next((k for k in LEFT_OUT if k in said), LEFT_OUT[0] if compressed else LEFT_OUT[1])
        listed: list[Any] = said[name] if is_a(said.get(name), list) else []
        known = {each for each in listed if is_a(each, str)}
        new = {**said, name: [*listed, *(m for m in dict.fromkeys(modules) if m not in known)]}
        made = _put(made, path, completed(new, facts))
    return made


def of_dtype(config: Facts, name: str) -> dict[str, Any]:
    """A config with another dtype of the model, if it has one.

    >>> of_dtype({"dtype": "float16", "text_config": {"torch_dtype": "float16"}}, "bfloat16")
    {'dtype': 'bfloat16', 'text_config': {'torch_dtype': 'bfloat16'}}
    """
    made = dict(config)
    made |= {key: name for key in _DTYPE_KEYS if isinstance(made.get(key), str)}
    nested = {key: made[key] for key in _NESTED if isinstance(made.get(key), dict)}
    return made | {key: of_dtype(each, name) for key, each in nested.items()}


def _put(config: Facts, path: Sequence[str], value: Any) -> dict[str, Any]:
    """A config with another value at the path of keys."""
    first, *rest = path
    return {**config, first: _put(config[first], rest, value) if rest else value}
