"""Threads, forks and cache folders, most in a process of their own."""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import loops
import numpy as np
import pytest
from compiled import COMPILED, kernel

import shapejit as sj
from shapejit.runtime import system, workers
from shapejit.runtime.jobs import DONE, NEXT, OPEN, OWNER, SHARES, SPAN, UNDERWAY, WORK

MANY = 10_000  # times that something is tried, 0.01 s each, before it is taken to never happen


def prelude(views, more=""):
    """What copies some views of `x` again and again, each time compared with NumPy's copy."""
    return f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import multiprocessing, threading
import numpy as np, shapejit as sj
import loops
loops.use("parallel")
x = np.arange(300 * 200 * 3, dtype=np.float32).reshape(300, 200, 3)
{more}
VIEWS = [{views}]
def oracle(view):
    return view.tobytes() if isinstance(view, np.ndarray) else sj.pack(view.unpack()).tobytes()
EXPECTED = [oracle(view) for view in VIEWS]
def copy(_=None):
    for _ in range(5):
        for view, expected in zip(VIEWS, EXPECTED):
            assert sj.reshape(view, -1, copy=True).tobytes() == expected
"""


PRELUDE = prelude(
    "x.transpose(1, 0, 2), x.T, x[::-1, ::2], sj.flip(t), t[1:]",
    't = sj.pack(np.arange(90_001, dtype=np.uint8) % 16, "int4")',
)
# For processes that find no kernels on disk: the one that is built in the least time.
ONE_VIEW = prelude("x[:, 1:]")

ACTIONS = {
    "beside numba's own parallel loops": """
import numba
@numba.njit(parallel=True)
def add(a):
    for i in numba.prange(a.size): a[i] += 1
a = np.zeros(1000)
for _ in range(3): add(a); copy()
assert (a == 3).all()
""",
    "threads": """
faults = []
def work():
    try: copy()
    except BaseException as fault: faults.append(fault)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not faults, faults
""",
    "fork": """
copy()
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(copy, range(4), chunksize=1)
copy()
""",
    "fork while another thread copies for the first time": """
import os, time
thread = threading.Thread(target=copy); thread.start()
for wait in (0.0, 0.05, 0.2):
    time.sleep(wait)
    child = multiprocessing.get_context("fork").Process(target=copy)
    child.start(); child.join()
    assert child.exitcode == 0, child.exitcode
thread.join()
""",
    "fork before the first use": """
child = multiprocessing.get_context("fork").Process(target=copy)
child.start(); child.join()
assert child.exitcode == 0
copy()
""",
    "Dask's threads": """
import dask, dask.threaded
graph = {f'copy {i}': (copy,) for i in range(16)}
dask.threaded.get(graph, list(graph), num_workers=8)
""",
    "fork while another thread copies": """
stop = threading.Event()
def work():
    while not stop.is_set(): copy()
copy()
thread = threading.Thread(target=work); thread.start()
try:
    for _ in range(5):
        child = multiprocessing.get_context("fork").Process(target=copy)
        child.start(); child.join()
        assert child.exitcode == 0, child.exitcode
finally:
    stop.set(); thread.join()
""",
}


def python(code, **environment):
    """Run code in a fresh interpreter; its exit code and output."""
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_many_threads_and_processes(action):
    done = python(PRELUDE + ACTIONS[action], NUMBA_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr[-2000:]


def test_forks_while_a_kernel_is_built(tmp_path):
    """With an empty cache the other thread waits for seconds while this one forks."""
    action = ACTIONS["fork while another thread copies for the first time"]
    done = python(ONE_VIEW + action, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("folder", ["/dev/null/cache", "read-only"])
def test_a_cache_folder_that_cannot_be_written(folder, tmp_path):
    if folder == "read-only":
        if os.geteuid() == 0:
            pytest.skip("root may write to any folder")
        tmp_path.chmod(0o500)
        folder = str(tmp_path)
    done = python(ONE_VIEW + "copy()", NUMBA_CACHE_DIR=folder)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_cache_folder_that_is_lost_midway(tmp_path):
    """The folder is fine when this process looks for a kernel, and gone when that is built."""
    broken = """
