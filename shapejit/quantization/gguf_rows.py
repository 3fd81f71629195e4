"""The quantised types of GGUF: blocks that contain scales and codes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ..packings.orders import BitPlane
from ..packings.packing import Packing
from . import rules
from .computed import one, read_by_gguf
from .forms import Form, Numbers, Part, SchemeRow, packing

_E8M0, _E4M3, _E2M1 = "float8_e8m0fnu", "float8_e4m3fn", "float4_e2m1fn"
_Q4K = packing("(c f4 h2 j32) -> (c*144 f j h) @16", bits=4)
_Q5K = packing(BitPlane("(c f4 h2 j32) -> (c*176 f j h) @48", 4, 0),
               BitPlane("(c i8 j32) -> (c*176 j i) @16", 1, 4), bits=8)  # fmt: skip
_Q6K = packing(BitPlane("(c f2 h2 j64) -> (c*210 f j h)", 4, 0),
               BitPlane("(c f2 q4 j32) -> (c*210 f j q) @128", 2, 4), bits=8)  # fmt: skip
_NVFP4 = packing("(c t4 h2 j8) -> (c*36 t j h) @4", bits=4)


def _row(name: str, size: int, nbytes: int, codes: str, order: str | Packing,
         scales: tuple[Numbers, ...], *parts: Part, **rest: Any) -> SchemeRow:  # fmt: skip
    """Blocks of `size` elements in `nbytes` bytes."""
    kind = name.removeprefix("gguf:").removesuffix(":gguf").upper()
    weight = Part("weight", "uint8", f"N K/{size}*{nbytes}")
    form = Form((weight, *parts), Numbers("weight", "N K", codes, order), scales, **rest)
    return SchemeRow(
        name, "", f"gguf-py, gguf/quants.py, class {kind}", (form,), file_type=kind, stacks="too"
    )


def _beside(step: int, skip: int, kind: str = "float16", size: int = 32) -> Numbers:
    """One number per block of `size` elements and `step` bytes, `skip` bytes after its start."""
    bits = 8 if "8" in kind else 16
    return Numbers("weight", f"N K/{size}", kind, packing(f"c -> (c*{step}) @{skip}", bits=bits))


def _six_bits(step: int) -> dict[str, Any]:
    """Q4_K and Q5_K: a float16 for eight scales of 6 bits, another for eight minima."""

    def eight(*planes: BitPlane) -> Numbers:
        return Numbers("weight", "N K/32", "uint8", packing(*planes, bits=8))

    scale = eight(BitPlane(f"(c h2 j4) -> (c*{step} h*8 j*1) @4", 4, 0),
                  BitPlane(f"(c h2 j4) -> (c*{step} h*0.2 j*1) @4.4", 2, 4))  # fmt: skip
    least = eight(BitPlane(f"(c h2 j4) -> (c*{step} h*4.4 j*1) @8", 4, 0),
                  BitPlane(f"(c h2 j4) -> (c*{step} h*0.2 j*1) @8.4", 2, 4))  # fmt: skip
    return {
        "scales": (scale, _beside(step, 0, size=256)),
        "offset": (least, _beside(step, 2, size=256)._replace(step="-")),
    }


def _by_gguf(name: str, size: int, nbytes: int) -> SchemeRow:
    """A type whose codes are points of grids: the gguf package decodes it."""
    row = _row(f"gguf:{name}", size, nbytes, "float32", "", (), zero=None)
    (form,) = row.forms
    codes = Numbers("weight", "N K", "float32", read=partial(read_by_gguf, name.upper()))
    scale = Numbers("weight", "N/N K/K", "float32", read=one)
    return replace(row, forms=(replace(form, codes=codes, scales=(scale,)),), library="gguf")


# fmt: off
GGUF_ROWS = (
    _row("mxfp4:gguf", 32, 17, _E2M1, "gguf:mxfp4", (_beside(17, 0, _E8M0),), zero=-0.0,
         rule=rules.by_lower_power),
    _row("nvfp4:gguf", 64, 36, _E2M1, _NVFP4,
         (Numbers("weight", "N K/16", _E4M3, packing("(c t4) -> (c*36 t)", bits=8)),
          Numbers("scale", "")),
         Part("scale", "float32", "", optional=True), zero=-0.0, rule=rules.by_absmax_or_zero),
    _row("gguf:q4_0", 32, 18, "uint4", "gguf:q4_0", (_beside(18, 0),), zero=8,
         rule=rules.by_signed_absmax),
    _row("gguf:q4_1", 32, 20, "uint4", "gguf:q4_1", (_beside(20, 0),), offset=(_beside(20, 2),),
         rule=rules.by_minimum),
    _row("gguf:q5_0", 32, 22, "uint8", "gguf:q5_0", (_beside(22, 0),), zero=16,
         rule=rules.by_signed_absmax),
    _row("gguf:q5_1", 32, 24, "uint8", "gguf:q5_1", (_beside(24, 0),), offset=(_beside(24, 2),),
         rule=rules.by_minimum),
    _row("gguf:q8_0", 32, 34, "int8", "gguf:q8_0", (_beside(34, 0),),
         rule=rules.by_magnitude),
    _row("gguf:q4_k", 256, 144, "uint4", _Q4K, **_six_bits(144)),
    _row("gguf:q5_k", 256, 176, "uint8", _Q5K, **_six_bits(176)),
    _row("gguf:q6_k", 256, 210, "uint8", _Q6K,
         (Numbers("weight", "N K/16", "int8", packing("(c t16) -> (c*210 t) @192", bits=8)),
          _beside(210, 208, size=256)), zero=32),
    *(_by_gguf(*each) for each in (
        ("q2_k", 256, 84), ("q3_k", 256, 110), ("tq1_0", 256, 54), ("tq2_0", 256, 66),
        ("iq1_s", 256, 50), ("iq1_m", 256, 56), ("iq2_xxs", 256, 66), ("iq2_xs", 256, 74),
        ("iq2_s", 256, 82), ("iq3_xxs", 256, 98), ("iq3_s", 256, 110), ("iq4_nl", 32, 18),
        ("iq4_xs", 256, 136),
    )),
)
# fmt: on
