"""Signals, forks, exits and kills while kernels are requested, built and loaded."""

import sys

import pytest
from compiled import COMPILED
from sweeps import EVENTS, PRELUDE, run, sweep

pytestmark = pytest.mark.skipif(not COMPILED, reason="nothing is compiled with the JIT off")

WAITING = ["0", "0.001"]  # patience: kernels are waited for, or asked for beside NumPy's work
BUILDING = [event for event in EVENTS if event != "interrupts"]
LOADING = [event for event in BUILDING if "builder" not in event]
LINUX = {"kill of the builder"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder with all that two kinds of copies take, filled by two processes at once."""
    folder = str(tmp_path_factory.mktemp("cache"))
    assert sweep("fork", [0.0, 0.0], 2, folder) == []
    return folder


@pytest.mark.parametrize("patience", WAITING)
@pytest.mark.parametrize("event", LOADING)
def test_every_moment_of_loading(event, patience, cache):
    assert sweep(event, [0.02, 0.1], 2, cache, patience) == []


@pytest.mark.parametrize(("patience", "moment"), [*zip(WAITING, [0.1, 0.6], strict=True)])
@pytest.mark.parametrize("event", BUILDING)
def test_moments_of_building(event, patience, moment):
    if event in LINUX and sys.platform != "linux":
        pytest.skip("processes are listed by Linux's /proc")
    assert sweep(event, [moment], 1, patience=patience) == []


@pytest.mark.parametrize("patience", WAITING)
def test_interrupts(patience, cache):
    assert sweep("interrupts", [0.003, 0.03], 2, cache, patience) == []
    assert sweep("interrupts", [0.01, 0.3], 1, patience=patience) == []


AT_EXIT = """
import atexit, os
@atexit.register
def late():
    try: {}()
    except BaseException: os._exit(1)
"""

# With kernels on disk.
ODDITIES = {
    "no thread can be started": """
import _thread, threading
def refuse(*_): raise RuntimeError("can't start new thread")
_thread.start_new_thread = threading.Thread.start = refuse
"""
    + PRELUDE
    + "copies()",
    "a thread dies before it begins": """
import _thread
start, dies = _thread.start_new_thread, False
def die(*_): raise MemoryError
_thread.start_new_thread = lambda act, given: start(die if dies else act, given)
"""
    + PRELUDE
    + """
dies = True
try: copies()
except MemoryError: dies = False
assert not dies
copies()
""",
    "calls of kernels that are ready start no threads": """
import _thread
started, start = [], _thread.start_new_thread
_thread.start_new_thread = lambda *call: (started.append(call), start(*call))[1]
"""
    + PRELUDE
    + "copies(); copies(); before = len(started); copies(); assert 0 < before == len(started)",
    "a first copy while the interpreter ends": AT_EXIT.format("copies") + PRELUDE,
    "a first copy while numba compiles for this thread": PRELUDE
    + """
import numba, numba.extending
def twice(n): pass
@numba.extending.overload(twice)
def typed(n):
    copies()
    return lambda n: 2 * n
@numba.njit
def four(): return twice(2)
assert four() == 4
""",
    "a signal handler raises when an object file is opened": PRELUDE
    + """
opened, raised, caught = set(), [], 0
def stop(*_):
    raised.append(RuntimeError("stop"))
    raise raised[-1]
signal.signal(signal.SIGALRM, stop)
def strike(event, given):
    path = str(given[0]) if event == "open" else ""
    if path.startswith(os.environ["NUMBA_CACHE_DIR"]) and path not in opened:
        opened.add(path)
        os.kill(os.getpid(), signal.SIGALRM)
sys.addaudithook(strike)
while True:
    try:
        copies()
        break
    except RuntimeError as fault:
        assert fault is raised[-1]
        caught += 1
assert caught == len(raised) > 0, (caught, len(raised))
""",
}

# Without.
ODDITIES_OF_BUILDING = {
    "no thread can be started": ODDITIES["no thread can be started"].removesuffix("copies()")
    + "OUTCOMES.add('failed'); copies()",
    "no process can be started": PRELUDE
    + """
import subprocess
def refuse(*_, **__): raise OSError("no more processes")
subprocess.Popen = refuse
copies()
""",
    "a first copy while the interpreter ends": AT_EXIT.format("once") + PRELUDE,
    "a first copy while numba compiles for this thread": ODDITIES[
        "a first copy while numba compiles for this thread"
    ],
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_kernels_are_loaded_at_odd_times(oddity, cache):
    assert run(ODDITIES[oddity], cache, 0, 2) == ""


@pytest.mark.parametrize("oddity", ODDITIES_OF_BUILDING)
def test_kernels_are_asked_for_at_odd_times(oddity, tmp_path):
    for patience in WAITING:
        folder = tmp_path / patience
        assert run(ODDITIES_OF_BUILDING[oddity], str(folder), 0, 1, patience=patience) == ""
