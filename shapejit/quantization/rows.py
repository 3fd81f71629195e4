"""The table of schemes: a row for each way in which checkpoints store quantised weights.

N are a weight's output features, K its inputs; b bits per code, g elements per scale.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ..dtypes.table import dtype
from ..packings.named_rows import NamedRows
from . import computed, rules
from .forms import Form, Numbers, Part, SchemeRow, packing
from .gguf_rows import GGUF_ROWS

_BF16_FIRST = "bfloat16|float16|float32"
_E4M3, _E8M0, _E2M1 = "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn"
_F16_FIRST = "float16|bfloat16|float32"
_F32_FIRST = "float32|bfloat16|float16"
_FP8 = f"{_E4M3}|float8_e5m2"
_INT32 = "int32|uint32"
_GROUP = {"g": 128, "b": 4}
_BLOCKS = {"m": 128, "k": 128}  # rows and columns per scale
_INPUT = Part("input_scale|activation_scale|input_scale_ub", "float32|bfloat16", "?", optional=True)
_SHAPE = Part("weight_shape", "int64|int32", "2", optional=True)
_GROUP_INDEX = Part("g_idx|weight_g_idx", "int32|int64", "K", optional=True)
_COMFY = Part("comfy_quant", "uint8", "?", optional=True)

_AWQ_NAMES: dict[str, dict[str, int]] = {"gemm": {}, "gemv": {}}
_V1, _V2 = {"version": 1}, {"version": 2}
_GPTQ_NAMES = {"gptq": _V1, "gptq_v2": _V2}
# compressed-tensors, quantization/quant_args.py, ActivationOrdering: groups that are not those of
# the columns' order come with a weight_g_idx.
_ACTORDER = {word: dict[str, int]() for word in ("group", "dynamic", "weight", "static", "true")}
# auto-round, export_to_autoround/export.py, dynamic_import_quant_linear_for_packing.
_AUTOROUND = {
    f"auto_round{packing}{kernel}": version
    for packing, version in (("", _V2), (":gptqmodel", _V2), (":auto_gptq", _V1), (":gptq", _V1))
    for kernel in ("", ":exllamav2", ":tritonv2", ":marlin")
}

_NF4 = dtype("nf4").format
assert _NF4 is not None
# bitsandbytes, functional.py, get_4bit_type: divided by the largest.
_FP4 = tuple(x / 12 for x in (0, 0.0625, 8, 12, 4, 6, 2, 3, 0, -0.0625, -8, -12, -4, -6, -2, -3))

_FLAT_NIBBLES = replace(packing("(w e) -> (w -e) 1", bits=4), flat=True, pads=True)
_PAIRS_OF_ROWS = packing("n (w e) -> w n [e]", bits=4)
_ROW_OF_ZEROS = replace(packing("n -> (n)", bits=0), pads=True)


def _fp8(scale: Part, dims: str, **rest: Any) -> Form:
    parts = Part("weight", _FP8, "N K"), scale, _INPUT, _COMFY
    return Form(parts, Numbers("weight", "N K"), (Numbers(scale.key, dims),), **rest)


def _fused(scale: Part, dims: str, codes: str = "N K", **rest: Any) -> Form:
    """float8 of stacked experts: codes have the module's name, names of scales begin with it."""
    return Form(
        (Part("", _FP8, codes), scale, _INPUT), Numbers("", codes), (Numbers(scale.key, dims),),
        result=codes, **rest,
    )  # fmt: skip


def _scaled(codes: Part, numbers: Numbers, scale: Part, kind: str, **rest: Any) -> Form:
    """Codes with one scale per block, both in rows."""
    scales = (Numbers(scale.key, scale.dims, kind),)
    return Form((codes, scale), numbers, scales, **{"rule": rules.by_power, **rest})


