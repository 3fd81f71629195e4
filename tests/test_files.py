"""load_file and save_file: both ways with NumPy, safetensors and gguf, and hostile files."""

import json
import os
import pickle
import re
import struct
import sys
import tracemalloc
import zipfile
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import shapejit as sj
from shapejit.__main__ import main
from shapejit.files import npz

gguf = pytest.importorskip("gguf")
reference = pytest.importorskip("safetensors.numpy")

KINDS = [kind for kind in sj.dtypes.all() if kind.bits]


def tensor(kind, shape=(2, 3, 4)):
    kind = sj.dtype(kind)
    top = 2 if kind.name == "bool" else 256
    count = kind.nbytes(int(np.prod(shape)))
    raw = np.random.default_rng(0).integers(0, top, count, np.uint8)
    return sj.Tensor.frombuffer(raw, kind, shape)


def same(found, t):
    assert (found.dtype, found.shape) == (t.dtype, t.shape)
    assert found.tobytes() == t.tobytes()
    assert not found.buffer.flags.writeable


# Round trips


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numpys_formats_keep_every_dtype(kind, tmp_path):
    t = tensor(kind)
    sj.save_file({"a/b": t, "turned": t[:, ::-1]}, tmp_path / "w.npz")
    sj.save_file({"any": t}, tmp_path / "w.npy")
    found = sj.load_file(tmp_path / "w.npz")
    assert list(found) == ["a/b", "turned"]
    same(found["a/b"], t)
    same(found["turned"], t[:, ::-1])
    same(sj.load_file(tmp_path / "w.npy")["arr_0"], t)
    with np.load(tmp_path / "w.npz") as theirs:
        for x in (theirs["a/b"], np.load(tmp_path / "w.npy")):
            assert x.shape == t.shape
            codes = x if x.dtype.names is None else x[kind.name]
            assert codes.tobytes() == t.unpack().tobytes()
        np.savez_compressed(tmp_path / "small.npz", x=x)
    same(sj.load_file(tmp_path / "small.npz")["x"], t)


def test_arrays_that_numpy_writes(tmp_path):
    given = {
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 3), np.int16),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "flags": np.array([True, False]),
    }
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "a.npz", **given)
        found = sj.load_file(tmp_path / "a.npz")
        for name, x in given.items():
            np.testing.assert_array_equal(found[name], x)
            np.save(tmp_path / "a.npy", x)
            np.testing.assert_array_equal(sj.load_file(tmp_path / "a.npy")["arr_0"], x)
    np.savez(tmp_path / "none.npz")
    assert dict(sj.load_file(tmp_path / "none.npz")) == {}


