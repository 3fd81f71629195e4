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

from . import llvm
from .encodings import FIXED, FLOAT32, LARGEST, LINED_UP, WIDEST, Encoding
from .llvm import I32, I64
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
    """The steps over a box. The stage has a float32 for each block, twice, and stored scales."""

    def __init__(self, builder: Any, what: Encoding, arguments: Any) -> None:
        self.builder, self.what = builder, what
        (self.source, self.target, self.scales, self.rows, self.columns, self.pitch,
         self.target_pitch, self.factor, self.most) = arguments  # fmt: skip
        self.block = llvm.number(what.block) if what.block else self.columns
        self.code = ir.IntType(8 * what.source.nbytes)
        self.rare = builder.alloca(I64)
        builder.store(llvm.number(0), self.rare)
        lanes = {LONG, 1, _lanes(what.block or LONG)}
        self.found = {n: builder.alloca(ir.VectorType(self.code, n)) for n in sorted(lanes)}
        self.blocks = self._up(self.columns, self.block)
        room = builder.mul(self._up(self.blocks, llvm.number(LINED_UP)), llvm.number(4 * LINED_UP))
        self.by = builder.add(self.most, room)
        self.stored = builder.add(self.by, room)

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

    def _loaded(self, lanes: int, row: Any, index: Any) -> Any:
        """The source's codes of a vector of elements."""
        at = llvm.at(self.builder, row, self.what.source.nbytes, index)
        return llvm.load(self.builder, at, ir.VectorType(self.code, lanes))

    # The number of largest magnitude

    def reduce(self) -> None:
        """Write that of each block to the stage, as the source has it, its sign if it counts."""
        builder, one, blocks = self.builder, llvm.number(1), llvm.number(LINED_UP)
        with Counted(builder, self.blocks, blocks) as k:
            none = llvm.constant(0, ir.VectorType(I32, LINED_UP))
            llvm.store(builder, none, llvm.at(builder, self.most, 4, k))
        with Counted(builder, self.rows, one) as r, Counted(builder, self.blocks, one) as k:
            row, begin = llvm.at(builder, self.source, 0), builder.mul(k, self.block)
            row = builder.add(row, builder.mul(r, self.pitch))
            place = llvm.at(builder, self.most, 4, k)
            for branch, count in self._lengths(begin):
                with branch:
                    found = self._largest(row, begin, count)
                    before = llvm.load(builder, place, I32)
                    llvm.store(builder, self._above(found, before), place)

    def _above(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.icmp_unsigned(">", a, b), a, b)

    def _largest(self, row: Any, begin: Any, count: Count) -> Any:
        """The largest of a block's magnitudes, in 32 bits."""
        builder, rule = self.builder, self.what.rule.name
        lanes = [_lanes(count)] if isinstance(count, int) else [LONG, 1]
        if rule == WIDEST:
            return self._widest(self._loaded(count, row, begin))
        for n in lanes:
            builder.store(llvm.constant(0, ir.VectorType(self.code, n)), self.found[n])

        def step(n: int, index: Any) -> None:
            found = self._magnitudes(self._loaded(n, row, builder.add(begin, index)))
            builder.store(self._above(found, builder.load(self.found[n])), self.found[n])

        self._over(count, step)
        made, *others = (self._reduced(builder.load(self.found[n])) for n in lanes)
        for other in others:
            made = self._above(made, other)
        return self._wide(made)

    def _magnitudes(self, codes: Any) -> Any:
        return self.builder.and_(codes, llvm.constant((1 << self.code.width - 1) - 1, codes.type))

    def _reduced(self, vector: Any) -> Any:
        """The largest of a vector of unsigned integers."""
        kind = vector.type
        name = f"llvm.vector.reduce.umax.v{kind.count}i{kind.element.width}"
        return self.builder.call(self._declared(name, kind.element, [kind]), [vector])

    def _declared(self, name: str, returns: ir.Type, takes: list[ir.Type]) -> Any:
        return Scaling(self.builder, 1).declared(name, returns, takes)

    def _wide(self, code: Any) -> Any:
        return self.builder.zext(code, I32) if self.code.width < 32 else code

    def _widest(self, codes: Any) -> Any:
        """The first of those codes that have the largest magnitude."""
        builder, kind = self.builder, codes.type
        magnitudes, flags = self._magnitudes(codes), ir.IntType(kind.count)
        most = self._reduced(magnitudes)
        same = builder.icmp_unsigned("==", magnitudes, llvm.splat(builder, most, kind.count))
        minus = builder.icmp_signed("<", codes, llvm.constant(0, kind))
        first = builder.cttz(builder.bitcast(same, flags), ir.Constant(ir.IntType(1), 1))
        sign = builder.trunc(builder.lshr(builder.bitcast(minus, flags), first), ir.IntType(1))
        top = ir.Constant(self.code, 1 << self.code.width - 1)
        return self._wide(builder.select(sign, builder.or_(most, top), most))

    # Scales

    def scale(self) -> None:
        """Write what elements are multiplied with, or divided by, to the stage; store scales."""
        builder, what = self.builder, self.what
        vector, nbytes = Scaling(builder, LINED_UP), what.scale.nbytes
        with Counted(builder, self.blocks, llvm.number(LINED_UP)) as k:
            found = llvm.load(builder, llvm.at(builder, self.most, 4, k), vector.ints(32))
            codes = vector.narrowed(found, self.code.width)
            most = vector.decoded(codes, Conversion(what.source, FLOAT32, 32))
            stored, by, rare = vector.scales(what, most, self._factor(LINED_UP))
            rare = builder.or_(rare, vector.is_infinite(most))
            flags = builder.zext(builder.bitcast(rare, ir.IntType(LINED_UP)), I64)
            some = builder.icmp_unsigned("!=", flags, llvm.number(0))
            before = builder.load(self.rare)
            builder.store(builder.select(some, llvm.number(1), before), self.rare)
            llvm.store(builder, stored, llvm.at(builder, self.stored, nbytes, k))
            llvm.store(builder, by, llvm.at(builder, self.by, 4, k))
        self._spread(nbytes)

    def _factor(self, lanes: int) -> Any:
        one = llvm.load(self.builder, self.factor, ir.FloatType())
        return llvm.splat(self.builder, one, lanes)

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
            with Counted(builder, self.columns, lanes) as index:
                codes = self._coded(what.lanes, self.source, index, self._by(what.lanes, index))
                self._pack(
                    codes, llvm.at(builder, self.target, what.step, builder.udiv(index, lanes))
                )
            return
        with Counted(builder, self.rows, one) as r, Counted(builder, self.blocks, one) as k:
            row = builder.add(self.source, builder.mul(r, self.pitch))
            into = builder.add(self.target, builder.mul(r, self.target_pitch))
            begin = builder.mul(k, self.block)
            place = self.factor if what.rule.name == FIXED else llvm.at(builder, self.by, 4, k)
            by = llvm.load(builder, place, ir.FloatType())

            def step(lanes: int, index: Any) -> None:
                at = builder.add(begin, index)
                codes = self._coded(lanes, row, at, llvm.splat(builder, by, lanes))
                llvm.store(builder, codes, builder.add(into, at))

            for branch, count in self._lengths(begin):
                with branch:
                    self._over(count, step)

    def _by(self, lanes: int, index: Any) -> Any:
        """What stands on the stage for each of some elements, which are whole blocks or in one."""
        builder, block = self.builder, self.what.block
        several = max(1, lanes // block)
        place = llvm.at(builder, self.by, 4, builder.udiv(index, self.block))
        found = llvm.load(builder, place, ir.VectorType(ir.FloatType(), several))
        return llvm.shuffle(builder, found, found, [k * several // lanes for k in range(lanes)])

    def _coded(self, lanes: int, row: Any, index: Any, by: Any) -> Any:
        """The codes of some elements, a byte each."""
        vector, what = Scaling(self.builder, lanes), self.what
        codes = self._loaded(lanes, row, index)
        value = vector.decoded(codes, Conversion(what.source, FLOAT32, 32))
        return vector.coded(what, value, by)

    def _pack(self, codes: Any, into: Any) -> None:
        """Store codes of whole fractions of a byte where `places` say."""
        builder, found = self.builder, dict[int, dict[int, int]]()
        for element, place in enumerate(self.what.places):
            found.setdefault(place & 7, {})[place >> 3] = element
        nbytes = sorted(next(iter(found.values())))
        made = None
        for shift, elements in sorted(found.items()):
            part = llvm.shuffle(builder, codes, codes, [elements[at] for at in nbytes])
            part = builder.shl(part, llvm.constant(shift, part.type))
            made = part if made is None else builder.or_(made, part)
        begins = [k for k, at in enumerate(nbytes) if not k or at != nbytes[k - 1] + 1]
        for k, end in zip(begins, [*begins[1:], len(nbytes)], strict=True):
            run = llvm.shuffle(builder, made, made, list(range(k, end)))
            llvm.store(builder, run, llvm.at(builder, into, nbytes[k]))


def _lanes(count: int) -> int:
    """The lanes of vectors that so many elements are taken by."""
    return next(n for n in (LONG, LONG // 2, LONG // 4, 1) if count % n == 0)
