"""Shapes that never repeat: caches stay small."""

import gc
import os
import tracemalloc
from functools import cache
from pathlib import Path
from random import Random

import loops
import numpy as np

import shapejit as sj

MOST = 21 * 2**20  # bytes that all caches together may hold
RESIDENT = 256 * 2**20  # bytes that the process may grow by, kernels that it loads included
SHAPES = 3000  # of a case


def case(random):
    """Thousands of shapes, each through any operation; the cases of a process add up."""
    traced, resident = start()
    for _ in range(SHAPES):
        random.choice(CALLS)(random)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - traced
    assert held < MOST, f"{held / 2**20:.0f} MiB are held:\n{largest()}"
    grown = resident_bytes() - resident
    assert grown < RESIDENT, f"the process has grown by {grown / 2**20:.0f} MiB"


@cache
def start():
    """What the process holds before the first case, when everything was used once.

    Small tensors are planned as large ones are.
    """
    loops.use("serial")
    for call in CALLS:
        for i in range(20):
            call(Random(i))
    gc.collect()
    tracemalloc.start()
    return tracemalloc.get_traced_memory()[0], resident_bytes()


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def largest():
    top = tracemalloc.take_snapshot().statistics("lineno")[:5]
    return "\n".join(map(str, top))


def image(random):
    """A small image of any size."""
    return np.zeros((random.randint(1, 400), random.randint(1, 400), 1), np.uint8)[:, ::7]


def images(random):
    sj.ascontiguous(image(random).transpose(2, 0, 1))


def reshapes(random):
    x = image(random)
    sj.reshape(x, (x.shape[1], -1))


def batches(random):
    xs = [image(random).T for _ in range(3)]
    sj.reshape_batch(xs, [(x.size, 1) for x in xs])


def packed(random):
    codes = np.zeros((random.randint(1, 90), random.randint(1, 90)), np.uint8)
    t = sj.pack(codes, "int4")
    sj.concat([t.T, t.T])
    t.T.unpack()


def programs(random):
    n, m = random.randint(1, 400), random.randint(1, 400)
    x = np.zeros((n, m), np.uint8)
    program = sj.plan((n, m), "uint8", lambda t: t.T.reshape(-1))
    program(x)
    program.map([x, x[:, ::-1]])


def one_program(random):
    """One program, whose tensors lie differently each time, in stacks of every length."""
    memory = np.zeros(400_000, np.uint8)
    strides = random.randint(1, 10**4), random.randint(1, 10**4)
    x = np.lib.stride_tricks.as_strided(memory, (5, 7), strides)
    kept_program()(x)
    kept_program().map(np.zeros((random.randint(1, 500), 5, 7), np.uint8))


@cache
def kept_program():
    return sj.plan((5, 7), "uint8", lambda t: t.T.reshape(-1))


def joins(random):
    x = image(random)
    sj.concat([x, x[::-1]], axis=1)
    sj.stack([x.T, x.T])


def dialects(random):
    shape = [random.randint(1, 10**6) for _ in range(3)]
    sj.resolve(tuple(shape), sj.onnx.request([0, -1]))
    sj.resolve(tuple(shape), sj.openvino.request([shape[0], -1], special_zero=True))


CALLS = [images, images, reshapes, batches, packed, programs, one_program, joins, dialects]
