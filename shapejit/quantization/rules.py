"""Quantising floats: the rules by which each scheme chooses a scale per block, and the codes.

A scheme's row names the rule that its reference follows. The arithmetic is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import asarray
from ..dtypes.table import dtype
from ..kernels import encodings
from ..operations.casts import cast
from ..operations.views import ascontiguous
from .content import Content

Values = NDArray[np.float32]
Array = NDArray[Any]
ONE = np.float32(1)
_SHORT = 256  # elements of a block that is transposed
_E8M0 = dtype("float8_e8m0fnu").codes


class Blocks:
    """A weight cut into blocks: each axis becomes two, blocks and the elements of one."""

    def __init__(self, x: Values, blocks: tuple[int, ...], amax: np.float32 | None = None) -> None:
        lead = x.ndim - len(blocks)
        sizes, pads = list(x.shape[:lead]), [(0, 0)] * lead
        for n, size in zip(x.shape[lead:], blocks, strict=True):
            pads.append((0, -n % size))
            sizes += [-(-n // size), size]
        self.shape, self.blocks, self.amax = x.shape, blocks, amax
        self.x = (np.pad(x, pads) if any(after for _, after in pads) else x).reshape(sizes)
        self.axes = tuple(range(lead + 1, self.x.ndim, 2))

    @cached_property
    def low(self) -> Values:
        """The smallest number of each block; the dims of elements have size 1."""
        return self._reduced(np.min)

    @cached_property
    def high(self) -> Values:
        """The largest number of each block."""
        return self._reduced(np.max)

    @cached_property
    def _turned(self) -> Values | None:
        """Blocks along rows, transposed: reductions are 3 times as fast."""
        size = self.blocks[-1]
        if not 1 < size <= _SHORT or max(self.blocks[:-1], default=1) > 1:
            return None
        return np.asarray(ascontiguous(self.x.reshape(-1, size).T))

    def _reduced(self, by: Callable[..., Any]) -> Values:
        if self._turned is None:
            return np.asarray(by(self.x, axis=self.axes, keepdims=True))
        shape = [1 if k in self.axes else n for k, n in enumerate(self.x.shape)]
        return np.asarray(by(self._turned, axis=0)).reshape(shape)

    @property
    def most(self) -> Values:
        """The largest magnitude of each block."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def top(self) -> Values:
        """The largest magnitude of each weight; the dims of its elements have size 1."""
        lead = len(self.shape) - len(self.blocks)
        dims = tuple(range(lead, self.x.ndim))
        if self.amax is not None:
            return np.full([1 if k in dims else n for k, n in enumerate(self.x.shape)], self.amax)
        return np.asarray(self.most.max(axis=dims, keepdims=True, initial=0))

    @property
    def widest(self) -> Values:
        """The number of largest magnitude of each block, with its sign; the first of equal ones."""
        last = np.moveaxis(self.x, self.axes, range(-len(self.axes), 0))
        rows = last.reshape(-1, prod(self.blocks))
        low, high = self.low.reshape(-1), self.high.reshape(-1)
        made = np.where(-low > high, low, high)
        either = np.flatnonzero(-low == high)
        if either.size:
            at = np.abs(rows[either]).argmax(axis=-1)[:, None]
            made[either] = np.take_along_axis(rows[either], at, axis=-1)[:, 0]
        return made.reshape(self.low.shape)

    def per_block(self, x: Array) -> Array:
        """Numbers of blocks without the dims of size 1."""
        return np.ascontiguousarray(x).reshape(
            [n for k, n in enumerate(x.shape) if k not in self.axes]
        )

    def per_element(self, x: Array) -> Array:
        """Numbers of elements in the shape of the weight."""
        lead = len(self.shape) - len(self.blocks)
        padded = [a * b for a, b in zip(x.shape[lead::2], x.shape[lead + 1 :: 2], strict=True)]
        whole = x.reshape(*self.shape[:lead], *padded)
        return np.ascontiguousarray(whole[tuple(slice(n) for n in self.shape)])


class Coded(NamedTuple):
    """The results of a rule (codes, scales and so on) in the shapes of Blocks."""

    codes: Array
    scale: Array
    zeros: Any = None
    offset: Array | None = None
    factor: Array | None = None
    step: str = "*"


