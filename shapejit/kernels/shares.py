"""How several threads divide one job: each takes the next share until none is left.

A job is `work[UNITS]` units of one kernel for each of many tensors, divided into `work[SHARES]`
shares of all units. Each thread calls the kernel, and the kernel calls `take` until no share is
left. The owner of the job opens it with its first call; its last call returns when the shares that
other threads have begun are done. A thread that comes late or never costs nothing, since nobody
waits for shares that have not begun.

`work` is shared by all threads of a job. `span` belongs to one thread: `take` writes the tensor and
its units [low, high) there, and after `SPAN` the kernel keeps the positions of its loops. `signal`
counts the jobs opened by this process.
"""

from __future__ import annotations

from ..runtime.jobs import (
    DONE,
    END,
    HIGH,
    LOW,
    NEXT,
    OPEN,
    OWNER,
    SHARES,
    SIGNAL,
    TENSOR,
    TOTAL,
    UNDERWAY,
    UNIT,
    UNITS,
)
from .atomics import fetch_add, load_atomic, pause, sleep
from .jit import Address, BitAddress, Numbers, Table, inlined, kernel
from .memory import address_of, bit_pointer, fence, pointer

SPINS = 4000  # at a flag (60 to 200 us) before a waiting thread yields its core
# Microseconds for which it does. sched_yield would leave the core to another program for a
# whole slice of 3 ms; whoever slept is let in again at once.
NAP = 20


@kernel
def begin_share(work: Numbers, span: Numbers) -> bool:
    """Set `span` to the next share; False if there is none, and all others are done."""
    place = address_of(work)
    if span[UNDERWAY] != 0:
        span[UNDERWAY] = 0
        fence()  # streamed lines are in memory before other threads are signalled
        fetch_add(place + 8 * DONE, 1)
    elif span[OWNER] != 0:
        fetch_add(place + 8 * OPEN, 1)
        if work[SIGNAL] != 0:
            fetch_add(pointer(work[SIGNAL]), 1)
    shares = work[SHARES]
    share = shares
    if load_atomic(place + 8 * OPEN) != 0:
        share = fetch_add(place + 8 * NEXT, 1)
    if share < shares:
        span[UNDERWAY] = 1
        span[UNIT] = work[TOTAL] * share // shares
        span[END] = work[TOTAL] * (share + 1) // shares
        return True
    looks = 0
    while span[OWNER] != 0 and load_atomic(place + 8 * DONE) < shares:
        looks += 1
        if looks < SPINS:
            pause()
        else:
            sleep((NAP,))
    return False


@inlined
def take(work: Numbers, span: Numbers) -> bool:
    """Set `span` to the next units of one tensor; False when the job is done."""
    more = bool(span[UNIT] < span[END])
    if not more:
        more = begin_share(work, span)
    if more:
        tensor = span[UNIT] // work[UNITS]
        before = tensor * work[UNITS]
        span[TENSOR] = tensor
        span[LOW] = span[UNIT] - before
        span[HIGH] = min(span[END] - before, work[UNITS])
        span[UNIT] = before + span[HIGH]
    return more


@kernel
def ends(addresses: Table, span: Numbers) -> tuple[Address, Address]:
    """The first bytes of source and target of the tensor whose units `take` set."""
    return pointer(addresses[0, span[TENSOR]]), pointer(addresses[1, span[TENSOR]])


@kernel
def bit_ends(addresses: Table, span: Numbers) -> tuple[BitAddress, BitAddress]:
    """`ends` of addresses of bits."""
    return bit_pointer(addresses[0, span[TENSOR]]), bit_pointer(addresses[1, span[TENSOR]])


@kernel
def job_after(signal: Address, seen: int, looks: int) -> int:
    """Look `looks` times for a job opened after the first `seen` ones; return their number."""
    for _ in range(looks):
        now = int(load_atomic(signal))
        if now != seen:
            return now
        pause()
    return seen