def _nvfp4(codes: str, extra: Part, factor: Numbers, **rest: Any) -> tuple[Form]:
    scale = Part("weight_scale", f"{_E4M3}|uint8", "N K/16")
    parts = Part(codes, "uint8", "N K/2"), scale, Part(factor.part, "float32", ""), extra
    scales = Numbers("weight_scale", "N K/16", _E4M3), factor
    return (Form(parts, Numbers(codes, "N K", _E2M1, "torch:x2"), scales, **rest),)


def _bnb(name: str, table: tuple[float, ...]) -> SchemeRow:
    """bitsandbytes' 4 bits, with or without quantised scales."""
    state = f"quant_state.bitsandbytes__{name}"
    parts = (
        Part("weight", "uint8", "n/2 1"),
        Part("weight.quant_map|quant_map", "float32", "16"),
        Part(f"weight.{state}|{state}", "uint8", "?"),
    )
    absmax = "weight.absmax|absmax"
    nested = (
        Part(absmax, "uint8", "n/g"),
        Part("weight.nested_absmax|nested_absmax", "float32", "n/g/h"),
        Part("weight.nested_quant_map|nested_quant_map", "float32", "256"),
    )
    codes = Numbers("weight", "n", "uint4", _FLAT_NIBBLES, table=table)
    scale = Numbers("weight.absmax", "n/g")
    return SchemeRow(
        f"bnb:{name}", "bitsandbytes", "bitsandbytes, functional.py, dequantize_4bit", (
        Form((*parts, Part(absmax, "float32", "n/g")), codes, (scale,), result="n",
             tells=computed.quant_state, rule=rules.by_table, chosen={"g": 64},
             writes=partial(computed.quant_parts, name)),
        Form((*parts, *nested), codes, (scale._replace(read=computed.nested_absmax),), result="n",
             tells=computed.quant_state),
    ))  # fmt: skip


