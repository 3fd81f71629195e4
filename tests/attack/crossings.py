"""Interleaved sources and outputs: checked in reasonable time and memory."""

import time
import tracemalloc

import numpy as np

import shapejit as sj

SIZE = 16  # elements of a tensor
PER_TENSOR = 20_000  # bytes for each tensor that a call may take at a time, at most


def case(random):
    """Thousands of tensors; what a call takes grows with them, not with their square."""
    count = random.choice([500, 1000, 2000])
    call, check = crossing(random, count)
    call()  # imports numba
    # Never stopped: Python up to 3.13 may crash if a thread allocates meanwhile (gh-128679).
    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    call()
    taken = tracemalloc.get_traced_memory()[1] - before
    check()
    assert taken < count * PER_TENSOR, f"{taken / 2**20:.0f} MiB for {count} tensors"


def growth(random):
    """Four times as many tensors take hardly more than four times as long."""
    seed = random.getrandbits(32)
    times = {}
    for count in (2000, 8000):
        call, check = crossing(type(random)(seed), count)
        times[count] = min(timed(call) for _ in range(3))
        check()
    ratio = times[8000] / times[2000]
    assert ratio < 10, f"{times} seconds: {ratio:.1f} times as long"


def timed(call):
    begun = time.process_time()
    call()
    return time.process_time() - begun


def crossing(random, count):
    """A call with sources that lie between outputs, and a check of what it did."""
    sources, outs = random.choice([columns_and_rows, windows, pairs])(count)
    as_tensors = random.random() < 0.4
    want = [np.array(x)[::-1] for x in sources]
    xs = [sj.asarray(x) for x in sources] if as_tensors else sources
    to = [sj.asarray(x) for x in outs] if as_tensors else outs
    program = sj.plan((SIZE,), "uint8", lambda t: t[::-1])
    calls = [
        lambda: program.map(xs, out=to),
        lambda: sj.reshape_batch([x[::-1] for x in xs], (SIZE,), out=to),
        lambda: program.map(xs, out=lambda i: to[i]),
    ]

    def check():
        assert all((a == b).all() for a, b in zip(outs, want, strict=True))

    return random.choice(calls), check


def columns_and_rows(count):
    """Columns of the even rows into the odd rows: each reaches across all of the outputs."""
    memory = np.random.default_rng(count).integers(0, 256, (2 * count, 64), np.uint8)
    even = memory[:: 2 * (count // SIZE)][:SIZE]
    return [even[:, j % 64] for j in range(count)], [memory[2 * j + 1, :SIZE] for j in range(count)]


def windows(count):
    """Sources that overlap one another, each across a tenth of the outputs."""
    memory = np.random.default_rng(count).integers(0, 256, (2 * count, SIZE), np.uint8)
    step = max(count // (10 * SIZE), 1)
    even = memory[::2]
    rows = [min(j, count - step * SIZE) for j in range(count)]
    return [even[r : r + step * SIZE : step, 3] for r in rows], list(memory[1::2])


def pairs(count):
    """The first half of every row into the second half."""
    memory = np.random.default_rng(count).integers(0, 256, (count, 2 * SIZE), np.uint8)
    return list(memory[:, :SIZE]), list(memory[:, SIZE:])
