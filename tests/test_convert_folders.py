"""Folders converted: quantised weights decoded, shards, config.json, and what is interrupted."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import gguf
import ml_dtypes
import numpy as np
import pytest
import scheme_fixtures
from safetensors import safe_open

import shapejit as sj
from shapejit import conversion
from shapejit.__main__ import main
from shapejit.conversion import weights
from shapejit.files import file_formats, safetensors
from shapejit.runtime import system

FIXTURES = [f for s, group in scheme_fixtures.by_scheme().items() if s in sj.schemes for f in group]


def folder_of(path, fixture):
    """A folder of two shards, the parts of one weight in both, with an index and a config."""
    path.mkdir()
    tensors = {**fixture.checkpoint(), "norm.weight": np.arange(6, dtype=ml_dtypes.bfloat16)}
    places = {name: f"model-0000{1 + k % 2}-of-00002.safetensors" for k, name in enumerate(tensors)}
    for shard in sorted(set(places.values())):
        own = {name: x for name, x in tensors.items() if places[name] == shard}
        sj.save_file(own, path / shard, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"model_type": "x", "torch_dtype": "float32", **fixture.config}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer").mkdir()
    (path / "tokenizer" / "vocab.txt").write_text("a b")
    return path


def converted(source, target, *rules, **options):
    """The tensors of a converted folder."""
    sj.files.convert(source, target, rules, **{"proof": False, **options})
    return sj.load_file(target)


def bits(x):
    x = np.ascontiguousarray(x)
    return x.shape, x.dtype, x.view(np.uint8).tobytes()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.name)
def test_each_scheme_is_decoded_as_its_own_project_does(fixture, tmp_path, monkeypatch):
    """In a folder: companions in other shards, config and index follow, other files are copied."""
    source = folder_of(tmp_path / "in", fixture)
    stated = {"quantization_config", "compression_config", "quantization"}
    plain = {"model_type": "x", **{k: v for k, v in fixture.config.items() if k not in stated}}
    for name, short in (("float32", "f32"), ("bfloat16", "bf16")):
        once = fixture.rounded_once.get(name, True) and "float32" in fixture.expected
        if not (once or name == "float32") or name not in fixture.expected:
            continue
        # The elements that are decoded at a time: as few as possible, or all.
        monkeypatch.setattr(weights, "BAND", 1 if name == "float32" else 1 << 22)
        found = converted(source, tmp_path / short, ("to", short))
        assert len(found) == 2
        (weight,) = set(found) - {"norm.weight"}
        assert bits(found[weight].numpy()) == bits(fixture.expected[name])
        config = json.loads((tmp_path / short / "config.json").read_text())
        assert config == {**plain, "torch_dtype": name}
        assert (tmp_path / short / "tokenizer" / "vocab.txt").read_text() == "a b"
        assert found["norm.weight"].numpy().tolist() == list(range(6))
        with safe_open(tmp_path / short / "model.safetensors", "numpy") as file:
            assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_config_of_another_encoding_is_read(encoding, tmp_path):
    fixture = next(f for f in FIXTURES if f.name == "nvfp4-modelopt")
    source = folder_of(tmp_path / "in", fixture)
    stated = (source / "config.json").read_text()
    (source / "config.json").write_text(stated, encoding=encoding)
    found = converted(source, tmp_path / "out", ("to", "f32"))
    assert len(found) == 2
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config == {"model_type": "x", "torch_dtype": "float32"}


RNG = np.random.default_rng(3)


def plain_folder(path, tensors, config=None, metadata=None):
    """A folder with one file."""
    path.mkdir()
    sj.save_file(tensors, path / "model.safetensors", metadata=metadata)
    (path / "config.json").write_text(json.dumps(config or {"model_type": "x"}))
    return path


def contents(folder):
    """All files of a folder and their bytes."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Rules for several tensors; the oracle is NumPy


