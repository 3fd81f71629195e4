"""The table of packing formats (AWQ, GPTQ, GGUF ...), a row each with the order of its bits."""

from __future__ import annotations

from typing import Any

from .named_rows import NamedRows
from .orders import BitPlane
from .packing import Check, Packing

_ANY_BITS = (1, 2, 3, 4, 5, 6, 7, 8)
_COUNT = [*range(16), *range(16)]
_PAIR = Check("uint4", (2,), [1, 2], "21")
_SWAPPED = Check("uint4", (2,), [1, 2], "12")
_NIBBLE_ORDER = "1032547698badcfe"
_HALF_BLOCKS = "00112233445566778899aabbccddeeff"

_STREAM, _BACKWARDS = BitPlane("n -> (n)"), BitPlane("(w e) -> (w -e)")
_SPLIT = (
    BitPlane("(w f2 e4) -> (w*3 f -e)", 2, 0, width=3),
    BitPlane("(w e8) -> (w*3 -e) @2", 1, 2, width=3),
    BitPlane("(w f2 e2) -> (w*3 f -e)", 4, 0, width=6),
    BitPlane("(w e4) -> (w*3 -e) @2", 2, 4, width=6),
)


def _halves(step: int, skip: int) -> BitPlane:
    """Blocks of 32: the low nibbles of 16 bytes, then the high ones."""
    return BitPlane(f"(c h2 j16) -> (c*{step} j h) @{skip}", 4)


def _fifth(step: int, skip: int) -> BitPlane:
    """The fifth bits of blocks of 32, side by side."""
    return BitPlane(f"(c e32) -> (c*{step} e) @{skip}", 1, 4)


_GGML = "ggml, ggml-common.h and ggml-quants.c; gguf-py, quants.py"
_OPENVINO = "OpenVINO, core/include/openvino/core/type/element_iterator.hpp"
_GPTQ = "GPTQModel, nn_modules/qlinear/__init__.py, pack_block"
_AWQ = "AutoAWQ, modules/linear/gemm.py and gemv.py, from_linear"

_UINT8: dict[str, Any] = {"unit": "uint8"}
_FLAT: dict[str, Any] = {"unit": "uint8", "flat": True, "pads": True}
_WORDS: dict[str, Any] = {"unit": "int32", "inputs_first": True, "unsigned": True}
_GGUF: dict[str, Any] = {"unit": "uint8", "source": _GGML}