# fmt: off
ROWS = (
    SchemeRow("fp8:block", "fp8 compressed-tensors block",
        "compressed-tensors, entrypoints/convert/converters/fp8block_dequantizer.py", (
        _fp8(Part("weight_scale_inv|weight_scale", _F32_FIRST, "N/m K/k"), "N/m K/k",
             usual=_BLOCKS, rule=rules.by_absmax),
        _fp8(Part("weight_scale_inv", _F32_FIRST, "N/N K/K"), "N/N K/K"),
        # transformers, integrations/finegrained_fp8.py, FP8Experts; a scale for gate, one for up
        _fused(Part("scale_inv", _F32_FIRST, "N/m K/k"), "N/m K/k", usual=_BLOCKS),
        _fused(Part("scale_inv", _F32_FIRST, "N/m K/K"), "N/m K/K"))),
    SchemeRow("fp8:channel", "compressed-tensors fbgemm_fp8 channel",
        "compressed-tensors, compressors, FloatQuantizationCompressor", (
        _fp8(Part("weight_scale", _F32_FIRST, "N K/K"), "N K/K", rule=rules.by_absmax),
        _fp8(Part("weight_scale", _F32_FIRST, "N K/g"), "N K/g"),
        # transformers, integrations/fbgemm_fp8.py, FbgemmFp8Llama4TextExperts: gate_up, down
        _fused(Part("scale", _F32_FIRST, "K/K N"), "K/K N", "K N"),
        _fused(Part("scale", _F32_FIRST, "N K/K"), "N K/K", "K N"))),
    SchemeRow("fp8:tensor", "fp8 compressed-tensors modelopt comfyui tensor",
        "nvidia-modelopt, torch/quantization/qtensor/fp8_tensor.py, FP8QTensor.dequantize", (
        _fp8(Part("weight_scale|qscale_weight", _F32_FIRST, ""), "N/N K/K", rounds="scales",
             tells=partial(computed.comfy_format, "float8_e4m3fn"), rule=rules.by_absmax),
        _fp8(Part("weight_scale_inv", _F32_FIRST, "1", flat=True), "N/N K/K"),
        _fused(Part("weight_scale", _F32_FIRST, ""), "N/N K/K", rounds="scales")), arrays=True),
    SchemeRow("int8:compressed-tensors", "compressed-tensors",
        "compressed-tensors, compressors, IntQuantizationCompressor", tuple(
        Form((Part("weight", "int8", "N K"),
              Part("weight_scale", _BF16_FIRST, dims, flat=not grouped),
              Part("weight_zero_point", "int8", dims, optional=True, flat=not grouped),
              *((_GROUP_INDEX,) if dims == "N K/g" else ()), _INPUT),
             Numbers("weight", "N K"), (Numbers("weight_scale", blocks),),
             Numbers("weight_zero_point", blocks), tells=computed.group_index,
             rule=rules.by_range_or_least if grouped else None)
        for dims, blocks, grouped in (("N K/K", "N K/K", True), ("N K/g", "N K/g", True),
                                      ("1", "N/N K/K", False))),
        layouts={"actorder": _ACTORDER}),
    SchemeRow("deepseek-v4", "fp8", "DeepSeek-V4, inference/convert.py", (
        _scaled(Part("weight", _E4M3, "N K"), Numbers("weight", "N K"),
                Part("scale", f"{_E8M0}|uint8", "N/m K/k"), _E8M0, usual=_BLOCKS),
        _scaled(Part("weight", "int8|uint8", "N K/2"), Numbers("weight", "N K", _E2M1, "torch:x2"),
                Part("scale", f"{_E8M0}|uint8", "N K/32"), _E8M0, zero=-0.0),
        # transformers, integrations/finegrained_fp8.py, FP8Experts with expert_dtype fp4
        _scaled(Part("", "int8", "N K/2"), Numbers("", "N K", _E2M1, "torch:x2"),
                Part("scale_inv", f"{_E8M0}|uint8", "N K/32"), _E8M0, rule=None))),
    SchemeRow("mxfp4:compressed-tensors", "compressed-tensors mxfp4-pack-quantized",
        "compressed-tensors, compressors, MXFP4PackedCompressor", (
        _scaled(Part("weight_packed", "uint8", "N K/2"),
                Numbers("weight_packed", "N K", _E2M1, "torch:x2"),
                Part("weight_scale", f"uint8|{_E8M0}", "N K/32"), _E8M0,
                rule=rules.by_closest_power),)),
    SchemeRow("mxfp8:compressed-tensors", "compressed-tensors mxfp8-quantized",
        "compressed-tensors, compressors, MXFP8QuantizationCompressor", (
        _scaled(Part("weight", _E4M3, "N K"), Numbers("weight", "N K"),
                Part("weight_scale", f"uint8|{_E8M0}", "N K/32"), _E8M0,
                rule=rules.by_closest_power),)),
    SchemeRow("mxfp4:gpt-oss", "mxfp4",
        "transformers, integrations/mxfp4.py, convert_moe_packed_tensors", (
        _scaled(Part("blocks", "uint8", "N K/32 16"),
                Numbers("blocks", "N K", _E2M1, "gpt-oss:blocks"),
                Part("scales", f"uint8|{_E8M0}", "N K/32"), _E8M0, result="K N"),), separators="._",
        weight="", stacks="only"),
    SchemeRow("nvfp4:modelopt", "modelopt",
        "nvidia-modelopt, torch/quantization/qtensor/nvfp4_tensor.py, NVFP4QTensor.dequantize",
        (*_nvfp4("weight", _INPUT, Numbers("weight_scale_2", ""), zero=-0.0,
                 rule=rules.by_two_levels_or_one),
         # torch/export/unified_export_hf.py: Llama 4's experts, transposed
         Form((Part("", "uint8", "K/2 N"), Part("weight_scale", f"{_E4M3}|uint8", "K/16 N"),
               Part("weight_scale_2", "float32", ""), _INPUT),
              Numbers("", "N K", _E2M1, _PAIRS_OF_ROWS),
              (Numbers("weight_scale", "K/16 N", _E4M3), Numbers("weight_scale_2", "")),
              result="K N", zero=-0.0))),
    SchemeRow("nvfp4:compressed-tensors", "compressed-tensors",
        "compressed-tensors, compressors, NVFP4PackedCompressor",
        _nvfp4("weight_packed", Part("input_global_scale", "float32", "?", optional=True),
               Numbers("weight_global_scale", "", step="/"), rule=rules.by_two_inverses),
        arrays=True),
    SchemeRow("nvfp4:comfyui", "comfyui",
        "comfy-kitchen, backends/eager/quantization.py, dequantize_nvfp4", (
        Form((Part("weight", "uint8", "N K/2"),
              Part("weight_scale", f"{_E4M3}|uint8", "N/128*128 K/64*4"),
              Part("weight_scale_2", "float32", ""), _INPUT, _COMFY),
             Numbers("weight", "N K", _E2M1, "torchao:tinygemm"),
             (Numbers("weight_scale", "N K/16", _E4M3, "nvfp4:scale-swizzle"),
              Numbers("weight_scale_2", "")), rounds="scales",
             tells=partial(computed.comfy_format, "nvfp4"), rule=rules.by_two_levels, multiple=16,
             writes=partial(computed.comfy_quant, "nvfp4")),)),
    SchemeRow("int4:compressed-tensors", "compressed-tensors",
        "compressed-tensors, compressors, PackedQuantizationCompressor", (
        Form((Part("weight_packed", _INT32, "N K*b/32"),
              Part("weight_scale", _BF16_FIRST, "N K/g"), _SHAPE,
              Part("weight_zero_point", _INT32, "N*b/32 K/g", optional=True), _GROUP_INDEX),
             Numbers("weight_packed", "N K", "uint{b}", "compressed-tensors"),
             (Numbers("weight_scale", "N K/g"),),
             Numbers("weight_zero_point", "K/g N", "uint{b}", "compressed-tensors", swapped=True),
             zero="half", usual={"b": 4}, tells=computed.weight_shape,
             rule=rules.by_range_or_least, chosen=_GROUP, writes=computed.sizes_of_weight,
             asks=("bits", "group_size", "weight_shape")),
        Form((Part("weight_packed", _INT32, "N K*b/32"),
              Part("weight_scale", _BF16_FIRST, "1", flat=True), _SHAPE,
              Part("weight_zero_point", "int8", "1", optional=True, flat=True)),
             Numbers("weight_packed", "N K", "uint{b}", "compressed-tensors"),
             (Numbers("weight_scale", "N/N K/K"),),
             Numbers("weight_zero_point", "N/N K/K", read=computed.from_the_middle),
             zero="half", usual={"b": 4}, tells=computed.weight_shape,
             asks=("bits", "weight_shape"))),
        layouts={"actorder": _ACTORDER}),
    SchemeRow("gptq", "gptq", "GPTQModel, nn_modules/qlinear/__init__.py, dequantize_weight", (
        Form((Part("qweight", _INT32, "K*b/32 N"), Part("qzeros", _INT32, "K/g N*b/32"),
              Part("scales", _F16_FIRST, "K/g N"),
              Part("g_idx", "int32|int64", "K", optional=True)),
             Numbers("qweight", "N K", "uint{b}", "gptq:qweight"), (Numbers("scales", "K/g N"),),
             Numbers("qzeros", "N K/g", "uint{b}", "gptq:qzeros@v{v}"), usual={"v": 1},
             tells=computed.group_index, rule=rules.by_range, chosen=_GROUP,
             writes=computed.groups_of_inputs,
             assumption="how zero points are stored: minus one (v1) is assumed"),),
        layouts={"checkpoint_format": _GPTQ_NAMES, "format": _GPTQ_NAMES,
                 "packing_format": _AUTOROUND, "version": {}}),
    SchemeRow("awq", "awq", "GPTQModel, quantization/awq/utils/packing_utils.py, dequantize_gemm", (
        Form((Part("qweight", _INT32, "K N*b/32"), Part("qzeros", _INT32, "K/g N*b/32"),
              Part("scales", _F16_FIRST, "K/g N")),
             Numbers("qweight", "N K", "uint{b}", "awq:gemm"), (Numbers("scales", "K/g N"),),
             Numbers("qzeros", "N K/g", "uint{b}", "awq:gemm"), usual={"b": 4},
             rule=rules.by_range, chosen=_GROUP, layout="gemm"),
        # GEMV: rows of scales and zero points may be longer than there are groups.
        Form((Part("qweight", _INT32, "N K*b/32"), Part("qzeros", _INT32, "N z"),
              Part("scales", _F16_FIRST, "N z*8")),
             Numbers("qweight", "N K", "uint{b}", "awq:gemv"), (Numbers("scales", "N K/g"),),
             Numbers("qzeros", "N K/g", "uint{b}", "compressed-tensors"), usual={"b": 4},
             layout="gemv")),
        layouts={"checkpoint_format": _AWQ_NAMES, "format": _AWQ_NAMES, "version": _AWQ_NAMES,
                 "packing_format": {"auto_round:auto_awq": {}, "auto_round:awq": {}}}),
    SchemeRow("matmulnbits", "", "onnxruntime, docs/ContribOperators.md, com.microsoft.MatMulNBits",
        tuple(
            Form((Part("B|qweight|Q4|Q8|Q2", "uint8", "N K/g g*b/8"),
                  Part("scales", _F32_FIRST, "N K/g", flat=True),
                  Part("zero_points|qzeros", kinds, dims, optional=True, flat=True)),
                 Numbers("B", "N K", "uint{b}", "onnx:matmulnbits"), (Numbers("scales", "N K/g"),),
                 Numbers("zero_points", "N K/g", *packed),
                 zero="half", result="K N", usual={"b": 4}, rule=rules.by_signed_absmax,
                 chosen={"g": 32},
                 assumption="how many inputs there are: whole blocks are assumed")
            for kinds, dims, packed in (("uint8", "N K/g*b/8", ("uint{b}", _ROW_OF_ZEROS)),
                                        (_F32_FIRST, "N K/g", ()))
        ), separators="._", operator="com.microsoft.MatMulNBits"),
    SchemeRow("bnb:int8", "bitsandbytes", "bitsandbytes, functional.py, int8_vectorwise_dequant", (
        Form((Part("weight", "int8", "N K"), Part("SCB", "float32", "N"),
              Part("weight_format", "uint8", "", optional=True)),
             Numbers("weight", "N K", "float32", read=computed.times_row_scale),
             (Numbers("SCB", "N/N K/K", "float32", read=computed.one_127th),)),)),
    _bnb("nf4", _NF4.table),
    _bnb("fp4", _FP4),
    SchemeRow("mlx", "mlx", "mlx, mlx.core.dequantize", (
        Form((Part("weight", "uint32|int32", "N K*b/32"), Part("scales", _BF16_FIRST, "N K/g"),
              Part("biases", _BF16_FIRST, "N K/g")),
             Numbers("weight", "N K", "uint{b}", "mlx"), (Numbers("scales", "N K/g"),),
             offset=(Numbers("biases", "N K/g"),), rounds="product", usual={"g": 64, "b": 4},
             rule=rules.by_mlx_affine, asks=("bits", "group_size")),
        *(_scaled(Part("weight", "uint32|int32", f"N K*{bits}/32"),
                  Numbers("weight", "N K", codes, "mlx"), Part("scales", "uint8", dims), scale,
                  rule=rules.by_absmax_or_zero if scale == _E4M3 else rules.by_upper_power)
          for bits, codes, dims, scale in (
              (4, _E2M1, "N K/32", _E8M0), (4, _E2M1, "N K/16", _E4M3), (8, _E4M3, "N K/32", _E8M0)
          ))), stacks="too"),
    *GGUF_ROWS,
)
# fmt: on
BY_NAME = NamedRows("scheme", ROWS)
