"""Floats encoded box by box; see `encode_code` for the function that encodes a box."""

from __future__ import annotations

from ..runtime.jobs import HIGH, LOW, TENSOR
from .calls import call
from .constants import (
    BAND_ROWS,
    BAND_SCALES,
    BAND_SOURCE,
    BAND_TARGET,
    SEGMENT_COLUMNS,
    SEGMENT_SCALES,
    SEGMENT_SOURCE,
    SEGMENT_TARGET,
    SEGMENTS,
    SOURCE_PITCH,
    TARGET_PITCH,
    WEIGHT_COLUMNS,
    WEIGHT_ROWS,
)
from .jit import Address, Numbers, Table, kernel
from .memory import pointer, store_word
from .shares import take


@kernel
def encode_boxes(
    places: Table, work: Numbers, span: Numbers, stage: Address, entry: int, sizes: Numbers
) -> None:
    """Encode weights; `sizes` are words of `constants`.

    Each weight has a column of `places`: the addresses of the weight, its codes and its scales, a
    factor, and a word that is set to 1 if NumPy has to encode it.
    """
    while take(work, span):
        weight = span[TENSOR]
        for unit in range(span[LOW], span[HIGH]):
            band, segment = unit // sizes[SEGMENTS], unit % sizes[SEGMENTS]
            row, column = band * sizes[BAND_ROWS], segment * sizes[SEGMENT_COLUMNS]
            source = pointer(places[0, weight]) + band * sizes[BAND_SOURCE]
            target = pointer(places[1, weight]) + band * sizes[BAND_TARGET]
            scales = pointer(places[2, weight]) + band * sizes[BAND_SCALES]
            arguments = (
                source + segment * sizes[SEGMENT_SOURCE],
                target + segment * sizes[SEGMENT_TARGET],
                scales + segment * sizes[SEGMENT_SCALES],
                min(sizes[BAND_ROWS], sizes[WEIGHT_ROWS] - row),
                min(sizes[SEGMENT_COLUMNS], sizes[WEIGHT_COLUMNS] - column),
                sizes[SOURCE_PITCH],
                sizes[TARGET_PITCH],
                pointer(places[3, weight]),
                stage,
            )
            if call(entry, arguments) != 0:
                store_word(pointer(places[4, weight]), 1)
