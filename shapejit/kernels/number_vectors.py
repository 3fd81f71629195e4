"""Numbers in vector registers: `numerics` with the special instructions of processors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
from llvmlite import ir

from . import llvm, numerics
from .lanes import called
from .memory import ARM64, FEATURES, VECTOR
from .numbers import Conversion, Number
from .numerics import Values
from .plain_conversions import bits_of

# Whether there are instructions to convert float16; all arm64 processors have them.
HALVES = "f16c" in FEATURES or ARM64
# An instruction rounds two vectors of float32 to one of bfloat16.
BRAIN = VECTOR == 64 and "avx512bf16" in FEATURES
SHUFFLES = VECTOR > 16 or "ssse3" in FEATURES  # bytes are looked up in registers of 16
FLOATS, WORDS = 16, 32  # in a vector of AVX-512
UNUSUAL = 0x01 | 0x20 | 0x80  # what `fpclass` calls quiet NaNs, subnormal numbers, other NaNs
WORD = "float", 16, 8, 7  # bfloat16, by the first fields of a Number
LOOKED_UP = 7  # bits of codes that registers look up; an eighth one is the sign


class Brain(ir.Type):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's type of bfloat16, which llvmlite does not know."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Brain)

    def __hash__(self) -> int:
        return hash(Brain)


def decoded(codes: Values, made: Conversion) -> Values:
    """The values as floats of the conversion's arithmetic."""
    return numerics.decoded(codes, made, _float_of)


def encoded(values: Values, made: Conversion) -> Values:
    """The codes of values."""
    return numerics.encoded(values, made, _narrowed)


def _narrowed(values: Values, made: Conversion) -> Values:
    """Codes of floats of 16 bits or fewer."""
    if BRAIN and not made.exact and made.target[:4] == WORD and values.count % WORDS == 0:
        return _brain(numerics.single(values), made)
    return numerics.narrowed(values, made, HALVES)


def _float_of(codes: Values, number: Number) -> Values:
    """The float32 values of float codes of 16 bits or fewer."""
    if looks_up(codes.count, number):
        return (words_of(codes, number).astype("u4") << 16).view("f4")
    if number.kind != "table":
        return numerics.float_of(codes, number)
    if _has_sixteen(codes.count, number):
        halves = zip(*(divmod(bits, 1 << 16) for bits in bits_of(number)), strict=True)
        high, low = (_sixteen(codes, words).astype("u4") for words in halves)
        return (high << 16 | low).view("f4")
    return _halved(codes.astype("u4"), [codes.constant(x, "f4") for x in number.table])


def _halved(codes: Values, values: list[Values], bit: int = 1) -> Values:
    """The values selected by the codes: each bit, from `bit` on, halves the candidates.

    A load per lane took three times as long.
    """
    while len(values) > 1:
        odd = codes & bit != 0
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [np.where(odd, high, low) for low, high in pairs]
        bit *= 2
    return values[0]


def _brain(values: Values, made: Conversion) -> Values:
    """Codes of bfloat16 by an instruction.

    It does not handle subnormal numbers and payloads: vectors with these take the general path.
    """
    builder, flags = values.builder, ir.VectorType(ir.IntType(1), FLOATS)
    classes, name = ir.Constant(llvm.I32, UNUSUAL), "llvm.x86.avx512.fpclass.ps.512"
    found = (called(builder, name, flags, part, classes) for part in values.parts(FLOATS))
    whole = builder.bitcast(reduce(builder.or_, found), ir.IntType(FLOATS))
    with builder.if_else(builder.icmp_unsigned("!=", whole, whole.type(0))) as (some, none):
        with some:
            by_steps = numerics.cut(values, made).astype("u2")
            after_steps = builder.block
        with none:
            narrow = builder.fptrunc(values.value, ir.VectorType(Brain(), values.count))
            at_once = builder.bitcast(narrow, by_steps.value.type)
            after_instruction = builder.block
    codes = builder.phi(by_steps.value.type)
    codes.add_incoming(by_steps.value, after_steps)
    codes.add_incoming(at_once, after_instruction)
    return values.of(codes, "u2")


# Words: the codes of bfloat16, which registers of AVX-512 look up


