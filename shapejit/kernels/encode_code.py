"""Boxes of floats become codes and scales, while they are in a cache: one function per Encoding.

It takes three steps: the number of largest magnitude of each block, found by integers, as floats
are in the order of their bits; the scales of several blocks at once; then the codes. What these
steps hand on lies on the stage. The function returns 1 where some number is not finite, or some
scale is so small that what NumPy makes of it depends on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .encodings import FIXED, FLOAT32, LARGEST, LINED_UP, WIDEST, Encoding
from .largest_code import Largest
from .llvm import I64
from .nearest_code import FUSED, MULTIPLIES, Nearest
from .numbers import Conversion
from .run_loops import Counted
from .scale_code import Scaling

# source, target, scales, rows, columns, bytes from row to row in source and target, factor, stage
SIGNATURE = ir.FunctionType(I64, [I64] * 9)

LONG = 64  # elements of a vector of a long block

Count = Any  # of elements: an int, or a value of LLVM


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

    The stage has words for each block: the number of largest magnitude, as the source has it, what
    elements are scaled by, the stored scale, and the parts of the inverse that a division takes.
    """

    def __init__(self, builder: Any, what: Encoding, arguments: Any) -> None:
        self.builder, self.what = builder, what
        (self.source, self.target, self.scales, self.rows, self.columns, self.pitch,
         self.target_pitch, self.factor, stage) = arguments  # fmt: skip
        self.block = llvm.number(what.block) if what.block else self.columns
        self.code = ir.IntType(8 * what.source.nbytes)
        lanes = (LONG, LONG // 2, LONG // 4, 1)
        self.largest = Largest(builder, self.code, what.rule.name == WIDEST, lanes)
        self.next = builder.mul(self.columns, llvm.number(what.source.nbytes))
        self.rare = builder.alloca(I64)
        builder.store(llvm.number(0), self.rare)
        self.blocks = self._up(self.columns, self.block)
        room = builder.mul(self._up(self.blocks, llvm.number(LINED_UP)), llvm.number(4 * LINED_UP))
        self.most, self.by, self.stored, *inverses = (
            llvm.at(builder, stage, k, room) for k in range(5)
        )
        parts = 1 if what.source.mantissa <= 10 else 2
        divides = FUSED and what.rule.name not in MULTIPLIES
        self.inverses = inverses[: parts * divides]

    def _up(self, count: Any, size: Any) -> Any:
        """The quotient, rounded up."""
        most = self.builder.sub(size, llvm.number(1))
        return self.builder.udiv(self.builder.add(count, most), size)

    def _lengths(self, begin: Any) -> Iterator[tuple[AbstractContextManager[Any], Count]]:
        """Branches for a block that begins there: for all of its elements, for those there are."""
        builder, left = self.builder, self.builder.sub(self.columns, begin)
        if self.what.places:
            yield nullcontext(), self.what.block
        elif not self.what.block:
            yield nullcontext(), left
        else:
            whole = builder.icmp_signed(">=", left, self.block)
            with builder.if_else(whole) as (all_of_it, part):
                yield all_of_it, self.what.block
                yield part, left

    def _over(self, count: Count, step: Callable[[int, Any], None]) -> None:
        """Take `step` for vectors, the last of which reaches back, or for single elements."""
        builder = self.builder
        if isinstance(count, int):
            for at in range(0, count, _lanes(count)):
                step(_lanes(count), llvm.number(at))
            return
        with builder.if_else(builder.icmp_signed("<", count, llvm.number(LONG))) as (few, many):
            with few, Counted(builder, count, llvm.number(1)) as index:
                step(1, index)
            with many, Counted(builder, count, llvm.number(LONG)) as index:
                last = builder.sub(count, llvm.number(LONG))
                over = builder.icmp_signed(">", index, last)
                step(LONG, builder.select(over, last, index))

    def _loaded(self, lanes: int, row: Any, index: Any, ahead: Any = None) -> Any:
        """The codes of a vector of elements; those `ahead` of them (bytes) are asked for."""
        at = llvm.at(self.builder, row, self.what.source.nbytes, index)
        if ahead is not None:
            for line in range(0, lanes * self.what.source.nbytes, LINE):
                llvm.ask(self.builder, llvm.at(self.builder, self.builder.add(at, ahead), line))
        return llvm.load(self.builder, at, ir.VectorType(self.code, lanes))

    def _row(self, base: Any, pitch: Any, row: Any) -> Any:
        return self.builder.add(base, self.builder.mul(row, pitch))

    # The number of largest magnitude

    def reduce(self) -> None:
        """Write that of each block to the stage, the rest of the last vector of which is zero."""
        builder, some = self.builder, llvm.number(LINED_UP)
        whole = builder.and_(self.blocks, llvm.number(-LINED_UP))
        with builder.if_then(builder.icmp_unsigned("!=", whole, self.blocks)):
            none = llvm.constant(0, ir.VectorType(llvm.I32, LINED_UP))
            llvm.store(builder, none, llvm.at(builder, self.most, 4, whole))
        if not (self.what.places and self.largest.takes(self.what.block)):
            whole = llvm.number(0)
        else:
            with Counted(builder, whole, some) as k:
                begin = llvm.at(builder, self.source, self.what.source.nbytes * self.what.block, k)
                found = self.largest.of_blocks(begin, self.what.block, LINED_UP)
                llvm.store(builder, found, llvm.at(builder, self.most, 4, k))
        with Counted(builder, builder.sub(self.blocks, whole), llvm.number(1)) as k:
            at = builder.add(whole, k)
            begin, place = builder.mul(at, self.block), llvm.at(builder, self.most, 4, at)
            for branch, count in self._lengths(begin):
                with branch:
                    llvm.store(builder, self._largest(begin, count), place)

    def _largest(self, begin: Any, count: Count) -> Any:
        """That of the rows of one block."""
        builder, found = self.builder, self.largest
        if isinstance(count, int) and self.what.rule.name == WIDEST:
            return found.first_of(self._loaded(count, self.source, begin))
        lanes = [_lanes(count)] if isinstance(count, int) else [LONG, 1]
        found.clear(lanes)
        with Counted(builder, self.rows, llvm.number(1)) as r:
            row = self._row(self.source, self.pitch, r)

            def step(n: int, index: Any) -> None:
                found.take(self._loaded(n, row, builder.add(begin, index)))

            self._over(count, step)
        return found.taken(lanes)

    # Scales

    def scale(self) -> None:
        """Write what elements are multiplied with, or divided by, to the stage; store scales."""
        builder, what = self.builder, self.what
        vector, nbytes = Scaling(builder, LINED_UP), what.scale.nbytes
        with Counted(builder, self.blocks, llvm.number(LINED_UP)) as k:
            found = llvm.load(builder, llvm.at(builder, self.most, 4, k), vector.ints(32))
            codes = vector.narrowed(found, self.code.width)
            most = vector.decoded(codes, Conversion(what.source, FLOAT32, 32))
            one = llvm.load(builder, self.factor, ir.FloatType())
            stored, by, rare = vector.scales(what, most, llvm.splat(builder, one, LINED_UP))
            flags = builder.bitcast(rare, ir.IntType(LINED_UP))
            some = builder.icmp_unsigned("!=", flags, ir.Constant(flags.type, 0))
            before = builder.load(self.rare)
            builder.store(builder.select(some, llvm.number(1), before), self.rare)
            llvm.store(builder, stored, llvm.at(builder, self.stored, nbytes, k))
            llvm.store(builder, by, llvm.at(builder, self.by, 4, k))
            if self.inverses:
                parts = Nearest(builder, LINED_UP).inverses(by)
                for place, part in zip(self.inverses, parts, strict=False):
                    llvm.store(builder, part, llvm.at(builder, place, 4, k))
        self._spread(nbytes)

    def _spread(self, nbytes: int) -> None:
        """Copy stored scales from the stage to where they belong."""
        builder, places, step = self.builder, self.what.scale_places, self.what.scale_step
        if len(places) == 1 and step == nbytes:
            size = builder.mul(self.blocks, llvm.number(nbytes))
            llvm.copy(builder, self.scales, self.stored, size)
            return
        some, kind = llvm.number(len(places)), ir.IntType(8 * nbytes)
        with Counted(builder, self.blocks, some) as k:
            begin = llvm.at(builder, self.scales, step, builder.udiv(k, some))
            for i, place in enumerate(places):
                index = builder.add(k, llvm.number(i))
                one = llvm.load(builder, llvm.at(builder, self.stored, nbytes, index), kind)
                llvm.store(builder, one, llvm.at(builder, begin, place >> 3))

    # Codes

    def encode(self) -> None:
        """Write the codes of all elements."""
        builder, what, one = self.builder, self.what, llvm.number(1)
        if what.places:
            lanes = llvm.number(what.lanes)
            several = max(1, what.lanes // what.block)
            with Counted(builder, self.columns, lanes) as index:
                by = self._scaling(builder.udiv(index, self.block), several)
                codes = self._loaded(what.lanes, self.source, index, self.next)
                unit = builder.udiv(index, lanes)
                self._pack(codes, what.places, by, llvm.at(builder, self.target, what.step, unit))
            return
        with Counted(builder, self.rows, one) as r, Counted(builder, self.blocks, one) as k:
            row = self._row(self.source, self.pitch, r)
            into = self._row(self.target, self.target_pitch, r)
            begin, by = builder.mul(k, self.block), self._scaling(k, 1)

            def step(lanes: int, index: Any) -> None:
                at = builder.add(begin, index)
                places = tuple(range(0, 8 * lanes, 8))
                codes = self._loaded(lanes, row, at, self.next)
                self._pack(codes, places, by, builder.add(into, at))

            for branch, count in self._lengths(begin):
                with branch:
                    self._over(count, step)

    def _scaling(self, block: Any, count: int) -> tuple[Any, ...]:
        """What the stage has for the elements of some blocks: scales, and perhaps inverses."""
        kind, places = ir.VectorType(ir.FloatType(), count), (self.by, *self.inverses)
        if self.what.rule.name == FIXED:
            by = llvm.load(self.builder, self.factor, kind)
            return by, *Nearest(self.builder, count).inverses(by)[: len(self.inverses)]
        at = (llvm.at(self.builder, place, 4, block) for place in places)
        return tuple(llvm.load(self.builder, each, kind) for each in at)

    def _pack(self, codes: Any, places: tuple[int, ...], by: tuple[Any, ...], into: Any) -> None:
        """Encode a vector of elements, and store their codes where `places` say.

        Codes that share a cell of one or two bytes are put together before they are narrowed.
        """
        builder, bits, cell = self.builder, self.what.target.bits, 8
        if bits == 8 and all(a + 8 == b for a, b in zip(places[::2], places[1::2], strict=False)):
            cell = 16 if len(places) % 2 == 0 else 8
        planes = dict[int, dict[int, int]]()
        for element, place in enumerate(places):
            planes.setdefault(place % cell, {})[place // cell] = element
        cells, made = sorted(planes[min(planes)]), None
        for shift, elements in sorted(planes.items()):
            plane = self._plane(codes, [elements[at] for at in cells], by)
            mask = llvm.constant((1 << bits) - 1 << shift, plane.type)
            plane = builder.shl(plane, llvm.constant(shift, plane.type))
            plane = builder.and_(plane, mask)
            made = plane if made is None else builder.or_(made, plane)
        made = builder.trunc(made, ir.VectorType(ir.IntType(cell), len(cells)))
        begins = [k for k, at in enumerate(cells) if not k or at != cells[k - 1] + 1]
        for k, end in zip(begins, [*begins[1:], len(cells)], strict=True):
            run = made
            if end - k < len(cells):
                run = llvm.shuffle(builder, made, made, list(range(k, end)))
            llvm.store(builder, run, llvm.at(builder, into, cells[k] * cell // 8))

    def _plane(self, codes: Any, elements: list[int], by: tuple[Any, ...]) -> Any:
        """The codes of some elements of a vector, in 32 bits each."""
        builder, what = self.builder, self.what
        lanes, vector = codes.type.count, Nearest(builder, len(elements))
        per = lanes // by[0].type.count
        order = [element // per for element in elements]
        scales = [llvm.shuffle(builder, each, each, order) for each in by]
        every = [*range(elements[0], lanes, 2)] == elements and elements[0] < 2
        pairs = every and lanes > 1 and what.source.exponent == 8 and what.source.nbytes == 2

        def read(codes: Any) -> Any:
            if pairs:
                words = builder.bitcast(codes, vector.ints(32))  # of bfloat16 two in each
                upper = builder.and_(words, vector.whole(0xFFFF << 16, 32))
                words = upper if elements[0] else builder.shl(words, vector.whole(16, 32))
                return builder.bitcast(words, vector.floats(32))
            some = llvm.shuffle(builder, codes, codes, elements) if len(elements) < lanes else codes
            return vector.decoded(some, Conversion(what.source, FLOAT32, 32))

        value = read(codes)
        signs = builder.bitcast(value, vector.ints(32))
        if what.target.kind == "float":
            value = read(self.largest.magnitudes(codes))
        return vector.coded(what, value, signs, scales[0], scales[1:])


def _lanes(count: int) -> int:
    """The lanes of vectors that so many elements are taken by."""
    return next(n for n in (LONG, LONG // 2, LONG // 4, 1) if count % n == 0)
