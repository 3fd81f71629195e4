"""Kernels are built by other processes, whose failures never cost a result."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import shapejit as sj
from shapejit.runtime.kernels import compiled

pytestmark = pytest.mark.skipif(not compiled(), reason="nothing is compiled with the JIT off")

HANGS = 900  # seconds after which a process is taken to hang, on busy machines, too

# Copies that kernels make once they are ready, and what became of these.
PRELUDE = """
import logging, os, sys, time
import numpy as np, shapejit as sj
logging.basicConfig(format="%(message)s")
x = np.arange(1500 * 2000, dtype=np.uint32).reshape(1500, 2000)
wanted = np.ascontiguousarray(x[:, ::-1])  # by a kernel that is compiled quickly
def copy(): assert (sj.ascontiguous(x[:, ::-1]) == wanted).all()
def states(): return {state.state for state in sj.kernel_status().values()}
def states_of(name): return {v.state for k, v in sj.kernel_status().items() if name in k}
def copies(until):
    # What was asked for may be ready before this thread sees it.
    while not {until, "ready"} & states_of("shuffle_blocks"):
        copy()
        time.sleep(0.05)  # which leaves the core to the builder
    copy()
"""


def run(code, folder, patience="0.001", *arguments, **environment):
    """Run code in a new process: what it wrote to stderr."""
    command = [sys.executable, "-W", "error", "-c", PRELUDE + code, *map(str, arguments)]
    variables = {"NUMBA_CACHE_DIR": str(folder), "SHAPEJIT_PATIENCE": patience, **environment}
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def objects(folder):
    return sorted(Path(folder).rglob("*.o"))


COPY_ALL = "copies('ready'); assert states() == {'ready'}, sj.kernel_status()"


def anybodys(folder):
    """A folder where everybody may write object files."""
    (folder / "all" / "shapejit").mkdir(parents=True)
    (folder / "all" / "shapejit").chmod(0o777)
    return folder / "all"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder with all that the copy takes."""
    folder = tmp_path_factory.mktemp("cache")
    run("copy(); assert states() == {'ready'}, sj.kernel_status()", folder, "0")
    return folder


def test_numpy_does_the_work_until_a_builder_has_done_its(tmp_path):
    code = "copies('ready'); assert not {'numba', 'shapejit.builder'} & set(sys.modules)"
    assert run(code, tmp_path) == ""
    assert objects(tmp_path)


def test_kernels_that_are_on_disk_are_loaded(cache):
    code = """
copies('ready')
assert states() == {'ready'} and 'numba' not in sys.modules
files = {kernel.file for kernel in sj.kernel_status().values()}
assert files <= set(sys.argv[1:]), files
"""
    assert run(code, cache, "inf", *objects(cache)) == ""


def test_whoever_has_infinite_patience_asks_for_nothing(tmp_path):
    code = "end = time.monotonic() + 1\nwhile time.monotonic() < end or not states(): copy()\n"
    assert run(code + "assert states() == {'missing'}", tmp_path, "inf") == ""
    assert not objects(tmp_path)


# What is logged of one request.
FAILED_TWICE = ["a kernel builder failed", "kernel shapejit_"]

