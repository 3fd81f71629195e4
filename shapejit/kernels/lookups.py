"""Codes of at most 4 bits converted by table lookup, with a table per block.

The table has the result of every code, computed by the steps of other conversions, so results have
the same bits. It is in a register, and one instruction looks up a vector of codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.cpu_caches import LINE
from . import llvm, numerics
from .lanes import called, load, type_of
from .memory import FEATURES, VECTOR
from .number_vectors import decoded, encoded, permuted
from .numbers import Conversion
from .numerics import Values
from .run_loops import Run, first_of

CODES = 16  # entries of a table
LANES = 32  # elements that are looked up together
# By the bytes of a vector, the instruction that looks up bytes in 16 ones; without it
# there is only arithmetic.
_BYTES = {32: "llvm.x86.avx2.pshuf.b", 16: "llvm.x86.ssse3.pshuf.b.128"}
WHOLE = 2, 4  # bytes of results that those of AVX-512 look up


def looks_up(made: Conversion) -> bool:
    """Whether blocks of a conversion are looked up if they are whole vectors."""
    blocks = made.step == "dequantize" and made.scales == "blocks" and made.source.bits <= 4
    shuffles = VECTOR > 16 or "ssse3" in FEATURES
    return blocks and shuffles and made.target.nbytes in WHOLE


class Lookups(Run):
    """The loops over a run whose blocks are whole vectors."""

    def __init__(self, builder: Any, *given: Any) -> None:
        super().__init__(builder, *given)
        nbytes = self.conversion.target.nbytes
        self.entries, self.dtype = LINE // nbytes if VECTOR == LINE else CODES, f"u{nbytes}"
        # A register, in the end.
        self.table = builder.alloca(type_of(self.dtype, self.entries))

    def fit(self) -> Values:
        """Whether blocks are whole vectors, and elements of the target may begin with lines."""
        whole = (self.block | self.count) & LANES - 1 == 0
        return whole & (self.head() < self.count) if self.streams else whole

    def write(self) -> None:
        """Convert all elements: those before the first line, all vectors, and those left."""
        self._keep(self._made(self.zero))
        if not self.streams:
            self._vectors(self.zero, self.count)
            return
        head = self.head()
        count = self.count - head & -LANES
        self.ask_ends(head)
        first_table = self._kept()
        self._vectors(head, count)
        with self.ends(head, head + count) as own:
            at_first = own[0] == 0
            index = np.where(at_first, 0, self.count - LANES)
            table = np.where(at_first, first_table, self._kept())
            self.store(self.found(table, self.loaded(index, LANES)), index, own)

    def _keep(self, table: Values) -> None:
        self.builder.store(table.value, self.table)

    def _kept(self) -> Values:
        return self.zero.of(self.builder.load(self.table), self.dtype)

    def _vectors(self, begin: Values, count: Values) -> None:
        """Convert `count` elements by a table for each block, the first of which is made.

        `begin` is in the first block. The last vector of a block ends in the next one
        by as many elements as come before the first.
        """
        last, blocks = (self.count - 1) // self.block, (count + (self.block - 1)) // self.block
        # The elements of the last vector that belong to the block.
        some = first_of(LANES - (begin & LANES - 1), LANES, LANES, 1)
        with self.loop(blocks, 1) as k:
            done = k * self.block
            at, left = begin + done, count - done
            whole = left >= self.block
            left = np.where(whole, self.block, left)
            table, most = self._kept(), left - LANES
            with self.loop(most, LANES) as index:
                place = at + index
                self.store(self.found(table, self.loaded(place, LANES)), place)
            following = self._made(np.minimum(k + 1, last))
            place = at + most
            codes = self.loaded(place, LANES)
            own = np.where(whole, some, True)
            both = self.found(table, codes), self.found(following, codes)
            self.store(np.where(own, *both), place)
            self._keep(following)

    def _made(self, block: Values) -> Values:
        """The results of all codes in a block, repeated to fill a vector."""
        made, entries = self.conversion, self.entries
        order = [k % (1 << made.source.bits) for k in range(entries)]
        codes = block.of(llvm.constant(0, type_of("u1", entries)), "u1").constant(order)
        places = (begin + block * step for begin, step in self.operands)
        scale, zero = (*(load(place, self.floats).spread(entries) for place in places), None)[:2]
        values = numerics.scaled(decoded(codes, made), made, scale, zero)
        return encoded(values, made, codes)

    def found(self, table: Values, codes: Values) -> Values:
        """The results of a vector of codes, a byte each, whose upper bits are ignored."""
        if VECTOR == LINE:
            return permuted(table.value, codes.astype(self.dtype))
        codes = codes & CODES - 1
        planes = [self._plane(table, byte, codes) for byte in range(table.dtype.itemsize)]
        while len(planes) > 1:
            half, lanes = len(planes) // 2, planes[0].type.count
            order = [k for lane in range(lanes) for k in (lane, lanes + lane)]
            pairs = zip(planes[:half], planes[half:], strict=True)
            planes = [llvm.shuffle(self.builder, a, b, order) for a, b in pairs]
        return codes.of(planes[0], "u1").view(self.dtype)

    def _plane(self, table: Values, byte: int, codes: Values) -> Any:
        """One byte of each result."""
        some = (table >> 8 * byte).astype("u1").value
        whole = llvm.shuffle(self.builder, some, some, [k % CODES for k in range(VECTOR)])
        parts = (
            called(self.builder, _BYTES[VECTOR], whole.type, whole, part)
            for part in codes.parts(VECTOR)
        )
        return llvm.joined(self.builder, [*parts])
