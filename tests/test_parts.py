"""Folders that several processes convert: parts, executors, lost workers."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import nullcontext, suppress
from threading import Event, Thread

import numpy as np
import pytest
import scheme_fixtures
from test_convert_memory import sparse_fp8

import shapejit as sj
from shapejit.__main__ import main

distributed = pytest.importorskip("distributed")

MIXED = ["fp8-channel-f32", "awq-gemm", "gptq-4bit-v2", "int4-ct-group32",
         "mxfp4-gpt-oss-gate-up", "nvfp4-modelopt", "bnb-nf4"]  # fmt: skip
RULES = [("to", "f32"), ("stack", "experts.#"), ("permute", "plain.turned=1,0"),
         ("cast", "plain.cast=BF16"), ("split", r"(.*down_proj\.weight)=0:\1.a,\1.b"),
         ("rename", r"s/1\.(.*)/one.\1/")]  # fmt: skip
SIZES = {"max_shard_size": 150_000}


def mixed(path):
    """A folder of four shards: weights of several schemes, plain tensors, a config, a text."""
    rng, tensors, places = np.random.default_rng(5), {}, {}
    for k in range(2):
        for name in MIXED:
            for key, x in scheme_fixtures.named(name).checkpoint().items():
                tensors[f"{k}.{name}.{key}"] = x
    down = sj.schemes["fp8:channel"].encode(rng.standard_normal((64, 96)).astype(np.float32))
    tensors |= {f"0.down_proj.{key}": x for key, x in down.items()}
    for name in ("turned", "cast", "as.it.is"):
        tensors[f"plain.{name}"] = rng.standard_normal((120, 110)).astype(np.float32)
    for k in range(9):
        tensors[f"moe.experts.{k}.w"] = rng.standard_normal((40, 30)).astype(np.float32)
    path.mkdir()
    for k, name in enumerate(tensors):
        places[name] = f"model-0000{1 + k % 4}-of-00004.safetensors"
    for shard in set(places.values()):
        own = {name: x for name, x in tensors.items() if places[name] == shard}
        sj.save_file(own, path / shard, metadata={"format": "pt"})
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (path / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    (path / "notes").mkdir()
    (path / "notes" / "a.txt").write_text("mine")
    return path


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return mixed(tmp_path_factory.mktemp("source") / "in")


@pytest.fixture(scope="module")
def wanted(source):
    """What one process makes of it."""
    target = source.parent / "out"
    sj.files.convert(source, target, RULES, **SIZES)
    assert len(list(target.glob("*.safetensors"))) > 1
    return contents(target)


def convert(source, target, rules=RULES, **options):
    return sj.files.convert(source, target, rules, proof=False, **SIZES, **options)


def hidden(folder):
    """The hidden folder beside a destination."""
    (found,) = folder.glob(".out.shapejit-*")
    return found


def check_alone(target, wanted):
    """The folder is as it should be, and nothing lies beside it."""
    assert contents(target) == wanted
    assert os.listdir(target.parent) == [target.name]


@pytest.fixture(scope="module", autouse=True)
def patient():
    """Processes that are started here may do small work with NumPy: that begins sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SHAPEJIT_PATIENCE", raising=False)
        yield


