"""Reuse of freed memory for new results: never shared, bounded, returned to the system."""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import shapejit as sj
from shapejit.planning.thresholds import RESULT_MEMORY_FROM as FROM
from shapejit.runtime import result_memory
from shapejit.runtime.result_memory import ResultMemory

SIZE = 2 * FROM


@pytest.fixture
def kept():
    return ResultMemory(16 * SIZE)


@pytest.fixture(autouse=True)
def still(monkeypatch):
    """Nothing goes back to the system because a test takes long."""
    now = time.monotonic()
    monkeypatch.setattr(result_memory, "monotonic", lambda: now)


@contextmanager
def limit(nbytes):
    before = sj.set_result_cache(nbytes)
    try:
        yield
    finally:
        sj.set_result_cache(before)


def address(array):
    return array.__array_interface__["data"][0]


def result(value, nbytes=SIZE):
    """A new result, every byte of which is `value`."""
    return sj.reshape(np.full(nbytes, value, np.uint8), (2, -1), copy=True)


def test_dropped_results_are_used_again():
    with limit(8 * SIZE):
        first = result(1)
        place = address(first)
        del first
        second = result(2)
        assert address(second) == place
        assert (second == 2).all()
        assert type(second) is np.ndarray
        assert second.flags.carray


VIEWS = {
    "a view": lambda x: x[1:],
    "a view of a view": lambda x: x[1:].T[:3],
    "other elements": lambda x: x.view(np.uint16),
    "a subclass": lambda x: x.view(np.recarray),
    "the base": lambda x: x.base,
    "a memoryview": memoryview,
    "a slice of a memoryview": lambda x: memoryview(x)[1:],
    "frombuffer": lambda x: np.frombuffer(x, np.uint8),
    "frombuffer of all that lies below": lambda x: np.frombuffer(x.base.base, np.uint8),
    "DLPack": np.from_dlpack,
    "a Tensor": sj.asarray,
    "a view of a Tensor": lambda x: sj.asarray(x).T[2:],
    "an iterator": lambda x: x.flat,
    "a broadcast": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "strides": lambda x: np.lib.stride_tricks.as_strided(x, (5,), (2,)),
    "a reversed row": lambda x: x[0, ::-1],
    "a list of them": lambda x: [x[0]],
}


@pytest.mark.parametrize("view", VIEWS)
def test_memory_is_its_owners_while_any_view_is_alive(view):
    with limit(8 * SIZE):
        first = result(1)
        low, high = address(first), address(first) + first.nbytes
        seen = VIEWS[view](first)
        del first
        others = [result(2) for _ in range(4)]
        assert all(address(x) >= high or address(x) + x.nbytes <= low for x in others)
        del seen
        assert any(address(result(3)) == low for _ in range(8))