class Wanted(NamedTuple):
    """The wanted codes: integers of `bits`, or the dtype or table `values`."""

    bits: int
    values: Any
    symmetric: bool
    scale: str  # the dtype of scales
    amax: np.float32 | None = None  # the largest magnitude of all that share a global scale


class Rule(NamedTuple):
    """A rule: as NumPy computes it, as a kernel does (None: none does).

    `factor` is the factor of all scales, given the largest magnitude of all, if there is one.
    """

    by_numpy: Callable[[Blocks, Wanted], Coded]
    by_kernel: Callable[[Wanted], encodings.Rule] | None = None
    factor: Callable[[Array], Array] | None = None


def inverse(scale: Array) -> Array:
    """1 / scale, 0 for 0."""
    return np.where(scale == 0, np.float32(0), ONE / np.where(scale == 0, ONE, scale))


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


def top_of(values: str) -> np.float32:
    """The largest number of a dtype."""
    kind = dtype(values)
    return np.float32({"float8_e4m3fn": 448, "float8_e5m2": 57344, "float4_e2m1fn": 6}[kind.name])


def _absmax(blocks: Blocks, wanted: Wanted) -> Coded:
    """scale = largest magnitude / largest code; blocks of zeros have the scale 1."""
    scale = blocks.most / top_of(wanted.values)
    scale = as_kind(np.where(scale == 0, ONE, scale), wanted.scale)
    return Coded(nearest(blocks.x / scale.astype(np.float32), wanted.values), scale)


def _power(blocks: Blocks, wanted: Wanted, up_from: float = 1) -> Coded:
    """OCP MX, section 6.3: scale = 2**(floor(log2(largest magnitude)) - largest exponent).

    The next power is taken if the magnitude is at least `up_from` times that of this one.
    """
    most = blocks.most
    mantissa, exponent = np.frexp(most)
    exponent = exponent + (mantissa >= np.float32(up_from))
    _, largest = np.frexp(top_of(wanted.values))
    stored = np.where(most > 0, np.clip(exponent - largest + 127, 0, 254), 0).astype(np.uint8)
    scale = stored.view(_E8M0)
    return Coded(nearest(blocks.x / scale.astype(np.float32), wanted.values), scale)


def _upper_power(blocks: Blocks, wanted: Wanted) -> Coded:
    """MLX: the smallest power of two >= largest magnitude / largest code; no negative zeros."""
    most = blocks.most / top_of(wanted.values)
    stored = np.ceil(np.log2(np.where(most == 0, ONE, most))) + 127
    scale = np.clip(stored, 0, 254).astype(np.uint8).view(_E8M0)
    codes = nearest(blocks.x / scale.astype(np.float32), wanted.values)
    return Coded(_unsigned_zeros(codes, wanted), scale)


def _absmax_or_zero(blocks: Blocks, wanted: Wanted) -> Coded:
    """MLX's and GGUF's NVFP4: scale = largest magnitude / 6; no negative zeros."""
    scale = as_kind(blocks.most / top_of(wanted.values), wanted.scale)
    codes = nearest(blocks.x * inverse(scale.astype(np.float32)), wanted.values)
    return Coded(_unsigned_zeros(codes, wanted), scale)


def _unsigned_zeros(codes: Array, wanted: Wanted) -> Array:
    return np.where(codes == 8, np.uint8(0), codes) if wanted.bits == 4 else codes


def _lower_power(blocks: Blocks, wanted: Wanted) -> Coded:
    """GGUF MXFP4: `by_power`, halves towards zero, no negative zeros."""
    made = _power(blocks, wanted)
    x = blocks.x / made.scale.astype(np.float32)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    codes = np.searchsorted((values[1:] + values[:-1]) / 2, np.abs(x), side="left").astype(np.uint8)
    return made._replace(codes=codes + np.uint8(8) * ((x < 0) & (codes > 0)))


def _two_levels(blocks: Blocks, wanted: Wanted) -> Coded:
    """NVFP4: one factor, largest magnitude / (6 * 448), and a float8 scale per block."""
    factor = _level(blocks.top)
    scale = as_kind(blocks.most / (np.float32(6) * factor), "float8_e4m3fn")
    return _scaled_twice(blocks, wanted, scale, factor, scale.astype(np.float32) * factor)


