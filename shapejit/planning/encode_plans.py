"""Plans of floats that are encoded box by box: see `kernels.encodes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..kernels.encodings import FIXED, LARGEST, SCALES_AT_ONCE, STAGED, Encoding
from ..runtime.cpu_caches import LINE
from ..shapes.dims import merged
from ..shapes.layout import Layout
from .units import Units, units_of

ROW_BOX_ELEMENTS = 1 << 15  # elements of a box of one row
ENCODE_BOX_ELEMENTS = 1 << 16  # of a box of several rows; of half as many, it takes 1.2 x the time
MAX_BLOCK = 512  # of a block along a row, which vectors process in sequence
VECTOR_ELEMENTS = 16  # of which these have a multiple

Shape = tuple[int, int]


@dataclass(frozen=True)
class EncodePlan:
    """Weights of `rows` by `columns`, encoded by boxes of `tall` by `wide` elements.

    Codes begin at byte `first` of their memory, scales at byte `scale_first` of theirs.
    """

    encoding: Encoding
    rows: int
    columns: int
    tall: int
    wide: int
    first: int = 0
    scale_first: int = 0

    @property
    def boxes(self) -> int:
        """The number of boxes in a band of `tall` rows."""
        return -(-self.columns // self.wide)

    @property
    def bands(self) -> int:
        """The number of bands of a weight."""
        return -(-self.rows // self.tall)

    @property
    def stage(self) -> int:
        """The bytes of the stage."""
        blocks = -(-self.wide // self.encoding.block) if self.encoding.block else 1
        return 4 * STAGED * (blocks + SCALES_AT_ONCE) + LINE

    @property
    def steps(self) -> tuple[int, int, int]:
        """The bytes from one weight to the next: of sources, codes and scales."""
        count = self.rows * self.columns
        return (
            count * self.encoding.source.nbytes,
            self._codes(count),
            self.bands * self._scales(self.columns),
        )

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The words that the kernel reads: see `kernels.encodes`."""
        each, band = self.encoding.source.nbytes, self.tall * self.columns
        return np.array([
            self.rows, self.columns, self.tall, self.wide, self.boxes,
            band * each, band, self._scales(self.columns),
            self.wide * each, self._codes(self.wide), self._scales(self.wide),
            self.columns * each, self.columns,
        ], np.int64)  # fmt: skip

    def _codes(self, count: int) -> int:
        """The bytes of `count` codes."""
        made = self.encoding
        return count // len(made.places) * made.step if made.places else count

    def _scales(self, columns: int) -> int:
        """The bytes from one scale to that of `columns` columns further."""
        made = self.encoding
        blocks = -(-columns // (made.block or self.wide))
        return blocks // len(made.scale_places) * made.scale_step


@lru_cache(maxsize=64)  # of some kilobytes each
def encode_plan(
    made: Encoding, shape: Shape, block: Shape, codes: Layout, scales: Layout
) -> EncodePlan | None:
    """The plan for weights of `shape`, one after the other; None if there is none.

    `block` has the rows and columns with one scale. Codes and scales of all weights lie row-major
    in the order of their elements, if they are to be encoded.
    """
    (rows, columns), (tall, wide) = shape, block
    places, step = scale_units(scales) or ((), 0)
    if not places:
        return None
    made = made._replace(block=wide, scale_places=places, scale_step=step)
    first, scale_first = codes.offset // 8, scales.offset // 8
    by_vectors = wide % VECTOR_ELEMENTS == 0 and wide <= MAX_BLOCK
    in_rows = by_vectors and tall == 1 and columns % wide == 0
    found = units_of(((codes, 0),)) if in_rows else None
    if found is not None and _fits(found, made, rows * columns):
        made = made._replace(places=found.unit.planes[0].places, step=found.step)
        each = max(found.unit.size, wide * len(places))
        most = max(ROW_BOX_ELEMENTS // each, 1) * each
        return EncodePlan(made, 1, rows * columns, 1, most, found.first, scale_first)
    dense = codes.contiguous and codes.bits == 8 and places == (0,) and step == made.scale.nbytes
    if not dense or made.rule.signed or not (by_vectors or wide == columns):
        return None
    made = made._replace(block=0 if wide == columns else wide)
    most = max(ENCODE_BOX_ELEMENTS // tall // made.block, 1) * made.block if made.block else columns
    return EncodePlan(made, rows, columns, tall, most, first, scale_first)


def plain_plan(made: Encoding, total: int, codes: Layout | None = None) -> EncodePlan | None:
    """The plan for weights of `total` elements with one scale for all, or without codes."""
    assert made.rule.name in (FIXED, LARGEST)
    if codes is not None and not (codes.contiguous and codes.bits == 8):
        return None
    first = 0 if codes is None else codes.offset // 8
    return EncodePlan(made, 1, total, 1, ROW_BOX_ELEMENTS, first)


def _fits(found: Units, made: Encoding, total: int) -> bool:
    """Whether vectors have the codes of units, and all of them whole blocks."""
    (plane,), lanes, block = found.unit.planes, found.unit.size, made.block
    if (lanes % block and block % lanes) or total % max(lanes, block * len(made.scale_places)):
        return False
    if made.rule.signed and block & block - 1:  # signs are known for powers of two alone
        return False
    return _in_bytes(plane.places, plane.bits)


def _in_bytes(places: Sequence[int], bits: int) -> bool:
    """Whether codes fill whole bytes with an equal number each."""
    if 8 % bits:
        return False
    whole = {(place >> 3, shift) for place in places for shift in range(0, 8, bits)}
    return whole == {(place >> 3, place & 7) for place in places}


def scale_units(scales: Layout) -> tuple[tuple[int, ...], int] | None:
    """The offsets of some scales, and the step to the next ones (bytes); None if irregular."""
    (_, step), *inner = merged(scales.shape, scales.strides) or [(1, scales.bits)]
    if step % 8 or len(inner) > 1 or any(stride % 8 for _, stride in inner):
        return None
    size, stride = inner[0] if inner else (1, 0)
    return tuple(k * stride // 8 for k in range(size)), step // 8