@pytest.fixture(scope="module")
def client(patient):
    """Two worker processes of dask's on loopback."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


# Parts


def test_parts_in_any_order_make_the_folder_of_one_run(source, wanted, tmp_path):
    target, count = tmp_path / "out", 0
    for part in (3, 1, 4, 3, 2):
        report = convert(source, target, part=(part, 4))
        count += report.bytes_written if part != 3 else report.bytes_written // 2
        assert not target.exists()
    committed = convert(source, target, commit=4)
    assert (committed.bytes_read, committed.bytes_written) == (0, 0)
    assert count == sum(x.nbytes for x in sj.load_file(target).values())
    check_alone(target, wanted)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_more_parts_than_shards(count, tmp_path):
    """A part without a shard has nothing to do, and says so; empty tensors are written, too."""
    tensors = {"a": np.ones((1, 100), np.float32), "b": np.ones((0, 4), np.float32)}
    (tmp_path / "in").mkdir()
    sj.save_file(tensors, tmp_path / "in" / "model.safetensors")
    for part in range(count, 0, -1):
        report = sj.files.convert(tmp_path / "in", tmp_path / "out", part=(part, count))
        assert (report.tensors, report.bytes_written) == ((2, 400) if part == 1 else (0, 0))
        assert len(os.listdir(tmp_path)) == 1 + (part == 1)
    sj.files.convert(tmp_path / "in", tmp_path / "out", commit=count)
    found = sj.load_file(tmp_path / "out" / "model.safetensors")
    assert {name: x.shape for name, x in found.items()} == {"a": (1, 100), "b": (0, 4)}
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


KILLED = """
import os, random, shutil, signal, sys
from pathlib import Path
import shapejit as sj
from shapejit.files import writing
sys.path.insert(0, sys.argv[3])
import test_parts
source, home, seed = Path(sys.argv[1]), Path(sys.argv[2]), random.Random(4)
write, opened = writing.write_all, []
def killed(after, **options):
    '''Whether a child that converts was killed at a moment in the middle of a write.'''
    child = os.fork()
    if child == 0:
        left = iter(range(after))
        def write_all(descriptor, data):
            if next(left, None) is None:
                write(descriptor, data[:len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            write(descriptor, data)
        writing.write_all = write_all
        test_parts.convert(source, home / "out", **options)
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL
test_parts.convert(source, home / "once")  # children need not load kernels
parts, deaths = [1, 2, 3] * 2, 0
seed.shuffle(parts)
for part in parts:
    died = killed(seed.randrange(10), part=(part, 3))
    deaths += died
    assert not (home / "out").exists()
for part in range(3, 0, -1):
    killed(10**9, part=(part, 3), resume=part % 2 == 0)
test_parts.convert(source, home / "out", commit=3)
first = test_parts.contents(home / "out")
assert first == test_parts.contents(home / "once")
shutil.rmtree(home / "once")
for options in ({"executor": "threads:2"}, {}):
    assert killed(15, resume=True, **options)
    assert [name[:14] for name in sorted(os.listdir(home))] == [".out.shapejit-", "out"]
    test_parts.convert(source, home / "out", resume=True, **options)
    assert test_parts.contents(home / "out") == first
    assert os.listdir(home) == ["out"]
print(deaths)
"""


def test_parts_and_runs_that_are_killed_while_they_write(source, wanted, tmp_path):
    command = [sys.executable, "-c", KILLED, source, tmp_path, os.path.dirname(__file__)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 2
    check_alone(tmp_path / "out", wanted)


def refused(text, source, target, *given, **options):
    """A call that says `text`, and publishes nothing."""
    with pytest.raises(sj.ShapeJitError) as caught:
        convert(source, target, *given, **options)
    assert text in str(caught.value)
    assert not target.exists()


def test_plans_that_do_not_fit_are_refused(source, tmp_path):
    own, target = tmp_path / "in", tmp_path / "out"
    shutil.copytree(source, own)
    refused("no part of this conversion was written", own, target, commit=3)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    convert(own, target, part=(2, 3))
    refused("model-00001-of-00003.safetensors is missing, or is not as planned: run --part 1/3 "
            "(and 3)", own, target, commit=3)  # fmt: skip
    for part in (1, 3):
        convert(own, target, part=(part, 3))
    refused("no part of this conversion was written", own, target, RULES[:-1], commit=3)
    for options in ({"part": (1, 3)}, {"resume": True}):
        refused("had another list of rules", own, target, RULES[:-1], **options)
        with pytest.raises(sj.FileFormatError, match="had another set of files"):
            sj.files.convert(own, target, RULES, proof=False, **options)
    refused("had another list of rules", own, target, saturate=False, part=(1, 3))
    os.utime(own / "model-00002-of-00004.safetensors")
    refused("had another source: to start again, remove", own, target, part=(1, 3))
    refused("had another source: it cannot be resumed", own, target, resume=True)
    refused("no part of this conversion was written", own, target, commit=3)
    refused("has no executor", own, target, commit=3, executor="threads")
    convert(own, target)  # which begins anew
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


@pytest.mark.parametrize("damage", ["missing", "shorter", "header"])
def test_shards_that_are_not_as_planned(damage, source, wanted, tmp_path):
    target = tmp_path / "out"
    for part in (1, 2):
        convert(source, target, part=(part, 2))
    shard = sorted(hidden(tmp_path).glob("*.safetensors"))[-1]
    good = shard.read_bytes()
    shard.unlink()
    if damage != "missing":
        shard.write_bytes(good[:-1] if damage == "shorter" else good.replace(b'"F32"', b'"I32"', 1))
    number = 2 - int(shard.name[6:11]) % 2
    refused(f"{shard.name} is missing, or is not as planned: run --part {number}/2", source, target,
            commit=2)  # fmt: skip
    reported = []
    convert(source, target, part=(number, 2), resume=True, progress=reported.append)
    assert shard.read_bytes() == good
    convert(source, target, commit=2)
    check_alone(target, wanted)


def test_a_resumed_part_writes_what_is_missing(source, wanted, tmp_path):
    target = tmp_path / "out"
    convert(source, target, part=(1, 1))
    shards = sorted(hidden(tmp_path).glob("*.safetensors"))
    shards[1].unlink()
    before = {path: path.stat().st_mtime_ns for path in shards if path.exists()}
    report = convert(source, target, part=(1, 1), resume=True)
    written = sum(x.nbytes for x in sj.load_file(shards[1]).values())
    assert report.bytes_written == written
    assert 0 < report.bytes_read < sum(x.nbytes for x in sj.load_file(source).values())
    assert {path: path.stat().st_mtime_ns for path in before} == before
    convert(source, target, commit=1)
    check_alone(target, wanted)


def test_a_plan_says_what_was_planned(source, tmp_path):
    convert(source, tmp_path / "out", part=(1, 2))
    plan = json.loads((hidden(tmp_path) / ".shapejit-plan.json").read_text())
    assert plan["version of shapejit"] == sj.__version__
    assert "--stack experts.#" in plan["list of rules"]
    assert [name for name, _ in plan["source"][:-1]] == sorted(
        p.name for p in source.glob("*.safetensors")
    )
    assert len(plan["set of files"]) == 3


def test_a_part_and_a_whole_conversion_at_the_same_time(source, tmp_path):
    def another(_):
        if reported:
            return
        reported.append(1)
        refused("another conversion is writing it", source, tmp_path / "out")
        refused("another conversion is writing it", source, tmp_path / "out", commit=2)

    def part(_):
        if reported:
            reported.clear()
            convert(source, tmp_path / "out", part=(1, 2))

    reported = []
    convert(source, tmp_path / "out", part=(2, 2), progress=another)
    assert reported  # it was called
    convert(source, tmp_path / "out", part=(2, 2), progress=part)  # others may take part
    assert not reported
    convert(source, tmp_path / "out", commit=2)


@pytest.mark.parametrize(
    "given",
    [
        *({"part": p} for p in [(0, 3), (4, 3), (-1, 3), (1, 0), (1.5, 3), ("1", "3"), 3, "1/3"]),
        *({"commit": n} for n in [0, -1, 1.5, "2"]),
        {"part": (1, 2), "commit": 2},
    ],
)
def test_numbers_of_parts_that_cannot_be_are_refused(given, source, tmp_path):
    with pytest.raises(sj.FormatError, match=r"^(part|commit) .* is not |not both"):
        sj.files.convert(source, tmp_path / "out", proof=False, **given)
    assert not os.listdir(tmp_path)


def test_parts_are_folders(source, tmp_path):
    for given in ({"part": (1, 2)}, {"commit": 2}, {"executor": "threads"}):
        with pytest.raises(sj.FileFormatError, match="need folders as source and destination"):
            sj.files.convert(source, tmp_path / "out.npz", RULES, **given)
    assert not os.listdir(tmp_path)


def test_a_folder_is_verified_before_it_appears(source, wanted, tmp_path, monkeypatch):
    target = tmp_path / "out"
    convert(source, target, verify=True)
    check_alone(target, wanted)
    replacing = os.replace

    def damaged(first, second, **options):
        if str(second).endswith("2-of-00003.safetensors"):
            with open(first, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read(1)
                file.seek(-1, os.SEEK_END)
                file.write(bytes([last[0] ^ 1]))
        replacing(first, second, **options)

    monkeypatch.setattr(os, "replace", damaged)
    with pytest.raises(sj.FileFormatError, match=r"tensor '.*': its bytes in model-00002-of"):
        convert(source, target, verify=True)
    check_alone(target, wanted)


def test_parts_on_the_command_line(source, wanted, tmp_path, capsys):
    out = str(tmp_path / "out")
    rules = [word for kind, text in RULES for word in (f"--{kind}", text)]
    words = ["convert", str(source), out, *rules, "--max-shard-size", "150000", "--no-proof",
             "--json"]  # fmt: skip
    assert main([*words, "--commit", "2"]) == 2
    assert "no part of this conversion was written" in capsys.readouterr().err
    for word in ("0/2", "3/2"):
        assert main([*words, "--part", word]) == 2
        assert f"part {word} is not I/N with I from 1 to N" in capsys.readouterr().err
    for word in ("2", "a/b", "/", "1/2/3"):
        assert main([*words, f"--part={word}"]) == 2
        said = f"argument --part: '{word}' is not I/N with I from 1 to N "
        assert said in capsys.readouterr().err
    for word in ("0", "-1"):
        assert main([*words, f"--commit={word}"]) == 2
        assert "is not a number of parts" in capsys.readouterr().err
    for more in (["--part", "2/9"], ["--part", "1/9"], ["--part", "3/9"], ["--part", "9/9"]):
        assert main([*words, *more]) == 0
    assert capsys.readouterr().out.count('"tensors": 0,') == 1
    assert main([*words, "--commit", "9"]) == 0
    check_alone(tmp_path / "out", wanted)
    assert main([*words, "--executor", "threads"]) == 0
    check_alone(tmp_path / "out", wanted)
    assert main([*words, "--executor", "theads"]) == 2
    assert "unknown executor 'theads'; known are threads[:N]" in capsys.readouterr().err


# Executors


def test_what_is_no_executor_and_what_has_none(source, tmp_path):
    for given in ("dask://", "dask://a", "threads:0", "processes:1"):
        refused("unknown executor", source, tmp_path / "out", executor=given)
    refused("has a method submit", source, tmp_path / "out", executor=3)
    one = source / "model-00001-of-00004.safetensors"
    with pytest.raises(sj.FileFormatError, match="need folders as source and destination"):
        sj.files.convert(one, tmp_path / "out.safetensors", executor="threads")
    assert not os.listdir(tmp_path)


def one_process():
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


POOLS = {
    "named": lambda: nullcontext("threads:3"),
    "threads": lambda: ThreadPoolExecutor(2),
    "process": one_process,
}


@pytest.mark.parametrize("pool", POOLS)
def test_executors_make_the_same_folder(pool, source, wanted, tmp_path):
    reported = []
    with POOLS[pool]() as executor:
        report = convert(source, tmp_path / "out", executor=executor, progress=reported.append)
    check_alone(tmp_path / "out", wanted)
    assert sum(reported) == report.bytes_written


def test_a_part_by_threads(source, wanted, tmp_path):
    for part in (1, 2):
        convert(source, tmp_path / "out", part=(part, 2), executor="threads:2")
    convert(source, tmp_path / "out", commit=2)
    check_alone(tmp_path / "out", wanted)


@pytest.mark.parametrize("kind", ["hard", "symbolic"])
def test_a_file_that_has_another_name_is_not_written(kind, source, wanted, tmp_path):
    """What stands in the hidden folder under the names of files may be anybody's: it stays."""
    target, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("mine")
    convert(source, target, part=(1, 2))
    for name in ("model-00002-of-00003.safetensors", "config.json", "notes"):
        if kind == "hard":
            os.link(precious, hidden(tmp_path) / name)
        else:
            (hidden(tmp_path) / name).symlink_to(precious)
    convert(source, target, part=(2, 2))
    convert(source, target, commit=2)
    assert precious.read_text() == "mine"
    assert contents(target) == wanted


# In the process that writes shards: the second one never gets its name.
WAITS = """
import re, sys, time
def wait(event, given):
    if event == "os.rename" and re.search("model-0000[23]-of-00003", str(given[1])): time.sleep(600)
sys.addaudithook(wait)
"""


def test_a_process_that_is_killed_ends_the_run(source, tmp_path, tmp_path_factory, monkeypatch):
    places = [tmp_path_factory.mktemp("site"), os.environ.get("PYTHONPATH", "")]
    (places[0] / "sitecustomize.py").write_text(WAITS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, filter(None, places))))

    def kill(_):
        for process in pool._processes.values():  # other tests have children, too
            process.kill()

    text = r"model-0000.-of-00003.safetensors: BrokenProcessPool"
    for resume, left in ((False, 0), (True, 1)):
        with one_process() as pool, pytest.raises(sj.FormatError, match=text):
            convert(source, tmp_path / "out", executor=pool, progress=kill, resume=resume)
        assert len(os.listdir(tmp_path)) == left
    (first,) = hidden(tmp_path).glob("*.safetensors")
    written = first.stat().st_mtime_ns
    convert(source, tmp_path / "out", resume=True)
    assert (tmp_path / "out" / first.name).stat().st_mtime_ns == written


