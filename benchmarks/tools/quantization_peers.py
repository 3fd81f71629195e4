"""What quantisation libraries do where shapejit casts, scales, repacks and decodes.

`shapejit.bench.worker` loads this file in the library's own Python, for `peers`. Sources are those
of the cases where the result can be compared, and else bytes that look random.
"""

from importlib import import_module
from math import prod

import numpy as np
from answers import numbers, pattern, scales, torch as loaded  # `worker`, which loads this


def _bytes(*shape, dtype="uint8"):
    """A tensor of bytes that look random."""
    made = pattern(prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    return loaded().from_numpy(made)


def _scaled(job):
    """compressed-tensors: unpacked to a byte or a float each, then multiplied."""
    name, block = job["dtype"], job["blocks"]
    if name == "float8_e4m3fn" and block:
        return _fp8_block(job)
    if name not in ("int4", "uint4", "float4_e2m1fn") or not block:
        raise LookupError(f"compressed-tensors has no such case of {name}")
    args, dequantize = _arguments(block[1], float4="float" in name)
    torch = loaded()
    scale, zero = (x.to(torch.bfloat16) for x in scales(job))
    rows, columns = job["shape"]
    if "float" in name:
        unpack = _of("compressed_tensors.compressors.nvfp4.helpers", "unpack_fp4_from_uint8")
        packed = _bytes(rows, columns // 2)
        return lambda: dequantize(unpack(packed, rows, columns), scale, zero, args), None
    bits = _of("compressed_tensors.compressors.pack_quantized", "helpers")
    shift = 8 if name == "uint4" else 0
    words = bits.pack_to_int32((numbers(job) - shift).to(torch.int8), 4)
    zero -= shift
    shape = torch.Size(job["shape"])

    def run():
        return dequantize(bits.unpack_from_int32(words, 4, shape), scale, zero, args)

    return run, run()


def _arguments(group, *, float4=False):
    quantization = import_module("compressed_tensors.quantization")
    kind = "float" if float4 else "int"
    args = quantization.QuantizationArgs(
        num_bits=4, type=kind, symmetric=float4, strategy="group", group_size=group
    )
    return args, _of("compressed_tensors.quantization.lifecycle.forward", "dequantize")


def _fp8_block(job):
    torch = loaded()
    kind = _of("compressed_tensors.entrypoints.convert.converters", "FP8BlockDequantizer")
    rows, columns = job["shape"]
    weight = (_bytes(rows, columns) & 0x77).view(torch.float8_e4m3fn)
    scale = torch.ones(-(-rows // 128), -(-columns // 128))
    decode = kind()._create_dequantized_weight
    return lambda: decode(weight, scale), None


def _of(module, name):
    return getattr(import_module(module), name)


def _ct_from_awq(job):
    kind = _of("compressed_tensors.entrypoints.convert.converters", "AutoAWQConverter")
    converter, (rows, columns) = kind(zero_point=False), job["shape"]
    parts = {"m.qweight": _bytes(rows, columns // 8, dtype="int32"), "m.scales": _bytes(1, columns)}
    return lambda: converter.process(dict(parts)), None


def _gptq_from_awq(job):
    repack = _of("gptqmodel.quantization.awq.utils.packing_utils", "unpack_reorder_pack")
    rows, columns = job["shape"]
    words = _bytes(rows, columns // 8, dtype="int32")
    return lambda: repack(words, words[:1], 4), None


def _gptq_module(job, group):
    rows, columns = job["shape"]
    return _of("gptqmodel.nn_modules.qlinear.torch", "TorchLinear")(
        bits=4, group_size=group, sym=True, desc_act=False, in_features=rows,
        out_features=columns, bias=False, register_buffers=True,
    )  # fmt: skip


def _gptq_decode(job):
    job = job | {"shape": job["shape"][::-1]}
    rows, columns = job["shape"]
    module = _gptq_module(job, job["group"])
    module.qweight = _bytes(rows // 8, columns, dtype="int32")
    module.scales = module.scales + 1
    return module.eval().dequantize_weight, None


def _awq_decode(job):
    torch = loaded()
    decode = _of("gptqmodel.quantization.awq.utils.packing_utils", "dequantize_gemm")
    (columns, rows), group = job["shape"], job["group"]
    words = _bytes(rows, columns // 8, dtype="int32")
    factors = torch.ones(rows // group, columns, dtype=torch.bfloat16)
    zeros = words[: rows // group].clone()
    return lambda: decode(words, zeros, factors, 4, group), None


def _int4_decode(job):
    torch = loaded()
    (rows, columns), group = job["shape"], job["group"]
    args, dequantize = _arguments(group)
    unpack = _of("compressed_tensors.compressors.pack_quantized.helpers", "unpack_from_int32")
    words = _bytes(rows, columns // 8, dtype="int32")
    scale = torch.ones(rows, columns // group, dtype=torch.bfloat16)
    shape = torch.Size(job["shape"])
    return lambda: dequantize(unpack(words, 4, shape), scale, None, args), None


def _nvfp4_decode(job):
    torch = loaded()
    rows, columns = job["shape"]
    args, dequantize = _arguments(16, float4=True)
    unpack = _of("compressed_tensors.compressors.nvfp4.helpers", "unpack_fp4_from_uint8")
    packed, everywhere = _bytes(rows, columns // 2), torch.ones(1)
    scale = (_bytes(rows, columns // 16) & 0x77).view(torch.float8_e4m3fn)

    def run():
        values = unpack(packed, rows, columns)
        return dequantize(values, scale.bfloat16(), None, args, values.dtype, everywhere)

    return run, None


def _modelopt_decode(job):
    torch = loaded()
    kind = _of("modelopt.torch.quantization.qtensor", "NVFP4QTensor")
    rows, columns = job["shape"]
    made = kind(torch.Size(job["shape"]), torch.bfloat16, _bytes(rows, columns // 2))
    scale = (_bytes(rows, columns // 16) & 0x77).view(torch.float8_e4m3fn)
    given = {"scale": scale, "double_scale": torch.ones(()), "block_sizes": {-1: 16}}
    return lambda: made.dequantize(dtype=torch.bfloat16, **given), None


def _gpt_oss_decode(job):
    decode = _of("transformers.integrations.mxfp4", "convert_moe_packed_tensors")
    rows, columns = job["shape"]
    blocks = _bytes(1, rows, columns // 32, 16)
    scales = _bytes(1, rows, columns // 32) // 8 + 112
    return lambda: decode(blocks, scales), None


def _bnb_decode(job):
    torch, bnb = loaded(), import_module("bitsandbytes.functional")
    kind, nested = job["scheme"].removeprefix("bnb:"), job.get("nested", False)
    given = _bytes(*job["shape"]).to(torch.bfloat16)
    data, state = bnb.quantize_4bit(given, quant_type=kind, compress_statistics=nested)
    return lambda: bnb.dequantize_4bit(data, state), None


def _gguf_decode(job):
    """gguf-py's quants: NumPy, to float32; random bytes, but scales of small numbers."""
    gguf = import_module("gguf")
    name = job["scheme"].removeprefix("gguf:").removesuffix(":gguf")
    kind = gguf.GGMLQuantizationType[name.upper()]
    (rows, columns), (size, nbytes) = job["shape"], gguf.GGML_QUANT_SIZES[kind]
    data = pattern(rows * columns // size * nbytes).reshape(rows, -1) & np.uint8(0x3B)
    return lambda: gguf.quants.dequantize(data, kind), None


_GGUF = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
MAKERS = {
    ("compressed_tensors", "cast"): _scaled,
    ("compressed_tensors", "repack", "awq:gemm", "compressed-tensors"): _ct_from_awq,
    ("compressed_tensors", "decode", "fp8:block"): _fp8_block,
    ("compressed_tensors", "decode", "int4:compressed-tensors"): _int4_decode,
    ("compressed_tensors", "decode", "nvfp4:compressed-tensors"): _nvfp4_decode,
    ("gptqmodel", "repack", "awq:gemm", "gptq:qweight"): _gptq_from_awq,
    ("gptqmodel", "decode", "gptq"): _gptq_decode,
    ("gptqmodel", "decode", "awq"): _awq_decode,
    ("modelopt", "decode", "nvfp4:modelopt"): _modelopt_decode,
    ("transformers", "decode", "mxfp4:gpt-oss"): _gpt_oss_decode,
    ("bitsandbytes", "decode", "bnb:nf4"): _bnb_decode,
    ("bitsandbytes", "decode", "bnb:fp4"): _bnb_decode,
    ("gguf", "decode", "mxfp4:gguf"): _gguf_decode,
    **{("gguf", "decode", f"gguf:{name}"): _gguf_decode for name in _GGUF},
}
