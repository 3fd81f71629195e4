"""Folders that several processes convert: parts and receipts, executors, lost workers."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import scheme_fixtures
from test_convert_memory import sparse_fp8

import shapejit as sj
from shapejit import conversion
from shapejit.__main__ import main
from shapejit.conversion import executors
from shapejit.conversion.open_files import OpenFiles
from shapejit.conversion.replacing import LocalFolder
from shapejit.files import checksums

distributed = pytest.importorskip("distributed")

MIXED = ["fp8-channel-f32", "awq-gemm", "gptq-4bit-v2", "int4-ct-group32",
         "mxfp4-gpt-oss-gate-up", "nvfp4-modelopt", "bnb-nf4"]  # fmt: skip
RULES = [("to", "f32"), ("stack", "experts.#"), ("permute", "plain.turned=1,0"),
         ("cast", "plain.cast=BF16"), ("split", r"(.*down_proj\.weight)=0:\1.a,\1.b"),
         ("rename", r"s/1\.(.*)/one.\1/")]  # fmt: skip
SIZES = {"max_shard_size": 150_000, "item_size": 20_000}


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
    sj.files.convert(source, target, RULES, max_shard_size=SIZES["max_shard_size"])
    assert len(list(target.glob("*.safetensors"))) > 1
    return contents(target)


def convert(source, target, rules=RULES, **options):
    return sj.files.convert(source, target, rules, proof=False, **SIZES, **options)


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
        yield client


# Parts


def test_parts_in_any_order_make_the_folder_of_one_run(source, wanted, tmp_path):
    target, count = tmp_path / "out", 0
    for part in (3, 1, 4, 3, 2):
        report = convert(source, target, part=(part, 4))
        count += report.bytes_written if part != 3 else report.bytes_written // 2
        assert not target.exists()
    committed = convert(source, target, commit=4)
    assert (committed.bytes_read, committed.bytes_written) == (count, 0)
    check_alone(target, wanted)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_empty_tensor_at_the_end_belongs_to_a_part(count, tmp_path):
    tensors = {"a": np.ones((1, 100), np.float32), "b": np.ones((0, 4), np.float32)}
    (tmp_path / "in").mkdir()
    sj.save_file(tensors, tmp_path / "in" / "model.safetensors")
    options = {"proof": False, "item_size": 64}
    for part in range(1, count + 1):
        sj.files.convert(tmp_path / "in", tmp_path / "out", part=(part, count), **options)
    sj.files.convert(tmp_path / "in", tmp_path / "out", commit=count, **options)
    found = sj.load_file(tmp_path / "out" / "model.safetensors")
    assert {name: x.shape for name, x in found.items()} == {"a": (1, 100), "b": (0, 4)}


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
    assert sorted(os.listdir(home)) == [".out.shapejit", "out"]
    test_parts.convert(source, home / "out", resume=True, **options)
    assert test_parts.contents(home / "out") == first
    assert os.listdir(home) == ["out"]
print(deaths)
"""


