"""repack with layout=: formats without an orientation, as (out, in) and as (in, out)."""

import numpy as np
import packing_oracle
import pytest
from test_repacking import KINDS, SHAPE, codes_of, holds, same, settings, shape_of, stored

import shapejit as sj

FREE = [name for name, row in sj.formats.items() if not row.layout]
OTHERS = [name for name, row in sj.formats.items() if row.layout]


def turned(name, kind):
    """The array of the transposed codes, by the oracle."""
    dtype = sj.dtype(kind)
    signed = dtype.signed and dtype.kind == "integer"
    codes = np.ascontiguousarray(codes_of(kind).T)
    how = sj.formats[name].stored(codes.shape, kind)
    made = packing_oracle.stored(name, codes, dtype.bits, signed, how.nbytes, None)
    return made.view(how.unit).reshape(how.shape)


def pairs(kind):
    return [(a, b) for a in FREE for b in OTHERS if holds(a, kind) and holds(b, kind)]


@pytest.mark.parametrize("kind", [kind for kinds in KINDS.values() for kind in kinds])
def test_in_out_is_the_transposed_weight(kind):
    for free, other in pairs(kind):
        if other in ("gguf:q5_0", "gguf:q5_1", "nvfp4:scale-swizzle"):
            continue  # of five bits; of scales
        given = settings(other) | {"dtype": kind, "layout": "in,out"}
        there = stored(other, kind)
        made = sj.repack(there, shape=shape_of(other), source=other, target=free, **given)
        same(made, turned(free, kind))
        back = sj.repack(made, shape=SHAPE[::-1], source=free, target=other, **given)
        if not other.startswith("gguf"):  # which has room for scales among the codes
            same(back, there)
        again = sj.repack(back, shape=shape_of(other), source=other, target=free, **given)
        same(again, made)


@pytest.mark.parametrize("kind", ["uint4", "uint8"])
def test_out_in_is_the_default(kind):
    for free, other in pairs(kind):
        given = settings(other) | {"dtype": kind, "source": other, "target": free}
        there, shape = stored(other, kind), shape_of(other)
        same(
            sj.repack(there, shape=shape, layout="out,in", **given),
            sj.repack(there, shape=shape, **given),
        )


def test_codes_of_gptq_in_the_order_of_their_matrix():
    codes = np.arange(16, dtype=np.uint8).reshape(8, 2) % 16  # (in, out)
    made = sj.repack(
        codes, shape=(8, 2), dtype="uint4", source="padded", target="gptq:qweight", layout="in,out"
    )
    assert [f"{word:08x}" for word in made.view(np.uint32).ravel()] == ["eca86420", "fdb97531"]


def test_what_is_refused():
    words = np.zeros((8, 2), np.int32)
    given = {"shape": (8, 16), "dtype": "uint4"}
    with pytest.raises(sj.FormatError, match=r"awq:gemm and mlx both define"):
        sj.repack(words, source="awq:gemm", target="mlx", layout="in,out", **given)
    with pytest.raises(sj.FormatError, match="neither lsb nor msb defines"):
        sj.repack(bytes(64), source="lsb", target="msb", layout="in,out", **given)
    with pytest.raises(sj.FormatError, match='layout must be "in,out" or "out,in", not \'KN\''):
        sj.repack(words, source="awq:gemm", target="lsb", layout="KN", **given)
