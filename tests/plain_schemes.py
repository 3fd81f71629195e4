"""Weights decoded and encoded by NumPy, a byte per code, as the code of their projects does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from shapejit.bench.plain_schemes import (
    DECODED as MEASURED,
    FLOAT4,
    Decode,
    Numbers,
    Parts,
    codes_of,
    scaled,
)

Encode = Callable[[Numbers], Parts]

_FLOAT4_OF_ONE_ZERO = FLOAT4 + 0  # code 8 is +0.0 for ModelOpt and gguf


def _power(exponents: NDArray[np.uint8]) -> Numbers:
    """Scales of float8_e8m0fnu."""
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - 127)


def _modelopt(parts: Parts, rows: int, columns: int) -> Numbers:
    scales = parts["weight_scale"].astype(np.float32) * parts["weight_scale_2"]
    return scaled(_FLOAT4_OF_ONE_ZERO[codes_of(parts["weight"], rows, columns)], scales)


def _compressed(parts: Parts, rows: int, columns: int) -> Numbers:
    scales = parts["weight_scale"].astype(np.float32) / parts["weight_global_scale"]
    return scaled(FLOAT4[codes_of(parts["weight_packed"], rows, columns)], scales)


def _comfyui(parts: Parts, rows: int, columns: int) -> Numbers:
    """Scales of 128 rows and four columns lie as 32 x 4 x 4."""
    groups = columns // 16
    tiles = parts["weight_scale"].reshape(-1, groups // 4, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    scales = tiles.reshape(-1, groups)[:rows].astype(np.float32) * parts["weight_scale_2"]
    return scaled(FLOAT4[codes_of(parts["weight"], rows, columns, "bitsandbytes")], scales)


def _gptq(parts: Parts, rows: int, columns: int) -> Numbers:
    scales = parts["scales"].T
    groups, _ = parts["scales"].shape
    zeros = codes_of(parts["qzeros"], groups, rows).T + 1  # version 1 stores one less
    return scaled(codes_of(parts["qweight"], rows, columns, "gptq:qweight"), scales, zeros)


def _table(parts: Parts, rows: int, columns: int) -> Numbers:
    """The 16 values of bitsandbytes' types are stored beside the codes."""
    codes = codes_of(parts["weight"], rows, columns, "bitsandbytes")
    scales = parts["weight.absmax"].reshape(rows, -1)
    return scaled(parts["weight.quant_map"][codes], scales)


def _mlx(parts: Parts, rows: int, columns: int) -> Numbers:
    made = scaled(codes_of(parts["weight"], rows, columns), parts["scales"])
    groups = made.reshape(*parts["scales"].shape, -1)
    groups += parts["biases"].astype(np.float32)[..., None]
    return made


