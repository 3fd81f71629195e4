"""Loops that convert numbers: from one representation to another, scaled or not.

There is one generator: a Conversion names two representations and what is done between
them, and becomes one small function of machine code that converts `count` elements side
by side. Each element is decoded to a float32 or float64 (integers that only change
their width stay integers), scaled, and rounded once to what it becomes.

Codes narrower than a byte stand in a byte each, whose other bits are ignored in the
source and zero in the target. With the JIT off, `plain_conversions` does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from . import llvm, reference
from .constants import LINE
from .jit import COMPILED, compile_apart
from .llvm import Builder, Value, emits
from .number_vectors import Vector
from .numbers import Conversion

LANES = 16  # elements of the narrower loop; the wide one takes as many more as `WIDE`
WIDE = 4
GROUPS = 16, 32  # elements with one scale, several of which are in a wide vector
AHEAD = 4096  # bytes between what is converted and the lines asked for; 1024 was no better


def entry(conversion: Conversion) -> int:
    """What `convert` calls: the address of the compiled function."""
    if not COMPILED:
        return reference.entry(conversion)
    return machine_code(NAME, SIGNATURE, _function, conversion)


_compiled: dict[tuple[str, Any], tuple[int, Any]] = {}  # addresses, and what owns the code


def machine_code(name: str, kind: Any, write: Callable[[Any, Any], None], what: Any) -> int:
    """The address of a function of this type, made once: `write(function, what)` fills it in."""
    if (name, what) not in _compiled:
        _compiled[name, what] = compile_apart(_machine_code, name, kind, write, what)
    return _compiled[name, what][0]


def _machine_code(
    name: str, kind: Any, write: Callable[[Any, Any], None], what: Any
) -> tuple[int, Any]:
    library = cpu_target.target_context.codegen().create_library(name)
    module = library.create_ir_module(name)
    function = ir.Function(module, kind, name)
    function.linkage = "external"
    write(function, what)
    with global_compiler_lock:
        library.add_ir_module(module)
        library.finalize()
    return library.get_pointer_to_function(name), library


NAME = "shapejit_convert"
# source, target, count, block, scale, scale step (bytes), zero point, its step, shift
SIGNATURE = ir.FunctionType(ir.VoidType(), [llvm.I64] * 9)


def _function(function: Any, conversion: Conversion) -> None:
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    source, target, count, block, scale, scale_step, zero, zero_step, shift = function.args
    loops = _Loops(builder, conversion, shift)
    one = ir.Constant(llvm.I64, 1)
    if conversion.scales != "blocks":
        loops.run(source, target, count, scale, zero)
    else:
        done = loops.groups(source, target, count, block, (scale, scale_step), (zero, zero_step))
        before = builder.udiv(done, block)
        blocks = builder.sub(builder.udiv(count, block), before)
        with Counted(builder, blocks, one) as k:
            k = builder.add(k, before)
            done = builder.mul(k, block)
            operands = [
                builder.add(begin, builder.mul(k, step))
                for begin, step in ((scale, scale_step), (zero, zero_step))
            ]
            where = [
                builder.add(begin, builder.mul(done, ir.Constant(llvm.I64, nbytes)))
                for begin, nbytes in (
                    (source, conversion.source.nbytes),
                    (target, conversion.target.nbytes),
                )
            ]
            loops.run(where[0], where[1], block, operands[0], operands[1])
    builder.ret_void()


class Counted:
    """A loop of the builder: `with Counted(builder, count, step) as index`."""

    def __init__(self, builder: Any, count: Any, step: Any) -> None:
        self.builder, self.count, self.step = builder, count, step

    def __enter__(self) -> Any:
        builder = self.builder
        before = builder.block
        self.head = builder.append_basic_block("loop")
        body = builder.append_basic_block("body")
        self.after = builder.append_basic_block("after")
        builder.branch(self.head)
        builder.position_at_end(self.head)
        self.index = builder.phi(llvm.I64)
        self.index.add_incoming(ir.Constant(llvm.I64, 0), before)
        more = builder.icmp_signed("<", self.index, self.count)
        builder.cbranch(more, body, self.after)
        builder.position_at_end(body)
        return self.index

    def __exit__(self, *fault: object) -> None:
        builder = self.builder
        self.index.add_incoming(builder.add(self.index, self.step), builder.block)
        builder.branch(self.head)
        builder.position_at_end(self.after)


class _Loops:
    """The loops over one run: wide vectors, vectors of which the last reaches back, elements."""

    def __init__(self, builder: Any, conversion: Conversion, shift: Any) -> None:
        self.builder = builder
        self.conversion = conversion
        self.shift = shift

    def run(self, source: Any, target: Any, count: Any, scale: Any, zero: Any) -> None:
        """Convert `count` elements; scales and zero points are one, or as many."""
        builder, lanes = self.builder, ir.Constant(llvm.I64, LANES)

        def convert(index: Any, width: int) -> None:
            self._elements(source, target, scale, zero, index, width)

        with builder.if_else(builder.icmp_signed("<", count, lanes)) as (few, many):
            with few, Counted(builder, count, ir.Constant(llvm.I64, 1)) as index:
                convert(index, 1)
            with many:
                wide = ir.Constant(llvm.I64, LANES * WIDE)
                whole = builder.and_(count, ir.Constant(llvm.I64, -LANES * WIDE))
                with Counted(builder, whole, wide) as index:
                    convert(index, LANES * WIDE)
                rest = builder.sub(count, whole)
                last = builder.sub(count, lanes)
                with Counted(builder, rest, lanes) as index:
                    at = builder.add(whole, index)
                    short = builder.icmp_signed(">", at, last)
                    convert(builder.select(short, last, at), LANES)

    def groups(
        self,
        source: Any,
        target: Any,
        count: Any,
        block: Any,
        scale: tuple[Any, Any],
        zero: tuple[Any, Any],
    ) -> Any:
        """Convert by wide vectors that hold several blocks; return how many elements are done.

        Scales and zero points are (address, step).
        """
        builder, wide = self.builder, LANES * WIDE
        place = builder.alloca(llvm.I64)
        builder.store(ir.Constant(llvm.I64, 0), place)
        size = ir.Constant(llvm.I64, self.conversion.arithmetic // 8)
        even = builder.icmp_signed("==", scale[1], size)
        if self.conversion.zeros:
            even = builder.and_(even, builder.icmp_signed("==", zero[1], size))
        for group in GROUPS:
            fits = builder.icmp_signed("==", block, ir.Constant(llvm.I64, group))
            with builder.if_then(builder.and_(even, fits)):
                whole = builder.and_(count, ir.Constant(llvm.I64, -wide))
                with Counted(builder, whole, ir.Constant(llvm.I64, wide)) as index:
                    self._elements(source, target, scale[0], zero[0], index, wide, group)
                builder.store(whole, place)
        return builder.load(place)

    def _elements(
        self,
        source: Any,
        target: Any,
        scale: Any,
        zero: Any,
        index: Any,
        lanes: int,
        group: int = 0,
    ) -> None:
        made, builder = self.conversion, self.builder
        vector = Vector(builder, lanes)

        def at(begin: Any, nbytes: int) -> Any:
            return builder.add(begin, builder.mul(index, ir.Constant(llvm.I64, nbytes)))

        kind = vector.ints(8 * made.source.nbytes)
        begin = at(source, made.source.nbytes)
        codes = llvm.load(builder, begin, kind)
        if lanes > LANES:
            for line in range(0, lanes * made.source.nbytes, LINE):
                llvm.ask(builder, builder.add(begin, ir.Constant(llvm.I64, AHEAD + line)))
        codes = vector.unshifted(codes, made.source, self.shift)
        if not made.arithmetic:
            value = vector.resized(codes, made)
        else:
            value = vector.decoded(codes, made)
            if made.scales:
                places = (scale, zero) if made.zeros else (scale,)
                scale, zero = (*(self._operand(vector, p, index, group) for p in places), None)[:2]
                value = vector.scaled(value, made, scale, zero)
            value = vector.encoded(value, made)
        llvm.store(builder, value, at(target, made.target.nbytes))

    def _operand(self, vector: Vector, begin: Any, index: Any, group: int) -> Any:
        """The scales or zero points of a vector: one, one per `group`, or one per element."""
        made, builder = self.conversion, self.builder
        kind, nbytes = vector.float_type(made.arithmetic), made.arithmetic // 8
        if made.scales == "each":
            group = 1
        if group == 0:
            return llvm.splat(builder, llvm.load(builder, begin, kind), vector.lanes)
        at = builder.mul(builder.udiv(index, llvm.number(group)), llvm.number(nbytes))
        several = ir.VectorType(kind, vector.lanes // group)
        found = llvm.load(builder, builder.add(begin, at), several)
        if group == 1:
            return found
        return llvm.shuffle(builder, found, found, [k // group for k in range(vector.lanes)])


@emits()
def convert(
    builder: Builder,
    entry: Value,
    src: Value,
    dst: Value,
    count: Value,
    block: Value,
    scale: Value,
    scale_step: Value,
    zero: Value,
    zero_step: Value,
    shift: Value,
) -> None:
    """Convert `count` elements from address to address by the function at `entry`."""
    function = builder.inttoptr(entry, SIGNATURE.as_pointer())
    given = [src, dst, count, block, scale, scale_step, zero, zero_step, shift]
    builder.call(function, given)