def test_safetensors_own_loader(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    sj.save_file({"x": x, "t": sj.asarray(x).T}, tmp_path / "a", metadata={"k": "v"})
    theirs = reference.load_file(tmp_path / "a")
    np.testing.assert_array_equal(theirs["t"], x.T)
    reference.save_file(theirs, tmp_path / "b.safetensors")
    found = sj.load_file(tmp_path / "b.safetensors")
    np.testing.assert_array_equal(found["x"], x)
    assert "none" not in found
    with pytest.raises(KeyError):
        found["none"]


def test_tensors_outlive_the_mapping_and_the_file(tmp_path):
    for name in ("a.safetensors", "a.npz", "a.npy"):
        sj.save_file({"arr_0": np.arange(5)}, tmp_path / name)
        t = sj.load_file(tmp_path / name)["arr_0"]
        sj.save_file({"arr_0": t[::-1]}, tmp_path / name)
        assert t.numpy().tolist() == [0, 1, 2, 3, 4]
        assert sj.load_file(tmp_path / name)["arr_0"].numpy().tolist() == [4, 3, 2, 1, 0]


def test_the_first_bytes_say_what_a_file_is(tmp_path):
    sj.save_file({"x": np.arange(3)}, tmp_path / "x.npz")
    os.rename(tmp_path / "x.npz", tmp_path / "x.safetensors")
    assert sj.load_file(tmp_path / "x.safetensors")["x"].shape == (3,)


# Shards


@pytest.fixture
def shards(tmp_path):
    """A folder of two shards: a and b in 1, c in 2."""
    folder = tmp_path / "model"
    folder.mkdir()
    x = np.arange(6, dtype=np.float32)
    sj.save_file({"a": x, "b": x + 1}, folder / "1.safetensors")
    sj.save_file({"c": x + 2}, folder / "2.safetensors")
    places = {"c": "2.safetensors", "a": "1.safetensors", "b": "1.safetensors"}
    index(folder, places)
    return folder


def index(folder, places):
    raw = places if isinstance(places, str) else json.dumps({"weight_map": places})
    (folder / "model.safetensors.index.json").write_text(raw)


def test_shards_are_one_mapping(shards):
    for path in (shards, shards / "model.safetensors.index.json"):
        found = sj.load_file(path)
        assert {name: t.numpy()[0] for name, t in found.items()} == {"c": 2, "a": 0, "b": 1}
    assert list(found) == ["c", "a", "b"]
    assert repr(found) == f"<3 tensors of {path}>"


@pytest.mark.parametrize("part", ["", "transformer/onnx"])
def test_a_snapshot_of_the_hub_cache_links_to_its_blobs(part, shards, tmp_path):
    """Blobs lie in the repository's folder, or are links to the blobs of all repositories."""
    cache = tmp_path / "hub"
    blobs, folder = cache / "models--a--b/blobs", cache / "models--a--b/snapshots/0a1b" / part
    folder.mkdir(parents=True)
    shared = cache / "blobs" / "0f"
    shared.mkdir(parents=True)
    os.rename(shards, blobs)
    for name in os.listdir(blobs):
        (folder / name).symlink_to(os.path.relpath(blobs / name, folder))
    os.rename(blobs / "1.safetensors", shared / "0f1e")
    (blobs / "1.safetensors").symlink_to("../../blobs/0f/0f1e")
    assert list(sj.load_file(folder)) == ["c", "a", "b"]
    sj.files.convert(folder, tmp_path / "out", [("exclude", "a")])
    assert list(sj.load_file(tmp_path / "out")) == ["c", "b"]
    for place in ("models--a--b/x", "models--c--d/blobs/x", "../x"):
        outside, link = cache / place, folder / "notes"
        outside.parent.mkdir(parents=True, exist_ok=True)
        outside.write_text("")
        link.symlink_to(os.path.relpath(outside, folder))
        with pytest.raises(sj.FileFormatError, match=r"notes.*leads out"):
            sj.files.convert(folder, tmp_path / "out", [("exclude", "a")])
        link.unlink()


@pytest.mark.parametrize(
    ("places", "tensor", "reason"),
    [
        ({"a": "../out.safetensors"}, "a", "leads out of the model's folder"),
        ({"a": "../model/1.safetensors", "b": "1.safetensors"}, "a", "leads out"),
        ({"a": "/etc/passwd"}, "a", "must be relative"),
        ({"a": "link.safetensors"}, "a", "leads out"),
        ({"a": ""}, "a", "no file can have the name"),
        ({"a": "."}, "a", "leads out"),
        ({"a": "\0"}, "a", "no file can have the name"),
        ({"a": "3.safetensors"}, "a", "'3.safetensors' does not exist"),
        ({"a": "1.safetensors", "b": "./1.safetensors"}, "b", "the same file"),
        ({"a": "1.safetensors"}, "b", "the index does not say so"),
        ({"d": "2.safetensors"}, "d", "not in its shard '2.safetensors'"),
        ({"a": 1}, "a", "not the name of a file"),
        ('{"weight_map": {"a": "1", "a": "2"}}', None, "'a' occurs twice"),
        ('{"weight_map": []}', None, "not a JSON object"),
        ("{}", None, "weight_map is not a JSON object"),
        ("[" * 10**5, None, "not JSON"),
        ("{", None, "not JSON"),
    ],
)
def test_a_bad_index_is_refused(places, tensor, reason, shards):
    sj.save_file({"a": np.zeros(1)}, shards.parent / "out.safetensors")
    (shards / "link.safetensors").symlink_to("../out.safetensors")
    index(shards, places)
    with pytest.raises(sj.FileFormatError, match=reason) as caught:
        sj.load_file(shards)
    assert caught.value.tensor == tensor
    assert os.path.isabs(caught.value.path)


def test_a_link_to_a_shard_is_the_same_file(shards, monkeypatch):
    monkeypatch.chdir(shards.parent)
    (shards / "link.safetensors").symlink_to("1.safetensors")
    index(shards, {"a": "1.safetensors", "b": "link.safetensors"})
    with pytest.raises(sj.FileFormatError, match="is the same file as '1"):
        sj.load_file(shards.name)


def test_a_folder_without_an_index_is_refused(tmp_path):
    (tmp_path / "optimizer.bin").touch()
    with pytest.raises(sj.FileFormatError, match=r"nor a folder.*it holds 'optimizer.bin'"):
        sj.load_file(tmp_path)


# NPY and NPZ from strangers


def npy(text, data=b"", version=1):
    raw = text.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(raw)) + raw + data


