"""What peers in torch or NumPy do where shapejit casts, scales, repacks and decodes.

`worker` loads this file in the peer's own Python. It imports nothing of shapejit. Sources are
those of the suites' cases where the result can be compared, and else bytes that look random.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What is measured, and its result where it is ours, bit for bit: None otherwise.
Work = tuple[Callable[[], object], Any]


def work(peer: str, job: dict[str, Any]) -> Work:
    """The work of a job; LookupError where the peer has none such."""
    if peer not in _OF_NUMPY:
        torch = import_module("torch")
        torch.set_num_threads(job["threads"])
        torch.set_grad_enabled(False)
    return _WORK[peer, *(job[key] for key in _KEYS[job["work"]])](job)


def _pattern(count: int) -> NDArray[np.uint8]:
    """The bytes of cases.py's pattern."""
    words = np.arange(1, count // 8 + 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return words.view(np.uint8)[:count]


def _bytes(*shape: int, dtype: str = "uint8") -> Any:
    """A tensor of bytes that look random."""
    made = _pattern(prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    return import_module("torch").from_numpy(made)


def _numbers(job: dict[str, Any]) -> Any:
    """The numbers of a case of casts, in float32 or as integers: quarters between -32 and 32."""
    numbers = _pattern(prod(job["shape"])).view(np.int8).astype(np.float32) / 4
    if "int" in job["dtype"]:
        top = {"int4": 7, "uint4": 15}.get(job["dtype"], 32)
        numbers = np.trunc(np.abs(numbers)).clip(max=top)
    return import_module("torch").from_numpy(numbers.reshape(job["shape"]))


def _scales(job: dict[str, Any]) -> tuple[Any, Any]:
    """The scales and zero points of a case of casts."""
    torch = import_module("torch")
    counts = [-(-n // block) for n, block in zip(job["shape"], job["blocks"], strict=True)]
    numbers = _pattern(prod(counts)).reshape(counts)
    scale = np.ldexp(np.float32(1), numbers.astype(np.int32) % 8 - 4)
    return torch.from_numpy(scale), torch.from_numpy(numbers % np.float32(3))


def _cast(job: dict[str, Any]) -> Work:
    """`.to`, into memory that is there; then a transposition, where one is asked for."""
    torch = import_module("torch")
    kinds = [getattr(torch, job[key], None) for key in ("dtype", "target")]
    if None in kinds:
        raise LookupError(f"torch has no cast of {job['dtype']} to {job['target']}")
    if job["blocks"]:
        return _images(job)
    source = _numbers(job).to(kinds[0])
    cast = torch.zeros(source.shape, dtype=kinds[1])
    # What is out of range is undefined in torch: there are negative numbers.
    defined = job["target"] != "uint8" or job["dtype"] == "uint8"
    if job["axes"] == sorted(job["axes"]):
        return lambda: cast.copy_(source), cast if defined else None
    turned = cast.permute(job["axes"])
    out = torch.zeros(turned.shape, dtype=kinds[1])

    def run() -> object:
        cast.copy_(source)
        return out.copy_(turned)

    return run, out


def _images(job: dict[str, Any]) -> Work:
    """The loop of a data loader: each image normalised, channels first, into its slab.

    Of five ways to write it this was the fastest, 8 times as fast as one with a float() in it.
    """
    torch = import_module("torch")
    if len(job["shape"]) != 4:
        raise LookupError("torch has no blocks of scales")
    images = _numbers(job).to(getattr(torch, job["dtype"]))
    scale, zero = (x.reshape(-1, 1, 1) for x in _scales(job))
    seen = images.permute(job["axes"])
    out = torch.zeros(seen.shape, dtype=getattr(torch, job["target"]))

    def run() -> object:
        for image, made in zip(seen, out, strict=True):
            made.copy_(image).sub_(zero).mul_(scale)
        return out

    return run, out


def _join(job: dict[str, Any]) -> Work:
    """Arrays stacked or concatenated into memory that is there."""
    torch = import_module("torch")
    kind = {1: "uint8", 2: "int16", 4: "float32", 8: "float64"}[job["itemsize"]]
    parts = [part.clone() for part in _bytes(job["count"], *job["shape"], dtype=kind)]
    join = torch.stack if job["work"] == "stack" else torch.cat
    out = join(parts, job["axis"])
    return lambda: join(parts, job["axis"], out=out), out


def _scaled(job: dict[str, Any]) -> Work:
    """compressed-tensors: unpacked to a byte or a float each, then multiplied."""
    name, block = job["dtype"], job["blocks"]
    if name == "float8_e4m3fn" and block:
        return _fp8_block(job)
    if name not in ("int4", "uint4", "float4_e2m1fn") or not block:
        raise LookupError(f"compressed-tensors has no such case of {name}")
    args, dequantize = _arguments(block[1], float4="float" in name)
    torch = import_module("torch")
    scale, zero = (x.to(torch.bfloat16) for x in _scales(job))
    rows, columns = job["shape"]
    if "float" in name:
        unpack = _of("compressed_tensors.compressors.nvfp4.helpers", "unpack_fp4_from_uint8")
        packed = _bytes(rows, columns // 2)
        return lambda: dequantize(unpack(packed, rows, columns), scale, zero, args), None
    bits = _of("compressed_tensors.compressors.pack_quantized", "helpers")
    shift = 8 if name == "uint4" else 0
    words = bits.pack_to_int32((_numbers(job) - shift).to(torch.int8), 4)
    zero -= shift
    shape = torch.Size(job["shape"])

    def run() -> Any:
        return dequantize(bits.unpack_from_int32(words, 4, shape), scale, zero, args)

    return run, run()


def _arguments(group: int, *, float4: bool = False) -> tuple[Any, Callable[..., Any]]:
    quantization = import_module("compressed_tensors.quantization")
    kind = "float" if float4 else "int"
    args = quantization.QuantizationArgs(
        num_bits=4, type=kind, symmetric=float4, strategy="group", group_size=group
    )
    return args, _of("compressed_tensors.quantization.lifecycle.forward", "dequantize")


def _fp8_block(job: dict[str, Any]) -> Work:
    torch = import_module("torch")
    kind = _of("compressed_tensors.entrypoints.convert.converters", "FP8BlockDequantizer")
    rows, columns = job["shape"]
    weight = (_bytes(rows, columns) & 0x77).view(torch.float8_e4m3fn)
    scale = torch.ones(-(-rows // 128), -(-columns // 128))
    decode = kind()._create_dequantized_weight
    return lambda: decode(weight, scale), None


def _of(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _ct_pack(job: dict[str, Any]) -> Work:
    pack = _of("compressed_tensors.compressors.pack_quantized.helpers", "pack_to_int32")
    codes = (_bytes(*job["shape"]) & 15).to(import_module("torch").int8) - 8
    return lambda: pack(codes, 4), None


def _ct_unpack(job: dict[str, Any]) -> Work:
    unpack = _of("compressed_tensors.compressors.pack_quantized.helpers", "unpack_from_int32")
    rows, columns = job["shape"]
    words, shape = _bytes(rows, columns // 8, dtype="int32"), import_module("torch").Size
    return lambda: unpack(words, 4, shape(job["shape"])), None


def _ct_from_awq(job: dict[str, Any]) -> Work:
    kind = _of("compressed_tensors.entrypoints.convert.converters", "AutoAWQConverter")
    converter, (rows, columns) = kind(zero_point=False), job["shape"]
    parts = {"m.qweight": _bytes(rows, columns // 8, dtype="int32"), "m.scales": _bytes(1, columns)}
    return lambda: converter.process(dict(parts)), None


def _gptq_from_awq(job: dict[str, Any]) -> Work:
    repack = _of("gptqmodel.quantization.awq.utils.packing_utils", "unpack_reorder_pack")
    rows, columns = job["shape"]
    words = _bytes(rows, columns // 8, dtype="int32")
    return lambda: repack(words, words[:1], 4), None


def _gptq_module(job: dict[str, Any], group: int) -> Any:
    rows, columns = job["shape"]
    return _of("gptqmodel.nn_modules.qlinear.torch", "TorchLinear")(
        bits=4, group_size=group, sym=True, desc_act=False, in_features=rows,
        out_features=columns, bias=False, register_buffers=True,
    )  # fmt: skip


def _gptq_pack(job: dict[str, Any]) -> Work:
    """gptqmodel's packer in torch takes float weights, scales and zero points."""
    torch = import_module("torch")
    rows, columns = job["shape"]
    module = _gptq_module(job, -1)
    linear = torch.nn.Linear(rows, columns, bias=False)
    linear.weight.data = (_bytes(columns, rows) & 15).float()
    given = torch.ones(columns, 1), torch.zeros(columns, 1), module.g_idx
    return lambda: module.pack_block(linear, *given), None


def _gptq_decode(job: dict[str, Any]) -> Work:
    job = job | {"shape": job["shape"][::-1]}
    rows, columns = job["shape"]
    module = _gptq_module(job, job["group"])
    module.qweight = _bytes(rows // 8, columns, dtype="int32")
    module.scales = module.scales + 1
    return module.eval().dequantize_weight, None


def _awq_decode(job: dict[str, Any]) -> Work:
    torch = import_module("torch")
    decode = _of("gptqmodel.quantization.awq.utils.packing_utils", "dequantize_gemm")
    (columns, rows), group = job["shape"], job["group"]
    words = _bytes(rows, columns // 8, dtype="int32")
    scales = torch.ones(rows // group, columns, dtype=torch.bfloat16)
    zeros = words[: rows // group].clone()
    return lambda: decode(words, zeros, scales, 4, group), None


def _int4_decode(job: dict[str, Any]) -> Work:
    torch = import_module("torch")
    (rows, columns), group = job["shape"], job["group"]
    args, dequantize = _arguments(group)
    unpack = _of("compressed_tensors.compressors.pack_quantized.helpers", "unpack_from_int32")
    words = _bytes(rows, columns // 8, dtype="int32")
    scale = torch.ones(rows, columns // group, dtype=torch.bfloat16)
    shape = torch.Size(job["shape"])
    return lambda: dequantize(unpack(words, 4, shape), scale, None, args), None


def _nvfp4_decode(job: dict[str, Any]) -> Work:
    torch = import_module("torch")
    rows, columns = job["shape"]
    args, dequantize = _arguments(16, float4=True)
    unpack = _of("compressed_tensors.compressors.nvfp4.helpers", "unpack_fp4_from_uint8")
    packed, everywhere = _bytes(rows, columns // 2), torch.ones(1)
    scale = (_bytes(rows, columns // 16) & 0x77).view(torch.float8_e4m3fn)

    def run() -> object:
        values = unpack(packed, rows, columns)
        return dequantize(values, scale.bfloat16(), None, args, values.dtype, everywhere)

    return run, None


def _modelopt_decode(job: dict[str, Any]) -> Work:
    torch = import_module("torch")
    kind = _of("modelopt.torch.quantization.qtensor", "NVFP4QTensor")
    rows, columns = job["shape"]
    made = kind(torch.Size(job["shape"]), torch.bfloat16, _bytes(rows, columns // 2))
    scale = (_bytes(rows, columns // 16) & 0x77).view(torch.float8_e4m3fn)
    given = {"scale": scale, "double_scale": torch.ones(()), "block_sizes": {-1: 16}}
    return lambda: made.dequantize(dtype=torch.bfloat16, **given), None


def _gpt_oss_decode(job: dict[str, Any]) -> Work:
    decode = _of("transformers.integrations.mxfp4", "convert_moe_packed_tensors")
    rows, columns = job["shape"]
    blocks = _bytes(1, rows, columns // 32, 16)
    scales = _bytes(1, rows, columns // 32) // 8 + 112
    return lambda: decode(blocks, scales), None


def _bnb_decode(job: dict[str, Any]) -> Work:
    torch, bnb = import_module("torch"), import_module("bitsandbytes.functional")
    kind, nested = job["scheme"].removeprefix("bnb:"), job.get("nested", False)
    numbers = _bytes(*job["shape"]).to(torch.bfloat16)
    data, state = bnb.quantize_4bit(numbers, quant_type=kind, compress_statistics=nested)
    return lambda: bnb.dequantize_4bit(data, state), None


def _gguf_decode(job: dict[str, Any]) -> Work:
    """gguf-py's quants: NumPy, to float32; random bytes, but scales of small numbers."""
    gguf = import_module("gguf")
    name = job["scheme"].removeprefix("gguf:").removesuffix(":gguf")
    kind = gguf.GGMLQuantizationType[name.upper()]
    (rows, columns), (size, nbytes) = job["shape"], gguf.GGML_QUANT_SIZES[kind]
    data = _pattern(rows * columns // size * nbytes).reshape(rows, -1) & np.uint8(0x3B)
    return lambda: gguf.quants.dequantize(data, kind), None


_GGUF = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")


def _ct_convert(job: dict[str, Any]) -> Work:
    """A folder decoded by compressed-tensors."""
    entry = import_module("compressed_tensors.entrypoints.convert")
    source, target = job["source"], job["target"]

    def run() -> None:
        if job["kind"] == "kimi":
            converter = entry.CompressedTensorsDequantizer(source)
        else:
            converter = entry.FP8BlockDequantizer.from_pretrained(source)
        entry.convert_checkpoint(source, target, converter)

    return run, None


def _gpt_oss_convert(job: dict[str, Any]) -> Work:
    """A file decoded by the function with which transformers loads gpt-oss, tensor by tensor."""
    decode = import_module("transformers.integrations.mxfp4").convert_moe_packed_tensors
    opened = import_module("safetensors").safe_open
    save = import_module("safetensors.torch").save_file
    target = Path(job["target"])

    def run() -> None:
        target.mkdir(exist_ok=True)
        made = {}
        with opened(Path(job["source"], "model.safetensors"), "pt") as file:
            for name in filter(lambda name: name.endswith("_blocks"), file.keys()):
                base = name.removesuffix("_blocks")
                parts = file.get_tensor(name), file.get_tensor(f"{base}_scales")
                made[base] = decode(*parts).contiguous()
        save(made, target / "model.safetensors")

    return run, None


_OF_NUMPY = {"gguf"}  # peers that work without torch

# What tells the works of one kind apart, and who has which.
_KEYS = {"cast": ("work",), "repack": ("source", "target"), "decode": ("scheme",),
         "convert": ("work", "kind"), "stack": ("work",), "concat": ("work",)}  # fmt: skip
_WORK: dict[tuple[str, ...], Callable[[dict[str, Any]], Work]] = {
    ("torch", "cast"): _cast,
    ("torch", "stack"): _join,
    ("torch", "concat"): _join,
    ("compressed_tensors", "convert", "kimi"): _ct_convert,
    ("compressed_tensors", "convert", "deepseek-v3"): _ct_convert,
    ("transformers", "convert", "gpt-oss"): _gpt_oss_convert,
    ("compressed_tensors", "cast"): _scaled,
    ("compressed_tensors", "padded", "compressed-tensors"): _ct_pack,
    ("compressed_tensors", "compressed-tensors", "padded"): _ct_unpack,
    ("compressed_tensors", "awq:gemm", "compressed-tensors"): _ct_from_awq,
    ("compressed_tensors", "fp8:block"): _fp8_block,
    ("compressed_tensors", "int4:compressed-tensors"): _int4_decode,
    ("compressed_tensors", "nvfp4:compressed-tensors"): _nvfp4_decode,
    ("gptqmodel", "awq:gemm", "gptq:qweight"): _gptq_from_awq,
    ("gptqmodel", "padded", "gptq:qweight"): _gptq_pack,
    ("gptqmodel", "gptq"): _gptq_decode,
    ("gptqmodel", "awq"): _awq_decode,
    ("modelopt", "nvfp4:modelopt"): _modelopt_decode,
    ("transformers", "mxfp4:gpt-oss"): _gpt_oss_decode,
    ("bitsandbytes", "bnb:nf4"): _bnb_decode,
    ("bitsandbytes", "bnb:fp4"): _bnb_decode,
    ("gguf", "mxfp4:gguf"): _gguf_decode,
    **{("gguf", f"gguf:{name}"): _gguf_decode for name in _GGUF},
}