# fmt: off
_ROWS = (
    Packing("lsb", (), planes=(_STREAM,), check=_PAIR, **_FLAT,
            source="ONNX, docs/docsgen/source/technical/int4.md"),
    Packing("onnx", (), planes=(_STREAM,), **_FLAT, versions="IR 10 on (6 bits: 1.23 on)",
            check=Check("float6_e2m3fn", (4,), [1, 2, 3, 4], "813010"),
            source="ONNX, onnx/onnx.in.proto, TensorProto.raw_data"),
    Packing("safetensors", (), planes=(_STREAM,), check=_PAIR, **_FLAT, versions="with F4",
            source="safetensors, safetensors/src/tensor.rs, Dtype::bitsize"),
    Packing("dlpack", (), planes=(_STREAM,), check=_PAIR, **_FLAT, versions="1.1 on",
            source="DLPack, include/dlpack/dlpack.h, DLDataType"),
    Packing("msb", (1, 2, 4), planes=(_BACKWARDS,), check=_SWAPPED, **_FLAT,
            source="numpy.packbits, bitorder='big', for codes of 1, 2 and 4 bits"),
    Packing("bitsandbytes", (4,), planes=(BitPlane("(w e) -> (w -e) 1"),), check=_SWAPPED, **_FLAT,
            source="bitsandbytes, backends/default/ops.py, quantize_4bit"),
    Packing("padded", (), "", (BitPlane(" -> _"),), pads=True,
            check=Check("uint4", (2, 2), [1, 2, 3, 4], "01020304"),
            source="ml_dtypes, README, 'int4 and uint4'"),
    Packing("openvino", (2, 3, 4, 6, 8), planes=(_STREAM,), **_FLAT,
            check=Check("uint4", (3,), [1, 2, 3], "2103"), source=_OPENVINO,
            versions="4 bits: 2024.0 on; 2 bits: mid-2025 on; 3 and 6 bits: after 2026.4"),
    Packing("openvino@2023", (1, 2, 4), planes=(_BACKWARDS,), check=_SWAPPED, **_FLAT,
            source=_OPENVINO, versions="4 bits: before 2024.0; 2 bits: before mid-2025"),
    Packing("openvino:u1", (1,), planes=(_BACKWARDS,), **_FLAT, source=_OPENVINO,
            check=Check("uint1", (10,), [1, 0, 0, 0, 0, 0, 0, 0, 1, 1], "80c0")),
    Packing("openvino:u3u6", (3, 6), planes=_SPLIT, **_FLAT, source=_OPENVINO,
            check=Check("uint6", (4,), [0x01, 0x12, 0x23, 0x34], "12341b"),
            versions="up to 2026.4"),
    Packing("gptq:qweight", (2, 3, 4, 8), planes=(BitPlane("n (w e) -> w n [e]"),),
            check=Check("uint4", (32, 1), _COUNT, 2 * _NIBBLE_ORDER), source=_GPTQ, **_WORDS),
    Packing("gptq:qzeros@v1", (2, 3, 4, 8), planes=(BitPlane("n g -> g (n)"),), bias=-1,
            check=Check("uint4", (1, 8), [1, 2, 3, 4, 5, 6, 7, 8], "10325476"), source=_GPTQ,
            versions="checkpoint_format gptq; 0 is stored as the largest code", **_WORDS),
    Packing("gptq:qzeros@v2", (2, 3, 4, 8), planes=(BitPlane("n g -> g (n)"),),
            check=Check("uint4", (1, 8), range(8), "10325476"), source=_GPTQ,
            versions="checkpoint_format gptq_v2", **_WORDS),
    Packing("awq:gemm", (4,), planes=(BitPlane("(w a4 b2) k -> k w [b a]"),), source=_AWQ,
            check=Check("uint4", (1, 8), range(8), "20643175"), versions="version gemm", **_WORDS),
    Packing("awq:gemv", (4,), planes=(BitPlane("n k -> n (k)"),), source=_AWQ,
            check=Check("uint4", (8, 1), range(8), "10325476"), versions="version gemv", **_WORDS),
    Packing("onnx:matmulnbits", (2, 4, 8), "uint8", (BitPlane("n (c s) -> n c (s)"),),
            Check("uint4", (16, 1), range(16), _NIBBLE_ORDER, 16), inputs_first=True, pads=True,
            unsigned=True, source="ONNX Runtime, docs/ContribOperators.md, MatMulNBits"),
    Packing("torch:x2", (4,), planes=(BitPlane("(w e) -> (w e)"),), check=_PAIR, **_UINT8,
            source="PyTorch, c10/util/Float4_e2m1fn_x2.h", versions="2.8 on"),
    Packing("torchao:tinygemm", (4,), planes=(_BACKWARDS,), check=_SWAPPED, unsigned=True,
            source="PyTorch, aten _convert_weight_to_int4pack", **_UINT8),
    Packing("compressed-tensors", _ANY_BITS, "int32", (_STREAM,),
            Check("int4", (1, 16), range(-8, 8), _NIBBLE_ORDER), pads=True, unsigned=True,
            source="compressed-tensors, compressors/pack_quantized, pack_to_int32"),
    Packing("mlx", (2, 3, 4, 5, 6, 8), "uint32", (_STREAM,), unsigned=True,
            check=Check("float4_e2m1fn", (1, 8), range(8), "10325476"),
            source="MLX, mlx/ops.cpp, quantize"),
    Packing("nvfp4:scale-swizzle", (8,), "", (BitPlane("(r a4 b32) (c d4) -> (r c) b (a d)"),),
            Check("uint8", (128, 4), [row for row in range(128) for _ in range(4)],
                  "".join(f"{32 * a + b:02x}" * 4 for b in range(32) for a in range(4))),
            pads=True, source="cuBLAS, 1D Block Scaling Factors Layout"),
    Packing("gpt-oss:blocks", (4,), planes=(BitPlane("(c j16 e2) -> c (j e)"),),
            check=Check("float4_e2m1fn", (32,), _COUNT, 2 * _NIBBLE_ORDER), **_UINT8,
            source="transformers, integrations/mxfp4.py, convert_moe_packed_tensors"),
    Packing("gguf:q4_0", (4,), planes=(_halves(18, 2),), unsigned=True, **_GGUF,
            check=Check("int4", (32,), [-8, *[0] * 15, 7, *[0] * 15], "....f0" + "88" * 15)),
    Packing("gguf:q4_1", (4,), planes=(_halves(20, 4),), unsigned=True, **_GGUF,
            check=Check("uint4", (32,), _COUNT, "." * 8 + _HALF_BLOCKS)),
    Packing("gguf:q5_0", (8,), planes=(_halves(22, 6), _fifth(22, 2)), unsigned=True, **_GGUF,
            check=Check("int8", (32,), range(-16, 16), "....0000ffff" + _HALF_BLOCKS)),
    Packing("gguf:q5_1", (8,), planes=(_halves(24, 8), _fifth(24, 4)), unsigned=True, **_GGUF,
            check=Check("uint8", (32,), range(32), "." * 8 + "0000ffff" + _HALF_BLOCKS)),
    Packing("gguf:q8_0", (8,), planes=(BitPlane("(c j32) -> (c*34 j) @2"),), **_GGUF,
            check=Check("int8", (32,), range(-16, 16),
                        "...." + bytes(k % 256 for k in range(-16, 16)).hex())),
    Packing("gguf:mxfp4", (4,), planes=(_halves(17, 1),), **_GGUF,
            check=Check("float4_e2m1fn", (32,), _COUNT, ".." + _HALF_BLOCKS)),
)
# fmt: on

formats = NamedRows(
    "packing format",
    _ROWS,
    {
        "bits": lambda row: ",".join(map(str, row.bits)) or "any",
        "unit": lambda row: row.unit or "the dtype's",
        "layout": lambda row: row.layout or "any",
    },
)
