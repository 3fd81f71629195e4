"""The keys of quantisation configs: which are known, and the values that are understood.

From transformers' utils/quantization_config.py, compressed-tensors' quant_config.py and
quant_args.py, GPTQModel's quantization/config.py, AutoAWQ's and AutoFP8's configs, auto-round's
export, nvidia-modelopt's convert_hf_config.py, mlx-lm's utils.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..errors import quoted, shortened
from ..runtime.ndarrays import is_mapping
from .configuration import (
    KEYS,
    QUANTIZER_CONFIG_FILES,
    TOP_LEVEL,
    Declared,
    Facts,
    groups_of,
    parts,
)
from .rows import ROWS

# Keys that do not change a stored weight, or repeat facts of its tensors.
_HARMLESS = {
    "sizes that detection reads, and what the parts of a weight show by themselves":
        "nbits weight_block_size block_structure zero_point sym "
        "symmetric has_zero_point desc_act static_groups data_type scale_dtype "
        "zp_dtype super_bits super_group_size",
    "which modules are quantised, and how: their tensors show it":
        "ignore ignored_layers modules_to_not_convert modules_to_convert exclude_modules targets "
        "skip_modules llm_int8_skip_modules quantized_layers dynamic extra_config layer_config "
        "lm_head quant_block_list to_quant_block_names block_name_to_quantize quantize_embeddings "
        "module_name_preceding_first_block modules_in_block_to_quantize config_groups weights",
    "activations, and the cache of keys and values":
        "activation_scheme activation_scale_ub input_activations output_activations "
        "kv_cache_scheme kv_cache_quant_algo kv_cache_quant_targets act_bits act_data_type "
        "act_dynamic act_group_size act_sym pre_quant_scale smoothquant_val dynamic "
        "llm_int8_threshold llm_int8_has_fp16_weight",
    "how weights were found":
        "observer observer_kwargs damp_percent damp_auto_increment true_sequential mse dataset "
        "act_group_aware tokenizer batch_size train_bs pad_token_id max_input_length model_seqlen "
        "seqlen nsamples iters lr minmax_lr amp gradient_accumulate_steps low_gpu_mem_usage "
        "enable_quanted_input enable_minmax_tuning enable_norm_bias_tuning enable_torch_compile "
        "not_use_best_mse cache_block_outputs meta v2 v2_alpha gptaq foem fallback failsafe "
        "hessian weight_only pre_filters moe mock_quantization offload_to_disk gc_mode device "
        "offload_to_disk_path vram_strategy wait_for_submodule_finalizers "
        "auto_forward_data_parallel",
    "how weights are loaded, and computed with":
        "load_in_4bit load_in_8bit _load_in_4bit _load_in_8bit bnb_4bit_compute_dtype "
        "bnb_4bit_use_double_quant bnb_4bit_quant_storage llm_int8_enable_fp32_cpu_offload "
        "run_compressed use_optimized_inference dequantize do_fuse fuse_max_seq_len pack_impl "
        "modules_to_fuse exllama_config use_exllama disable_exllama use_cuda_fp16",
    "who wrote them":
        "quant_library producer provider quantization_status global_compression_ratio "
        "autoround_version model_name_or_path model_file_base_name",
}  # fmt: skip
# Accepted values, in lower case, of keys whose other values change layout or meaning; those of the
# rows of schemes are accepted, too.
_VALUES = {
    **dict.fromkeys(("bits", "num_bits", "w_bit"), "[1-9][0-9]*"),
    **dict.fromkeys(("group_size", "q_group_size"), "-1|[1-9][0-9]*"),
    "quant_method": "fp8|fbgemm_fp8|compressed-tensors|sparseml|modelopt(_fp[48]|_mixed)?|gptq|awq|"
                    "mxfp4|bitsandbytes|(intel/)?auto-round|mlx",
    "quant_algo": r"fp8\w*|(w4a[0-9]+_)?nvfp4\w*|mixed_precision",
    "format": r"((nvfp4-|mxfp4-)?pack|float|naive|int|mxfp8)-quantized|mixed-precision|dense|"
              r"auto_round[\w:]*",
    "version": "[0-9].*",
    "backend": "(?!llm-awq).*",
    "type": "int|float",
    "strategy": "tensor|channel|group|block|token|tensor_group|attn_head",
    "fmt": r"e4m3\w*|e5m2|float8_e4m3fn|float8_e5m2",
    "scale_fmt": "ue8m0|float",
    "expert_dtype": "fp8|fp4",
    "pack_dtype": "int32|torch.int32",
    "bnb_4bit_quant_type": "nf4|fp4",
    "mode": "affine|mxfp4|nvfp4|mxfp8",
}  # fmt: skip
_LAYOUT_VALUES: dict[str, set[str]] = {}
for _row in ROWS:
    for _key, _known in _row.layouts.items():
        _LAYOUT_VALUES.setdefault(_key, set()).update(_known)
# Keys that must be empty: other values change the layout or meaning of weights, or are incomplete.
_EMPTY = ("transform_config", "sparsity_config", "rotation", "rotation_config", "hadamard_config",
          "is_marlin_format")  # fmt: skip
_KNOWN = {*" ".join(_HARMLESS.values()).split(), *_VALUES, *_LAYOUT_VALUES, *_EMPTY, *KEYS}
# Keys of the model in a quantiser's file, if there is no other config.
_ALONE = ("quant_method", "quant_algo", "checkpoint_format", "packing_format", "pack_dtype")


def unknown_keys(said: Declared) -> list[str]:
    """Warnings for the keys of a quantisation config that are not known.

    >>> from .configuration import declared
    >>> config = {"quantization_config": {"quant_method": "fp8", "shuffle": True}}
    >>> unknown_keys(declared(config))
    ["the key 'shuffle' of quantization_config is unknown and ignored"]
    """
    found = {
        f"the key {quoted(str(key))} of {where} is unknown and ignored"
        for where, section in _described(said)
        if where != TOP_LEVEL
        for key, value in section.items()
        if key not in _KNOWN and not _is_module(key, value)
    }
    return sorted(found)


def unknown_values(said: Declared) -> str:
    """Why a quantisation config is not understood: its first unknown value; else "".

    >>> from .configuration import declared
    >>> unknown_values(declared({"quantization_config": {"actorder": "random"}}))
    "quantization_config says actorder 'random', which is not understood"
    """
    for where, section in _described(said):
        for key, value in section.items():
            if (where != TOP_LEVEL or key in _ALONE) and not _is_understood(key, value):
                return f"{where} says {key} {quoted(str(value))}, which is not understood"
    return ""


def malformed(said: Declared) -> list[str]:
    """Warnings for the sections of a config that are not objects.

    >>> from .configuration import declared
    >>> malformed(declared({"quantization_config": 7}))
    ['quantization_config is 7, not an object, and is ignored']
    """
    return [
        f"{'.'.join((*path, key))} is {shortened(json.dumps(part[key], default=str))}, "
        "not an object, and is ignored"
        for path, part in parts(said.sections[TOP_LEVEL])
        for key in (*KEYS, *QUANTIZER_CONFIG_FILES)
        if part.get(key) is not None and not is_mapping(part[key])
    ]


def _described(said: Declared) -> Iterator[tuple[str, Facts]]:
    """The descriptions of weights and where they are, those of groups, too."""
    for where, section in said.sections.items():
        yield where, section
        for name, group in groups_of(section).items():
            yield f"{where}.config_groups.{name}", group
            if is_mapping(group.get("weights")):
                yield f"{where}.config_groups.{name}.weights", group["weights"]


def _is_understood(key: str, value: Any) -> bool:
    if key in _EMPTY:
        dense = is_mapping(value) and str(value.get("format")).lower() == "dense"
        return dense or _is_empty(value)
    if not value or key not in {*_VALUES, *_LAYOUT_VALUES}:
        return True
    text = str(value).lower()
    return (
        text in _LAYOUT_VALUES.get(key, ()) or re.fullmatch(_VALUES.get(key, ""), text) is not None
    )


def _is_empty(value: Any) -> bool:
    """Whether a value is empty, at any depth."""
    return not value or (is_mapping(value) and all(map(_is_empty, value.values())))


def _is_module(key: str, value: Any) -> bool:
    """Whether a key is the name of a module (MLX), whose value is its settings, or false."""
    return (is_mapping(value) and ("bits" in value or "group_size" in value)) or (
        isinstance(value, bool) and "." in key
    )
