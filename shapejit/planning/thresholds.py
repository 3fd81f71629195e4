"""The tuning constants: from which sizes on one way takes less time than another.

All of them are here, and a test counts them. What other modules compare with are sizes: of blocks,
boxes and tables, of vectors, lines, pages and caches. Each row has a unit, says what it decides,
and what it gains: how many times as long the affected calls take with another value, as geometric
mean and at most. Measured on Zen 3 (AMD EPYC, family 25, model 1: AVX2, 512 KiB of L2 cache; one
thread, interleaved, beside other work) and on Zen 4 (AMD EPYC, AVX-512, 1 MiB of L2 cache; one
thread, interleaved, alone): random permutations and slices, also with negative steps, of 4 MiB if
nothing else is stated. `benchmarks.tools.compare --with` measures whole suites.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

KIB, MIB = 1024, 1024 * 1024


class Threshold(NamedTuple):
    """The unit, the meaning and the gain of a constant."""

    unit: str
    decides: str
    earns: str


# NumPy or a kernel.
NUMPY_BELOW: Annotated[
    int,
    Threshold(
        "elements, or 16-byte pieces of runs",
        "NumPy copies what is smaller",
        "0: 1.2, at most 5.1 (a launch costs 8 us more)",
    ),
] = 24 * KIB
NUMPY_RUNS_BELOW: Annotated[
    int,
    Threshold(
        "bytes",
        "NumPy copies runs of RUN and more",
        "0: 1.2, at most 1.8; Zen 4, 2.5 MiB, 4 MiB: 1.15 to 1.4, at most 1.6",
    ),
] = 4 * MIB
# Without a Plan, by one thread.
NO_PLAN_MAX_BYTES: Annotated[
    int,
    Threshold(
        "bytes",
        "what moves by vectors without a Plan has none",
        "0: 6.7, at most 23; Zen 4, 0: small copies 1.5, at most 3.4, calls 2.0, at most 16",
    ),
] = 512 * KIB
PLAN_ON_FIRST_USE_FROM: Annotated[
    int,
    Threshold(
        "bytes",
        "an array that is new has no Plan, nor have dense ones that are joined",
        "0: new arrays 4.8 to 130, joins 2.8 to 25",
    ),
] = 4 * MIB
SCALARS_BELOW: Annotated[
    int,
    Threshold(
        "bytes, or numbers that are converted",
        "there is no Plan, even if elements move one by one",
        "0: copies 1.0, casts 5.8 to 22",
    ),
] = 16 * KIB
RESULT_MEMORY_FROM: Annotated[
    int,
    Threshold(
        "bytes",
        "new results reuse the memory of freed ones; malloc keeps smaller blocks itself",
        "512 KiB: casts of 0.5 to 1.5 MiB 1.3, at most 1.6; never: 4 to 64 MiB 1.4 to 2.2",
    ),
] = 2 * MIB
# How a Plan is run.
PARALLEL_FROM: Annotated[
    int,
    Threshold(
        "bytes",
        "threads share them",
        "Sapphire Rapids, both cores busy: 1.5 to 2 MiB as fast on one thread, 3 MiB 1.3 slower; "
        "Zen 4, 8 MiB, 4 MiB: 1.3, at most 1.8",
    ),
] = 2560 * KIB
STREAM_FROM: Annotated[
    int,
    Threshold(
        "bytes",
        "whole lines go past the caches",
        "12 MiB, copies of 8 MiB: 1.08, at most 1.6; Zen 4, 6 MiB: 1.05 to 1.5, at most 3.6; "
        "never, 40 MiB: 1.3, at most 2.5",
    ),
] = 3 * MIB
RUNS_STREAM_FROM: Annotated[
    int,
    Threshold(
        "bytes",
        "single runs do, also of permuted blocks",
        "3 MiB, runs of 4 to 10 MiB, both threads: 1.2 to 1.8; Zen 4: 0.9 to 1.3; "
        "blocks of 4 to 11 MiB, both threads: 1.1 to 1.3, at most 2.8",
    ),
] = 12 * MIB
# Which strategy.
SHUFFLES_FROM: Annotated[
    int,
    Threshold(
        "bytes",
        "blocks of elements are permuted in registers",
        "never, bytes: 1.5, at most 4.8; Zen 4: 2.0, at most 9.5, 40 MiB 1.5, at most 5.5",
    ),
] = 64 * KIB
LATE_BOXES_FROM: Annotated[
    float,
    Threshold(
        "L2 caches",
        "parts of a copy are permuted within a cache even where tiles have a long side",
        "1/2: 1.9, at most 2.7; tiles of 0.6 to 2 MiB, Zen 5, 1 MiB of L2: 1.4, at most 1.9; "
        "Zen 4, 1/2, 1 MiB: 1.7, at most 2.9; never: 0.9 to 1.3, at most 4.0",
    ),
] = 2
RUN: Annotated[
    int,
    Threshold(
        "bytes of a run, or of a column of a tile",
        "it is copied as it lies, by memcpy; tiles with less are boxes",
        "never: 1.4, at most 3.0; Zen 4, slices: 1.2, at most 1.65; columns of 192: 1.2 to 1.5, at "
        "most 2.4; Zen 5, permutations of 40 MiB, 256: 0.98, at least 0.6",
    ),
] = 128
LONG_RUN: Annotated[
    int,
    Threshold(
        "bytes of a run, or side by side",
        "it is copied in any order",
        "4 KiB: 1.2, at most 1.7; 128 bytes: 1.04; 512, Emerald Rapids, 64 MiB: 1.17; Zen 4, "
        "40 MiB, 4 KiB: 1.5; 128 bytes, runs: 1.14, at most 2.6",
    ),
] = 1 * KIB
PLACES: Annotated[
    int,
    Threshold(
        "places of the source",
        "short runs are read in turn from no more, rather than by tiles",
        "64: 1.05, at most 1.3, patches of float32 2; 0: 1.08, at most 2.2; Zen 4, 40 MiB, "
        "64: 1.7; 0: 1.08, at most 1.4; never: 1.8, at most 2.6",
    ),
] = 16
SHORT: Annotated[
    int,
    Threshold(
        "elements",
        "fewer are worth no call, and no vector of their own",
        "0, batches: 1.0 to 1.5; Zen 4, packed elements: 2.7, at most 9.2, 32 MiB 3.5, at most 7.2",
    ),
] = 64
ROWS_LEAST: Annotated[
    int,
    Threshold(
        "bytes of a row of a tile",
        "with less it is a box",
        "256, Zen 5, permutations of 40 MiB: 1.02, at most 1.8; Emerald Rapids, 64 MiB: 0.99; "
        "Zen 4, 32 MiB, 256: 1.2, at most 1.8; 1 KiB: 1.14, at most 2.2",
    ),
] = 512
LINES_MET_AGAIN: Annotated[
    float,
    Threshold(
        "L2 caches",
        "permuted blocks follow the source until their lines, which later ones touch, fill so much",
        "1: 1.1 to 1.3; Zen 4, 32 MiB and more, 1/4: 1.17, at most 2.6; 1/32: 1.05, at most 1.7",
    ),
] = 1 / 16
MOST_APART: Annotated[
    int,
    Threshold(
        "elements, or runs",
        "those of the source that lie no further apart are picked in registers",
        "1, Zen 4: 1.06, at most 1.7, slices 1.4 to 2.6, at most 7.3; 4, slices of 40 MiB: 1.9",
    ),
] = 7
GAP: Annotated[
    int,
    Threshold(
        "elements narrower than a byte",
        "so few between runs are unpacked with them",
        "0: every 5th to 64th element of rows 1.5 to 12, permutations 1.0, at most 1.7; 256: 1.0",
    ),
] = 64