def _scaled_twice(
    blocks: Blocks, wanted: Wanted, scale: Array, factor: Array, by: Array, step: str = "*"
) -> Coded:
    """Codes of numbers divided `by` the scale and the factor of all."""
    codes = nearest(np.where(by == 0, 0, blocks.x / np.where(by == 0, ONE, by)), wanted.values)
    lead = blocks.shape[: len(blocks.shape) - len(blocks.blocks)]
    return Coded(codes, scale, factor=factor.reshape(lead), step=step)


def _two_levels_or_one(blocks: Blocks, wanted: Wanted) -> Coded:
    """ModelOpt's NVFP4: `by_two_levels`, with the scale 1 for blocks of zeros."""
    made = _two_levels(blocks, wanted)
    scale = made.scale.astype(np.float32)
    return made._replace(scale=as_kind(np.where(scale == 0, ONE, scale), "float8_e4m3fn"))


def _two_inverses(blocks: Blocks, wanted: Wanted) -> Coded:
    """compressed-tensors' NVFP4: the factor is 6 * 448 / largest magnitude, and divides."""
    factor = _inverse_level(blocks.top)
    scale = as_kind(factor * (blocks.most / np.float32(6)), "float8_e4m3fn")
    eighth = np.float32(0.125)
    scale = as_kind(np.where(scale.astype(np.float32) == 0, eighth, scale), "float8_e4m3fn")
    return _scaled_twice(blocks, wanted, scale, factor, scale.astype(np.float32) / factor, "/")


def _table(blocks: Blocks, wanted: Wanted) -> Coded:
    """bitsandbytes: scale = largest magnitude, codes the nearest of a table up to 1."""
    scale = blocks.most
    return Coded(nearest(blocks.x * inverse(scale), wanted.values), scale)


def _range(blocks: Blocks, wanted: Wanted, least: float | None = None) -> Coded:
    """GPTQ: from the smallest to the largest number, 0 included; blocks of zeros as if up to 1."""
    top = np.float32((1 << wanted.bits) - 1)
    half = np.float32(1 << (wanted.bits - 1))
    low, high = np.minimum(blocks.low, 0), np.maximum(blocks.high, 0)
    scale = blocks.most / (top / np.float32(2)) if wanted.symmetric else (high - low) / top
    none = np.float32(2) / top if least is None else np.float32(least)
    level = (scale == 0) | wanted.symmetric
    scale = as_kind(np.where(scale == 0, none, scale), wanted.scale)
    by = scale.astype(np.float32)
    zeros = np.where(level, half, np.clip(np.rint(-low / by), 0, top))
    codes = np.clip(np.rint(blocks.x / by) + zeros, 0, top).astype(np.uint8)
    return Coded(codes, scale, zeros.astype(np.uint8))


def _signed_absmax(blocks: Blocks, wanted: Wanted) -> Coded:
    """GGUF Q4_0, Q5_0, MatMulNBits: the number of largest magnitude becomes the smallest code."""
    if not wanted.symmetric:
        return _range(blocks, wanted)
    half = np.float32(1 << (wanted.bits - 1))
    scale = blocks.widest / -half
    codes = np.trunc(blocks.x * inverse(scale) + (half + np.float32(0.5)))
    codes = np.clip(codes, 0, 2 * half - 1).astype(np.uint8)
    return Coded(codes, as_kind(scale, wanted.scale), int(half))


def _minimum(blocks: Blocks, wanted: Wanted) -> Coded:
    """GGUF Q4_1 and Q5_1: offset = smallest number, scale = (largest - smallest) / largest code."""
    top = np.float32((1 << wanted.bits) - 1)
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
    top, low, high = np.float32((1 << wanted.bits) - 1), blocks.low, blocks.high
    down = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / top, np.float32(1e-7))
    scale = np.where(down, scale, -scale)
    edge = np.where(down, low, high)
    steps = np.rint(edge / scale)
    scale = np.where(steps == 0, scale, edge / np.where(steps == 0, ONE, steps))
    offset = np.where(steps == 0, np.float32(0), edge)
    codes = np.clip(np.rint((blocks.x - offset) / scale), 0, top).astype(np.uint8)
    kind = wanted.scale
    return Coded(codes, as_kind(scale, kind), 0, as_kind(offset, kind))


