"""Generator of the function of an Encoding: boxes of floats become codes and scales.

A box stays in a cache during three steps: the number of largest magnitude of each block, found by
integer comparisons, since floats are ordered like their bits; the scales of several blocks at once;
then the codes. Intermediate results are on the stage. The function does not return 0 if some number
is not finite, or some scale is so small that NumPy's result depends on the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np
from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .encoding_rules import coded, scales
from .encodings import FIXED, FLOAT32, LARGEST, SCALES_AT_ONCE, STAGED, Encoding
from .lanes import Lanes, by_vectors, load, loop, type_of
from .largest_magnitude import largest, magnitudes
from .llvm import I64, POINTER
from .memory import VECTOR
from .number_vectors import decoded
from .numbers import Conversion
from .numerics import Values

# source, target, scales, rows, columns, bytes from row to row in source and target, factor, stage
SIGNATURE = ir.FunctionType(I64, [POINTER] * 3 + [I64] * 4 + [POINTER] * 2)

MAX_LANES = 64  # elements of a vector of a long block
REDUCED = 8  # blocks whose largest numbers are found together; one at a time takes 1.1 to 1.3 x


def write(function: Any, what: Encoding) -> None:
    """Write the function of an Encoding, which `encodes.encode_boxes` calls."""
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    box = _Box(builder, what, function.args)
    if what.rule.name != FIXED:
        box.reduce()
        box.scale()
    if what.rule.name != LARGEST:
        box.encode()
    builder.ret(builder.load(box.rare))


class _Box:
    """The steps over a box.

    The stage has words for each block: the number of largest magnitude, in the source's format, the
    stored scale, and the factor or divisor of its elements.
    """

    def __init__(self, builder: Any, what: Encoding, arguments: Any) -> None:
        self.builder, self.what = builder, what
        given: list[Values] = [Lanes(builder, argument, "i8") for argument in arguments]
        (self.source, self.target, self.scales, self.rows, self.columns, self.pitch,
         self.target_pitch, self.factor, stage) = given  # fmt: skip
        self.block = stage.constant(what.block) if what.block else self.columns
        self.nbytes, self.dtype = what.source.nbytes, f"u{what.source.nbytes}"
        self.lanes = gcd(what.block, MAX_LANES)
        self.kept = builder.alloca(type_of(self.dtype, self.lanes))
        self.ahead = self.columns * self.nbytes
        self.rare = builder.alloca(I64)
        builder.store(llvm.number(0), self.rare)
        self.blocks = (self.columns + self.block - 1) // self.block
        room = 4 * (self.blocks + SCALES_AT_ONCE - 1 & -SCALES_AT_ONCE)
        self.most, self.stored, self.by = (stage + room * k for k in range(STAGED))

    def _over(self, block: Values, step: Callable[[Values, int], None]) -> None:
        """Run `step` for the elements of a block in a row."""
        begin = block * self.block
        end = np.minimum(begin + self.block, self.columns)
        with self.builder.if_else((end - begin == self.what.block).value) as (whole, part):
            with whole:
                for at in range(0, self.what.block, self.lanes):
                    step(begin + at, self.lanes)
            with part:
                by_vectors(begin, end, begin, self.lanes, step)

    def _loaded(
        self, row: Values, index: Values, lanes: int, ahead: Values | None = None
    ) -> Values:
        """The codes of a vector of elements.

        The line `ahead` bytes further is prefetched; without it encoders take 1.15 x the time.
        """
        at = row + index * self.nbytes
        if ahead is not None:
            for line in range(0, lanes * self.nbytes, LINE):
                llvm.prefetch(self.builder, (at + ahead + line).value)
        return load(at, self.dtype, lanes)

    def _store(self, values: Values, address: Values) -> None:
        llvm.store(self.builder, values.value, address.value)

    # The number of largest magnitude

    def reduce(self) -> None:
        """Write the largest number of each block to the stage; zeros follow the last one."""
        zeros = self.blocks.spread(SCALES_AT_ONCE).constant(0, "u4")
        self._store(zeros, self.most + 4 * (self.blocks & -SCALES_AT_ONCE))
        if self.what.places:
            first = self.blocks.constant(0)
            by_vectors(first, self.blocks, first, REDUCED, self._reduce_blocks)
            return
        with loop(self.blocks) as k:
            self._reduce_rows(k)

    def _reduce_blocks(self, first: Values, count: int) -> None:
        """Find the largest numbers of `count` blocks, one after the other in a row."""
        block, signed = self.what.block, self.what.rule.signed
        # Of a vector that has the results of all blocks, too.
        lanes = gcd(block, max(REDUCED, VECTOR // self.nbytes))
        starts = (first * block + at for at in range(0, count * block, lanes))
        vectors = [self._loaded(self.source, start, lanes) for start in starts]
        found = largest(vectors if signed else [*map(magnitudes, vectors)], count, signed)
        self._store(found, self.most + 4 * first)

    def _reduce_rows(self, block: Values) -> None:
        """Find the largest magnitude in the rows of one block."""
        builder, lanes = self.builder, self.lanes
        kind = type_of(self.dtype, lanes)
        builder.store(llvm.constant(0, kind), self.kept)

        def step(index: Values, count: int) -> None:
            codes = magnitudes(self._loaded(row, index, count))
            codes = codes.chosen([k % count for k in range(lanes)])
            most = np.maximum(codes.of(builder.load(self.kept)), codes)
            builder.store(most.value, self.kept)

        with loop(self.rows) as r:
            row = self.source + r * self.pitch
            self._over(block, step)
        found = largest([block.of(builder.load(self.kept), self.dtype)], 1, False)
        self._store(found, self.most + 4 * block)

    # Scales

    def scale(self) -> None:
        """Write the multipliers or divisors of elements to the stage; store scales."""
        builder, what, nbytes = self.builder, self.what, self.what.scale.nbytes
        factor = load(self.factor, "f4").spread(SCALES_AT_ONCE)
        with loop(self.blocks, SCALES_AT_ONCE) as k:
            codes = load(self.most + 4 * k, "u4", SCALES_AT_ONCE).astype(self.dtype)
            most = decoded(codes, Conversion(what.source, FLOAT32, 32))
            stored, by, rare = scales(what, most, factor)
            flags = builder.zext(builder.bitcast(rare.value, ir.IntType(SCALES_AT_ONCE)), I64)
            builder.store(builder.or_(builder.load(self.rare), flags), self.rare)
            self._store(stored, self.stored + nbytes * k)
            self._store(by, self.by + 4 * k)
        places = what.scale_places
        with loop(self.blocks, len(places)) as k:  # from the stage to their places
            begin = self.scales + k // len(places) * what.scale_step
            for i, place in enumerate(places):
                self._store(load(self.stored + (k + i) * nbytes, f"u{nbytes}"), begin + place)

    # Codes

    def encode(self) -> None:
        """Write the codes of all elements."""
        what = self.what
        if what.places:
            lanes = len(what.places)
            with loop(self.columns, lanes) as index:
                by = self._scaling(index // self.block, max(1, lanes // what.block))
                codes = self._loaded(self.source, index, lanes, self.ahead)
                self._pack(codes, what.places, by, self.target + index // lanes * what.step)
            return
        with loop(self.rows) as r, loop(self.blocks) as k:
            row, into = self.source + r * self.pitch, self.target + r * self.target_pitch
            by = self._scaling(k, 1)

            def step(index: Values, lanes: int) -> None:
                places = tuple(range(0, 8 * lanes, 8))
                self._pack(self._loaded(row, index, lanes, self.ahead), places, by, into + index)

            self._over(k, step)

    def _scaling(self, block: Values, count: int) -> Values:
        """The factors or divisors of the elements of some blocks."""
        at = self.factor if self.what.rule.name == FIXED else self.by + 4 * block
        return load(at, "f4", count)

    def _pack(self, codes: Values, places: tuple[int, ...], by: Values, into: Values) -> None:
        """Encode a vector of elements, and store their codes at `places`.

        Codes that share a cell of one or two bytes are combined before they are narrowed; cells of
        two bytes save 5 to 10 percent.
        """
        bits = self.what.target.bits
        in_pairs = [place + 8 for place in places[::2]] == [*places[1::2]]
        cell = 16 if bits == 8 and in_pairs else 8
        planes = dict[int, dict[int, int]]()
        for element, place in enumerate(places):
            planes.setdefault(place % cell, {})[place // cell] = element
        cells, made = sorted(planes[min(planes)]), None
        for shift, elements in sorted(planes.items()):
            plane = self._plane(codes, [elements[at] for at in cells], by)
            plane = plane.view(f"u{plane.dtype.itemsize}")
            plane = plane << shift & (1 << bits) - 1 << shift
            made = plane if made is None else made | plane
        assert made is not None
        made = made.astype(f"u{cell // 8}")
        begins = [k for k, at in enumerate(cells) if not k or at != cells[k - 1] + 1]
        for k, end in zip(begins, [*begins[1:], len(cells)], strict=True):
            self._store(made.chosen(list(range(k, end))), into + cells[k] * cell // 8)

    def _plane(self, codes: Values, elements: list[int], by: Values) -> Values:
        """The codes of some elements of a vector, in 32 bits each."""
        scale = by.chosen([element // (codes.count // by.count) for element in elements])
        value = decoded(codes.chosen(elements), Conversion(self.what.source, FLOAT32, 32))
        return coded(self.what, value, scale)
