"""Forks, interrupts, exits and kills at many moments of first copies, each in a process of its own.

`sweep` returns a line for each process that did not end as it should.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import shapejit

HOME = Path(shapejit.__file__).parents[1]
QUIET = ("-W", "ignore::DeprecationWarning")  # of forks beside threads
KERNELS = os.environ.get("NUMBA_CACHE_DIR", f"{tempfile.gettempdir()}/shapejit-attack")
SECONDS = 600  # of a process that is then taken to hang

# Each view takes kernels of its own. Copies are made until all kernels are there, or have failed.
PRELUDE = """
import os, random, signal, sys, threading, time
import numpy as np, shapejit as sj
x = np.arange(60 * 50 * 600, dtype=np.uint32).reshape(60, 50, 600)  # large enough for a plan
raw = np.arange(12_001).astype(np.uint8)
VIEWS = [x[..., ::-1], sj.Tensor.frombuffer(raw, "int4", (24_001,))[1:]]
VIEWS += [x.view(np.uint8)[..., 1::3], x[:, ::-1], x.view(np.uint8).T, x.T]
PACKED = (raw[:-1] >> 4 | raw[1:] << 4).tobytes()
moment, count = float(sys.argv[1]), int(sys.argv[2])
def copy(which):
    view = VIEWS[which % count]
    wanted = view.tobytes() if isinstance(view, np.ndarray) else PACKED
    assert sj.reshape(view, -1, copy=True).tobytes() == wanted
OUTCOMES = {"ready"}
def once():
    for which in range(count): copy(which)
def copies():
    once()
    while not {kernel.state for kernel in sj.kernel_status().values()} <= OUTCOMES:
        once()
        time.sleep(0.05)  # which leaves the core to the builder
def works():
    code = 1
    try: copies(); code = 0
    finally: os._exit(code)
def interrupt(*_): raise KeyboardInterrupt
def builders():
    found = []
    for task in os.listdir("/proc/self/task"):
        try: found += open(f"/proc/self/task/{task}/children").read().split()
        except OSError: pass  # that thread has ended
    return list(map(int, found))
threads = [threading.Thread(target=copies), threading.Thread(target=copy, args=(1,))]
"""

# What happens `moment` seconds after the first copy began.
EVENTS = {
    "fork": """
threads[0].start()
time.sleep(moment)
child = os.fork() or works()
assert os.waitpid(child, 0)[1] == 0
threads[0].join()
""",
    "fork beside two threads": """
for thread in threads: thread.start()
time.sleep(moment)
child = os.fork() or works()
assert os.waitpid(child, 0)[1] == 0
for thread in threads: thread.join()
""",
    "fork in a signal handler": """
children = []
signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
threads[1].start()
signal.setitimer(signal.ITIMER_REAL, moment)
copies()
while not children: time.sleep(0.01)
if children[0] == 0: works()
assert os.waitpid(children[0], 0)[1] == 0
threads[1].join()
""",
    "fork Pool": """
import multiprocessing
threads[0].start()
time.sleep(moment)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(copy, range(4), chunksize=1) == [None] * 4
threads[0].join()
""",
    "copy in a signal handler": """
done = []
signal.signal(signal.SIGALRM, lambda *_: done.append(copies()))
signal.setitimer(signal.ITIMER_REAL, moment)
copies()
while not done: time.sleep(0.01)
""",
    # Again and again within twice the moment, until the copy is made.
    "interrupts": """
signal.signal(signal.SIGALRM, interrupt)
moments = random.Random(moment)
for which in range(count):
    for attempt in range(100):
        try:
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.0005, 2 * moment))
            copy(which)
            signal.setitimer(signal.ITIMER_REAL, 0)
            break
        except KeyboardInterrupt: pass
signal.setitimer(signal.ITIMER_REAL, 0)
copies()
""",
    # Ctrl-C, and once more while the interpreter ends.
    "exit": """
def press():
    for _ in range(2):
        time.sleep(moment)
        os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press, daemon=True).start()
try:
    copies()
    time.sleep(2 * moment)
except KeyboardInterrupt: pass
""",
    "kill of the builder": """
OUTCOMES.add("failed")
threads[0].start()
time.sleep(moment)
for builder in builders(): os.kill(builder, signal.SIGKILL)
threads[0].join()
once()
""",
}


def sweep(
    event: str, moments: Sequence[float], count: int, folder: str = "", patience: str = "0"
) -> list[str]:
    """Run the event once for each moment, two processes at a time; what went wrong.

    `count` kinds of copies are made. Kernels are kept in `folder`, or in one that is empty at
    every start; without `patience` they are waited for.
    """

    def attempt(moment: float) -> str:
        # A builder may still write there: it finishes what it was asked for.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            code, place = PRELUDE + EVENTS[event], folder or empty
            wrong = run(code, place, moment, count, patience=patience)
        return f"{event} after {moment:.4f} s, patience {patience}: {wrong}" if wrong else ""

    with ThreadPoolExecutor(2) as two:
        return [wrong for wrong in two.map(attempt, moments) if wrong]


def run(code: str, folder: str, *arguments: object, patience: str = "0") -> str:
    """Run code in a fresh interpreter, with kernels kept in a folder; what went wrong."""
    own = {"NUMBA_CACHE_DIR": folder, "SHAPEJIT_PATIENCE": patience, "PYTHONPATH": str(HOME)}
    process = subprocess.Popen(
        [sys.executable, "-P", *QUIET, "-c", code, *map(str, arguments)],
        env={**os.environ, **own},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, words = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # and its children
        return f"hangs: {process.communicate()[1][-2000:]}"
    # SIGINT: an interrupt of "exit" came when Python had given up its own handler.
    return (
        ""
        if process.returncode in (0, -signal.SIGINT)
        else f"{process.returncode}: {words[-2000:]}"
    )


def case(chance: random.Random) -> None:
    """One event at any moment, with kernels on disk or without, waited for or not."""
    event, full = chance.choice(list(EVENTS)), chance.random() < 0.7
    reach = (1.0 if full else 6.0) / (10 if event == "interrupts" else 1)
    moment, patience = reach * chance.random() ** 2, chance.choice(["0", "0.001"])
    wrong = sweep(event, [moment], 6 if full else 2, KERNELS if full else "", patience)
    assert not wrong, wrong[0]