def _level(top: Array) -> Array:
    factor = top / np.float32(2688)
    return np.where(factor == 0, ONE, factor)


def _inverse_level(top: Array) -> Array:
    return np.where(top == 0, ONE, np.float32(2688) / np.where(top == 0, ONE, top))


def _floats(name: str, more: float = 0.0) -> Callable[[Wanted], encodings.Rule]:
    """A kernel's rule for codes that are floats."""
    return lambda wanted: encodings.Rule(name, float(top_of(wanted.values)), more)


def _ranges(least: float | None) -> Rule:
    """The rule of codes in a range, whose scale is at least a number."""

    def rule(wanted: Wanted) -> encodings.Rule:
        top = np.float32((1 << wanted.bits) - 1)
        none = float(np.float32(2) / top) if least is None else least
        return encodings.Rule("range", float(top), none)

    return Rule(partial(_range, least=least), rule)


by_absmax = Rule(_absmax, _floats("most"))
by_power = Rule(_power, _floats("power", 1))
# compressed-tensors' MX: the next power from 7/8 of it on
by_closest_power = Rule(partial(_power, up_from=0.875), _floats("power", 0.875))
by_upper_power = Rule(_upper_power)
by_absmax_or_zero = Rule(_absmax_or_zero, _floats("most_or_zero"))
by_lower_power = Rule(_lower_power, _floats("lower_power", 1))
by_two_levels = Rule(_two_levels, _floats("two_levels"), _level)
by_two_levels_or_one = Rule(_two_levels_or_one, _floats("two_levels", 1), _level)
by_two_inverses = Rule(_two_inverses, _floats("two_inverses", 0.125), _inverse_level)
by_table = Rule(_table)
by_range = _ranges(None)
by_range_or_least = _ranges(2.0**-23)  # compressed-tensors: float32's epsilon
by_signed_absmax = Rule(
    _signed_absmax, lambda wanted: encodings.Rule(encodings.WIDEST, float(1 << (wanted.bits - 1)))
)
by_minimum = Rule(_minimum)
by_magnitude = Rule(_magnitude, lambda wanted: encodings.Rule("magnitude", 127))
by_mlx_affine = Rule(_mlx_affine)

_BAND = 1 << 18  # elements at a time: their blocks, scales and codes stay in a cache


def encoded(x: Values, blocks: tuple[int, ...], rule: Rule, wanted: Wanted) -> Content:
    """The Content of a weight, (out, in) last or flat, encoded by a rule some rows at a time."""
    if wanted.amax is None and rule.factor and x.ndim == len(blocks) and x.size:
        wanted = wanted._replace(amax=max(x.max(), -x.min()))
    row = x.size // max(1, len(x))
    step = max(1, _BAND // max(1, row * blocks[0])) * blocks[0]
    if x.ndim > len(blocks) or len(x) <= step:
        return _encoded(x, blocks, rule, wanted)
    bands = [_encoded(x[at : at + step], blocks, rule, wanted) for at in range(0, len(x), step)]
    first = bands[0]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(band, name) for band in bands])
        for name in ("codes", "scale", "zeros", "offset")
        if isinstance(getattr(first, name), np.ndarray)
    }
    return replace(first, shape=x.shape, **joined)


def _encoded(x: Values, blocks: tuple[int, ...], rule: Rule, wanted: Wanted) -> Content:
    cut = Blocks(x, blocks, wanted.amax)
    with np.errstate(all="ignore"):
        made = rule.by_numpy(cut, wanted)
    zeros = made.zeros
    return Content(
        shape=x.shape,
        result=None,
        codes=cut.per_element(made.codes),
        bits=wanted.bits,
        values=wanted.values,
        blocks=blocks,
        scale=cut.per_block(made.scale),
        factor=made.factor,
        step=made.step,
        zeros=cut.per_block(zeros) if isinstance(zeros, np.ndarray) else zeros,
        offset=None if made.offset is None else cut.per_block(made.offset),
    )
