"""memcpy on all threads, the reference for the time of every copy.

Threads take their shares and wait for each other in machine code: waiting for the GIL would take
some 50 us per copy.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

PAGE = 4096
SPINS_BEFORE_SLEEP = (
    20_000  # for a copy, before a thread sleeps: about 1 ms, as OpenMP's threads are told to
)
# Words 0, 8 and 16 of the state, each in a cache line of its own: how many copies were begun, how
# many threads have done their part of the last one, and where the table of parts is.
# A part is a row of the table: target, source, bytes. `serve` does that of a thread when a copy is
# begun, and returns how many were; `finish` does the first one, and waits for the others.
CODE = """
declare ptr @memcpy(ptr, ptr, i64)
{declared}
define i64 @wait(ptr %word, i64 %least, i64 %looks) {{
entry:
  br label %look
look:
  %k = phi i64 [ 1, %entry ], [ %next, %again ]
  %value = load atomic i64, ptr %word seq_cst, align 8
  %there = icmp sge i64 %value, %least
  %last = icmp sge i64 %k, %looks
  %stop = or i1 %there, %last
  br i1 %stop, label %end, label %again
again:
  {pause}
  %next = add i64 %k, 1
  br label %look
end:
  ret i64 %value
}}
define void @copy(ptr %state, i64 %k) {{
  %address = getelementptr i64, ptr %state, i64 16
  %parts = load ptr, ptr %address
  %row = getelementptr [3 x i64], ptr %parts, i64 %k
  %second = getelementptr i64, ptr %row, i64 1
  %third = getelementptr i64, ptr %row, i64 2
  %target = load ptr, ptr %row
  %source = load ptr, ptr %second
  %nbytes = load i64, ptr %third
  call ptr @memcpy(ptr %target, ptr %source, i64 %nbytes)
  %done = getelementptr i64, ptr %state, i64 8
  atomicrmw add ptr %done, i64 1 seq_cst
  ret void
}}
define i64 @begin(ptr %state, i64 %parts) {{
  %address = getelementptr i64, ptr %state, i64 16
  store i64 %parts, ptr %address
  %done = getelementptr i64, ptr %state, i64 8
  store atomic i64 0, ptr %done seq_cst, align 8
  %begun = atomicrmw add ptr %state, i64 1 seq_cst
  ret i64 %begun
}}
define i64 @serve(ptr %state, i64 %k, i64 %seen) {{
  %least = add i64 %seen, 1
  %begun = call i64 @wait(ptr %state, i64 %least, i64 {looks})
  %there = icmp sge i64 %begun, %least
  br i1 %there, label %work, label %end
work:
  call void @copy(ptr %state, i64 %k)
  br label %end
end:
  ret i64 %begun
}}
define i64 @finish(ptr %state, i64 %threads) {{
  call void @copy(ptr %state, i64 0)
  %done = getelementptr i64, ptr %state, i64 8
  %all = call i64 @wait(ptr %done, i64 %threads, i64 {forever})
  ret i64 %all
}}
"""
X86 = "x86_64", "amd64"
PAUSE = "call void @llvm.x86.sse2.pause()"

_linked: list[Any] = []  # LLVM would take away the code of what nobody holds
_most: int | None = None


@cache
def _native() -> dict[str, Any]:
    """The functions that `CODE` defines for Python."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
        jit=True
    )
    linker = binding.create_lljit_compiler(target)
    x86 = platform.machine().lower() in X86
    code = CODE.format(
        declared=PAUSE.replace("call", "declare") if x86 else "",
        pause=PAUSE if x86 else "",
        looks=SPINS_BEFORE_SLEEP,
        forever=2**63 - 1,
    )
    builder = binding.JITLibraryBuilder().add_ir(code).add_current_process()
    words = {"begin": 1, "serve": 2, "finish": 1}
    for name in words:
        builder.export_symbol(name)
    library = builder.link(linker, "memcpy")
    _linked.extend((linker, library))
    return {
        name: ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * (1 + count))(library[name])
        for name, count in words.items()
    }


class _Team:
    """Threads that copy together, the caller being the first."""

    def __init__(self, threads: int) -> None:
        native, words = _native(), np.zeros(32, np.int64)
        self.words = words
        self.state = -(-int(words.ctypes.data) // 64) * 64
        self.threads, self.wake = threads, [threading.Event() for _ in range(threads - 1)]
        self.begin, self.finish = native["begin"], native["finish"]
        for k, wake in enumerate(self.wake, 1):
            work = partial(_work, native["serve"], self.state, k, wake)
            threading.Thread(target=work, name="memcpy", daemon=True).start()

    def run(self, parts: int) -> None:
        """Copy the parts in a table."""
        self.begin(self.state, parts)
        for wake in self.wake:
            wake.set()
        self.finish(self.state, self.threads)


def _work(serve: Callable[..., int], state: int, k: int, wake: threading.Event) -> None:
    seen = 0
    while True:
        wake.clear()
        begun = serve(state, k, seen)
        if begun == seen:
            wake.wait()
        seen = begun


_team = cache(_Team)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_team.cache_clear)


def limit(threads: int) -> None:
    """Limit memcpy to `threads` threads from here on."""
    global _most
    _most = threads


def cores() -> int:
    """How many cores this process may use."""
    here = getattr(os, "sched_getaffinity", None)
    return len(here(0)) if here else os.cpu_count() or 1


def thread_count() -> int:
    """The threads that memcpy has, and that peers must use."""
    return _most or min(cores(), int(os.environ.get("NUMBA_NUM_THREADS", cores())))


def memcpy_of(nbytes: int, threads: int | None = None) -> Callable[[], None]:
    """memcpy of `nbytes` bytes between two arrays; on all threads by default."""
    source, target = (np.ones(nbytes, np.uint8) for _ in range(2))
    count = threads or thread_count()
    pages = -(-nbytes // PAGE)
    ends = [min(pages * k // count * PAGE, nbytes) for k in range(count + 1)]
    parts = np.array(
        [
            (target.ctypes.data + low, source.ctypes.data + low, high - low)
            for low, high in pairwise(ends)
        ]
    )
    run = partial(_team(count).run, int(parts.ctypes.data))
    # An address keeps nothing alive: whoever holds the function holds the arrays.
    return partial(_called, run, (source, target), parts)


def _called(run: Callable[[], None], arrays: object, parts: object) -> None:
    run()
