"""Quantising floats: the rules by which each scheme chooses a scale per block, and the codes.

A scheme's row names the rule that its reference follows. The arithmetic is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from ml_dtypes import finfo
from numpy.typing import NDArray

from ..arrays.tensor import asarray
from ..dtypes.table import dtype
from ..kernels import encodings
from ..operations.casts import cast
from ..operations.views import ascontiguous
from ..shapes.request import Ints
from .content import Content
from .groups import Group

Values = NDArray[np.float32]
Array = NDArray[Any]
ONE = np.float32(1)
_SHORT_BLOCK = 256  # elements of a block that is transposed
_E8M0 = dtype("float8_e8m0fnu").codes


class Blocks:
    """A weight, (out, in) or flat, cut into blocks: each axis becomes two, blocks and elements.

    `low` and `high` are the smallest and largest numbers of the blocks, `most` their largest
    magnitudes; the dims of elements have size 1 there. `factor` is that of all scales.
    """

    def __init__(self, x: Values, blocks: Ints, factor: Any = ONE) -> None:
        pads = [(0, -n % size) for n, size in zip(x.shape, blocks, strict=True)]
        whole = np.pad(x, pads) if any(after for _, after in pads) else x
        cut = [(n // size, size) for n, size in zip(whole.shape, blocks, strict=True)]
        self.padded, self.factor = whole.shape, factor
        self.x = whole.reshape([n for pair in cut for n in pair])
        self.axes, self.size = tuple(range(1, self.x.ndim, 2)), prod(blocks)
        rows, axis = self.x, self.axes
        if (
            1 < blocks[-1] == self.size <= _SHORT_BLOCK
        ):  # transposed: reductions are 3 times as fast
            rows, axis = np.asarray(ascontiguous(self.x.reshape(-1, self.size).T)), (0,)
        each = [n for blocks_of_one, _ in cut for n in (blocks_of_one, 1)]
        self.low: Values = rows.min(axis=axis).reshape(each)
        self.high: Values = rows.max(axis=axis).reshape(each)
        self.most = np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def widest(self) -> Values:
        """The number of largest magnitude of each block, with its sign; the first of equal ones."""
        made: Values = np.where(-self.low > self.high, self.low, self.high).reshape(-1)
        equal = (-self.low == self.high).reshape(-1)
        if equal.any():
            last = np.moveaxis(self.x, self.axes, range(-len(self.axes), 0))
            rows = last.reshape(equal.size, self.size)[equal]
            at = np.abs(rows).argmax(axis=-1)[:, None]
            made[equal] = np.take_along_axis(rows, at, axis=-1)[:, 0]
        return made.reshape(self.low.shape)


class Coded(NamedTuple):
    """The results of a rule for Blocks: codes, scales, zero points and offsets."""

    codes: Array
    scale: Array
    zeros: Any = None
    offset: Array | None = None


class Wanted(NamedTuple):
    """The wanted codes: integers of `bits`, or the dtype or table `values`."""

    bits: int
    values: Any
    symmetric: bool
    scale: str  # the dtype of scales
    amax: np.float32 | None = None  # the largest magnitude of all that share a global scale

    @property
    def half(self) -> int:
        """Half the number of codes."""
        return 1 << (self.bits - 1)


def top_of(wanted: Wanted) -> np.float32:
    """The largest number of the codes."""
    if wanted.values == "integer":
        return np.float32((1 << wanted.bits) - 1)
    return np.float32(finfo(dtype(wanted.values).numpy).max)  # type: ignore[no-untyped-call]


class EncodingRule(NamedTuple):
    """A rule: NumPy's function, and its `name` for kernels ("": no kernel has it).

    Kernels divide the largest magnitude by `top`. `more` is another number that they need; None:
    the scale of blocks of zeros is 2 / top.
    `factor` is the factor of all scales, given the largest magnitude of all, if there is one.
    `of_largest`: the scale of a block depends on its largest magnitude alone, so that the one scale
    of a weight is known before its codes. `signed`: it depends on that number's sign, too.
    """

    by_numpy: Callable[[Blocks, Wanted], Coded]
    name: str = ""
    more: float | None = 0.0
    factor: Callable[[Array], Array] | None = None
    of_largest: bool = False
    signed: bool = False
    top: Callable[[Wanted], Any] = top_of

    def for_kernels(self, wanted: Wanted) -> encodings.ScaleRule:
        """The ScaleRule for kernels."""
        more = float(np.float32(2) / top_of(wanted)) if self.more is None else self.more
        return encodings.ScaleRule(self.name, float(self.top(wanted)), more, self.signed)


def inverse(scale: Array) -> Array:
    """1 / scale, 0 for 0."""
    return np.where(scale == 0, np.float32(0), ONE / _instead(scale, 1))


def as_kind(x: Array, name: str) -> Array:
    """Numbers rounded to a dtype."""
    return np.asarray(cast(asarray(np.ascontiguousarray(x, np.float32)), name).numpy())


def nearest(x: Array, values: Any) -> Array:
    """The codes of numbers: of a dtype, rounded to even, or the nearest of a table."""
    if isinstance(values, str):
        return np.asarray(cast(np.ascontiguousarray(x), values)).view(np.uint8)
    order = np.argsort(values, kind="stable").astype(np.uint8)
    table = np.array(values, np.float32)[order]
    between = (table[1:] + table[:-1]) / np.float32(2)
    return order[np.searchsorted(between, x, side="left")]


def _absmax(blocks: Blocks, wanted: Wanted) -> Coded:
    """scale = largest magnitude / largest code; blocks of zeros have the scale 1."""
    scale = _instead(blocks.most / top_of(wanted), 1)
    return _divided(blocks, wanted, as_kind(scale, wanted.scale))


def _divided(blocks: Blocks, wanted: Wanted, scale: Array) -> Coded:
    """Codes of floats divided by the stored scales."""
    return Coded(nearest(blocks.x / scale.astype(np.float32), wanted.values), scale)


def _power(blocks: Blocks, wanted: Wanted, up_from: float = 1) -> Coded:
    """OCP MX, section 6.3: scale = 2**(floor(log2(largest magnitude)) - largest exponent).

    The next power is taken if the magnitude is at least `up_from` times its value.
    """
    mantissa, exponent = np.frexp(blocks.most)
    _, largest = np.frexp(top_of(wanted))
    stored = exponent + (mantissa >= np.float32(up_from)) - largest + 127
    stored = np.where(blocks.most > 0, np.clip(stored, 0, 254), 0)
    return _divided(blocks, wanted, stored.astype(np.uint8).view(_E8M0))


def _upper_power(blocks: Blocks, wanted: Wanted) -> Coded:
    """MLX: the smallest power of two >= largest magnitude / largest code; no negative zeros."""
    stored = np.ceil(np.log2(_instead(blocks.most / top_of(wanted), 1))) + 127
    scale = np.clip(stored, 0, 254).astype(np.uint8).view(_E8M0)
    return _unsigned_zeros(_divided(blocks, wanted, scale), wanted)


def _absmax_or_zero(blocks: Blocks, wanted: Wanted) -> Coded:
    """MLX's and GGUF's NVFP4: scale = largest magnitude / 6; no negative zeros."""
    scale = as_kind(blocks.most / top_of(wanted), wanted.scale)
    codes = nearest(blocks.x * inverse(scale.astype(np.float32)), wanted.values)
    return _unsigned_zeros(Coded(codes, scale), wanted)


def _unsigned_zeros(made: Coded, wanted: Wanted) -> Coded:
    zero = (made.codes == 8) & (wanted.bits == 4)
    return made._replace(codes=np.where(zero, np.uint8(0), made.codes))


def _lower_power(blocks: Blocks, wanted: Wanted) -> Coded:
    """GGUF MXFP4: `by_power`, ties towards zero, no negative zeros."""
    made = _power(blocks, wanted)
    x = blocks.x / made.scale.astype(np.float32)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    codes = np.searchsorted((values[1:] + values[:-1]) / 2, np.abs(x), side="left").astype(np.uint8)
    return made._replace(codes=codes + np.uint8(8) * ((x < 0) & (codes > 0)))


def _two_levels(blocks: Blocks, wanted: Wanted, none: float = 0) -> Coded:
    """NVFP4: one factor, largest magnitude / (6 * 448), and a float8 scale per block.

    ModelOpt stores `none` as the scale of blocks of zeros.
    """
    scale = as_kind(blocks.most / (np.float32(6) * blocks.factor), wanted.scale)
    by = scale.astype(np.float32) * blocks.factor
    return Coded(_quotients(blocks, wanted, by), _instead(scale, none))


def _two_inverses(blocks: Blocks, wanted: Wanted) -> Coded:
    """compressed-tensors' NVFP4: the factor is 6 * 448 / largest magnitude, and divides."""
    scale = as_kind(blocks.factor * (blocks.most / np.float32(6)), wanted.scale)
    scale = _instead(scale, 0.125)
    return Coded(_quotients(blocks, wanted, scale.astype(np.float32) / blocks.factor), scale)