from shapejit.runtime import object_files
place = object_files.folder()
place.rmdir()
place.write_text("in the way")
copy()
"""
    done = python(ONE_VIEW + broken, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]


def test_numba_num_threads_is_respected():
    import numba  # as a user's own program may

    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert workers.threads() == 1
    finally:
        numba.set_num_threads(before)
    assert 1 <= workers.threads() <= before


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"NUMBA_NUM_THREADS": "1"}, "workers.threads() == 1"),
        ({"NUMBA_CPU_NAME": "generic"}, "processor.vector() == 16 and not processor.features()"),
        ({"NUMBA_CPU_FEATURES": "+avx2,-bmi"}, "processor.vector() == 32"),
        ({"NUMBA_CPU_FEATURES": "+avx2,-bmi"}, "processor.features() == {'avx2'}"),
        ({"NUMBA_CPU_NAME": "haswell"}, "processor.name() == 'haswell'"),
        ({"NUMBA_DISABLE_JIT": "1"}, "not kernels.compiled()"),
        ({"NUMBA_DISABLE_JIT": "0"}, "kernels.compiled()"),
    ],
)
def test_what_numba_is_told_is_known_without_it(variables, says):
    code = "import sys; from shapejit.runtime import kernels, processor, workers; "
    code += f"assert {says}; assert 'numba' not in sys.modules; import numba; assert {says}"
    done = python(code, **variables)
    assert done.returncode == 0, done.stderr


def test_a_number_of_threads_that_is_none_is_reported():
    """And is as none."""
    code = "from shapejit.runtime import system, workers; print(workers.threads())"
    wanted, done = python(code), python(code, NUMBA_NUM_THREADS="many")
    assert done.stdout == wanted.stdout
    assert "NUMBA_NUM_THREADS is a number, not 'many'" in done.stderr


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there is one thread")
def test_workers_join_in():
    assert joined(workers.own.value, threading.get_ident) != threading.get_ident()


def joined(own, during):
    """What `during` says in a worker that was asleep and has been woken for a job."""
    said = SimpleQueue()
    kernel("shares.job_after", "iii")  # by which workers look for jobs

    def run(owner):
        if not owner:
            said.put(during())

    for _ in range(MANY):
        own.run(run, 2)
        with suppress(Empty):  # a worker looks for the next job before it sleeps
            return said.get(timeout=0.01)
    raise AssertionError("nobody but the owner ran a job")


@pytest.mark.skipif(workers.threads() < 2, reason="there is one core")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot choose cores")
def test_a_worker_wakes_up_on_another_core_than_its_waker(monkeypatch):
    cores = os.sched_getaffinity(0)
    own = workers.Workers()
    for core in sorted(cores)[:2] * 2:
        monkeypatch.setattr(system, "getcpu", lambda core=core: lambda: core)
        assert joined(own, lambda: os.sched_getaffinity(0)) == cores - {core}


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there is one thread")
def test_workers_join_in_where_threads_cannot_choose_cores(monkeypatch):
    monkeypatch.setattr(system, "getcpu", lambda: None)
    assert joined(workers.Workers(), lambda: "joined") == "joined"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot choose cores")
@pytest.mark.skipif(not COMPILED, reason="with the JIT off there is one thread")
def test_workers_join_in_where_choosing_a_core_is_refused(monkeypatch):
    def refuse(*_):
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert joined(workers.Workers(), lambda: "joined") == "joined"


def test_without_workers_the_owner_does_it_all(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(workers.own, "value", workers.Workers())
    x = np.arange(90_000, dtype=np.float32).reshape(300, 300).T
    with loops.used("parallel"):
        assert all(sj.ascontiguous(x).tobytes() == x.tobytes() for _ in range(3))


def times_asleep(thread):
    """How often a thread has given its core away by itself."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there is one thread")
@pytest.mark.skipif(sys.platform != "linux", reason="threads are described by Linux's /proc")
def test_an_owner_that_waits_leaves_its_core_to_others():
    work, span = np.zeros(WORK, np.int64), np.zeros(SPAN, np.int64)
    # A worker has begun the last of two shares; the owner has done the first.
    work[[SHARES, NEXT, OPEN]] = 2, 2, 1
    span[[OWNER, UNDERWAY]] = 1
    owner, asleep = threading.get_native_id(), []

    def finish():
        before = times_asleep(owner)
        for _ in range(MANY):
            asleep[:] = [times_asleep(owner) - before]
            if asleep[0] > 100:
                break
            time.sleep(0.01)
        work[DONE] = 2

    worker = threading.Thread(target=finish)
    begin_share = kernel("shares.begin_share", "aa", "b")
    worker.start()
    assert not begin_share(work, span)
    assert work[DONE] == 2
    assert asleep[0] > 100
    worker.join()


def test_a_core_that_the_process_may_not_use_gets_no_thread():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot bind a process to cores")
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert workers.threads() == 1
    finally:
        os.sched_setaffinity(0, cores)