def test_parts_and_runs_that_are_killed_while_they_write(source, wanted, tmp_path):
    command = [sys.executable, "-c", KILLED, source, tmp_path, os.path.dirname(__file__)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 2
    check_alone(tmp_path / "out", wanted)


def refused(text, source, target, *given, **options):
    """A call that says `text`, and publishes nothing."""
    with pytest.raises(sj.ShapeJitError) as caught:
        convert(source, target, *given, **options)
    assert text in str(caught.value)
    assert not target.exists()


def test_receipts_that_do_not_fit_are_refused(source, tmp_path):
    own, target = tmp_path / "in", tmp_path / "out"
    shutil.copytree(source, own)
    refused("no part has left a receipt", own, target, commit=3)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    convert(own, target, part=(2, 3))
    refused("no whole receipt of part 1 (", own, target, commit=3)
    for part in (1, 3):
        convert(own, target, part=(part, 3))
    refused("part 1 of 3 had another list of rules", own, target, RULES[:-1], commit=3)
    refused("part 1 of 3 had another list of rules", own, target, RULES[:-1], part=(1, 3))
    refused("had another list of rules", own, target, saturate=False, commit=3)
    with pytest.raises(sj.FileFormatError, match="had another size of items"):
        sj.files.convert(own, target, RULES, max_shard_size=150_000, commit=3)
    with pytest.raises(sj.FileFormatError, match="had another set of files"):
        sj.files.convert(own, target, RULES, item_size=20_000, commit=3)
    os.utime(own / "model-00002-of-00004.safetensors")
    refused("part 1 of 3 had another source: if that is to be done anew, remove", own, target,
            part=(1, 3))  # fmt: skip
    refused("had another source: nothing is published", own, target, commit=3)
    refused("has no executor", own, target, commit=3, executor="threads")


def test_bytes_that_are_not_those_of_the_receipt(source, wanted, tmp_path):
    target, hidden = tmp_path / "out", tmp_path / ".out.shapejit"
    for part in (1, 2):
        convert(source, target, part=(part, 2))
    shard = sorted(hidden.glob("*.safetensors"))[-1]
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    refused(
        f"its bytes in {shard.name} are not those of the receipt: run --part",
        source,
        target,
        commit=2,
    )
    shard.write_bytes(good[:-1])
    refused(
        f"its bytes in {shard.name} are not those of the receipt: run --part",
        source,
        target,
        commit=2,
    )
    (receipt,) = hidden.glob(".*2-of-2*")
    for text in ("{", "[]", '{"facts": {}}', receipt.read_text().replace("items", "item")):
        kept = receipt.read_text()
        receipt.write_text(text)
        refused("there is no whole receipt of part 2", source, target, commit=2)
        receipt.write_text(kept)
    convert(source, target, part=(2, 2), resume=True)  # which does what is damaged again
    convert(source, target, commit=2)
    check_alone(target, wanted)


def test_receipts_name_tensors_ranges_and_the_algorithm(source, tmp_path, monkeypatch):
    """Without xxhash checksums are CRC-32s; parts may have other algorithms than others."""
    target = tmp_path / "out"
    convert(source, target, part=(1, 2))
    monkeypatch.setattr(checksums, "find_spec", lambda name: name == "zlib" or None)
    checksums.best.cache_clear()
    convert(source, target, part=(2, 2))
    checksums.best.cache_clear()
    found = [json.loads(p.read_text()) for p in sorted((tmp_path / ".out.shapejit").glob(".*"))]
    assert [(r["part"], r["checksum"]) for r in found] == [([1, 2], "xxh3_64"), ([2, 2], "crc32")]
    tensor, begin, end, check = found[0]["items"]["0"][1]
    assert tensor.startswith("0.fp8-channel-f32")
    assert end > begin > 0
    assert int(check, 16)
    assert {"source", "list of rules", "set of files", "version of shapejit"} <= set(
        found[0]["facts"]
    )
    convert(source, target, commit=2)


def test_a_checksum_whose_library_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(ImportError, match=r"pip install 'shapejit\[parts\]'"):
        checksums.digest("xxh3_64")


def test_a_part_and_a_whole_conversion_at_the_same_time(source, tmp_path):
    def another(_):
        if told:
            return
        told.append(1)
        refused("another conversion is writing it", source, tmp_path / "out")
        refused("another conversion is writing it", source, tmp_path / "out", commit=2)

    def part(_):
        if told:
            told.clear()
            convert(source, tmp_path / "out", part=(1, 2))

    told = []
    convert(source, tmp_path / "out", part=(2, 2), progress=another)
    assert told  # it was called
    convert(source, tmp_path / "out", part=(2, 2), progress=part)  # others may take part
    assert not told
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
        with pytest.raises(sj.FileFormatError, match="are for folders of shards"):
            sj.files.convert(source, tmp_path / "out.npz", RULES, **given)
    assert not os.listdir(tmp_path)


def test_parts_on_the_command_line(source, wanted, tmp_path, capsys):
    out = str(tmp_path / "out")
    rules = [word for kind, text in RULES for word in (f"--{kind}", text)]
    sizes = ["--max-shard-size", "150000", "--item-size", "20000", "--no-proof"]
    words = ["convert", str(source), out, *rules, *sizes, "--json"]
    assert main([*words, "--commit", "2"]) == 2
    assert "no part has left a receipt" in capsys.readouterr().err
    for word in ("0/2", "3/2", "2", "a/b"):
        assert main([*words, "--part", word]) == 2
        assert "is not I/N with I from 1 to N" in capsys.readouterr().err
    for word in ("0", "-1"):
        assert main([*words, f"--commit={word}"]) == 2
        assert "is not a number of parts" in capsys.readouterr().err
    for more in (["--part", "2/2"], ["--part", "1/2"], ["--commit", "2"]):
        assert main([*words, *more]) == 0
    check_alone(tmp_path / "out", wanted)
    assert main([*words, "--executor", "threads"]) == 0
    check_alone(tmp_path / "out", wanted)
    assert main([*words, "--executor", "theads"]) == 2
    assert "unknown executor 'theads'; known are threads[:N]" in capsys.readouterr().err


# Executors


def test_what_is_no_executor_and_what_has_none(source, tmp_path):
    for given, text in {
        3: "has a method submit",
        "dask://": "unknown",
        "dask://a": "unknown",
    }.items():
        refused(text, source, tmp_path / "out", executor=given)
    one = source / "model-00001-of-00004.safetensors"
    with pytest.raises(sj.FileFormatError, match="are for folders of shards"):
        sj.files.convert(one, tmp_path / "out.safetensors", executor="threads")
    assert not os.listdir(tmp_path)


def test_a_damaged_receipt_counts_as_none(source, tmp_path):
    target, hidden = tmp_path / "out", tmp_path / ".out.shapejit"
    for part in (1, 2):
        convert(source, target, part=(part, 2))
    (receipt,) = hidden.glob(".*2-of-2*")
    found = json.loads(receipt.read_text())
    for marks in found["items"].values():
        marks[0].pop()
    receipt.write_text(json.dumps(found))
    refused("no whole receipt of part 2", source, target, commit=2)


@pytest.mark.parametrize("executor", ["threads:3", ThreadPoolExecutor(2)])
def test_threads_make_the_same_folder(executor, source, wanted, tmp_path):
    told = []
    report = convert(source, tmp_path / "out", executor=executor, progress=told.append)
    check_alone(tmp_path / "out", wanted)
    assert sum(told) == report.bytes_written


def put_half(files, k, data, both, fault=None):
    """Every second MiB from the k-th one on, while another thread puts the others."""
    with files.writer("a", data.size) as writer:
        both.wait()
        for at in range(k << 20, data.size, 2 << 20):
            writer.put(at, data[at : at + (1 << 20)])
        if fault is not None:
            raise fault


def test_threads_that_write_to_one_file_share_its_writer(tmp_path):
    place, opened = LocalFolder(str(tmp_path / "out")), []
    os.mkdir(place.hidden)
    where = SimpleNamespace(open=lambda *given: opened.append(given) or place.open(*given))
    files, both = OpenFiles(where), threading.Barrier(2)
    data = np.arange(4 << 20, dtype=np.uint32).view(np.uint8)
    with ThreadPoolExecutor(2) as pool:
        for fault in (None, KeyError("a")):  # what one raises does not reach the other's bytes
            one = pool.submit(put_half, files, 0, data, both, fault)
            put_half(files, 1, data, both)
            assert one.exception() is fault
            written = (tmp_path / ".out.shapejit" / "a").read_bytes()
            assert written == data.tobytes() if fault is None else len(written) == data.size
            rows = np.frombuffer(written, np.uint8).reshape(-1, 2, 1 << 20)
            assert np.array_equal(rows[:, 1], data.reshape(-1, 2, 1 << 20)[:, 1])
            os.unlink(tmp_path / ".out.shapejit" / "a")
    assert [name for name, _ in opened] == ["a", "a"]


def test_a_full_disk_ends_all_who_write_to_a_file(tmp_path):
    @contextmanager
    def full(*_):
        descriptor = os.open("/dev/full", os.O_WRONLY)
        yield descriptor
        os.close(descriptor)

    files, both = OpenFiles(SimpleNamespace(open=full)), threading.Barrier(5)
    data = np.zeros(64 << 20, np.uint8)
    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(put_half, files, 0, data, both) for _ in range(5)]
        assert [f.exception(20).errno for f in futures] == [errno.ENOSPC] * 5