def test_operations_write_every_byte_and_the_padding_of_packed_results():
    """Where a dropped result was full of ones, no operation on zeros leaves any."""
    shape = 999, 1401
    bits = sj.Tensor.frombuffer(np.zeros(-(-3 * 999 * 1401 // 8), np.uint8), "uint3", shape)
    zeros = np.zeros(shape, np.int8)
    with limit(1 << 28):
        for nbytes in [2 << k for k in range(19, 23)]:
            result(0xFF, nbytes)
        made = [
            sj.ascontiguous(bits.T).buffer,
            sj.pack(zeros.T.view(np.uint8), "uint3").buffer,
            bits.unpack().view(np.uint8),
            sj.cast(zeros, "float32"),
            sj.stack([zeros, zeros], axis=-1),
            *sj.plan(shape, "int8", lambda t: t.T).map([zeros] * 3),
            *sj.reshape_batch([zeros.T] * 3, -1),
        ]
        assert not any(x.any() for x in made)


def test_nothing_is_kept_where_it_is_off():
    with limit(0):
        assert result(1).base is None or type(result(1).base.base) is not type(mapped())
        assert result_memory.kept().nbytes == 0


def mapped():
    """What lies below memory that is kept."""
    return ResultMemory(SIZE).take(SIZE)[0].base


def test_the_bound_is_kept(kept):
    taken = []
    for k in range(1, 40):
        taken.append(kept.take(FROM * (1 + k % 5)))
        assert kept.nbytes <= kept.most
    del taken
    assert kept.take(kept.most + 1) is None
    kept.forget(SIZE)
    assert kept.nbytes <= SIZE


def resident():
    """Bytes of memory that this process has, its own alone."""
    resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def test_memory_goes_back_to_the_system(kept, monkeypatch):
    nbytes = 8 * SIZE
    first, _ = kept.take(nbytes)
    first.fill(1)
    before = resident()
    del first
    assert resident() > before - nbytes / 2  # it is still kept
    now = time.monotonic()
    monkeypatch.setattr(result_memory, "monotonic", lambda: now + 60)
    assert kept.take(SIZE)[1]
    assert resident() < before - nbytes / 2


def test_memory_goes_back_without_a_further_call():
    code = """
import time, numpy as np, shapejit as sj
from shapejit.runtime import result_memory, workers
workers.WORKER_IDLE = 0.2
x = np.ones((2048, 2048), np.float32)
for _ in range(3): sj.ascontiguous(x.T)
kept = result_memory.kept()
assert kept.nbytes
result_memory.SECONDS = 0.2
while kept.nbytes and workers.threads() > 1: time.sleep(0.05)
"""
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_loops_of_varying_sizes_find_memory(kept):
    fresh = [kept.take(SIZE + 4096 * (37 * k % 100))[1] for k in range(100)]
    assert sum(fresh) <= 4


def test_what_has_long_been_held_does_not_stand_in_the_way(kept):
    held = [kept.take(SIZE) for _ in range(30)]
    assert [kept.take(SIZE)[1] for _ in range(20)].count(True) <= 3
    assert len({address(x) for x, _ in held}) == len(held)


def test_threads_never_share_memory(kept):
    wrong = []

    def work(me):
        for k in range(300):
            memory, _ = kept.take(SIZE + 4096 * (k % 3))
            memory[::4096] = me
            other, _ = kept.take(SIZE)
            other[::4096] = me + 100
            if (memory[::4096] != me).any() or (other[::4096] != me + 100).any():
                wrong.append(me)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []
    assert kept.nbytes <= kept.most


CHILD = """
import os, sys, threading, numpy as np, shapejit as sj
x = np.zeros((1024, 1024), np.uint8)
def result(value): return sj.reshape(x + np.uint8(value), -1, copy=True)
held, stop = result(1), False
result(2)
def work():
    while not stop: result(3)
thread = threading.Thread(target=work)
thread.start()
for k in range(20):
    child = os.fork()
    if child == 0:
        a, b = result(4), result(5)
        os._exit(not ((held == 1).all() and (a == 4).all() and (b == 5).all()))
    mine = result(6)
    assert os.waitpid(child, 0)[1] == 0
    assert (held == 1).all() and (mine == 6).all()
stop = True
thread.join()
"""

AT_EXIT = r"""
import atexit, numpy as np, shapejit as sj
x = np.ones((1024, 1024), np.uint8)
class Late:
    def __del__(self): assert self.made.tobytes() == b"\1" * x.size
late = Late()
late.made = sj.reshape(x, -1, copy=True)
atexit.register(lambda: sj.reshape(x, -1, copy=True))
"""


@pytest.mark.parametrize("code", [CHILD, AT_EXIT], ids=["forks beside a thread", "at exit"])
def test_other_processes_and_ends(code):
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


def run(code, **environment):
    command = [sys.executable, "-W", "ignore", "-c", code]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(("given", "wanted"), [("0", "0"), ("123456789", "123456789")])
def test_the_environment_sets_the_bound(given, wanted):
    code = "import shapejit as sj; print(sj.set_result_cache(1))"
    assert run(code, SHAPEJIT_RESULT_CACHE=given).stdout.split() == [wanted]


def test_the_default_is_a_part_of_the_memory():
    code = "import shapejit as sj; print(sj.set_result_cache(1))"
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    environment = {k: v for k, v in os.environ.items() if k != "SHAPEJIT_RESULT_CACHE"}
    command = [sys.executable, "-c", code]
    found = int(subprocess.run(command, env=environment, capture_output=True).stdout)
    assert 0 < found <= machine // 32


@pytest.mark.parametrize("wrong", ["-1", "64MiB", ""])
def test_an_environment_that_says_nothing_is_refused(wrong):
    done = run("import shapejit as sj; sj.set_result_cache(1)", SHAPEJIT_RESULT_CACHE=wrong)
    assert "FormatError: SHAPEJIT_RESULT_CACHE is a number of bytes" in done.stderr


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True, None])
def test_only_a_number_of_bytes_is_taken(wrong):
    with pytest.raises((sj.DTypeError, sj.FormatError), match="bytes"):
        sj.set_result_cache(wrong)
