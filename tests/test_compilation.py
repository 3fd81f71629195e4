"""Signals, forks, exits and damaged files while kernels are compiled and loaded."""

import ast
import shutil
from pathlib import Path

import pytest
from sweeps import EVENTS, PRELUDE, run, sweep

import shapejit as sj
from shapejit.kernels.jit import COMPILED, kernel

pytestmark = pytest.mark.skipif(not COMPILED, reason="nothing is compiled with the JIT off")

ROOT = Path(sj.__file__).parent


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder with all that two kinds of copies take, filled by two processes at once."""
    folder = str(tmp_path_factory.mktemp("cache"))
    assert sweep("fork", [0.0, 0.0], 2, folder) == []
    return folder


@pytest.mark.parametrize("event", [event for event in EVENTS if event != "interrupts"])
def test_every_moment_of_loading(event, cache):
    assert sweep(event, [0.05, 0.3], 2, cache) == []


@pytest.mark.parametrize("event", ["fork", "fork in a signal handler", "exit"])
def test_moments_of_compilation(event):
    assert sweep(event, [0.5, 1.2], 1) == []


def test_interrupts(cache):
    assert sweep("interrupts", [0.003, 0.03], 2, cache) == []
    assert sweep("interrupts", [0.01, 0.3], 1) == []


ODDITIES = {
    "no thread can be started": """
import _thread, threading
def refuse(*_): raise RuntimeError("can't start new thread")
_thread.start_new_thread = refuse
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
    "calls of compiled kernels start no threads": """
import _thread
started, start = [], _thread.start_new_thread
_thread.start_new_thread = lambda *call: (started.append(call), start(*call))[1]
"""
    + PRELUDE
    + "copies(); copies(); before = len(started); copies(); assert 0 < before == len(started)",
    "a first copy while the interpreter ends": """
import atexit, os
@atexit.register
def late():
    try: copies()
    except BaseException: os._exit(1)
"""
    + PRELUDE,
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
    "a signal handler raises when a file of the cache is opened": PRELUDE
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


@pytest.mark.parametrize("oddity", ODDITIES)
def test_first_copies_at_odd_times(oddity, cache):
    assert run(ODDITIES[oddity], cache, 0, 2) == ""


def test_what_a_compilation_raises_reaches_the_caller():
    import numba

    @kernel
    def wrong(x):
        return x.there_is_no_such_attribute

    for _ in range(2):
        with pytest.raises(numba.TypingError, match="there_is_no_such_attribute"):
            wrong(1)


# A copy of the package with two kernels of its own, so that a compilation takes no time, and
# a function of machine code.
KERNELS = """
from ctypes import CFUNCTYPE, c_int64
from llvmlite import ir
from . import llvm
from .jit import kernel
from .machine_code import machine_code

@kernel
def one_more(x): return x + 1

@kernel
def two_more(x): return x + 2

written = []
def write(function, what):
    written.append(what)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.ret(llvm.number(what))
def called(what):
    address = machine_code("probe", ir.FunctionType(llvm.I64, []), write, what)
    return CFUNCTYPE(c_int64)(address)()
"""

# Children see what a new process would see, without importing numba anew.
PROBES = """
import os, sys
from pathlib import Path
import ml_dtypes, numba, numpy.ma, tqdm
numba.njit(lambda x: x)(1)
def compiled():
    "How many of both kernels and the function a process compiles."
    child = os.fork()
    if child == 0:
        try:
            from shapejit.kernels import probes
            assert (probes.one_more(1), probes.two_more(1), probes.called(4)) == (2, 3, 4)
            both = probes.one_more.stats, probes.two_more.stats
            misses = sum(sum(stats.cache_misses.values()) for stats in both)
            os._exit(misses + len(probes.written))
        except BaseException: sys.excepthook(*sys.exc_info())
        finally: os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def check(wanted, why):
    found = compiled()
    assert found == wanted, f"{found} compilations instead of {wanted} {why}"
cache = Path(os.environ["NUMBA_CACHE_DIR"])
check(3, "at first")
check(0, "from the cache")
"""


@pytest.fixture
def package(tmp_path):
    copy = tmp_path / "shapejit"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "probes.py").write_text(KERNELS)
    return copy


# What the system has, and what numba was told, is compiled into no kernel.
UNCOMPILED = "system.py", "numba_settings.py"


def sources(package):
    """The kernels' files and all of the package that they import, as the interpreter sees it."""
    found, ahead = set(), sorted(package.glob("kernels/*.py"))
    while ahead:
        file = ahead.pop()
        if file in found:
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = file.parents[node.level - 1]
                names = [node.module] if node.module else [alias.name for alias in node.names]
                files = [folder / f"{name.replace('.', '/')}.py" for name in names]
                ahead += [f for f in files if f.exists() and f.name not in UNCOMPILED]
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("shapejit") for alias in node.names)
    return sorted(found)


def test_an_edit_of_any_source_file_of_kernels_compiles_them_anew(package, tmp_path):
    """Even one that leaves size and time of the file as they were."""
    edits = """
for name in sys.argv[1:]:
    file = Path(name)
    source, times = file.read_bytes(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    assert source.endswith(b"\\n") or not source
    file.write_bytes(source[:-1] + b" ")
    os.utime(file, ns=times)
    check(3, f"after an edit of {name}")
check(0, "from the cache")
"""
    files = sources(package)
    assert {"jit.py", "arithmetic.py"} < {file.name for file in files}
    assert run(PROBES + edits, str(tmp_path / "cache"), *files, home=tmp_path) == ""


def test_an_edit_of_what_kernels_do_not_compile_compiles_nothing(package, tmp_path):
    edits = """
for name in sys.argv[1:]:
    file = Path(name)
    file.write_bytes(file.read_bytes() + b"# edited\\n")
    check(0, f"after an edit of {name}")
"""
    others = sorted({*package.rglob("*.py")} - {*sources(package)})
    assert {"errors.py", "resolver.py"} < {file.name for file in others}
    assert run(PROBES + edits, str(tmp_path / "cache"), *others, home=tmp_path) == ""


def test_a_damaged_cache_file_is_compiled_anew(package, tmp_path):
    damages = """
def zeros(file, content):
    middle = len(content) // 2
    file.write_bytes(content[: middle - 100] + bytes(200) + content[middle + 100 :])
def cut(file, content): file.write_bytes(content[:-1])
def empty(file, content): file.write_bytes(b"")
def foreign(file, content): file.write_bytes(b"damaged")
for damage in (zeros, cut, empty, foreign):
    files = [file for file in cache.rglob("*") if file.is_file()]
    for file in files: damage(file, file.read_bytes())
    check(3, f"after damage by {damage.__name__}")
    check(0, "from the cache")
files = sorted(cache.rglob("*.nbc"))
contents = [file.read_bytes() for file in files]
for file, content in zip(files, contents[1:] + contents[:1], strict=True): file.write_bytes(content)
check(3, "after the files changed their names")
"""
    assert run(PROBES + damages, str(tmp_path / "cache"), home=tmp_path) == ""