def _halves(raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of bytes whose low nibbles come first, all of them."""
    return np.concatenate([raw & 15, raw >> 4], -1)


def _bits(raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.unpackbits(raw, axis=-1, bitorder="little")


def _halfs(raw: NDArray[np.uint8]) -> Numbers:
    """float16 numbers of bytes, each to be multiplied with a block."""
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _gguf(block: int, decode: Callable[[NDArray[np.uint8]], Any]) -> Decode:
    """Rows of blocks of so many elements; `decode` is given them, a dim for the bytes of each."""

    def decoded(parts: Parts, rows: int, columns: int) -> Numbers:
        blocks = parts["weight"].reshape(rows, columns // block, -1)
        made: Numbers = decode(blocks).astype(np.float32).reshape(rows, columns)
        return made

    return decoded


def _q5(x: NDArray[np.uint8], at: int) -> NDArray[np.uint8]:
    """Codes whose upper bits lie in four bytes before the nibbles."""
    return _halves(x[..., at + 4 :]) | _bits(x[..., at : at + 4]) << np.uint8(4)


def _k_scales(x: NDArray[np.uint8]) -> tuple[Numbers, Numbers]:
    """Scales and offsets of the eight parts of a block: 6 bits each, times a float16."""
    low, middle, high = x[..., 4:8], x[..., 8:12], x[..., 12:16]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], -1)
    offsets = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], -1)
    return _halfs(x[..., :2]) * scales, _halfs(x[..., 2:4]) * offsets


def _k(x: NDArray[np.uint8], at: int) -> Numbers:
    """Q4_K, or Q5_K with upper bits from byte 16 on; nibbles from `at` on."""
    codes = _halves(x[..., at:].reshape(*x.shape[:-1], 4, 32)).reshape(*x.shape[:-1], 8, 32)
    if at > 16:  # bit i of byte j belongs to element j of part i
        codes |= _bits(x[..., 16:48, None]).swapaxes(-1, -2) << 4
    scales, offsets = _k_scales(x)
    return codes * scales[..., None] - offsets[..., None]


def _q6_k(x: NDArray[np.uint8]) -> Numbers:
    """Halves of 128 elements: nibbles of 64 bytes, above them two bits each of 32 bytes."""
    low = _halves(x[..., :128].reshape(*x.shape[:-1], 2, 64)).reshape(*x.shape[:-1], 2, 4, 32)
    high = x[..., 128:192].reshape(*x.shape[:-1], 2, 1, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    codes = (low | (high >> shifts & 3) << 4).astype(np.float32) - 32
    scales = _halfs(x[..., 208:]) * x[..., 192:208].view(np.int8)
    return codes.reshape(*scales.shape, 16) * scales[..., None]


DECODED: dict[str, Decode] = MEASURED | {
    "nvfp4:modelopt": _modelopt,
    "nvfp4:compressed-tensors": _compressed,
    "nvfp4:comfyui": _comfyui,
    "int4:compressed-tensors": lambda p, *shape: scaled(
        codes_of(p["weight_packed"], *shape), p["weight_scale"], 8
    ),
    "gptq": _gptq,
    "matmulnbits": lambda p, rows, columns: (
        scaled(codes_of(p["B"], columns, rows), p["scales"], 8).T
    ),
    "bnb:nf4": _table,
    "bnb:fp4": _table,
    "mlx": _mlx,
    "gguf:q4_0": _gguf(32, lambda x: (_halves(x[..., 2:]) - np.float32(8)) * _halfs(x[..., :2])),
    "gguf:q4_1": _gguf(
        32, lambda x: _halves(x[..., 4:]) * _halfs(x[..., :2]) + _halfs(x[..., 2:4])
    ),
    "gguf:q5_0": _gguf(32, lambda x: (_q5(x, 2) - np.float32(16)) * _halfs(x[..., :2])),
    "gguf:q5_1": _gguf(32, lambda x: _q5(x, 4) * _halfs(x[..., :2]) + _halfs(x[..., 2:4])),
    "gguf:q8_0": _gguf(32, lambda x: x[..., 2:].view(np.int8) * _halfs(x[..., :2])),
    "mxfp4:gguf": _gguf(
        32, lambda x: _FLOAT4_OF_ONE_ZERO[_halves(x[..., 1:])] * _power(x[..., :1])
    ),
    "gguf:q4_k": _gguf(256, lambda x: _k(x, 16)),
    "gguf:q5_k": _gguf(256, lambda x: _k(x, 48)),
    "gguf:q6_k": _gguf(256, _q6_k),
}


# Encoded


def _largest(x: Numbers, *axes: int) -> Numbers:
    """The largest magnitude of blocks."""
    return np.asarray(np.abs(x).max(axes, keepdims=True))


def _or(x: Numbers, other: float) -> Numbers:
    """Numbers, another one instead of 0."""
    return np.where(x == 0, np.float32(other), x)


def _pairs(codes: NDArray[Any], rows: int) -> NDArray[np.uint8]:
    """Codes of 4 bits, two of a row in each byte."""
    flat: NDArray[np.uint8] = codes.reshape(rows, -1)
    return np.asarray(flat[:, ::2] | flat[:, 1::2] << 4)


def _fp8_scaled(part: str, tall: int, wide: int) -> Encode:
    """float8 with a scale for so many rows and columns, of which 0 is all."""

    def encode(x: Numbers) -> Parts:
        rows, columns = x.shape
        blocks = x.reshape(-1, tall or rows, columns // (wide or columns), wide or columns)
        scale = _or(_largest(blocks, 1, 3) / np.float32(448), 1)
        codes = (blocks / scale).astype(ml_dtypes.float8_e4m3fn)
        return {"weight": codes.reshape(x.shape), part: scale[:, 0, :, 0]}

    return encode


def _mx(part: str, kind: Any, top: float) -> Encode:
    """Blocks of 32 whose scale is a power of two, the next one from 7/8 of it on."""

    def encode(x: Numbers) -> Parts:
        blocks = x.reshape(len(x), -1, 32)
        fraction, exponent = np.frexp(_largest(blocks, 2))
        power = exponent + (fraction >= 0.875) - np.frexp(top)[1]
        stored = np.clip(power + 127, 0, 254).astype(np.uint8)
        scaled = blocks / _power(stored)
        codes = np.clip(scaled, -top, top).astype(kind)
        weight = codes.reshape(x.shape) if top > 6 else _pairs(codes.view(np.uint8), len(x))
        return {part: weight, "weight_scale": stored[..., 0]}

    return encode


def _nvfp4(x: Numbers) -> Parts:
    blocks = x.reshape(len(x), -1, 16)
    factor = np.float32(2688) / np.abs(x).max()
    scale = (factor * (_largest(blocks, 2) / np.float32(6))).astype(ml_dtypes.float8_e4m3fn)
    scaled = blocks / (scale.astype(np.float32) / factor)
    codes = np.clip(scaled, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    return {"weight_packed": _pairs(codes.view(np.uint8), len(x)), "weight_scale": scale[..., 0],
            "weight_global_scale": np.array(factor)}  # fmt: skip


def _integers(x: Numbers, bits: int, size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Codes from 0 on, and a scale for each block of a row."""
    blocks, top = x.reshape(len(x), -1, size), (1 << bits) - 1
    scale = _or(_largest(blocks, 2) / np.float32(top / 2), 2.0**-23).astype(ml_dtypes.bfloat16)
    codes = np.rint(blocks / scale.astype(np.float32)) + (top + 1) // 2
    return np.clip(codes, 0, top).astype(np.uint8).reshape(x.shape), scale[..., 0]


def _int8(x: Numbers) -> Parts:
    codes, scale = _integers(x, 8, x.shape[1])
    return {"weight": (codes ^ 128).view(np.int8), "weight_scale": scale}


def _int4(x: Numbers) -> Parts:
    codes, scale = _integers(x, 4, 128)
    return {"weight_packed": _pairs(codes, len(x)).view(np.int32), "weight_scale": scale,
            "weight_shape": np.array(x.shape)}  # fmt: skip


def _inverse(scale: Numbers) -> Numbers:
    return np.where(scale == 0, 0, 1 / _or(scale, 1))


def _beside(scale: Numbers, codes: NDArray[Any]) -> Parts:
    """GGUF's blocks: a float16, and codes behind it."""
    halfs = np.ascontiguousarray(scale.astype(np.float16)).view(np.uint8)
    return {"weight": np.concatenate([halfs, codes.view(np.uint8)], -1).reshape(len(scale), -1)}


def _q4_0(x: Numbers) -> Parts:
    blocks = x.reshape(len(x), -1, 32)
    at = np.abs(blocks).argmax(-1, keepdims=True)
    scale = np.take_along_axis(blocks, at, -1) / np.float32(-8)
    codes = np.clip(np.trunc(blocks * _inverse(scale) + np.float32(8.5)), 0, 15).astype(np.uint8)
    return _beside(scale, codes[..., :16] | codes[..., 16:] << 4)


def _q8_0(x: Numbers) -> Parts:
    blocks = x.reshape(len(x), -1, 32)
    scale = _largest(blocks, 2) / np.float32(127)
    scaled = blocks * _inverse(scale)
    whole = np.trunc(scaled)
    whole += np.copysign(np.abs(scaled - whole) >= 0.5, scaled)
    return _beside(scale, whole.astype(np.int8))


ENCODED: dict[str, Encode] = {
    "fp8:block": _fp8_scaled("weight_scale_inv", 128, 128),
    "fp8:channel": _fp8_scaled("weight_scale", 1, 0),
    "mxfp4:compressed-tensors": _mx("weight_packed", ml_dtypes.float4_e2m1fn, 6),
    "mxfp8:compressed-tensors": _mx("weight", ml_dtypes.float8_e4m3fn, 448),
    "nvfp4:compressed-tensors": _nvfp4,
    "int8:compressed-tensors": _int8,
    "int4:compressed-tensors": _int4,
    "gguf:q4_0": _q4_0,
    "gguf:q8_0": _q8_0,
}
