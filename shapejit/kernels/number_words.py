"""Numbers in lanes of 16 bits, where a vector holds twice as many as of float32.

A *word* is a bfloat16, or a float32 cut to one, or rounded to odd: its last bit is set if
a bit behind it was. Rounding that word to six digits or fewer is rounding the float32.
All this is for AVX-512, which shifts each lane by a count of its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir

from . import llvm
from .memory import VECTOR
from .numbers import Conversion, Number
from .plain_conversions import bits_of
from .vector_steps import Steps

LANES = 32  # words in a vector of AVX-512
FRACTION = 7  # bits of a word behind the leading one
INFINITY = 0x7F80
WORD = "float", 16, 8, 7  # bfloat16, by the first fields of a Number
LOOKED_UP = 7  # bits of codes that registers look up; an eighth one is the sign


@cache
def table_of(number: Number) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    """The words of the codes without a sign, and those codes whose words are others.

    None for what registers cannot look up: numbers that are no bfloat16, or other signs.
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


class Words(Steps):
    """Steps on words."""

    @property
    def in_words(self) -> bool:
        """Whether so many elements fill vectors of words."""
        return VECTOR == 64 and self.lanes % LANES == 0

    def looks_up(self, number: Number) -> bool:
        """Whether `words_of` knows the codes of a number."""
        return self.in_words and number.kind != "bool" and table_of(number) is not None

    def takes_words(self, made: Conversion) -> bool:
        """Whether what is looked up is all that there is to do."""
        return made.step == "cast" and made.target[:4] == WORD and self.looks_up(made.source)

    def narrows(self, number: Number) -> bool:
        """Whether words are enough to round to a number."""
        if not self.in_words or number.bits > 8:
            return False
        return number.kind in ("int", "uint") or (
            number.kind == "float" and number.special != "unsigned"
        )

    def words_of(self, codes: Any, number: Number) -> Any:
        """The words of codes in bytes: looked up in registers."""
        found = table_of(number)
        assert found is not None
        table, others = found
        builder, wide = self.builder, self.widened(codes, 16)
        kind = ir.VectorType(ir.IntType(16), LANES)
        registers = [
            ir.Constant(kind, [table[k % len(table)] for k in range(first, first + LANES)])
            for first in range(0, max(LANES, len(table)), LANES)
        ]
        parts = [self._looked_up_words(part, registers) for part in self.parts(wide, LANES)]
        words = llvm.joined(builder, parts)
        if number.bits > LOOKED_UP:
            sign = builder.and_(wide, self.whole(1 << LOOKED_UP, 16))
            words = builder.or_(words, builder.shl(sign, self.whole(15 - LOOKED_UP, 16)))
        for code, word in others:
            same = builder.icmp_unsigned("==", wide, self.whole(code, 16))
            words = builder.select(same, self.whole(word, 16), words)
        return words

    def _looked_up_words(self, codes: Any, registers: list[Any]) -> Any:
        """A vector of words: an instruction knows those of one register, another those of two."""
        builder, kind = self.builder, codes.type
        if len(registers) == 1:
            one = self.declared("llvm.x86.avx512.permvar.hi.512", kind, [kind, kind])
            return builder.call(one, [registers[0], codes])
        two = self.declared("llvm.x86.avx512.vpermi2var.hi.512", kind, [kind, kind, kind])
        pairs = zip(registers[::2], registers[1::2], strict=True)
        found = [builder.call(two, [low, codes, high]) for low, high in pairs]
        bit = 2 * LANES
        while len(found) > 1:
            upper = builder.and_(codes, llvm.constant(bit, kind))
            odd = builder.icmp_unsigned("!=", upper, llvm.constant(0, kind))
            found = [
                builder.select(odd, high, low)
                for low, high in zip(found[::2], found[1::2], strict=True)
            ]
            bit *= 2
        return found[0]

    def cut_words(self, bits: Any) -> tuple[Any, Any]:
        """The words of float32, given their bits, cut and rounded to odd."""
        builder, one = self.builder, self.whole(1, 16)
        halves = builder.bitcast(bits, ir.VectorType(ir.IntType(16), 2 * self.lanes))
        low, high = (
            llvm.shuffle(builder, halves, halves, [*range(k, 2 * self.lanes, 2)]) for k in (0, 1)
        )
        some = builder.icmp_unsigned("<", low, one)
        return high, builder.or_(high, builder.select(some, low, one))

    def nearest_words(self, words: Any, number: Number) -> Any:
        """The codes without a sign of a narrower float: the nearest, ties to even.

        What is too large has a code beyond those that there are.
        """
        builder, mantissa, bias = self.builder, number.mantissa, number.bias
        exponent, digits = self._parts_of(words)
        # Of subnormal numbers more is cut: all have the exponent of the least normal one.
        first, kept = 128 - bias, FRACTION - mantissa
        more = builder.sub(self.whole(first + kept, 16), exponent)
        cut = self._selected(">", more, self.whole(kept, 16))
        odd = builder.and_(self._shifted(digits, cut), self.whole(1, 16))
        half = self._shifted(self.whole(-1, 16), builder.sub(self.whole(17, 16), cut))
        rounded = self._shifted(builder.add(builder.add(digits, half), odd), cut)
        least = self.whole(first, 16)
        above = builder.sub(self._selected(">", exponent, least), least)
        return builder.add(rounded, builder.shl(above, self.whole(mantissa, 16)))

    def whole_words(self, words: Any, odd: Any, number: Number) -> Any:
        """The whole part as an integer, the nearest end of the range beyond it, 0 for NaN.

        `words` are cut, `odd` rounded to odd: of some a NaN can be told only by these.
        """
        builder = self.builder
        exponent, digits = self._parts_of(words)
        magnitude = self.magnitudes(words)
        top = number.bits - 1 if number.kind == "int" else number.bits
        cut = builder.sub(self.whole(127 + FRACTION, 16), exponent)
        value = self._shifted(digits, cut)
        over = builder.icmp_unsigned(">=", magnitude, self.whole((127 + top) << FRACTION, 16))
        value = builder.select(over, self.whole((1 << top) - 1, 16), value)
        minus = builder.ashr(words, self.whole(15, 16))
        if number.kind == "int":
            # Turned around, the largest integer is the least one where it is what lies beyond.
            turned = builder.xor(value, minus)
            less = builder.select(over, self.whole(0, 16), minus)
            value = builder.sub(turned, less)
        else:
            value = builder.and_(value, builder.xor(minus, self.whole(-1, 16)))
        lost = self.lost(odd)
        value = self.narrowed(builder.select(lost, self.whole(0, 16), value), 8)
        if number.bits < 8:
            value = builder.and_(value, self.whole((1 << number.bits) - 1, 8))
        return value

    def lost(self, words: Any) -> Any:
        """Which ones are NaN."""
        least = self.whole(INFINITY, 16)
        return self.builder.icmp_unsigned(">", self.magnitudes(words), least)

    def magnitudes(self, words: Any) -> Any:
        """Words without their signs."""
        return self.builder.and_(words, self.whole(0x7FFF, 16))

    def _parts_of(self, words: Any) -> tuple[Any, Any]:
        """The exponents, and all digits with the leading one, which zero has here, too."""
        builder, leading = self.builder, 1 << FRACTION
        exponent = builder.lshr(self.magnitudes(words), self.whole(FRACTION, 16))
        digits = builder.and_(words, self.whole(leading - 1, 16))
        return exponent, builder.or_(digits, self.whole(leading, 16))

    def _selected(self, sign: str, a: Any, b: Any) -> Any:
        """Lane by lane the one that is above, or below, of two signed numbers."""
        return self.builder.select(self.builder.icmp_signed(sign, a, b), a, b)

    def _shifted(self, value: Any, counts: Any) -> Any:
        """Each lane shifted right by its own count; 0 where that has 16 bits or more."""
        kind = ir.VectorType(ir.IntType(16), LANES)
        shift = self.declared("llvm.x86.avx512.psrlv.w.512", kind, [kind, kind])
        pairs = zip(self.parts(value, LANES), self.parts(counts, LANES), strict=True)
        return llvm.joined(self.builder, [self.builder.call(shift, [*pair]) for pair in pairs])