def described(descr="'<f4'", fortran="False", shape="(2,)"):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}"


BROKEN = {
    "short": (b"\x93NUMPY", "magic string"),
    "version": (npy(described(), bytes(8), 4), "version 4.0"),
    "cut header": (npy(described())[:20], "EOF"),
    "long header": (b"\x93NUMPY\x02\0" + b"\xff" * 90, "4294967295 bytes"),
    "no dict": (npy("1 + 1"), "not one of an NPY array"),
    "nesting": (npy("(" * 5000), "not one of an NPY array"),
    "signs": (npy("-" * 9000 + "1"), "not one of an NPY array"),
    "digits": (npy(described(shape=f"({'9' * 9000},)")), "not one of an NPY array"),
    "call": (npy("__import__('os').abort()"), "not one of an NPY array"),
    "unhashable": (npy("{[]: 1}"), "not one of an NPY array"),
    "keys": (npy("{'descr': '<f4', 'shape': ()}"), "not one of an NPY array"),
    "pickle": (npy(described("'|O'"), pickle.dumps([1])), "pickle, which is never loaded"),
    "big-endian": (npy(described("'>f4'"), bytes(8)), "big-endian"),
    "lost": (npy(described("'<V2'"), bytes(4)), "raw bytes of unknown type"),
    "text": (npy(described("'<U4'"), bytes(32)), "'<U4' is unknown"),
    "record": (npy(described("[('x', '<f4')]"), bytes(8)), "is unknown"),
    "wrong record": (npy(described("[('bfloat16', '<u4')]"), bytes(8)), "is unknown"),
    "no dtype": (npy(described("7"), bytes(8)), "descriptor: 7"),
    "order": (npy(described(fortran="1"), bytes(8)), "fortran_order"),
    "negative": (npy(described(shape="(-2,)"), bytes(8)), "shape"),
    "bool": (npy(described(shape="(True,)"), bytes(4)), "shape"),
    "list": (npy(described(shape="[2]"), bytes(8)), "shape"),
    "huge": (npy(described(shape=f"({2**62},)")), "overflow int64"),
    "huge beside zero": (npy(described(shape=f"({2**62}, 0)")), "overflow int64"),
    "rank": (npy(described(shape=repr((1,) * 65)), bytes(4)), "65 dims"),
    "too short": (npy(described(), bytes(7)), "are 8 bytes, but 7 follow"),
    "too long": (npy(described(), bytes(9)), "are 8 bytes, but 9 follow"),
    "a tebibyte": (npy(described(shape=f"({2**38},)")), "but 0 follow"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_arrays_are_refused(case, tmp_path):
    raw, reason = BROKEN[case]
    (tmp_path / "a.npy").write_bytes(raw)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / f"{method}.npz", "w", method) as archive:
            archive.writestr("w.npy", raw)
    tracemalloc.start()
    for path, name in (("a.npy", "arr_0"), ("0.npz", "w"), ("8.npz", "w")):
        with pytest.raises(sj.FileFormatError, match=reason) as caught:
            sj.load_file(tmp_path / path)
        assert caught.value.tensor == name
        assert path in str(caught.value)
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    tracemalloc.stop()


BY_ZIPFILE = "Overlapped entries"  # as Python says since 3.11.8 and 3.12.2, and Debian's 3.11.2


def archive(path, method=zipfile.ZIP_STORED, names=("w.npy",)):
    with zipfile.ZipFile(path, "w", method) as made:
        for name in names:
            made.writestr(name, npy(described(), bytes(8)))
    return bytearray(path.read_bytes())


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["archive/data.pkl"], "torch does not load it|a pickle of PyTorch"),
        (["w.npy", "w.npy"], "two members"),
        (["folder/"], "looks like a ZIP"),
    ],
)
def test_other_archives_are_refused(names, reason, tmp_path):
    archive(tmp_path / "a.npz", names=names)
    with pytest.raises(sj.FileFormatError, match=reason):
        sj.load_file(tmp_path / "a.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method, tmp_path):
    archive(tmp_path / "a.npz", method)
    with pytest.raises(sj.FileFormatError, match=f"method {method}, not by deflate"):
        sj.load_file(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (8, 1, "encrypted"),
        (20, 2**31, "stored, but has 2147483648 bytes"),  # compressed size
        (20, 3, "stored, but has 3 bytes"),
        (24, 2**29, "bytes cannot become 536870912"),  # size
        (24, 99, "stored, but has"),
        (24, 2**31, "would decompress to 2147483648"),
        (42, 2**31, "it cannot be read: .*header"),  # where it begins
        (42, 1, "it cannot be read: .*header"),
    ],
)
def test_a_directory_that_lies_is_refused(at, value, reason, tmp_path):
    raw = archive(tmp_path / "a.npz")
    struct.pack_into("<H" if at == 8 else "<I", raw, raw.index(b"PK\x01\x02") + at, value)
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(sj.FileFormatError, match=reason):
        sj.load_file(tmp_path / "a.npz")