def _quotients(blocks: Blocks, wanted: Wanted, by: Array) -> Array:
    """The codes of quotients, 0 for divisions by 0."""
    return nearest(np.where(by == 0, 0, blocks.x / _instead(by, 1)), wanted.values)


def _instead(scale: Array, none: float) -> Array:
    """Scales with 0 replaced by another number."""
    return np.where(scale == 0, scale.dtype.type(none), scale)


def _table(blocks: Blocks, wanted: Wanted) -> Coded:
    """bitsandbytes: scale = largest magnitude, codes the nearest of a table up to 1."""
    scale = blocks.most
    return Coded(nearest(blocks.x * inverse(scale), wanted.values), scale)


def _range(blocks: Blocks, wanted: Wanted, least: float | None = None) -> Coded:
    """GPTQ: from the smallest to the largest number, 0 included; blocks of zeros as if up to 1."""
    top = top_of(wanted)
    half = np.float32(wanted.half)
    low, high = np.minimum(blocks.low, 0), np.maximum(blocks.high, 0)
    scale = blocks.most / (top / np.float32(2)) if wanted.symmetric else (high - low) / top
    level = (scale == 0) | wanted.symmetric
    none = float(np.float32(2) / top) if least is None else least
    scale = as_kind(_instead(scale, none), wanted.scale)
    by = scale.astype(np.float32)
    zeros = np.where(level, half, np.clip(np.rint(-low / by), 0, top))
    codes = np.clip(np.rint(blocks.x / by) + zeros, 0, top).astype(np.uint8)
    return Coded(codes, scale, zeros.astype(np.uint8))