def test_a_file_that_has_another_name_is_not_written(source, tmp_path):
    target, hidden = tmp_path / "out", tmp_path / ".out.shapejit"
    (tmp_path / "precious").write_text("mine")
    hidden.mkdir()
    name = "model-00001-of-00003.safetensors"
    os.link(tmp_path / "precious", hidden / name)
    with pytest.raises(sj.FileFormatError, match=f"{name} in .* has other names, too"):
        convert(source, target, part=(1, 2))
    assert (tmp_path / "precious").read_text() == "mine"
    for other in ("config.json", "notes"):  # copied files take the place of what is there
        os.link(tmp_path / "precious", hidden / other)
    (hidden / name).unlink()
    for part in (1, 2):
        convert(source, target, part=(part, 2))
    convert(source, target, commit=2)
    assert (tmp_path / "precious").read_text() == "mine"
    assert json.loads((target / "config.json").read_text())["torch_dtype"] == "float32"


def test_processes_of_a_script_that_starts_them_at_its_import(source, tmp_path):
    script = tmp_path / "script.py"
    call = f"files.convert({str(source)!r}, {str(tmp_path / 'out')!r}, executor='processes:1')"
    script.write_text(f"from shapejit import files\n{call}\n")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert run.stderr.endswith("under if __name__ == '__main__'\n")
    assert os.listdir(tmp_path) == ["script.py"]