def x_of(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


GATE, UP, QKV = x_of(6, 5), x_of(6, 5), x_of(12, 5)
EXPERTS = {f"h.experts.{k}.w": x_of(2, 3) for k in range(11)}
SOURCE = {"l.gate.w": GATE, "l.up.w": UP, "l.qkv.w": QKV, **EXPERTS}
CASES = {
    "rename": ([("rename", r"s/l\.(.*)\.w/model.\1.weight/"), ("select", "model.*")],
               {"model.gate.weight": GATE, "model.up.weight": UP, "model.qkv.weight": QKV}),
    "select": ([("select", r"l\..*"), ("exclude", ".*qkv.*")], {"l.gate.w": GATE, "l.up.w": UP}),
    "slice": ([("select", "l.qkv.w"), ("slice", "l.qkv.w=1:9:2,-1")], {"l.qkv.w": QKV[1:9:2, -1]}),
    "split": ([("select", "l.qkv.w"), ("split", r"(.*)\.qkv\.w=0:\1.q,\1.k,\1.v")],
              {"l.q": QKV[:4], "l.k": QKV[4:8], "l.v": QKV[8:]}),
    "sizes": ([("select", "l.qkv.w"), ("split", r"(.*)\.qkv\.w=1:\1.q:4,\1.k:1")],
              {"l.q": QKV[:, :4], "l.k": QKV[:, 4:]}),
    "concat": ([("select", r"l\..*"), ("concat", r"(.*)\.up\.w=0:\1.gate.w,\1.qkv.w->\1.all")],
               {"l.all": np.concatenate([UP, GATE, QKV])}),
    "columns": ([("select", r"l\.(gate|up).*"), ("concat", r"(.*)\.up\.w=-1:\1.gate.w->\1.all")],
                {"l.all": np.concatenate([UP, GATE], axis=1)}),
    "interleave": ([("select", r"l\.(gate|up).*"),
                    ("interleave", r"(.*)\.gate\.w=0:\1.up.w->\1.gate_up")],
                   {"l.gate_up": np.stack([GATE, UP], axis=1).reshape(12, 5)}),
    "stack": ([("stack", "experts.#"), ("exclude", "l.*")],
              {"h.experts.w": np.stack(list(EXPERTS.values()))}),
    "unstack": ([("stack", "experts.#"), ("permute", "h.*=0,2,1"), ("unstack", "experts.#"),
                 ("exclude", "l.*")], {name: x.T for name, x in EXPERTS.items()}),
    "columns of no rows": ([("select", r"l\.(gate|up).*"), ("concat", r"l\.up\.w=1:l.gate.w->c"),
                            ("slice", "c=6:")], {"c": np.zeros((0, 10), np.float32)}),
    "no rows": ([("select", r"l\..*"), ("concat", r"l\.up\.w=0:l.gate.w,l.qkv.w->c"),
                 ("slice", "c=24:")], {"c": np.zeros((0, 5), np.float32)}),
    "an empty part": ([("select", r"l\.(gate|up).*"), ("interleave", r"l\.up\.w=1:l.gate.w->c"),
                       ("split", "c=0:a:6,b:0")],
                      {"a": np.stack([UP, GATE], axis=2).reshape(6, 10),
                       "b": np.zeros((0, 10), np.float32)}),
    "no experts": ([("stack", "experts.#"), ("exclude", "l.*"), ("slice", "h.*=11:")],
                   {"h.experts.w": np.zeros((0, 2, 3), np.float32)}),
    "casts": ([("select", "l.up.w"), ("cast", ".*=BF16"), ("split", ".*=0:a,b"),
               ("concat", "b=1:a->c")],
              {"c": np.concatenate([UP[3:], UP[:3]], axis=1).astype(ml_dtypes.bfloat16)}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rules_for_several_tensors_are_numpys(case, tmp_path):
    rules, wanted = CASES[case]
    source = plain_folder(tmp_path / "in", SOURCE)
    empty = any(not x.size for x in wanted.values())  # the proof reads these, writers do not
    found = converted(source, tmp_path / "out", *rules, proof=empty)
    assert list(found) == list(wanted)
    for name, x in wanted.items():
        assert bits(found[name].numpy()) == bits(x)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([("rename", "s/l.*/a/")], "makes two tensors 'a'"),
        ([("rename", "s/l.gate.w/l.up.w/")], "makes two tensors 'l.up.w'"),
        ([("rename", r"s/l.gate.w/\2/")], "is not a name"),
        ([("rename", "l/a/")], "is not of the form s/REGEX/NAME/"),
        ([("split", "l.gate.w=0:a,b,c,d")], "cannot be split into 4 equal parts"),
        ([("split", "l.gate.w=0:a:4,b:1")], "cannot be split"),
        ([("split", "l.gate.w=0:a:4,b")], "either all parts have a size, or none"),
        ([("split", "l.gate.w=2:a,b")], "axis 2 is out of bounds"),
        ([("split", "l.gate.w=a,b")], "is not AXIS:NAME"),
        ([("concat", "l.gate.w=0:none->a")], "there is no tensor 'none'"),
        ([("concat", "l.gate.w=0:l.up.w")], "is not AXIS:NAME,NAME...->NAME"),
        ([("concat", "l.gate.w=1:l.qkv.w->a")], "has shape (12, 5), not (6, 5)"),
        ([("cast", "l.up.w=F16"), ("interleave", "l.gate.w=0:l.up.w->a")], "is float16, not"),
        ([("exclude", "h.experts.3.w"), ("stack", "experts.#")], "number 3 of 10 tensors"),
        ([("stack", "experts")], "is not a part of a name and '.#'"),
        ([("unstack", "qkv.#"), ("unstack", "nothing.#")], "no tensor has a name"),
        ([("slice", "l.up.w=7")], "index 7 is out of bounds"),
        ([("slice", "l.up.w=::0")], "is not an index or a slice"),
        ([("to", "bf16")], "no quantised weight has a name that --to bf16 matches"),
        ([("to", "int3")], "unknown dtype or scheme 'int3'"),
        ([("cut", "a")], "unknown rule 'cut'"),
        ([("repack", "l.up.w=awq")], "is not FORMAT->FORMAT"),
        ([("repack", "l.up.w=awq->lsb")], "awq"),
        ([("repack", "l.up.w=msb->lsb")], "tensor 'l.up.w'"),
        (["to"], "a rule is a pair of its kind and its text"),
        ([("to", 3)], "--to takes text, not '3'"),
    ],
)
def test_rules_that_do_not_fit_leave_no_trace(rules, text, tmp_path):
    source = plain_folder(tmp_path / "in", SOURCE)
    with pytest.raises(sj.ShapeJitError) as caught:
        sj.files.convert(source, tmp_path / "out", rules)
    assert text in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


# One step from the old folder to the new one


def quantised(path, shards=3):
    """A folder of several shards, with a config, and what it holds when it is decoded."""
    fixture = scheme_fixtures.named("fp8-block-16x32")
    path.mkdir()
    weight, places, wanted = fixture.expected["float32"], {}, {}
    for k in range(shards):
        tensors = {f"{k}.{name}": x for name, x in fixture.checkpoint().items()}
        (path / "notes").mkdir(exist_ok=True)
        sj.save_file(tensors, path / f"model-0000{k + 1}-of-0000{shards}.safetensors")
        places |= dict.fromkeys(tensors, f"model-0000{k + 1}-of-0000{shards}.safetensors")
        wanted[f"{k}.{fixture.prefix}.weight"] = weight
    (path / "notes" / "a.txt").write_text("mine")
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (path / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16", **fixture.config}))
    return path, wanted


def check_decoded(folder, wanted):
    found = sj.load_file(folder)
    assert set(found) == set(wanted)
    assert all(bits(found[name].numpy()) == bits(x) for name, x in wanted.items())


@pytest.fixture
def watched(monkeypatch):
    """Calls a function before and after each change that a file system sees."""

    def watch(look):
        def looking(function):
            def call(*given, **options):
                look()
                made = function(*given, **options)
                look()
                return made

            return call

        for module, names in {
            os: ("fsync", "replace", "rename", "unlink", "link", "mkdir", "rmdir"),
            shutil: ("copy2", "rmtree"),
            system: ("exchange",),
        }.items():
            for name in names:
                monkeypatch.setattr(module, name, looking(getattr(module, name)))

    return watch


def test_at_any_moment_the_destination_is_the_old_folder_or_the_new_one(tmp_path, watched):
    source, wanted = quantised(tmp_path / "model")
    (source / ".git").mkdir()
    (source / ".git" / "head").write_text("x")
    old, states = contents(source), []

    def look():
        now = contents(source)
        if now not in states:
            states.append(now)

    watched(look)
    sj.files.convert(source, source, [("to", "f32")], max_shard_size=20_000)
    look()
    assert states == [old, contents(source)]
    check_decoded(source, wanted)
    assert sorted(p.name for p in source.iterdir()) == [
        ".git", "config.json", "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
        "model.safetensors.index.json", "notes",
    ]  # fmt: skip
    assert json.loads((source / "config.json").read_text()) == {"torch_dtype": "float32"}
    index = json.loads((source / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": sum(x.nbytes for x in wanted.values())}
    assert os.listdir(tmp_path) == ["model"]


def test_another_checkpoint_is_replaced_and_files_beside_it_stay(tmp_path, watched):
    source, wanted = quantised(tmp_path / "in")
    target = plain_folder(tmp_path / "out", {"old": np.zeros(3)})
    (target / "notes").mkdir()
    (target / "notes" / "b.txt").write_text("yours")
    (target / "link").symlink_to("nowhere")
    old, states = contents(target), []

    def look():
        if contents(target) not in states:
            states.append(contents(target))

    watched(look)
    sj.files.convert(source, target, [("to", "f32")], max_shard_size="20kB")
    look()
    assert states == [old, contents(target)]
    check_decoded(target, wanted)
    assert not (target / "model.safetensors").exists()
    assert {p.name for p in (target / "notes").iterdir()} == {"a.txt", "b.txt"}
    assert os.readlink(target / "link") == "nowhere"
    sj.files.convert(target, target)  # nothing to do: the same again
    check_decoded(target, wanted)


@pytest.fixture
def without_exchange(monkeypatch):
    def unable(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(system, "exchange", unable)


@pytest.mark.usefixtures("without_exchange")
def test_folders_that_cannot_be_exchanged_are_renamed(tmp_path, watched):
    source, wanted = quantised(tmp_path / "model")
    old, states = contents(source), []

    def look():
        now = contents(source) if source.exists() else None
        if now not in states:
            states.append(now)

    watched(look)
    with pytest.warns(UserWarning, match="replaced by two renames"):
        sj.files.convert(source, source, [("to", "f32")])
    assert states == [old, None, contents(source)]
    check_decoded(source, wanted)
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.filterwarnings("ignore:.*replaced by two renames")
@pytest.mark.parametrize("killed", [True, False])
def test_a_process_that_ends_between_two_renames(killed, tmp_path, monkeypatch):
    """The old folder comes back: by the next process, or by this one if it is interrupted."""
    source, wanted = quantised(tmp_path / "in")
    target = plain_folder(tmp_path / "out", {"old": np.zeros(3)})
    (target / "mine").write_text("mine")
    old, rename = contents(target), os.rename

    def interrupted(first, second):
        if str(second).endswith("out"):
            if not killed:
                monkeypatch.undo()
            raise KeyboardInterrupt
        rename(first, second)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sj.files.convert(source, target, [("to", "f32")])
    monkeypatch.undo()
    assert not target.exists() if killed else contents(target) == old
    sj.files.convert(source, target, [("to", "f32")])
    check_decoded(target, wanted)
    assert (target / "mine").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
@pytest.mark.parametrize("existing", [True, False])
def test_what_is_interrupted_leaves_the_old_folder_and_no_other(
    fault, existing, tmp_path, monkeypatch
):
    source, _ = quantised(tmp_path / "in")
    target = source if existing else tmp_path / "out"
    old, fsync, calls = contents(source), os.fsync, []

    def fail(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:
            raise fault
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(fault)) as caught:
        sj.files.convert(source, target, [("to", "f32")], max_shard_size=20_000)
    monkeypatch.undo()
    assert getattr(caught.value, "filename", str(target)) == str(target)
    assert contents(source) == old
    assert os.listdir(tmp_path) == ["in"]


def test_a_disk_without_room_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    source, _ = quantised(tmp_path / "in")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(OSError, match="No space left on device") as caught:
        sj.files.convert(source, tmp_path / "out", [("to", "f32")])
    assert caught.value.filename == str(tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


def test_an_interrupted_folder_is_continued_from_its_finished_shards(tmp_path):
    source, wanted = quantised(tmp_path / "in")
    nbytes = next(iter(wanted.values())).nbytes
    names = [f"model-0000{k}-of-00003.safetensors" for k in (1, 2, 3)]

    def convert(stop=None, rules=(("to", "f32"),)):
        """The numbers of bytes of which it tells, until more than `stop` are written."""
        stated = []

        def progress(count):
            stated.append(count)
            if stop is not None and sum(stated) > stop:
                raise KeyboardInterrupt

        options = {"max_shard_size": 20_000, "resume": True, "progress": progress}
        if stop is None:
            sj.files.convert(source, tmp_path / "out", rules, **options)
        else:
            with pytest.raises(KeyboardInterrupt):
                sj.files.convert(source, tmp_path / "out", rules, **options)
        return stated

    def found():
        (hidden,) = (p for p in tmp_path.iterdir() if p.name.startswith("."))
        return hidden, {p.name: p.stat().st_mtime_ns for p in hidden.glob("*.safetensors")}

    convert(stop=2 * nbytes)
    hidden, first = found()
    assert sorted(first) == names[:2]
    convert(stop=2 * nbytes)
    assert found() == (hidden, first)
    damaged, kept = sorted(first)
    (hidden / damaged).write_bytes((hidden / damaged).read_bytes()[:-1])
    assert convert()[0] == nbytes  # those of the one that is kept
    check_decoded(tmp_path / "out", wanted)
    assert (tmp_path / "out" / kept).stat().st_mtime_ns == first[kept]
    assert (tmp_path / "out" / damaged).stat().st_mtime_ns != first[damaged]
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]
    assert not [p for p in (tmp_path / "out").iterdir() if p.name.startswith(".")]
    # Another conversion does not begin with the files of this one.
    convert(stop=nbytes)
    old = contents(tmp_path)
    turned = [("to", "f32"), ("slice", ".*=::-1")]
    with pytest.raises(sj.FileFormatError, match="had another list of rules: it cannot be resumed"):
        convert(rules=turned)
    os.utime(source / "model-00002-of-00003.safetensors")
    with pytest.raises(sj.FileFormatError, match="had another source: it cannot be resumed"):
        convert()
    assert contents(tmp_path) == old
    sj.files.convert(source, tmp_path / "out", turned)
    check_decoded(tmp_path / "out", {name: x[::-1] for name, x in wanted.items()})
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_a_shard_is_made_while_the_one_before_it_is_finished(tmp_path, monkeypatch):
    source, wanted = quantised(tmp_path / "in")
    second, replace, renamed, stated = threading.Event(), os.replace, [], []

    def progress(count):
        stated.append(count)
        if len(stated) == 2:
            second.set()

    def rename(old, new):
        if str(new).endswith(".safetensors"):
            assert second.wait(60)
            renamed.append(os.path.basename(new))
        replace(old, new)

    monkeypatch.setattr(os, "replace", rename)
    options = {"max_shard_size": 20_000, "progress": progress}
    sj.files.convert(source, tmp_path / "out", [("to", "f32")], **options)
    assert renamed == [f"model-0000{k}-of-00003.safetensors" for k in (1, 2, 3)]
    check_decoded(tmp_path / "out", wanted)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_shard_that_cannot_be_finished_ends_the_conversion(failing, tmp_path, monkeypatch):
    source, wanted = quantised(tmp_path / "in")
    replace, shards = os.replace, []

    def full(old, new):
        if str(new).endswith(".safetensors"):
            shards.append(new)
            if len(shards) == failing:
                raise OSError(errno.ENOSPC, "No space left")
        replace(old, new)

    options = {"max_shard_size": 20_000, "resume": True}
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            sj.files.convert(source, tmp_path / "out", [("to", "f32")], **options)
    (hidden,) = tmp_path.glob(".*")
    kept = sorted(path.name for path in hidden.glob("*.safetensors"))
    assert kept == [f"model-0000{k}-of-00003.safetensors" for k in range(1, failing)]
    assert not [*hidden.glob(".shapejit-*.tmp")]
    sj.files.convert(source, tmp_path / "out", [("to", "f32")], **options)
    check_decoded(tmp_path / "out", wanted)


KILLED = """
import glob, os, signal, sys
import shapejit as sj
fsync = os.fsync
def kill(descriptor):
    if len(glob.glob(os.path.join(os.path.dirname(sys.argv[2]), ".*", "*.safetensors"))) > 4:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)
os.fsync = kill
sj.files.convert(sys.argv[1], sys.argv[2], [("to", "f32")], max_shard_size=20_000)
"""


@pytest.mark.parametrize("resume", [False, True])
def test_what_a_killed_conversion_left_is_removed_or_resumed_by_the_next(resume, tmp_path):
    source, wanted = quantised(tmp_path / "in", 9)
    old = contents(source)
    code = subprocess.run([sys.executable, "-c", KILLED, source, source], check=False).returncode
    assert code == -signal.SIGKILL
    assert contents(source) == old
    (hidden,) = tmp_path.glob(".*")
    before = {p.name: p.stat().st_mtime_ns for p in hidden.glob("*.safetensors")}
    assert len(before) == 5
    sj.files.convert(source, source, [("to", "f32")], max_shard_size=20_000, resume=resume)
    kept = [name for name, at in before.items() if (source / name).stat().st_mtime_ns == at]
    assert len(kept) == (5 if resume else 0)
    check_decoded(source, wanted)
    assert os.listdir(tmp_path) == ["in"]


# Refused before anything is written


def test_folders_that_cannot_be_replaced(tmp_path, monkeypatch):
    source, _ = quantised(tmp_path / "in")
    target = plain_folder(tmp_path / "out", {"old": np.zeros(3)})
    file = tmp_path / "file"
    file.write_text("mine")

    def refused(where, text, error=sj.FileFormatError):
        before = contents(tmp_path)
        with pytest.raises(error) as caught:
            sj.files.convert(source, where, [("to", "f32")])
        assert text in str(caught.value)
        assert contents(tmp_path) == before

    refused(source / "out", "must not be a folder in the source")
    refused(tmp_path, "must not be a folder around the source")
    refused(file, "it is not a folder")
    refused(tmp_path / "none" / "out", "No such file or directory", OSError)
    monkeypatch.setattr(system, "exchange", lambda *_: 1 / 0)
    monkeypatch.chdir(target)
    refused(target, "it is, or holds, the current folder")


def test_two_conversions_of_one_destination(tmp_path):
    source, _ = quantised(tmp_path / "in")

    def another(_):
        with pytest.raises(sj.FileFormatError, match="another conversion is writing it"):
            sj.files.convert(source, tmp_path / "out")

    sj.files.convert(source, tmp_path / "out", progress=another)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("config.json", "[]", "it is not a JSON object"),
        ("config.json", "{", "it is not JSON"),
        ("config.json", "\xff", "it is not JSON"),
        pytest.param("config.json", f"{{{' ' * 16_000_000}}}", "more than 16000000", id="long"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../x.safetensors"}}', "leads out"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "/x.safetensors"}}', "relative"),
        ("link", None, "leads out of"),
        ("config.json", None, "leads out of"),
    ],
)
def test_hostile_folders(name, text, reason, tmp_path):
    source, _ = quantised(tmp_path / "in")
    if text is None:
        (source / name).unlink(missing_ok=True)
        (source / name).symlink_to("/etc/passwd")
    else:
        (source / name).write_text(text, encoding="latin-1")
    with pytest.raises(sj.FileFormatError, match=reason):
        sj.files.convert(source, tmp_path / "out", [("rename", r"s/0\.(.*)/a.\1/")])
    assert os.listdir(tmp_path) == ["in"]


def test_a_link_in_the_place_of_the_hidden_folder(tmp_path):
    source, _ = quantised(tmp_path / "in")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    sj.files.convert(source, tmp_path / "out", part=(1, 1))
    (hidden,) = tmp_path.glob(".out.shapejit-*")
    shutil.rmtree(hidden)
    hidden.symlink_to("precious")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        sj.files.convert(source, tmp_path / "out")
    assert (tmp_path / "precious" / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[rule]]\nto = 3", "--to takes text"),
        ("[[rule]]\nto = 'bf16'\ncast = 'a=F16'", "has one key"),
        ("[[rule]]", "has one key"),
        ("[[rules]]\nto = 'bf16'", r"expected tables \[\[rule\]\], found 'rules'"),
        ("rule = 3", "expected tables"),
        ("rule = [3]", "has one key"),
        ("[[rule]]\ncut = 'a'", "unknown rule 'cut'"),
        ("[[rule]]\nreshape = '(=3'", "is not a regular expression"),
        ("[" * 100_000, "it is not TOML"),
        ("\xff", "it is not TOML"),
    ],
)
def test_toml_that_is_no_rule(text, reason, tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(sj.FileFormatError, match=reason) as caught:
        conversion.read_rules(path)
    assert str(caught.value).startswith(str(path))


# Schemes to other schemes, single files, GGUF


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("awq:gemm", "gptq:qweight", (32, 48)),
        ("gptq:qweight", "awq:gemm", (32, 48)),
        ("gptq:qweight", "compressed-tensors", (32, 48)),
        ("torch:x2", "torchao:tinygemm", (6, 10)),
        ("mlx", "lsb", (6, 32)),
    ],
)
def test_codes_are_repacked(source, target, shape, tmp_path):
    raw = RNG.integers(0, 256, (*shape[:-1], shape[-1] // 2), np.uint8)
    stored = sj.repack(raw, shape=shape, dtype="uint4", source="lsb", target=source)
    folder = plain_folder(tmp_path / "in", {"q": np.ascontiguousarray(stored)})
    found = converted(folder, tmp_path / "out", ("repack", f"q={source}->{target}"))
    held = shape[::-1] if sj.formats[source].inputs_first else shape
    wanted = sj.repack(stored, shape=held, dtype="uint4", source=source, target=target)
    assert bits(found["q"].numpy()) == bits(wanted)


@pytest.mark.parametrize("rule", [("repack", "q.*=awq:gemm->gptq:qweight"), ("to", "fp8:channel")])
def test_threads_keep_no_weight_after_their_shard(rule, tmp_path):
    tensors = {"q.weight": np.zeros((32, 6), np.int32) if rule[0] == "repack" else x_of(16, 16)}
    folder = plain_folder(tmp_path / "in", tensors)
    with ThreadPoolExecutor(1) as pool:
        converted(folder, tmp_path / "out", rule, executor=pool)
        held = pool.submit(lambda: weights.LAST_RESULT._value)
    assert held.result() is None


def test_repacked_codes_are_not_kept(tmp_path):
    sj.save_file({"q": np.zeros((32, 6), np.int32)}, tmp_path / "a.npz")
    rule = conversion.rule("repack", "q=awq:gemm->gptq:qweight")
    tensors = conversion.plan(file_formats.read(tmp_path / "a.npz"), [rule], conversion.dialect())
    weights.LAST_RESULT.clear()
    assert tensors.changes["q"].tensor().shape == (4, 48)
    assert weights.LAST_RESULT._value is None


def test_modules_of_repacked_codes_are_not_quantised(tmp_path):
    tensors = {"mlp.codes": np.zeros((32, 6), np.int32), "q.weight": x_of(16, 16),
               "mlp.stack": x_of(2, 16, 16).astype(ml_dtypes.bfloat16)}  # fmt: skip
    folder, repack = plain_folder(tmp_path / "in", tensors), "mlp.codes=awq:gemm->gptq:qweight"
    converted(folder, tmp_path / "out", ("repack", repack), ("to", "q.weight=fp8:channel"))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["mlp", "lm_head"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("awq-gemm", "int4:compressed-tensors"),
        ("gptq-4bit-v2", "awq"),
        ("awq-gemm", "gptq"),
        ("int4-ct-group32", "awq"),
        ("mxfp4-gpt-oss-down", "mxfp4:gpt-oss"),
    ],
)
def test_codes_go_to_another_scheme(name, target, tmp_path):
    """What is written is detected as that scheme, by its config, and decodes to the same."""
    fixture = scheme_fixtures.named(name)
    source = folder_of(tmp_path / "in", fixture)
    found = converted(source, tmp_path / "out", ("to", target))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == "float32"
    groups = sj.schemes.detect(found, config)
    assert [group.scheme for group in groups] == [target]
    assert (groups.unclear, groups.warnings) == ([], [])
    made = sj.schemes[target].decode(groups[0].parts, dtype="float32").numpy()
    assert bits(made) == bits(fixture.expected["float32"])
    conversion.prove(
        conversion.plan(
            file_formats.read(source), [conversion.rule("to", target)], conversion.dialect()
        ).changes.values()
    )


@pytest.mark.parametrize(
    ("name", "rules", "text"),
    [
        ("gptq-4bit-act-order", [("to", "awq")], "act-order"),
        ("int4-ct-act-order", [("to", "gptq")], "act-order"),
        ("int4-ct-group32", [("to", "mxfp4:gguf")], "a code is"),
        ("int4-ct-asymmetric", [("to", "awq")], "only reads"),
        ("int7-ct-ragged", [("to", "awq")], "has codes of"),
        ("mxfp4-gpt-oss-down", [("to", "mlx")], "config.json must have the group_size of mlx"),
        ("fp8-block-16x32", [("to", "deepseek-v4")], "scale"),
        ("mxfp4-gpt-oss-down", [("to", "mxfp4:gguf")], "config.json cannot describe mxfp4:gguf"),
        ("awq-gemm", [("cast", ".*scales=F32"), ("to", "bf16")], "was changed or dropped by"),
        ("awq-gemm", [("exclude", ".*qzeros"), ("to", "bf16")], "was changed or dropped by"),
    ],
)
def test_weights_that_cannot_be_decoded_or_stored_so_are_named(name, rules, text, tmp_path):
    fixture = scheme_fixtures.named(name)
    source = folder_of(tmp_path / "in", fixture)
    with pytest.raises(sj.ShapeJitError) as caught:
        sj.files.convert(source, tmp_path / "out", rules)
    assert text in str(caught.value)
    assert fixture.prefix in str(caught.value) or "config.json" in text
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(
    ("name", "target", "advised"),
    [
        ("awq-gemm", "mxfp4:compressed-tensors", True),
        ("awq-gemm", "mxfp4:gpt-oss", False),  # which stores stacked experts only
        ("bnb-nf4-ragged", "awq", False),  # whose rows are no whole words
        ("fp8-experts-fbgemm-down", "mlx", False),
    ],
)
def test_advice_to_round_a_weight_is_given_if_it_helps(name, target, advised, tmp_path, capsys):
    source = folder_of(tmp_path / "in", scheme_fixtures.named(name))
    said = run(capsys, "convert", source, tmp_path / "out", "--to", target, code=2).err
    assert (f"\n  --to bf16 --to {target} rounds" in said) == advised
    code = 0 if advised else 2
    run(capsys, "convert", source, tmp_path / "out", "--to", "bf16", "--to", target, code=code)


@pytest.mark.parametrize("rule", [("to", "f16"), ("to", "awq")])
def test_groups_that_do_not_exist_are_told_of_the_weight(rule, tmp_path):
    fixture = scheme_fixtures.named("gptq-4bit-act-order")
    parts = {**fixture.parts, "g_idx": fixture.parts["g_idx"] + 50}
    source = folder_of(tmp_path / "in", fixture._replace(parts=parts))
    where = rf"in(.model-0000.-of-0000.\.safetensors)?: \w+ '{fixture.prefix}.weight'"
    with pytest.raises(sj.FormatError, match=rf"{where}: gptq: g_idx has groups 50 to"):
        sj.files.convert(source, tmp_path / "out", [rule])
    if rule[1] == "awq":  # found while planning, by the name that the weight has by then
        renamed = ("rename", f"s/{fixture.prefix}(.*)/x\\1/")
        with pytest.raises(sj.FormatError, match=r"^[^:]*: tensor 'x.weight': gptq: g_idx has"):
            sj.files.convert(source, tmp_path / "out", [renamed, rule])
    assert os.listdir(tmp_path) == ["in"]


def test_stacked_experts_with_orders_of_their_own_are_refused(tmp_path, capsys):
    parts = sj.schemes["gptq"].encode(np.ones((32, 64), np.float32), group_size=32)
    tensors = {f"e.{key}": np.stack([x.numpy()] * 2) for key, x in parts.items()}
    tensors["e.g_idx"][1] = tensors["e.g_idx"][1, ::-1]
    source = plain_folder(tmp_path / "in", tensors)
    said = run(capsys, "convert", source, tmp_path / "out", "--to", "bf16", code=2).err
    assert "e.g_idx, e.qweight" in said
    assert "one g_idx for all stacked experts" in said
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("scheme", ["gptq", "int4:compressed-tensors"])
def test_stacked_experts_that_a_scheme_does_not_store_are_to_be_unstacked(scheme, tmp_path, capsys):
    x = np.random.default_rng(7).standard_normal((2, 32, 64)).astype(np.float32)
    experts = [sj.schemes["awq"].encode(each, group_size=32) for each in x]
    tensors = {f"m.{key}": np.stack([e[key].numpy() for e in experts]) for key in experts[0]}
    source, target = plain_folder(tmp_path / "in", tensors), tmp_path / "out"
    said = run(capsys, "convert", source, target, "--to", scheme, code=2).err
    assert "\n  --unstack 'PART.#', in a run before this one," in said
    assert "only be decoded" not in said
    assert "each of its forms" not in said
    run(capsys, "convert", source, tmp_path / "apart", "--unstack", "m.#")
    run(capsys, "convert", tmp_path / "apart", target, "--to", scheme)
    made = sj.schemes.detect(sj.load_file(target), json.loads((target / "config.json").read_text()))
    for found, expert in zip(made, experts, strict=True):
        wanted = sj.schemes["awq"].decode(expert).numpy()
        assert bits(sj.schemes[scheme].decode(found.parts).numpy()) == bits(wanted)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("scheme", ["gptq", "int4:compressed-tensors"])
def test_one_group_of_all_inputs_is_declared_for_weights_of_several_widths(scheme, whole, tmp_path):
    """A group_size of -1 in AutoAWQ, AutoGPTQ; the strategy channel in compressed-tensors."""
    tensors, wanted = dict[str, np.ndarray](), dict[str, bytes]()
    for name, columns in (("a", 128), ("b", 256)):
        x = np.random.default_rng(7).standard_normal((32, columns)).astype(np.float32)
        parts = sj.schemes["awq"].encode(x, group_size=columns if whole or name == "a" else 64)
        tensors |= {f"{name}.{key}": part.numpy() for key, part in parts.items()}
        wanted[name] = bits(sj.schemes["awq"].decode(parts).numpy())
    source = plain_folder(tmp_path / "in", tensors)
    said = {"quant_method": "awq", "bits": 4, "group_size": -1, "version": "gemm"}
    (source / "config.json").write_text(json.dumps({"quantization_config": said}))
    if not whole:
        with pytest.raises(sj.FormatError, match=f"weights of {scheme} with group_size 128 and 64"):
            sj.files.convert(source, tmp_path / "out", [("to", scheme)])
        return
    made = converted(source, tmp_path / "out", ("to", scheme))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "-1" in str(config) or "'strategy': 'channel'" in str(config)
    found = sj.schemes.detect(made, config)
    assert (found.unclear, found.warnings) == ([], [])
    assert {p: bits(sj.schemes[s].decode(parts).numpy()) for p, s, parts in found} == wanted


def test_what_is_unclear_is_refused_unless_it_is_left_out(tmp_path):
    tensors = {**scheme_fixtures.named("fp8-channel-f32").checkpoint()}
    tensors["lone.weight_scale"] = np.ones((4, 1), np.float32)
    source = plain_folder(tmp_path / "in", tensors)
    with pytest.raises(
        sj.FormatError,
        match=r"in.model\.safetensors: lone.weight_scale: no codes belong to it\n"
        r"  --exclude drops .* weights\n  asked by --to bf16$",
    ):
        sj.files.convert(source, tmp_path / "out", [("to", "bf16")])
    sj.files.convert(source, tmp_path / "out", [("exclude", "lone.*"), ("to", "bf16")])
    assert len(sj.load_file(tmp_path / "out")) == 1


def test_some_weights_are_decoded_and_the_config_lists_them(tmp_path):
    source, wanted = quantised(tmp_path / "in")
    sj.files.convert(
        source, tmp_path / "out", [("to", r"1\..*=f32"), ("rename", r"s/1\.(.*)/b.\1/")]
    )
    found = sj.load_file(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    groups = sj.schemes.detect(found, config)
    assert {group.prefix[0] for group in groups} == {"0", "2"}
    (name,) = (name for name in wanted if name.startswith("1."))
    assert bits(found[f"b.{name[2:]}"].numpy()) == bits(wanted[name])
    (listed,) = config["quantization_config"]["modules_to_not_convert"]
    assert f"{listed}.weight" == f"b.{name[2:]}"


@pytest.mark.parametrize(
    ("fixture", "file", "stated"),
    [
        ("gptq-4bit-v2", "quantize_config.json", {"bits": 4, "checkpoint_format": "gptq_v2"}),
        ("awq-gemm", "quant_config.json", {"w_bit": 4, "q_group_size": 32, "version": "GEMM"}),
        ("nvfp4-modelopt", "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}}),
    ],
)
def test_files_of_quantisers_tell_and_vanish(fixture, file, stated, tmp_path):
    """They stand beside config.json, or alone, and describe weights that are decoded then."""
    fixture, out = scheme_fixtures.named(fixture), tmp_path / "out"
    source = plain_folder(tmp_path / "in", fixture.checkpoint(), {"version": 2.6})
    rules = [("to", rf"{fixture.prefix}.*=f32")]
    (source / file).write_text(json.dumps(stated))
    sj.files.convert(source, out, rules)
    (found,) = sj.load_file(out).values()
    assert bits(found.numpy()) == bits(fixture.expected["float32"])
    assert sorted(os.listdir(out)) == ["config.json", "model.safetensors"]

    sj.files.convert(source, out, [("rename", r"s/(.*)/b.\1/")])
    assert json.loads((out / file).read_text()) == stated
    sj.files.convert(out, out, [("rename", r"s/b\.(.*)/\1/")])
    assert (out / file).exists()
    more = {f"b.{name}": x for name, x in fixture.checkpoint().items()}
    sj.save_file(fixture.checkpoint() | more, source / "model.safetensors")
    with pytest.raises(sj.FormatError, match=rf"{file} cannot describe only some of the weights"):
        sj.files.convert(source, out, rules)
    (source / "config.json").write_text(json.dumps({"quantization_config": {"bits": 4}}))
    sj.files.convert(source, out, rules)
    config = json.loads((out / "config.json").read_text())
    assert config["quantization_config"]["modules_to_not_convert"] == [fixture.prefix]
    assert not (out / file).exists()


@pytest.mark.parametrize(
    "name", ["awq-gemm", "fp8-block-16x32", "mxfp4-gpt-oss-gate-up", "bnb-nf4", "nvfp4-modelopt"]
)
def test_modules_are_renamed_whole_or_not_at_all(name, tmp_path):
    fixture, out = scheme_fixtures.named(name), tmp_path / "out"
    tensors = fixture.checkpoint() | {"norm": np.ones(3, np.float32)}
    source = plain_folder(tmp_path / "in", tensors, fixture.config)
    (weight,) = sj.schemes.detect(tensors, fixture.config)
    for first in ("b.", ""):
        sj.files.convert(source, out, [("rename", rf"s/(.*)/{first}a.\1/")])
        assert [*sj.load_file(out)] == [f"{first}a.{name}" for name in sj.load_file(source)]
        (found,) = sj.schemes.detect(sj.load_file(out), fixture.config)
        assert found.scheme == fixture.scheme
    codes = re.escape(weight.codes)
    for rule in (rf"s/{codes}/b.codes/", rf"s/(?!{codes}$)(.*)/b.\1/"):
        with pytest.raises(sj.FormatError, match="cannot be read any more"):
            sj.files.convert(source, out, [("rename", rule)])


@pytest.mark.parametrize("nested", [False, True])
def test_what_config_json_tells_is_followed_and_deleted_at_any_depth(nested, tmp_path):
    fixture, out = scheme_fixtures.named("gptq-4bit-v2"), tmp_path / "out"
    more = {f"b.{name}": x for name, x in fixture.checkpoint().items()}
    stated = {**fixture.config["quantization_config"]}
    version = {} if nested else {"checkpoint_format": stated.pop("checkpoint_format")}
    config = {"quantization_config": stated, "torch_dtype": "float16"}
    if nested:
        config = {"quantization_config": {}, "thinker_config": {"text_config": config}}
    source = plain_folder(tmp_path / "in", fixture.checkpoint() | more, config)
    (source / "quantize_config.json").write_text(json.dumps({"bits": 4, **version}))
    sj.files.convert(source, out, [("to", "f32")])
    for found in sj.load_file(out).values():
        assert bits(found.numpy()) == bits(fixture.expected["float32"])
    text = (out / "config.json").read_text()
    assert "quant" not in text
    assert "float32" in text
    assert sorted(os.listdir(out)) == ["config.json", "model.safetensors"]

    # some weights stay: config.json alone tells of them then
    sj.files.convert(source, out, [("to", r"b\..*=f32")])
    assert sorted(os.listdir(out)) == ["config.json", "model.safetensors"]
    sj.files.convert(out, tmp_path / "all", [("to", "f32")])
    for found in sj.load_file(tmp_path / "all").values():
        assert bits(found.numpy()) == bits(fixture.expected["float32"])


def test_the_index_counts_what_is_decoded(tmp_path):
    fixture = scheme_fixtures.named("awq-gemm")
    source, name = folder_of(tmp_path / "in", fixture), "model.safetensors.index.json"
    index = json.loads((source / name).read_text())
    index["metadata"] = {"total_size": 1, "total_parameters": 1, "by": "me"}
    (source / name).write_text(json.dumps(index))
    sj.files.convert(source, tmp_path / "out", [("to", "bf16")], max_shard_size=100)
    found = json.loads((tmp_path / "out" / name).read_text())["metadata"]
    count = fixture.expected["float32"].size + 6
    assert found == {"total_size": 2 * count, "total_parameters": count, "by": "me"}


def test_scales_of_a_quantised_cache_vanish_with_the_last_quantised_weight(tmp_path, capsys):
    fixture = scheme_fixtures.named("fp8-tensor-modelopt")
    more = {f"b.{name}": x for name, x in fixture.checkpoint().items()}
    scales = dict.fromkeys(["attn.k_scale", "attn.v_proj.v_scale"], np.float32(0.5))
    for cached in (True, False):
        algorithm = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8" if cached else None}
        config = {"quantization_config": {"quant_method": "modelopt", **algorithm}}
        source, out = tmp_path / f"in{cached}", tmp_path / f"out{cached}"
        plain_folder(source, fixture.checkpoint() | more | scales, config)
        sj.files.convert(source, out, [("to", "b.*=bf16")])
        assert scales.keys() < sj.load_file(out).keys()
        sj.files.convert(source, out, [("to", "bf16"), ("rename", r"s/(.*)/\1/")])
        assert (scales.keys() < sj.load_file(out).keys()) is not cached
        for a, b in ((source, out), (out, source)):
            assert run(capsys, "verify", a, b).out == "none of 4 weights differ\n"


def test_a_file_that_is_published_alone(tmp_path):
    """ComfyUI tells of its weights in the file's metadata, which follow."""
    fixture = scheme_fixtures.named("fp8-tensor-comfyui")
    layers = json.dumps({"layers": {fixture.prefix: {"format": "float8_e4m3fn"}}})
    metadata = {"_quantization_metadata": layers, "by": "me"}
    sj.save_file(fixture.checkpoint(), tmp_path / "a.safetensors", metadata=metadata)
    sj.files.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", [("to", "bf16")])
    found = safetensors.read(tmp_path / "b.safetensors")
    assert found.metadata == {"by": "me"}
    assert list(found.tensors) == [f"{fixture.prefix}.weight"]


def test_gguf_is_decoded(tmp_path):
    raw = RNG.integers(0, 256, (6, 1024 // 256 * 144), np.uint8)
    raw.reshape(6, 4, 144)[..., :4] = np.array([1, 2], np.float16).view(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    kind = gguf.GGMLQuantizationType.Q4_K
    writer.add_tensor("blk.0.ffn_up.weight", raw, raw_dtype=kind)
    writer.add_tensor("norm.weight", np.ones(3, np.float32))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    sj.files.convert(tmp_path / "a.gguf", tmp_path / "b.safetensors", [("to", "f32")])
    found = sj.load_file(tmp_path / "b.safetensors")
    wanted = gguf.quants.dequantize(raw, kind)
    assert bits(found["blk.0.ffn_up.weight"].numpy()) == bits(wanted)
    assert found["norm.weight"].numpy().tolist() == [1, 1, 1]
    for rules, names in (
        ([("to", "f32")], ["general.architecture"]),
        ([("exclude", "norm.*")], ["general.architecture", "general.file_type"]),
    ):
        sj.files.convert(tmp_path / "a.gguf", tmp_path / "c.gguf", rules)
        keys = gguf.GGUFReader(tmp_path / "c.gguf").fields
        assert [key for key in keys if key.startswith("general.")] == names


# The command line


def run(capsys, *words, code=0):
    assert main([str(word) for word in words]) == code
    return capsys.readouterr()


def test_a_single_file_warns_of_what_config_json_tells(tmp_path, capsys):
    source, _ = quantised(tmp_path / "in")
    file, shard = tmp_path / "out.safetensors", source / "model-00001-of-00003.safetensors"
    stated = (
        f"warning: {file}: no config beside it describes its quantised weights (fp8:block), as "
        f"config.json does in a folder: convert to a folder, or decode them (--to bf16)\n"
    )
    refused = run(capsys, "convert", source, file, "--strict", code=2).err
    assert "no config beside it describes" in refused
    assert refused.endswith("(--strict)\n")
    assert not file.exists()
    assert run(capsys, "convert", source, file).err == stated
    assert run(capsys, "convert", shard, file, "--rename", "s/(.*)/x.\\1/").err == stated
    assert run(capsys, "convert", source, tmp_path / "plain", "--to", "f32").err == ""
    encoded = run(capsys, "convert", tmp_path / "plain", file, "--to", "fp8:channel").err
    assert encoded == stated.replace("fp8:block", "fp8:channel")
    # These lie beside a config.json that tells of them, or have no such weight.
    assert run(capsys, "convert", source, source / "all.safetensors").err == ""
    assert run(capsys, "convert", source, file, "--to", "f32").err == ""
    assert run(capsys, "convert", source, file, "--select", ".*scale_inv").err == ""
    assert run(capsys, "convert", source, tmp_path / "out").err == ""


def test_the_command_line(tmp_path, capsys):
    source, wanted = quantised(tmp_path / "in")
    (tmp_path / "rules.toml").write_text("[[rule]]\nto = 'f32'\n[[rule]]\nrename = 's/(.*)/x.\\1/'")
    words = ("convert", source, tmp_path / "out", "--rules", tmp_path / "rules.toml")
    out = run(capsys, *words, "--dry-run").out.splitlines()
    assert out[0].split() == ["name", "scheme", "before", "after", "way", "bytes"]
    shape = wanted[next(iter(wanted))].shape
    assert out[1].startswith("x.#.")
    for word in (" x 3 ", "fp8:block", f"float8_e4m3fn {shape} + ", f"float32 {shape}", "copy"):
        assert word in out[1]
    nbytes = sum(x.nbytes for x in wanted.values())
    assert out[2:] == [f"3 tensors, {nbytes} bytes"]
    (group,) = json.loads(run(capsys, *words, "--dry-run", "--json").out)["groups"]
    assert (group["scheme"], group["count"], group["way"], group["nbytes"]) == (
        "fp8:block", 3, "copy", nbytes,
    )  # fmt: skip
    assert not (tmp_path / "out").exists()
    assert run(capsys, *words, "--quiet", "--max-shard-size=20KB") == ("", "")
    check_decoded(tmp_path / "out", {f"x.{name}": x for name, x in wanted.items()})
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 3
    found = run(capsys, *words, "--json", "--rename", "s/x.(.*)/\\1/").out
    assert json.loads(found)["bytes_written"] == nbytes
    check_decoded(tmp_path / "out", wanted)
    assert "20 parsecs" in run(capsys, *words, "--max-shard-size=20 parsecs", code=2).err


JUNK = (None, True, -1, 0, 2**70, 1.5, "", "x", [], [1], {}, {"a": 1}, [128, 128], "fp8")
TARGETS = ("bf16", "f32", "awq", "gptq", "mlx", "int4:compressed-tensors", "fp8:block")


def mutated(value, random):
    """A JSON value, some of its parts replaced by others."""
    if random.random() < 0.15:
        return random.choice(JUNK)
    if isinstance(value, dict):
        kept = (key if random.random() < 0.95 else "other" for key in value)
        return {key: mutated(x, random) for key, x in zip(kept, value.values(), strict=True)}
    return [mutated(x, random) for x in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(4))
def test_mutated_folders_are_converted_or_refused(seed, tmp_path):
    """With an error of ours, and without debris; shapejit's proof of the result never fails."""
    random, source, faults = Random(seed), tmp_path / "in", []
    for _ in range(40):
        fixture = random.choice(FIXTURES)
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        tensors = fixture.checkpoint()
        name = random.choice(list(tensors))
        action = random.choice(("keep", "drop", "flatten"))
        if action != "keep":
            x = tensors.pop(name)
            tensors |= {name: np.ascontiguousarray(x).reshape(-1)} if action == "flatten" else {}
        path = source / "model.safetensors"
        sj.save_file(tensors, path)
        config = {"torch_dtype": "bfloat16", **fixture.config}
        (source / "config.json").write_text(json.dumps(mutated(config, random)))
        if random.random() < 0.3:
            raw = bytearray(path.read_bytes())
            raw[random.randrange(min(len(raw), 600))] = random.randrange(256)
            path.write_bytes(raw)
        try:
            sj.files.convert(source, tmp_path / "out", [("to", random.choice(TARGETS))])
        except (sj.ShapeJitError, OSError) as fault:
            faults.append(str(fault))
        assert set(os.listdir(tmp_path)) <= {"in", "out"}
    assert 0 < len(faults) < 40
    assert not [text for text in faults if "the proof failed" in text]


# Moments are what is done to files: between these, what is on disk does not change.
RANDOMLY = """
import os, random, shutil, signal, sys
from pathlib import Path
import shapejit as sj
from shapejit.files import npy, writing
home, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
source = home / "in"

def convert(target, kind, rules=None, **options):
    given = home / target if target == "same" else source
    rules = [("to", kind)] if rules is None else rules
    sj.files.convert(given, home / target, rules, max_shard_size=20_000, **options)

def in_parts(target, kind, resume=False):
    for part in (2, 1, 3):
        convert(target, kind, part=(part, 3), resume=resume)
    convert(target, kind, commit=3)

def contents(target):
    files = [home / target] if (home / target).is_file() else sorted((home / target).rglob("*"))
    names = {p: p.name if p == home / target else str(p.relative_to(home / target)) for p in files}
    return {name: p.read_bytes() for p, name in names.items() if p.is_file()}

def prepare(mode, target):
    if mode.startswith("new") and (home / target).exists():
        shutil.rmtree(home / target)
    if mode.startswith("same"):
        shutil.rmtree(home / target, ignore_errors=True)
        shutil.copytree(source, home / target)

moments, last = 0, None  # of this process, and at which it is killed

def moment(event, _=()):
    global moments
    if event in ("open", "write") or event.startswith(("os.", "shutil.")):
        moments += 1
        if moments == last: os.kill(os.getpid(), signal.SIGKILL)

write_all = writing.write_all
def halves(descriptor, data):
    half = len(data) // 2
    for part in (data[:half], data[half:]):
        moment("write")
        write_all(descriptor, part)

sys.addaudithook(moment)
npy.write_all = writing.write_all = halves
modes = {"new": "new", "existing": "out", "same": "same", "file": "out.npz"}
modes |= {f"{mode} by parts": modes[mode] for mode in ("new", "existing", "same")}
new, counts = {}, {}
for mode, target in modes.items():
    for kind in ("f32", "bf16"):
        prepare(mode, target)
        before = moments
        (in_parts if "parts" in mode else convert)(target, kind)
        counts[mode] = moments - before
        new[target, kind] = contents(target)
everything = sorted(os.listdir(home))
killed = resumed = 0
for _ in range(rounds):
    mode, kind = seed.choice([*modes]), seed.choice(["f32", "bf16"])
    target = modes[mode]
    prepare(mode, target)
    before, run = contents(target), in_parts if "parts" in mode else convert
    after = int(seed.random() * counts[mode] * 1.2) + 1
    child = os.fork()
    if child == 0:
        last = moments + after
        run(target, kind)
        os._exit(0)
    killed += os.waitpid(child, 0)[1] == signal.SIGKILL
    assert contents(target) in (before, new[target, kind]), (mode, kind)
    resumed += bool([*home.glob(".*/*.safetensors")])
    if mode.startswith("same") and contents(target) != before:
        convert(target, kind, [])
    else:
        run(target, kind, resume=mode != "file" and seed.random() < 0.7)
    assert contents(target) == new[target, kind], (mode, kind)
    assert sorted(os.listdir(home)) == everything, (mode, kind)
print(killed, resumed)
"""


@pytest.mark.parametrize("rounds", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_random_moments(rounds, tmp_path):
    """The destination is the old one or the new one, and the next run finishes it.

    New and existing folders, and one that is its own source, as a whole and by parts; and a file.
    """
    quantised(tmp_path / "in", 6)
    command = [sys.executable, "-c", RANDOMLY, tmp_path, str(rounds), "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert found.returncode == 0, found.stderr
    killed, _ = map(int, found.stdout.split())
    assert killed > rounds // 4