def _signed_absmax(blocks: Blocks, wanted: Wanted) -> Coded:
    """GGUF Q4_0, Q5_0, MatMulNBits: the number of largest magnitude becomes the smallest code."""
    if not wanted.symmetric:
        return _range(blocks, wanted)
    half = np.float32(wanted.half)
    scale = blocks.widest / -half
    codes = np.trunc(blocks.x * inverse(scale) + (half + np.float32(0.5)))
    codes = np.clip(codes, 0, 2 * half - 1).astype(np.uint8)
    return Coded(codes, as_kind(scale, wanted.scale), int(half))


def _minimum(blocks: Blocks, wanted: Wanted) -> Coded:
    """GGUF Q4_1 and Q5_1: offset = smallest number, scale = (largest - smallest) / largest code."""
    top = top_of(wanted)
    scale = (blocks.high - blocks.low) / top
    codes = np.trunc((blocks.x - blocks.low) * inverse(scale) + np.float32(0.5))
    codes = np.clip(codes, 0, top).astype(np.uint8)
    return Coded(codes, as_kind(scale, wanted.scale), 0, as_kind(blocks.low, wanted.scale))


def _magnitude(blocks: Blocks, wanted: Wanted) -> Coded:
    """GGUF Q8_0: scale = largest magnitude / 127, halves away from zero."""
    scale = blocks.most / np.float32(127)
    x = blocks.x * inverse(scale)
    size = np.abs(x)
    whole = np.floor(size)
    whole += size - whole >= np.float32(0.5)
    codes = (np.copysign(whole, x).astype(np.int16) + 128).astype(np.uint8)
    return Coded(codes, as_kind(scale, wanted.scale), 128)