def test_processes_of_which_one_is_killed_in_the_middle(source, wanted, tmp_path):
    killed = []

    def kill(_):
        if not killed:
            killed.append(multiprocessing.active_children()[0])
            killed[0].kill()

    convert(source, tmp_path / "out", executor="processes:2", progress=kill)
    assert killed
    check_alone(tmp_path / "out", wanted)


def test_a_cluster_of_which_a_worker_is_killed_in_the_middle(client, source, wanted, tmp_path):
    workers = list(client.run(os.getpid).values())
    told = []

    def kill(count):
        if not told:
            os.kill(workers[0], signal.SIGKILL)
        told.append(count)

    convert(source, tmp_path / "out", executor=client, progress=kill)
    assert workers[0] not in client.run(os.getpid).values()
    check_alone(tmp_path / "out", wanted)


def test_a_cluster_goes_on_where_an_interrupted_run_stopped(client, source, wanted, tmp_path):
    def stop(_):
        told.append(1)
        if len(told) == 9:
            raise KeyboardInterrupt

    told = []
    for resume, left in ((False, []), (True, [".out.shapejit"])):
        told.clear()
        with pytest.raises(KeyboardInterrupt):
            convert(source, tmp_path / "out", executor=client.get_executor(), progress=stop,
                    resume=resume)  # fmt: skip
        assert os.listdir(tmp_path) == left
    (receipt,) = (tmp_path / ".out.shapejit").glob(".shapejit-receipt*")
    assert len(json.loads(receipt.read_text())["items"]) == 9
    sent = Recorded(client.get_executor(pure=False))
    convert(source, tmp_path / "out", executor=sent, resume=True)
    check_alone(tmp_path / "out", wanted)
    assert 0 < len(sent.numbers) == len(set(sent.numbers)) <= max(sent.numbers) + 1 - 9


class Recorded(Executor):
    """Another executor, and the numbers of the items that it gets; `first` is called before."""

    def __init__(self, inner, first=lambda: None):
        self.inner, self.first, self.numbers = inner, first, []

    def submit(self, call, work, number):
        if not self.numbers:
            self.first()
        self.numbers.append(number)
        return self.inner.submit(call, work, number)


def test_a_worker_that_sees_another_source_refuses(client, source, tmp_path):
    shutil.copytree(source, tmp_path / "in")
    shard = tmp_path / "in" / "model-00001-of-00004.safetensors"
    changed = Recorded(client.get_executor(pure=False), lambda: os.utime(shard, (1, 1)))
    refused("finds another source", tmp_path / "in", tmp_path / "out", executor=changed)
    assert os.listdir(tmp_path) == ["in"]