@cache
def table_of(number: Number) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    """The words of the codes without a sign, and the codes whose words differ.

    None if registers cannot look them up: numbers that are no bfloat16, or different signs.
    """
    if number.bits > LOOKED_UP + 1:
        return None
    values = bits_of(number)
    words = tuple(bits >> 16 for bits in values)
    if any(bits & 0xFFFF for bits in values):
        return None
    table = words[: 1 << LOOKED_UP]
    signed = [word | sign for sign in (0, 1 << 15) for word in table]
    others = tuple((code, word) for code, word in enumerate(words) if word != signed[code])
    return (table, others) if len(others) <= 1 else None


def looks_up(count: int, number: Number) -> bool:
    """Whether `words_of` knows the codes of a number."""
    fills = (VECTOR == 64 and count % WORDS == 0) or _has_sixteen(count, number)
    return fills and number.kind != "bool" and table_of(number) is not None


def words_of(codes: Values, number: Number) -> Values:
    """The words of codes in bytes: looked up in registers."""
    found = table_of(number)
    assert found is not None
    table, others = found
    if number.bits <= 4:
        return _sixteen(codes, table)
    wide = codes.astype("u2")
    words = _from_registers(wide, table)
    if number.bits > LOOKED_UP:
        words = words | (wide & 1 << LOOKED_UP) << 15 - LOOKED_UP
    for code, word in others:
        words = np.where(wide == code, word, words)
    return words


def _from_registers(codes: Values, table: Sequence[int]) -> Values:
    """Look up words of a table in pairs of registers."""
    count, found = max(2 * WORDS, len(table)), list[Values]()
    full = codes.constant([table[k % len(table)] for k in range(count)])
    for low, high in zip(*[iter(full.parts(WORDS))] * 2, strict=True):
        found.append(_each(codes, "llvm.x86.avx512.vpermi2var.hi.512", low, high))
    return _halved(codes, found, 2 * WORDS)


# Tables of 16 words: constants, or made at run time


def _has_sixteen(count: int, number: Number) -> bool:
    """Whether `count` codes are looked up in tables of 16 words."""
    return SHUFFLES and number.bits <= 4 and count % VECTOR == 0


def _sixteen(codes: Values, words: Sequence[int]) -> Values:
    """Look up words of a constant table."""
    every = [words[k % len(words)] for k in range(16)]
    return found_in(planes_of(codes.constant(every, "u2")), codes)


def has_tables(made: Conversion) -> bool:
    """Whether results are looked up in a table of 16 words that serves many codes.

    Decoding each code takes 1.2 to 1.4 x the time (int4 in blocks of 64 elements and more, Zen 3).
    """
    return SHUFFLES and made.source.bits <= 4 and made.target.nbytes == 2


def planes_of(table: Values) -> Values:
    """A table of 16 words as `found_in` takes it: all low bytes first where it looks bytes up."""
    if VECTOR == 64:
        return table
    nbytes = range(2 * table.count)
    return table.view("u1").chosen([*nbytes[::2], *nbytes[1::2]])


def found_in(table: Values, codes: Values) -> Values:
    """The words of a table (see `planes_of`) for codes, a byte each; upper bits are ignored."""
    if VECTOR == 64:
        one = table.chosen([k % table.count for k in range(WORDS)])
        return _each(codes.astype("u2"), "llvm.x86.avx512.permvar.hi.512", one.value)
    size, codes = table.count // 2, codes & table.count // 2 - 1
    orders = ([first + k % size for k in range(VECTOR)] for first in (0, size))
    low, high = (_each(codes, _SHUFFLES[VECTOR], table.chosen(order).value) for order in orders)
    return low.chosen([k // 2 + k % 2 * low.count for k in range(2 * low.count)], high).view("u2")


def _each(codes: Values, name: str, table: Any, *more: Any) -> Values:
    """The results of an instruction that looks up the codes of a vector as long as its table."""
    parts = codes.parts(table.type.count)
    found = [called(codes.builder, name, table.type, table, part, *more) for part in parts]
    return codes.of(llvm.joined(codes.builder, found))


# By the bytes of a vector, the instruction that looks up bytes in 16 ones.
_SHUFFLES = {32: "llvm.x86.avx2.pshuf.b", 16: "llvm.x86.ssse3.pshuf.b.128"}