def test_a_cluster_of_which_a_worker_is_killed_in_the_middle(client, source, wanted, tmp_path):
    workers = list(client.run(os.getpid).values())
    reported = []

    def kill(count):
        if not reported:
            os.kill(workers[0], signal.SIGKILL)
        reported.append(count)

    convert(source, tmp_path / "out", executor=client, progress=kill)
    assert workers[0] not in client.run(os.getpid, on_error="return").values()
    check_alone(tmp_path / "out", wanted)


def test_a_late_writer_of_a_shard_leaves_nothing(source, wanted, tmp_path):
    """As in a cluster that computes a shard again, since a worker that had done it was killed."""
    ended, begun = Event(), 0

    def write_late():
        nonlocal begun
        while not ended.is_set():
            # Hexadecimal: the folder in which shards are written.
            for folder in tmp_path.glob(".out.shapejit-*[0-9a-f]"):
                with suppress(OSError):
                    (folder / f".shapejit-{os.urandom(16).hex()}.tmp").touch(exist_ok=False)
                    begun += 1

    late = Thread(target=write_late)
    late.start()
    try:
        convert(source, tmp_path / "out")
        convert(source, tmp_path / "out")  # replaces a folder
    finally:
        ended.set()
        late.join()
    assert begun > 0
    check_alone(tmp_path / "out", wanted)


