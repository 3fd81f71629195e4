"""Quantised weights decoded run by run: scales and codes are read and converted in turn.

`steps` has a row for each step (words of `constants`): numbers that are contiguous, or are unpacked
to the stage, are converted with scales and zero points in memory or on the stage, and written to
the stage; those of the last row are the result.
"""

from __future__ import annotations

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, TENSOR
from .constants import (
    BOX_APART,
    BOX_CODES,
    BOX_COLUMNS,
    BOX_CONVERT,
    BOX_FAR,
    BOX_FLOATS,
    BOX_NBYTES,
    BOX_PITCH,
    BOX_READ,
    BOX_REPEATS,
    BOX_ROWS,
    BOX_RUN,
    BOX_SHUFFLE,
    BOX_TALL,
    BOX_UNIT,
    BOX_UNIT_APART,
    BOX_WIDE,
    SCALE_STAGED,
    STEP_APART,
    STEP_BLOCK,
    STEP_CODES,
    STEP_CONVERT,
    STEP_INTO,
    STEP_NBYTES,
    STEP_PER,
    STEP_READ,
    STEP_SCALE,
    STEP_SCALE_APART,
    STEP_SOURCE,
    STEP_STAGED,
    STEP_UNIT,
    STEP_ZERO,
    STEP_ZERO_APART,
    WIDTHS,
    ZERO_STAGED,
)
from .conversions import convert
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, move, pointer, prefetch
from .odometer import seek, step
from .shares import take
from .shuffles import shuffle
from .unit_code import read_units

_FLOAT = WIDTHS[4]