def test_a_compressed_member_beyond_the_file_is_refused(tmp_path):
    raw = archive(tmp_path / "a.npz", zipfile.ZIP_DEFLATED)
    struct.pack_into("<I", raw, raw.index(b"PK\x01\x02") + 20, 2**20)
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(sj.FileFormatError, match=f"its data end beyond the file|{BY_ZIPFILE}"):
        sj.load_file(tmp_path / "a.npz")


def test_members_that_share_bytes_are_refused(tmp_path):
    inner = archive(tmp_path / "b.npz", names=("b.npy",))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as made:
        made.writestr("a.npy", npy(described("'u1'", shape=f"({len(inner)},)"), inner))
        made.writestr("b.npy", npy(described(), bytes(8)))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    struct.pack_into("<I", raw, raw.rindex(b"PK\x01\x02") + 42, raw.index(inner))
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(
        sj.FileFormatError, match=f"its data overlap those of tensor 'a'|{BY_ZIPFILE}"
    ):
        sj.load_file(tmp_path / "a.npz")


def test_a_zip_bomb_takes_no_memory(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("w.npy", npy(described(shape=f"({2**22},)"), bytes(2**24)))
    assert sj.load_file(tmp_path / "a.npz")["w"].nbytes == 2**24
    monkeypatch.setattr(npz, "MAX_DECOMPRESSED", 2**20)
    tracemalloc.start()
    with pytest.raises(sj.FileFormatError, match="would decompress to"):
        sj.load_file(tmp_path / "a.npz")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_compressed_data_that_are_damaged_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", w=np.random.default_rng(0).random(1000))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[5000] ^= 1
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(sj.FileFormatError, match="cannot be decompressed") as caught:
        sj.load_file(tmp_path / "a.npz")["w"]
    assert caught.value.tensor == "w"
    assert main(["convert", str(tmp_path / "a.npz"), str(tmp_path / "b")]) == 2
    assert os.listdir(tmp_path) == ["a.npz"]


# GGUF


@pytest.fixture
def model(tmp_path):
    """A GGUF file, and what is in it: float32, bfloat16, int8 and two quantised tensors."""
    x = np.random.default_rng(0).random((4, 64), np.float32)
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_uint32("an.int", 7)
    writer.add_array("tokens", [f"t{i}" for i in range(20)])
    writer.add_array("scores", [0.5, 1.5])
    for name, kind in (("q4", kinds.Q4_0), ("q8", kinds.Q8_0), ("bf", kinds.BF16)):
        writer.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)
    writer.add_tensor("f", x)
    writer.add_tensor("i", x.astype(np.int8))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "m.gguf"