BROKEN = {
    "ends": "exit 3",
    "is killed": "kill -9 $$",
    "writes rubbish": "echo '[1, 2'; exec sleep 60",
    "writes another thing": "echo 7; exec sleep 60",
    "hangs": "exec sleep 600",
    "leaves a child that holds the pipe": "sleep 30 & exit 3",
    "is not there": None,
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_builder_that_fails_costs_a_line_of_the_log(what, tmp_path):
    script = tmp_path / "python"
    if BROKEN[what] is not None:
        script.write_text(f"#!/bin/sh\n{BROKEN[what]}\n")
        script.chmod(0o755)
    code = """
from shapejit.runtime import building
building.SILENCE = 0.3
sys.executable = sys.argv[1]
"""
    if BROKEN[what] is None:  # then this process builds by itself
        assert run(code + "copies('ready')", tmp_path, "0.001", script) == ""
        return
    words = run(code + "copies('failed')", tmp_path, "0.001", script)
    lines = words.splitlines()
    assert len(lines) == len(FAILED_TWICE), words
    assert all(map(str.startswith, lines, FAILED_TWICE)), words


@pytest.mark.parametrize("earlier", [True, False])
def test_a_process_that_builds_by_itself_compiles_other_functions_as_always(earlier, tmp_path):
    code = f"""
import numba
sys.executable = ""
@numba.njit
def made(count):
    arrays = [np.zeros(count), np.ones(count)]
    return max(arrays[1].sum(), (arrays[0] + 1).prod())
assert not {earlier} or made(4) == 4
copies("ready")
assert made(5) == 5 and numba.njit(lambda values: values.prod())(np.arange(1, 5)) == 24
"""
    assert run(code, tmp_path) == ""


def test_a_builder_that_is_killed_is_followed_by_another(tmp_path):
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\nmkdir {tmp_path}/first && kill -9 $$\nexec {sys.executable} "$@"'
    )
    script.chmod(0o755)
    words = run("sys.executable = sys.argv[1]; copies('ready')", tmp_path, "0.001", script)
    line = "a kernel builder failed, another one continues: it ended (exit code -9)\n"
    assert words == line


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "empty", "exchanged", "anybody's"])
def test_a_damaged_or_foreign_object_file_is_never_loaded(damage, cache, tmp_path):
    folder = tmp_path / "shapejit"
    folder.mkdir()
    content = {path.name: path.read_bytes() for path in objects(cache)}
    others = dict(zip(content, [*content.values()][1:] + [*content.values()][:1], strict=True))
    for name, whole in content.items():
        middle = len(whole) // 2
        (folder / name).write_bytes(
            {
                "cut": whole[:-1],
                "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
                "foreign": b"damaged",
                "empty": b"",
                "exchanged": others[name],
                "anybody's": whole,
            }[damage]
        )
        (folder / name).chmod(0o666 if damage == "anybody's" else 0o644)
    code = "end = time.monotonic() + 0.5\nwhile time.monotonic() < end or not states(): copy()\n"
    assert run(code + "assert states() == {'missing'}, states()", tmp_path, "inf") == ""
    if damage in ("changed", "anybody's"):  # built anew, as whatever is missing
        assert run("copy(); assert states() == {'ready'}", tmp_path, "0") == ""


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="who may write a folder is POSIX's to say")
@pytest.mark.parametrize("theirs", [anybodys, lambda folder: folder / "file"])
def test_code_comes_through_the_pipe_where_there_is_no_folder_to_trust(theirs, tmp_path):
    (tmp_path / "file").write_text("")
    reported = run(COPY_ALL, theirs(tmp_path), "0", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert reported.count("\n") == reported.count("kernels cannot be stored on disk") == 1
    assert "set NUMBA_CACHE_DIR to a folder" in reported
    assert not objects(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="systems have caches in folders of their own")
def test_what_may_not_be_kept_where_all_do_is_kept_for_this_user(tmp_path):
    own = {"XDG_CACHE_HOME": str(tmp_path / "own")}
    (tmp_path / "file").write_text("")
    for folder in (anybodys(tmp_path), tmp_path / "file"):
        assert run(COPY_ALL, folder, "0", **own) == ""
        assert objects(tmp_path) == objects(tmp_path / "own")
    assert run(COPY_ALL, folder, "inf", **own) == ""


def test_several_processes_that_ask_at_once_find_what_one_has_built(tmp_path):
    command = [sys.executable, "-c", PRELUDE + "copy(); assert states() == {'ready'}"]
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "SHAPEJIT_PATIENCE": "0"}
    processes = [subprocess.Popen(command, env=variables) for _ in range(3)]
    assert [process.wait(HANGS) for process in processes] == [0, 0, 0]
    assert objects(tmp_path) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


# A builder that finishes its work on busy machines, too, and says when it has been asked for some.
PATIENT = """
import pickle
from pathlib import Path
from shapejit.builder import __main__ as builder
loads = pickle.loads
def reported(content):
    (Path(__file__).parent / "python-begun").touch()
    return loads(content)
builder.LEFT, pickle.loads = 900.0, reported
builder.main()
"""


def test_a_process_that_ends_leaves_kernels_behind(tmp_path):
    (tmp_path / "patient.py").write_text(PATIENT)
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/patient.py\n")
    script.chmod(0o755)
    code = "sys.executable = sys.argv[1]; copies('asked for')\n"
    code += "while not os.path.exists(sys.argv[1] + '-begun'): time.sleep(0.01)"
    assert run(code, tmp_path, "0.001", script) == ""
    end = time.monotonic() + HANGS
    while not objects(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_forked_child_asks_by_itself(tmp_path):
    code = """
copies('asked for')
child = os.fork()
if child == 0:
    code = 1
    try: copies('ready'); code = 0
    finally: os._exit(code)
assert os.waitpid(child, 0)[1] == 0
copies('ready')
"""
    run(code, tmp_path, "0.001", PYTHONWARNINGS="ignore")


# Sees what is imported with numba, and writes down whether that process is a builder.
WATCHED = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "numba.core":
            with open(os.environ["WATCHED"], "a") as file:
                builder = "shapejit.builder.__main__" in sys.modules
                print("builder" if builder else sys.orig_argv, file=file)
sys.meta_path.insert(0, Watch())
"""


def test_no_command_imports_numba(tmp_path):
    """Nor do its children, but for builders."""
    (tmp_path / "sitecustomize.py").write_text(WATCHED)
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    sj.save_file({"w": np.ones((64, 512), np.float32)}, source / "model.safetensors")
    rules = ["--permute", "w=1,0", "--cast", "w=F16", "--executor", "threads:2"]
    commands = (
        ["convert", str(source), str(target), *rules],
        ["warmup", "--only", "programs"],
        ["bench", "--suite", "small", "--quick", "--rounds", "1", "--peer", "numpy"],
        ["demo"],
        ["verify", str(target), str(target)],
        ["inspect", str(target)],
    )
    places = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    watched = tmp_path / "watched"
    variables = {"WATCHED": str(watched), "PYTHONPATH": os.pathsep.join(filter(None, places))}
    variables["SHAPEJIT_PATIENCE"] = "0"
    for k, words in enumerate(commands):
        # The first finds no kernels: that its builders are seen shows that others would be, too.
        cache = {"NUMBA_CACHE_DIR": str(tmp_path)} if k == 0 else {}
        own = {**os.environ, **variables, **cache}
        command = [sys.executable, "-m", "shapejit", *words]
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=HANGS)
        assert done.returncode == 0, done.stderr
    assert set(watched.read_text().split()) == {"builder"}