@kernel
def decode_step(
    steps: Table, k: int, begin: int, count: int, stage: Address, into: Address
) -> None:
    """Run step `k` for the elements [begin, begin + count) of the result."""
    per, block = steps[k, STEP_PER], steps[k, STEP_BLOCK]
    first, some = begin // per, max(1, count // per)
    if steps[k, STEP_READ] != 0:
        codes, size, apart = stage + steps[k, STEP_CODES], steps[k, STEP_UNIT], steps[k, STEP_APART]
        source = pointer(steps[k, STEP_SOURCE]) + first // size * apart
        read_units(steps[k, STEP_READ], source, codes, some // size, apart)
    else:
        codes = pointer(steps[k, STEP_SOURCE]) + first * steps[k, STEP_NBYTES]
    scale, zero = pointer(steps[k, STEP_SCALE]), pointer(steps[k, STEP_ZERO])
    if steps[k, STEP_STAGED] & SCALE_STAGED != 0:
        scale = stage + steps[k, STEP_SCALE]
    if steps[k, STEP_STAGED] & ZERO_STAGED != 0:
        zero = stage + steps[k, STEP_ZERO]
    scale += first // block * steps[k, STEP_SCALE_APART]
    zero += first // block * steps[k, STEP_ZERO_APART]
    convert(steps[k, STEP_CONVERT], codes, into, some, min(block, some), scale, 4, zero, 4, 0)


@kernel
def ask_step(steps: Table, k: int, begin: int, count: int) -> None:
    """Prefetch the codes of the elements [begin, begin + count), which are next."""
    per = steps[k, STEP_PER]
    first, some = begin // per, max(1, count // per)
    if steps[k, STEP_READ] != 0:
        size, apart = steps[k, STEP_UNIT], steps[k, STEP_APART]
        begin, nbytes = first // size * apart, some // size * apart
    else:
        begin, nbytes = first * steps[k, STEP_NBYTES], some * steps[k, STEP_NBYTES]
    source = pointer(steps[k, STEP_SOURCE]) + begin
    for line in range(0, nbytes, LINE):
        prefetch(source + line)


@kernel
def decode_runs(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    steps: Table,
    total: int,
    length: int,
    nbytes: int,
) -> None:
    """Decode `total` elements of `nbytes` bytes, `length` at a time."""
    last = steps.shape[0] - 1
    while take(work, span):
        target = pointer(places[1, span[TENSOR]])
        for unit in range(span[LOW], span[HIGH]):
            begin = unit * length
            count = min(length, total - begin)
            ask_step(steps, last, begin + count, count)
            for k in range(last):
                decode_step(steps, k, begin, count, stage, stage + steps[k, STEP_INTO])
            decode_step(steps, last, begin, count, stage, target + begin * nbytes)


@kernel
def fill_box(
    source: Address, stage: Address, loops: Table, at: Numbers, offsets: Numbers, box: Numbers
) -> None:
    """Permute the codes of a box onto the stage."""
    table, calls = address_of(offsets), loops[:, 0].prod()
    entry, count, apart, far = box[BOX_SHUFFLE], box[BOX_REPEATS], box[BOX_APART], box[BOX_FAR]
    s, t = seek(loops, at, 0)
    for _ in range(calls):
        shuffle(entry, source + s, stage + t, table, count, apart, far, 0, 0)
        s, t = step(loops, at, s, t)


@kernel
def gather(
    target: Address,
    pitch: int,
    source: Address,
    rows: int,
    columns: int,
    down: int,
    across: int,
) -> None:
    """Copy float32 with strides `down` and `across` (bytes) to rows `pitch` bytes apart."""
    for column in range(columns):
        ahead = source + (column + 16) * across
        for line in range(0, rows * down + LINE, LINE):
            prefetch(ahead + line)
        for row in range(rows):
            place = source + row * down + column * across
            move(target + row * pitch + 4 * column, place, _FLOAT)


@kernel
def found(
    operand: Numbers, blocks: tuple[int, int, int, int], floats: Address, far: int
) -> tuple[Address, int, int]:
    """The address of the float32 of a box, and the bytes to those of the next row and column.

    `blocks` are the first row, the rows, the first column and the columns. If each column has a
    float of its own and these are not contiguous, they are copied to `floats`, in rows `far` bytes
    apart.
    """
    row, rows, column, columns = blocks
    down, across = operand[1], operand[2]
    begin = pointer(operand[0]) + (row * down + column * across)
    if columns > 0 and across > 4:
        gather(floats, far, begin, rows, columns, down, across)
        begin, down, across = floats, far, 4
    return begin, down, across


@kernel
def decode_boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    boxes: Table,
    loops: Table,
    offsets: Numbers,
    operands: Table,
    box: Numbers,
) -> None:
    """Decode boxes: each has `BOX_ROWS` rows of `BOX_RUN` elements, of rows of `BOX_COLUMNS`.

    The function of a network fills the stage, whose rows are `BOX_PITCH` bytes apart. `operands`
    has the scales and the zero points: the address of the first one, which is for `BOX_TALL` by
    `BOX_WIDE` elements, and the strides. Those of single columns are copied to the stage.
    """
    at, inner = span[SPAN:][: len(boxes)], span[SPAN:][len(boxes) :]
    rows, run, columns = box[BOX_ROWS], box[BOX_RUN], box[BOX_COLUMNS]
    tall, wide, some = box[BOX_TALL], box[BOX_WIDE], min(box[BOX_WIDE], run)
    codes, floats, far = stage + box[BOX_CODES], stage + box[BOX_FLOATS], 4 * run + LINE
    room = (rows // tall + 2) * far
    while take(work, span):
        source, target = pointer(places[0, span[TENSOR]]), pointer(places[1, span[TENSOR]])
        s, t = seek(boxes, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            fill_box(source + s, stage, loops, inner, offsets, box)
            row, column = t // columns, t % columns
            first, count = row // tall, (row + rows - 1) // tall - row // tall + 1
            blocks = first, count, column // wide, run if wide == 1 else 0
            scale, scale_down, scale_across = found(operands[0], blocks, floats, far)
            zero, zero_down, zero_across = found(operands[1], blocks, floats + room, far)
            for r in range(rows):
                packed, units = stage + r * box[BOX_PITCH], run // box[BOX_UNIT]
                read_units(box[BOX_READ], packed, codes, units, box[BOX_UNIT_APART])
                block = (row + r) // tall - first
                into = target + (t + r * columns) * box[BOX_NBYTES]
                convert(
                    box[BOX_CONVERT], codes, into, run, some,
                    scale + block * scale_down, scale_across,
                    zero + block * zero_down, zero_across, 0,
                )  # fmt: skip
            s, t = step(boxes, at, s, t)