def test_gguf_is_read_as_its_own_reader_reads_it(model):
    found = sj.load_file(model)
    theirs = gguf.GGUFReader(model).tensors
    assert list(found) == [t.name for t in theirs]
    for t in theirs:
        assert found[t.name].tobytes() == t.data.tobytes()
    assert {name: (str(t.dtype), t.shape) for name, t in found.items()} == {
        "q4": ("uint8", (4, 2 * 18)),
        "q8": ("uint8", (4, 2 * 34)),
        "bf": ("bfloat16", (4, 64)),
        "f": ("float32", (4, 64)),
        "i": ("int8", (4, 64)),
    }
    blocks = found["q4"].numpy()
    exact = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0)
    assert abs(exact - found["f"].numpy()).max() < 0.1


def refused_gguf(path, raw, reason):
    path.write_bytes(raw)
    with pytest.raises(sj.FileFormatError, match=reason):
        sj.load_file(path)


def text(word):
    return struct.pack("<Q", len(word)) + word


def gguf_file(infos=b"", tensors=0, pairs=(), version=3, data=b""):
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs)) + b"".join(pairs) + infos
    return head + bytes(-len(head) % 32) + data


def info(name=b"w", dims=(4,), kind=0, offset=0):
    sizes = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


HUGE = struct.pack("<Q", 2**60)
HOSTILE = {
    "short": (b"GGUF", "does not begin"),
    "version": (gguf_file(version=9), "has version 9"),
    "big-endian": (gguf_file(version=3 << 24), "big-endian"),
    "tensors": (gguf_file(tensors=2**60), "1152921504606846976 tensors cannot be in"),
    "metadata": (b"GGUF\3\0\0\0" + bytes(8) + HUGE, "1152921504606846976 metadata cannot"),
    "key": (gguf_file(pairs=[HUGE + bytes(9)]), "bytes of text cannot be in"),
    "UTF-8": (gguf_file(pairs=[text(b"\xff") + bytes(5)]), "not UTF-8"),
    "value": (gguf_file(pairs=[text(b"k") + struct.pack("<I", 99)]), "type 99 of a value"),
    "array": (
        gguf_file(pairs=[text(b"k") + struct.pack("<II", 9, 7) + HUGE]),
        "1152921504606846976 values cannot be in",
    ),
    "nesting": (
        gguf_file(pairs=[text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9]),
        "nested more than",
    ),
    "key twice": (gguf_file(pairs=[text(b"k") + bytes(5)] * 2), "'k' occurs twice"),
    "alignment": (
        gguf_file(pairs=[text(b"general.alignment") + struct.pack("<II", 4, 0)]),
        "not a power of two",
    ),
    "rank": (gguf_file(info(dims=(1,) * 5), 1), "tensor 'w': it has 5 dims"),
    "type": (gguf_file(info(kind=999), 1), "type 999 is unknown"),
    "block": (gguf_file(info(dims=(33,), kind=2), 1, data=bytes(64)), "blocks of 32"),
    "no row": (gguf_file(info(dims=(), kind=2), 1, data=bytes(64)), "blocks of 32"),
    "size": (gguf_file(info(dims=(2**62, 2**62)), 1), "overflow int64"),
    "beyond": (gguf_file(info(), 1, data=bytes(15)), "not in the file"),
    "offset": (gguf_file(info(offset=2**63), 1, data=bytes(16)), "not in the file"),
    "unaligned": (gguf_file(info(offset=8), 1, data=bytes(32)), "not aligned"),
    "overlap": (gguf_file(info() + info(b"v"), 2, data=bytes(16)), "overlap"),
    "twice": (gguf_file(info() + info(offset=32), 2, data=bytes(64)), "have this name"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_gguf_is_refused(case, tmp_path):
    tracemalloc.start()
    refused_gguf(tmp_path / "a.gguf", *HOSTILE[case])
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_the_valid_gguf_among_them_is_read(tmp_path):
    (tmp_path / "a").write_bytes(gguf_file(info(), 1, data=struct.pack("<4f", 1, 2, 3, 4)))
    assert sj.load_file(tmp_path / "a")["w"].numpy().tolist() == [1, 2, 3, 4]


# Any file


def mutations(raw):
    """Bytes of a file changed at some places, or its end cut off."""
    places = st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), max_size=4)
    return st.tuples(places, st.integers(len(raw) // 2, 2 * len(raw)))


@pytest.mark.parametrize("name", ["a.npz", "c.npz", "a.npy", "m.gguf"])
def test_mutations_are_refused_or_read(name, tmp_path, model):
    sj.save_file({"x": tensor("bfloat16"), "y": tensor("int4")}, tmp_path / "a.npz")
    np.savez_compressed(tmp_path / "c.npz", x=np.arange(9), y=np.ones((2, 3)))
    sj.save_file({"x": tensor("float32")}, tmp_path / "a.npy")
    raw = (tmp_path / name).read_bytes()

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(mutations(raw[:1500] if name == "m.gguf" else raw))
    def check(change):
        places, end = change
        changed = bytearray(raw)
        for at, value in places:
            changed[at] = value
        (tmp_path / f"changed.{name}").write_bytes(changed[:end])
        with suppress(sj.FileFormatError):
            found = sj.load_file(tmp_path / f"changed.{name}")
            assert sum(len(t.tobytes()) for t in found.values()) <= 1 << 16

    check()


@pytest.mark.parametrize(
    ("name", "raw", "what"),
    [
        ("a.safetensors", pickle.dumps([1], 2), "a pickle .of PyTorch"),
        ("a.bin", b"\x89HDF\r\n\x1a\n" + bytes(20), "HDF5"),
        ("a.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        ("a.npz", b"\x1f\x8b" + bytes(20), "gzip"),
        ("a.onnx", b"\x08\x07\x12\x00", "an ONNX model: it has no graph"),
        ("a.safetensors", b"<!DOCTYPE html>", "an HTML page"),
        ("a.bin", b"tjgg" + bytes(20), "GGML, from before GGUF"),
        ("a.xml", b'<?xml version="1.0"?>', "an OpenVINO IR"),
        ("config.json", b"{}", "looks like JSON"),
        ("model.pb", b"\x08\x01", "a graph of TensorFlow"),
        ("a.txt", b"hello", r"neither its first bytes b'hello'"),
        ("a", b"", "neither its first bytes"),
        ("a.safetensors", b"PK\x03\x04" + bytes(40), "not a complete ZIP"),
    ],
)
def test_files_of_another_kind_are_named(name, raw, what, tmp_path, capsys):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(sj.FileFormatError, match=what):
        sj.load_file(tmp_path / name)
    for words in (["inspect"], ["convert", str(tmp_path / "out")]):
        assert main([words[0], str(tmp_path / name), *words[1:]]) == 2
        assert re.search(what, capsys.readouterr().err)


def test_what_is_not_a_file(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(sj.FileFormatError, match="not a regular file"):
        sj.load_file(tmp_path / "a.npz")
    with pytest.raises(FileNotFoundError):
        sj.load_file(tmp_path / "none.npz")
    with pytest.raises(sj.FileFormatError, match="no file can have this name"):
        sj.load_file("a\0b")


# What cannot be saved

X = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("name", "tensors", "metadata", "reason"),
    [
        ("a.npz", {"a\0": X}, None, "cannot be a name"),
        ("a.npz", {"\ud800": X}, None, "cannot be a name"),
        ("a.npz", {"n" * 65532: X}, None, "cannot be a name"),
        ("a.npz", {1: X}, None, "a name must be a str, not '1'"),
        ("a.npz", {"a": X}, {"k": "v"}, "no metadata"),
        ("a.npy", {"a": X}, {"k": "v"}, "no metadata"),
        ("a.npy", {"a": X, "b": X}, None, "one tensor, not 2"),
        ("a.npy", {}, None, "one tensor, not 0"),
        ("a.safetensors", {"a": X.astype(np.complex128)}, None, "no dtype for complex128"),
        ("a.safetensors", {"__metadata__": X}, None, "cannot be a name"),
        ("a.pt", {"a": X}, None, "pytorch. cannot be written"),
        ("m.safetensors.index.json", {"a": X}, None, "cannot be written"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_first(name, tensors, metadata, reason, tmp_path):
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(sj.FileFormatError, match=reason):
        sj.save_file(tensors, tmp_path / name, metadata=metadata)
    assert (tmp_path / name).read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


def test_arguments_of_other_types(tmp_path):
    for words in ([X], {"a": X}), (1, {}), ({"a": X}, [1]):
        with pytest.raises((TypeError, ValueError)):
            sj.save_file(words[0], tmp_path / "a", metadata=words[1])
    with pytest.raises(TypeError):
        sj.load_file(None)
    assert os.listdir(tmp_path) == []


def test_strings_are_refused_by_name(tmp_path):
    with pytest.raises(sj.DTypeError, match="tensor 'words'"):
        sj.save_file({"words": np.array(["a"])}, tmp_path / "a.npz")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "a.safetensors"])
@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_other(name, at, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / name).write_bytes(b"old")
    monkeypatch.setattr(os, at, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        sj.save_file({"a": X}, tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


# The command line


def out(capsys, *words):
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_every_format_is_converted(shards, model, tmp_path, capsys):
    x = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    np.savez_compressed(tmp_path / "c.npz", x=np.asfortranarray(x.astype(np.float32)))
    out(capsys, "convert", tmp_path / "c.npz", tmp_path / "c.npy", "--permute", "x=1,0")
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), x.T)
    out(capsys, "convert", tmp_path / "c.npz", tmp_path / "x.npy", "--cast", "x=BF16")
    out(capsys, "convert", tmp_path / "x.npy", tmp_path / "x.npz", "--permute", "arr_0=1,0")
    with np.load(tmp_path / "x.npz") as found:
        np.testing.assert_array_equal(found["arr_0"].view(ml_dtypes.bfloat16), x.T)
    out(capsys, "convert", shards, tmp_path / "one.safetensors")
    assert set(reference.load_file(tmp_path / "one.safetensors")) == {"a", "b", "c"}
    plain = ("--exclude", "q4|q8")  # the blocks of these would lose their type
    out(capsys, "convert", model, tmp_path / "m.safetensors", *plain)
    ours, theirs = sj.load_file(tmp_path / "m.safetensors"), sj.load_file(model)
    assert ours.keys() == theirs.keys() - {"q4", "q8"}
    for name, t in ours.items():
        assert sj.array_equal(theirs[name], t)


def test_inspect_collapses_names(tmp_path, capsys):
    names = [f"layers.{i}.experts.{j}.up" for i in range(3) for j in range(2)]
    tensors = {name: np.zeros((2, 3), np.float32) for name in [*names, "v2.norm", "layers.0.x"]}
    for name in ("a.safetensors", "a.npz"):
        sj.save_file(tensors, tmp_path / name)
        lines = [line.split()[:6] for line in out(capsys, "inspect", tmp_path / name).splitlines()]
        assert ["layers.#.experts.#.up", "x", "6", "float32", "[2,3]", "144"] in lines
        assert ["v2.norm", "float32", "[2,3]", "24"] in [line[:4] for line in lines]
        assert lines[-1] == ["8", "tensors,", "192", "bytes"]
        found = json.loads(out(capsys, "inspect", tmp_path / name, "--json"))
        assert [row["name"] for row in found["tensors"]] == list(tensors)
        assert found["groups"][0] == {
            "name": "layers.#.experts.#.up",
            "count": 6,
            "dtype": "float32",
            "shape": [2, 3],
            "nbytes": 144,
        }


def test_inspect_gguf(model, capsys):
    text = out(capsys, "inspect", model)
    assert re.search(r"^q4 +Q4_0 +gguf:q4_0 +uint8 +\[4,36\] +144 ", text, re.MULTILINE)
    assert "an.int: 7\n" in text
    assert "'t7', ...] (20 values)\n" in text
    found = json.loads(out(capsys, "inspect", model, "--json"))
    assert found["format"] == "gguf"
    assert found["metadata"]["scores"] == [0.5, 1.5]
    assert len(found["metadata"]["tokens"]) == 20
    assert found["tensors"][0]["type"] == "Q4_0"


def test_inspect_shards(shards, capsys):
    assert out(capsys, "inspect", shards).splitlines()[1].split() == ["c", "float32", "[6]", "24"]
    found = json.loads(out(capsys, "inspect", shards, "--json"))
    assert [row["shard"] for row in found["tensors"]] == ["2.safetensors"] + ["1.safetensors"] * 2


def test_inspect_tells_schemes_and_what_is_odd(tmp_path, capsys):
    scheme = sj.schemes["nvfp4:modelopt"]
    given, places = {}, {}
    for i in range(3):
        parts = scheme.encode(np.full((2, 32), i + 1, np.float32))
        parts["weight_scale_2"] = sj.asarray(np.float32(7))
        given |= {f"layers.{i}.up.{key}": t for key, t in parts.items()}
    given["layers.0.down.qzeros"] = np.ones((2, 2), np.int32)
    for shard in ("1.safetensors", "2.safetensors"):
        own = {name: t for name, t in given.items() if (shard[0] == "1") == name.endswith("_2")}
        sj.save_file(own, tmp_path / shard)
        places |= dict.fromkeys(own, shard)
    index(tmp_path, places)
    config = {"quantization_config": {"quant_method": "modelopt"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    lines = out(capsys, "inspect", tmp_path).splitlines()
    assert ["layers.#.up.weight", "x", "3", "nvfp4:modelopt", "uint8", "[2,16]", "96"] in [
        line.split() for line in lines
    ]
    assert "unclear: layers.0.down.qzeros: no codes belong to it" in lines
    (warning,) = [line for line in lines if line.startswith("warning: ")]
    assert warning.startswith("warning: layers.#.up: weight_scale_2 is 7, above 1")
    assert warning.endswith(" x 3")
    found = json.loads(out(capsys, "inspect", tmp_path, "--json"))
    assert found["weights"][0] == {
        "name": "layers.0.up.weight",
        "scheme": "nvfp4:modelopt",
        "tensors": [f"layers.0.up.{key}" for key in ("weight", "weight_scale", "weight_scale_2")],
    }
    assert len(found["weights"]) == len(found["warnings"]) == 3
    assert found["unclear"][0]["names"] == ["layers.0.down.qzeros"]
    assert {row.get("scheme") for row in found["tensors"]} == {"nvfp4:modelopt", None}


def test_inspect_of_no_tensors(tmp_path, capsys):
    sj.save_file({}, tmp_path / "a.safetensors")
    head, count = out(capsys, "inspect", tmp_path / "a.safetensors").splitlines()
    assert head.split() == ["name", "dtype", "shape", "bytes", "begin", "end"]
    assert count == "0 tensors, 0 bytes"


def test_inspect_reads_no_data_of_plain_tensors(tmp_path, capsys):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **{"fc.weight": np.random.default_rng(0).normal(size=500)})
    raw = bytearray(path.read_bytes())
    raw[1000:1100] = bytes(100)
    path.write_bytes(raw)
    assert out(capsys, "inspect", path).endswith("1 tensor, 4000 bytes\n")
    with pytest.raises(sj.FileFormatError, match="cannot be decompressed"):
        sj.load_file(path)["fc.weight"]


def test_inspect_tells_the_schemes_of_gguf(model, capsys):
    found = json.loads(out(capsys, "inspect", model, "--json"))
    assert {"name": "q4", "scheme": "gguf:q4_0", "tensors": ["q4"]} in found["weights"]


def test_without_the_package_gguf_the_error_says_what_to_install(model, monkeypatch, capsys):
    for name in ("gguf", "gguf.constants", "shapejit.files.gguf"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "shapejit.files.gguf")
    with pytest.raises(ImportError, match=r"pip install 'shapejit\[gguf\]'"):
        sj.load_file(model)
    assert main(["inspect", str(model)]) == 2
    assert "shapejit[gguf]" in capsys.readouterr().err
