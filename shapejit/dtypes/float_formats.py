"""The bits of each float dtype: exponent, mantissa, bias; which have infinities, NaNs and -0."""

from __future__ import annotations

from typing import NamedTuple


class FloatFormat(NamedTuple):
    """The bits of a float: a sign, `exponent` and `mantissa` bits, and its special values.

    The exponent counts from `bias`. `special` is "ieee" (NaNs, and alone infinities), "fn" (one
    NaN, all bits set), "fnuz" (one NaN, the code that would be a negative zero), "finite" (none) or
    "unsigned" (powers of two without a sign; NaN is all bits set). `table` lists the values of all
    codes if they follow no such rule.
    """

    exponent: int
    mantissa: int
    bias: int
    special: str
    table: tuple[float, ...] = ()


# fmt: off
# What NF4 stands for (QLoRA, arXiv 2305.14314, appendix E).
_NF4_VALUES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)

FLOAT_FORMATS = {
    #                                 exponent mantissa bias special
    "float4_e2m1fn":       FloatFormat( 2,  1,    1, "finite"),
    "nf4":                 FloatFormat( 0,  0,    0, "finite", _NF4_VALUES),
    "float6_e2m3fn":       FloatFormat( 2,  3,    1, "finite"),
    "float6_e3m2fn":       FloatFormat( 3,  2,    3, "finite"),
    "float8_e3m4":         FloatFormat( 3,  4,    3, "ieee"),
    "float8_e4m3":         FloatFormat( 4,  3,    7, "ieee"),
    "float8_e4m3b11fnuz":  FloatFormat( 4,  3,   11, "fnuz"),
    "float8_e4m3fn":       FloatFormat( 4,  3,    7, "fn"),
    "float8_e4m3fnuz":     FloatFormat( 4,  3,    8, "fnuz"),
    "float8_e5m2":         FloatFormat( 5,  2,   15, "ieee"),
    "float8_e5m2fnuz":     FloatFormat( 5,  2,   16, "fnuz"),
    "float8_e8m0fnu":      FloatFormat( 8,  0,  127, "unsigned"),
    "bfloat16":            FloatFormat( 8,  7,  127, "ieee"),
    "float16":             FloatFormat( 5, 10,   15, "ieee"),
    "float32":             FloatFormat( 8, 23,  127, "ieee"),
    "float64":             FloatFormat(11, 52, 1023, "ieee"),
}
# fmt: on
FLOAT_FORMATS |= {
    "complex32": FLOAT_FORMATS["float16"],
    "bcomplex32": FLOAT_FORMATS["bfloat16"],
    "complex64": FLOAT_FORMATS["float32"],
    "complex128": FLOAT_FORMATS["float64"],
}
