"""Thresholds: the sizes from which one method is faster than another. The only table of them.

Measured on 2-core x86 machines (benchmarks.tools.ablation), in bytes of the result unless noted.
"""

from __future__ import annotations

# NumPy or a kernel: a launch takes as long as NumPy takes for NUMPY_BELOW elements.
NUMPY_BELOW = 24 * 1024  # elements, or 16-byte pieces of runs
NUMPYS_OWN_BELOW = 1024  # bytes that NumPy copies faster than a kernel can be called
NUMPYS_RUN = 128  # bytes of runs that NumPy copies by memcpy as fast as one thread can
NUMPYS_RUNS_BELOW = 4 * 1024 * 1024
NUMPYS_GAPS_BELOW = 1536 * 1024  # the same for a part of a larger array, which is rarely in a cache
NUMPYS_PARTS = 16  # arrays that NumPy joins one by one in the time of a launch

# Without a Plan, by one thread.
NO_PLAN_MAX_BYTES = 512 * 1024  # bytes of an array that one thread copies faster without a plan
MANY_BELOW = 128 * 1024  # bytes of a tensor, one of many, that one thread still moves whole
SCALAR_MAX_BYTES = 16 * 1024  # bytes that it moves, even by elements, faster than a Plan starts
FEW_ELEMENTS = 1024  # bytes that small plans move by elements as fast as Plans by vectors
PLAN_ON_FIRST_USE_FROM = 4 * 1024 * 1024  # bytes: a smaller array has no Plan when first met
LONG_RUN = 1024  # bytes of runs that a small plan moves as NumPy does, by memcpy
JOINED_BELOW = 3 * 1024 * 1024  # bytes of dense arrays that one thread joins without a plan
CAST_WHOLE_MOST = 16 * 1024  # elements that one thread converts while it holds the GIL

# How a Plan runs: a parallel launch costs 2 to 10 us more; streaming past the caches pays once the
# result is too large to stay there.
PARALLEL_FROM = 1536 * 1024
STREAM_FROM = 3 * 1024 * 1024
# For long runs so many times as much: reading the target's lines first has no measurable cost below
# 16 MiB, and 8 MiB that stay in a cache take half of the time.
RUNS_STREAM = 4

# Which strategy.
SHUFFLES_FROM = 64 * 1024  # a network takes 0.1 s to compile in each process
TILES_FROM = 16 * 1024  # bytes of a cast's source and result; boxes take 1.4 x as long then
# The parts of an L2 cache from which boxes are faster than tiles, than elements moved one by one,
# and than picked ones: anything smaller stays in the cache, and its lines are used again.
BOXES_FROM = 1 / 2
GATHERED_FROM = 1 / 8
PICKED_FROM = 2
