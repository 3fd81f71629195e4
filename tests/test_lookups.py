"""Codes of at most 4 bits with a scale per block, into memory at any address, against NumPy."""

import platform

import loops
import ml_dtypes
import numpy as np
import pytest
from compiled import COMPILED
from guarded import guarded
from test_packed import run_alone

import shapejit as sj

TARGETS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
UNUSUAL = [0, -0.0, 2.0**-126, -(2.0**-133), 3e38, np.inf, -np.inf, np.nan, 2.0**-149]


def operands(rows, blocks, numbers):
    """Scales, the last of each row unusual, and zero points."""
    scale = numbers.standard_normal((rows, blocks)).astype(np.float32)
    scale[:, -1] = np.resize(UNUSUAL, rows)
    return scale, numbers.integers(0, 8, scale.shape).astype(np.float32)


def check_decoded(name, block, blocks, target):
    """The bits of NumPy, next to pages that nobody may touch."""
    numbers = np.random.default_rng(block)
    bits, rows = sj.dtype(name).bits, len(UNUSUAL)
    codes = numbers.integers(0, 1 << bits, (rows, block * blocks), np.uint8)
    values = codes.view(ml_dtypes.float4_e2m1fn) if name.startswith("float") else codes
    if name.startswith("int"):
        values = (codes << (8 - bits)).view(np.int8) >> (8 - bits)
    scale, zero = operands(rows, blocks, numbers)
    wide, zeros = (np.repeat(y, block, 1) for y in (scale, zero))
    with np.errstate(all="ignore"):
        product = (values.astype(np.float32) - zeros) * wide
        wanted = product.astype(TARGETS[target])
    nbytes, unit = wanted.nbytes, f"u{wanted.itemsize}"
    x = sj.pack(codes, name)
    pages = guarded(nbytes + 64)
    for end in (pages.size, pages.size - 16, pages.size - 2, pages.size - 1, nbytes):
        pages[...] = 0xAB
        memory = pages[end - nbytes : end]
        out = sj.Tensor.frombuffer(memory, target, wanted.shape)
        sj.dequantize(x, scale, zero_point=zero, block_shape=(1, block), dtype=target, out=out)
        found = np.frombuffer(memory.tobytes(), wanted.dtype).reshape(wanted.shape)
        lost = np.isnan(wanted.astype(np.float32))
        assert (lost | (found.view(unit) == wanted.view(unit))).all(), (name, block, end)
        assert np.isnan(found[lost].astype(np.float32)).all()
        assert (pages[: end - nbytes] == 0xAB).all()
        assert (pages[end:] == 0xAB).all()


@pytest.mark.parametrize("kind", ["serial", "streamed by one thread"])
@pytest.mark.parametrize("target", TARGETS)
def test_blocks_of_whole_vectors_and_others(kind, target):
    """Blocks are whole vectors, or end within one; runs have whole vectors, or do not."""
    cases = [(32, 3), (32, 1), (64, 2), (96, 5), (128, 9), (48, 2), (40, 3), (16, 7)]
    with loops.used(kind):
        for block, blocks in cases if COMPILED else cases[:2]:
            check_decoded("uint4", block, blocks, target)


@pytest.mark.parametrize("name", ["int4", "float4_e2m1fn", "int2"])
def test_every_kind_of_code(name):
    with loops.used("streamed by one thread"):
        check_decoded(name, 64, 3, "bfloat16")


@pytest.mark.skipif(not COMPILED, reason="there are no vectors")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the features named are those of x86")
def test_narrower_vectors():
    """Bytes are looked up, one at a time of each result."""
    code = """
from test_lookups import *
loops.use("streamed by one thread")
check_decoded("uint4", 64, 3, "bfloat16")
"""
    run_alone(code, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES="+avx2,+bmi,+bmi2")