def _mlx_affine(blocks: Blocks, wanted: Wanted) -> Coded:
    """MLX: codes count from the end of larger magnitude, a multiple of the scale: 0 is exact."""
    top, low, high = top_of(wanted), blocks.low, blocks.high
    down = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / top, np.float32(1e-7))
    scale = np.where(down, scale, -scale)
    edge = np.where(down, low, high)
    steps = np.rint(edge / scale)
    scale = np.where(steps == 0, scale, edge / _instead(steps, 1))
    offset = np.where(steps == 0, np.float32(0), edge)
    codes = np.clip(np.rint((blocks.x - offset) / scale), 0, top).astype(np.uint8)
    kind = wanted.scale
    return Coded(codes, as_kind(scale, kind), 0, as_kind(offset, kind))


def _level(top: Array) -> Array:
    return _instead(top / np.float32(2688), 1)


def _inverse_level(top: Array) -> Array:
    return np.where(top == 0, ONE, np.float32(2688) / _instead(top, 1))


by_absmax = EncodingRule(_absmax, "absmax", 1, of_largest=True)
by_power = EncodingRule(_power, "power", 1)
# compressed-tensors' MX: the next power from 7/8 of it on
by_closest_power = EncodingRule(partial(_power, up_from=0.875), "power", 0.875)
by_upper_power = EncodingRule(_upper_power)
by_absmax_or_zero = EncodingRule(_absmax_or_zero, "absmax_or_zero")
by_lower_power = EncodingRule(_lower_power, "lower_power", 1)
by_two_levels = EncodingRule(_two_levels, "two_levels", 0, _level)
by_two_levels_or_one = EncodingRule(partial(_two_levels, none=1), "two_levels", 1, _level)
by_two_inverses = EncodingRule(_two_inverses, "two_inverses", 0.125, _inverse_level)
by_table = EncodingRule(_table)
by_range = EncodingRule(_range, "absmax", None, top=lambda wanted: wanted.half - 0.5)
_EPSILON = 2.0**-23  # float32's, in compressed-tensors
by_range_or_least = by_range._replace(by_numpy=partial(_range, least=_EPSILON), more=_EPSILON)
by_signed_absmax = EncodingRule(
    _signed_absmax, "signed_absmax", top=lambda wanted: -wanted.half, signed=True
)
by_minimum = EncodingRule(_minimum)
by_magnitude = EncodingRule(_magnitude, "magnitude", top=lambda wanted: wanted.half - 1)
by_mlx_affine = EncodingRule(_mlx_affine)

_BAND = 1 << 18  # elements at a time: their blocks, scales and codes stay in a cache


def encoded(group: Group, x: Values, wanted: Wanted) -> Content:
    """The Content of a weight, (out, in) last or flat, encoded by a rule some rows at a time."""
    batch, blocks, rule = group.batch, group.blocks, group.form.rule
    rows, *inner = x.shape[len(batch) :]
    counts = (*batch, *(-(-n // size) for n, size in zip((rows, *inner), blocks, strict=True)))
    step = max(1, _BAND // max(1, prod(inner) * blocks[0])) * blocks[0]
    with np.errstate(all="ignore"):
        factor = None
        if rule.factor is not None:
            top = np.abs(x).max(axis=tuple(range(len(batch), x.ndim)), initial=0)
            factor = rule.factor(top if wanted.amax is None else np.full(batch, wanted.amax))
        bands = [
            (x[at][begin : begin + step], ONE if factor is None else factor[at])
            for at in np.ndindex(batch)
            for begin in range(0, max(1, rows), step)
        ] or [(np.zeros((0, *inner), np.float32), ONE)]
        made = [_encoded(some, blocks, rule, wanted, by) for some, by in bands]
    codes, scale, zeros, offset = (
        np.concatenate(each).reshape(whole) if isinstance(each[0], np.ndarray) else each[0]
        for each, whole in zip(zip(*made, strict=True), (x.shape, *(counts,) * 3), strict=True)
    )
    return Content(group, codes, scale, factor, zeros, offset)


def _encoded(x: Values, blocks: Ints, rule: EncodingRule, wanted: Wanted, factor: Any) -> Coded:
    """Some rows encoded by a rule: codes in their shape, and numbers for each block."""
    cut = Blocks(x, blocks, factor)
    made = rule.by_numpy(cut, wanted)
    own = made.codes.reshape(cut.padded)[tuple(map(slice, x.shape))]
    return made._replace(codes=np.ascontiguousarray(own))
