"""Calls within calls: from signal handlers and from other threads, while others run."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import loops
import numpy as np
from views import places_in_shape, shape_within

import shapejit as sj

from .batches import outputs, program_of
from .known import DTYPES, NUMPYS, check_same, known

CALLS = 60  # of the main thread
DEPTH = 2  # handlers within handlers
LARGE = np.zeros((4096, 2048), np.float32)  # enough for all threads


def case(random):
    """Some calls, with a timer whose handler makes others, and a thread that makes others."""
    loops.use(random.choice(list(loops.LIMITS)))
    works = [work(random) for _ in range(random.randint(2, 6))]
    for each in works:
        each()  # whatever has to be compiled
    faults = []

    depth = [0]

    def nested(*_):
        if depth[0] < DEPTH:
            depth[0] += 1
            guarded(random.choice(works), faults)
            depth[0] -= 1

    stop = threading.Event()

    def beside():
        while not stop.is_set():
            guarded(works[-1], faults)

    before = signal.signal(signal.SIGALRM, nested)
    thread = threading.Thread(target=beside)
    if random.random() < 0.5:
        thread.start()
    every = random.choice([0.0003, 0.0007, 0.002])
    signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        for _ in range(CALLS):
            guarded(random.choice(works), faults)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
        if thread.ident is not None:
            thread.join()
    if faults:
        raise faults[0]
    check_threads()


def guarded(call, faults):
    """A fault in a handler or a thread must not get lost."""
    try:
        call()
    except Exception as fault:
        faults.append(fault)


def work(random):
    """A call, repeated as it is, that checks its own results."""
    as_array = random.random() < 0.5
    dtype = random.choice(NUMPYS if as_array else DTYPES)
    places = places_in_shape(random, shape_within(random, random.choice([60, 2000])))
    tensors = [known(random, dtype, as_array, places) for _ in range(random.choice([1, 3, 20]))]
    program, wanted = program_of(random, tensors)
    xs, flat = [k.x for k in tensors], [k.codes.reshape(-1) for k in tensors]

    def mapped():
        for x, codes in zip(program.map(xs), wanted, strict=True):
            check_same(x, xs[0], dtype, codes)

    def called():
        # An output of its own for each call: it may be made within itself.
        out = outputs(random, tensors[:1], [program.shape])[0]
        if not out.may_be_refused:
            program(xs[0], out=out.x)
            out.check(wanted[0])

    def reshaped():
        for x, codes in zip(sj.reshape_batch(xs, -1, copy=True), flat, strict=True):
            check_same(x, xs[0], dtype, codes)

    def copied():
        check_same(sj.ascontiguous(xs[0]), xs[0], dtype, tensors[0].codes)

    return random.choice([mapped, called, reshaped, copied])


def check_threads():
    """Large copies run on other threads, too: no lock was left taken.

    A thread of this process that was given the processor during a copy helped with it.
    """
    if len(os.sched_getaffinity(0)) < 2:
        return
    loops.use("by size")
    sj.ascontiguous(LARGE.T)  # compiles its kernel, before the time counts
    end = time.monotonic() + 20
    while time.monotonic() < end:
        before = slices()
        sj.ascontiguous(LARGE.T)
        if any(count > before.get(thread, 0) for thread, count in slices().items()):
            return
    raise AssertionError("parallel copies have become serial")


def slices():
    """How often each other thread of this process was given the processor so far."""
    own = str(threading.get_native_id())
    found = {}
    for folder in Path("/proc/self/task").iterdir():
        if folder.name != own:
            with suppress(OSError):  # that thread has ended
                found[folder.name] = int((folder / "schedstat").read_text().split()[2])
    return found