def test_an_interrupted_run_goes_on_by_a_cluster(client, source, wanted, tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    for resume, left in ((False, 0), (True, 1)):
        with pytest.raises(KeyboardInterrupt):
            convert(source, tmp_path / "out", executor="threads:1", progress=stop, resume=resume)
        assert len(os.listdir(tmp_path)) == left
    convert(source, tmp_path / "out", executor=client, resume=True)
    check_alone(tmp_path / "out", wanted)


def test_the_scheduler_of_dask_by_its_address(client, source, wanted, tmp_path):
    address = client.scheduler.address.removeprefix("tcp://")
    convert(source, tmp_path / "out", executor=f"dask://{address}")
    check_alone(tmp_path / "out", wanted)


class First(Executor):
    """Another executor, before whose first work a function is called."""

    def __init__(self, inner, first):
        self.inner, self.first = inner, [first]

    def submit(self, *given):
        while self.first:
            self.first.pop()()
        return self.inner.submit(*given)


def test_a_worker_that_sees_another_source_refuses(client, source, tmp_path):
    shutil.copytree(source, tmp_path / "in")
    shard = tmp_path / "in" / "model-00001-of-00004.safetensors"
    changed = First(client.get_executor(pure=False), lambda: os.utime(shard, (1, 1)))
    refused("differs: it needs the same source", tmp_path / "in", tmp_path / "out",
            executor=changed)  # fmt: skip
    assert os.listdir(tmp_path) == ["in"]


class Failing(Executor):
    """One whose items end in an error."""

    def __init__(self, fault):
        self.fault, self.count = fault, 0

    def submit(self, call, *given):
        future, self.count = Future(), self.count + 1
        future.set_exception(self.fault)
        return future


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (MemoryError("no room"), "safetensors: MemoryError: no room"),
        (sj.FormatError("it is odd"), "it is odd"),
        (BrokenExecutor("gone"), "BrokenExecutor: gone"),
    ],
)
def test_errors_of_workers_name_a_shard_and_leave_no_trace(fault, text, source, tmp_path):
    failing = Failing(fault)
    refused(text, source, tmp_path / "out", executor=failing)
    assert not os.listdir(tmp_path)


def test_workers_take_little_memory(client, tmp_path):
    """Two weights of 64 MiB, of which the file is a hole: little more than pieces of them."""
    sparse_fp8(tmp_path / "in", 2, 2**13)

    def most():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    rules, target = [("to", "bf16")], tmp_path / "out"
    sj.files.convert(tmp_path / "in", target, [("select", "0.*"), *rules], executor=client,
                     max_shard_size="64MiB", proof=False)  # fmt: skip
    before = client.run(most)
    sj.files.convert(tmp_path / "in", target, rules, executor=client)
    for worker, now in client.run(most).items():
        assert now - before[worker] < 96 << 20
    assert (target / "model.safetensors").stat().st_size > 2 * 2 * 2**13 * 4096