def test_conversions_at_the_same_time_are_planned_once_each(source, wanted, tmp_path, monkeypatch):
    def another(_):
        if not told:
            told.append(1)
            convert(source, tmp_path / "b" / "out", executor=pool)

    plans, plan, told = [], conversion.Job.plan, []
    monkeypatch.setattr(conversion.Job, "plan", lambda job: plans.append(job) or plan(job))
    for name in "ab":
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor(2) as pool:
        convert(source, tmp_path / "a" / "out", executor=pool, progress=another)
    assert len(plans) == 2
    check_alone(tmp_path / "a" / "out", wanted)
    check_alone(tmp_path / "b" / "out", wanted)


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
        (MemoryError("no room"), "MemoryError: no room"),
        (sj.FormatError("it is odd"), "it is odd"),
        (BrokenExecutor("gone"), "3 workers were lost"),
    ],
)
def test_errors_of_items_name_a_tensor_and_leave_no_trace(fault, text, source, tmp_path):
    failing = Failing(fault)
    refused(text, source, tmp_path / "out", executor=failing)
    refused("model-00001-of-00003.safetensors: tensor '0.", source, tmp_path / "out",
            executor=failing)  # fmt: skip
    assert failing.count < 200
    assert not os.listdir(tmp_path)


class Waiting(Executor):
    """One that never begins."""

    def submit(self, *_):
        return Future()


class Client:
    """What a client of dask's has to be, with workers as given."""

    def __init__(self, executor, workers):
        self.get_executor, self.nthreads = lambda **_: executor, lambda: workers


def test_an_item_that_kills_its_workers_is_not_tried_again(source, tmp_path):
    """The scheduler has tried it often enough by then."""
    failing = Failing(distributed.scheduler.KilledWorker("item", SimpleNamespace(address="a"), 3))
    refused("KilledWorker: ", source, tmp_path / "out", executor=Client(failing, {"a": 1}))
    assert failing.count <= executors.AHEAD


def test_arguments_of_an_executor_of_dask_are_kept(client, source, wanted, tmp_path):
    (first, *_) = client.scheduler_info()["workers"]
    sent = client.get_executor(workers=[first])
    with pytest.MonkeyPatch.context() as patch:
        where, submit = [], client.submit
        patch.setattr(client, "submit", lambda *given, **options: where.append(
            options.get("workers")) or submit(*given, **options))  # fmt: skip
        convert(source, tmp_path / "out", executor=sent)
    assert where
    assert all(workers == [first] for workers in where)
    check_alone(tmp_path / "out", wanted)


def test_a_run_without_workers_ends(source, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "IDLE", 0.01)
    refused("no workers", source, tmp_path / "out", executor=Client(Waiting(), {}))
    assert not os.listdir(tmp_path)


def test_few_items_are_in_flight(source, tmp_path):
    class Counting(ThreadPoolExecutor):
        flying = most = 0

        def submit(self, *given):
            self.flying += 1
            self.most = max(self.most, self.flying)
            future = super().submit(*given)
            future.add_done_callback(self.landed)
            return future

        def landed(self, _):
            self.flying -= 1

    with Counting(2) as counting:
        convert(source, tmp_path / "out", executor=counting)
    assert 2 <= counting.most <= 2 * executors.AHEAD


def test_workers_take_little_memory(client, tmp_path):
    """Two weights of 64 MiB, of which the file is a hole: less than two items and 64 MiB each."""
    sparse_fp8(tmp_path / "in", 2, 2**13)

    def most():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    rules, target = [("to", "bf16")], tmp_path / "out"
    sj.files.convert(tmp_path / "in", target, [("select", "0.*"), *rules], executor=client,
                     item_size="2MiB", proof=False)  # fmt: skip
    before = client.run(most)
    sj.files.convert(tmp_path / "in", target, rules, executor=client, item_size="16MiB")
    for worker, now in client.run(most).items():
        assert now - before[worker] < (2 * 16 + 64) << 20
    assert (target / "model.safetensors").stat().st_size > 2 * 2 * 2**13 * 4096


def test_a_large_tensor_is_cut_by_rows_and_what_is_shared_is_not(source, tmp_path):
    """Rows of a plain tensor are several items; two parts of one decoded weight are one."""
    convert(source, tmp_path / "out", part=(1, 1))
    (receipt,) = (tmp_path / ".out.shapejit").glob(".*receipt*")
    items = [
        [mark[0] for mark in item] for item in json.loads(receipt.read_text())["items"].values()
    ]
    assert sum("plain.turned" in item for item in items) > 1
    assert sum("moe.experts.w" in item for item in items) > 1
    (both,) = (item for item in items if "0.down_proj.weight.a" in item)
    assert "0.down_proj.weight.b" in both
