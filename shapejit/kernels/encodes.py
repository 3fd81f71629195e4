"""Floats encoded box by box; see `encode_generator` for the function that encodes a box."""

from __future__ import annotations

from ..runtime.jobs import HIGH, LOW, TENSOR
from .calls import call
from .jit import Address, Numbers, Table, kernel
from .memory import pointer, store_word
from .shares import take


@kernel
def encode_boxes(
    addresses: Table, work: Numbers, span: Numbers, stage: Address, entry: int, sizes: Numbers
) -> None:
    """Encode weights, a segment of columns of a band of rows at a time.

    `sizes`: rows and columns of a weight, rows of a band, columns of a segment, segments of a band;
    bytes from one band to the next in source, codes and scales, and from one segment; bytes from
    one row to the next in source and codes.

    Each weight has a column of `addresses`: those of the weight, its codes and its scales, of a
    factor, and of a word that is set to 1 if NumPy has to encode it.
    """
    (rows, columns, tall, wide, segments, band_source, band_target, band_scales,
     segment_source, segment_target, segment_scales, pitch, target_pitch) = sizes  # fmt: skip
    while take(work, span):
        weight = span[TENSOR]
        for unit in range(span[LOW], span[HIGH]):
            band, segment = unit // segments, unit % segments
            source = pointer(addresses[0, weight]) + band * band_source
            target = pointer(addresses[1, weight]) + band * band_target
            scales = pointer(addresses[2, weight]) + band * band_scales
            arguments = (
                source + segment * segment_source,
                target + segment * segment_target,
                scales + segment * segment_scales,
                min(tall, rows - band * tall),
                min(wide, columns - segment * wide),
                pitch,
                target_pitch,
                pointer(addresses[3, weight]),
                stage,
            )
            if call(entry, arguments) != 0:
                store_word(pointer(addresses[4, weight]), 1)
