"""safetensors files: both ways with the reference library, and every way to be broken."""

import ctypes
import errno
import gc
import json
import os
import re
import stat
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors as reference
from hypothesis import HealthCheck, example, given, settings, strategies as st

import shapejit as sj
from shapejit.files import file_formats, pieces, safetensors
from shapejit.files.writing import New

KINDS = [kind for kind in sj.dtypes.all() if kind.safetensors]
WITHOUT = [kind for kind in sj.dtypes.all() if kind.bits and not kind.safetensors]

# What the reference's Python binding calls a dtype when it writes; it cannot write float6.
WRITES = {
    **{kind.name: kind.name for kind in KINDS if not kind.name.startswith("float6_")},
    "float4_e2m1fn": "float4_e2m1fn_x2",
}


def header(entries, pad=True):
    raw = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    raw += b" " * (-len(raw) % 8 if pad else 0)
    return len(raw).to_bytes(8, "little") + raw


def entry(dtype="F32", shape=(2, 3), offsets=(0, 24), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def random_tensor(kind, shape=(4, 3, 8), seed=0):
    kind = sj.dtype(kind)
    raw = np.random.default_rng(seed).integers(0, 256, kind.nbytes(int(np.prod(shape))), np.uint8)
    return sj.Tensor.frombuffer(raw, kind, shape)


def new_files(folder):
    return [p for p in folder.iterdir() if p.name.startswith(".")]


# Round trips


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_reference_reads_what_is_written(kind, tmp_path):
    t = random_tensor(kind)
    path = tmp_path / "a.safetensors"
    size = file_formats.write(path, [New.of("t", t)], {"made by": "ü"})
    raw = path.read_bytes()
    assert size == len(raw)
    ((name, found),) = reference.deserialize(raw)
    assert name == "t"
    assert (found["dtype"], found["shape"]) == (kind.safetensors, [4, 3, 8])
    assert bytes(found["data"]) == t.tobytes()
    with reference.safe_open(path, "np") as opened:
        assert opened.metadata() == {"made by": "ü"}
        assert list(opened.keys()) == ["t"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_the_reference_writes_is_read(kind, tmp_path):
    if kind.name not in WRITES:
        with pytest.raises(Exception, match="Unknown dtype"):
            reference.TensorSpec(dtype=kind.name, shape=[8], data_ptr=0, data_len=6)
        return
    t = random_tensor(kind)
    memory = ctypes.create_string_buffer(t.tobytes(), t.nbytes)
    shape = [4, 3, 8 // (2 if kind.packed else 1)]
    spec = reference.TensorSpec(
        dtype=WRITES[kind.name],
        shape=shape,
        data_ptr=ctypes.addressof(memory),
        data_len=t.nbytes,
    )
    path = tmp_path / "a.safetensors"
    raw = bytes(reference.serialize({"t": spec}, {"key": "value"}))
    path.write_bytes(raw)
    found = safetensors.read(path)
    assert found.metadata == {"key": "value"}
    assert list(found.tensors) == ["t"]
    assert (found.tensors["t"].dtype, found.tensors["t"].shape) == (kind, (4, 3, 8))
    assert found.tensors["t"].tobytes() == t.tobytes()
    # Written again, it is the same file byte for byte.
    file_formats.write(path, [New.of(*item) for item in found.tensors.items()], found.metadata)
    assert path.read_bytes() == raw


def test_many_tensors_are_aligned_and_keep_their_order(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors = {
        f"{i}": random_tensor(kind, (8, i % 3), i) for i, kind in enumerate(KINDS + KINDS[::-1])
    }
    file_formats.write(path, [New.of(*item) for item in tensors.items()])
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    assert start % 8 == 0
    found = safetensors.read(path)
    assert found.metadata is None
    by_width = sorted(tensors, key=lambda n: -max(tensors[n].dtype.bits // 8, 1))
    assert list(found.tensors) == by_width
    for name, t in found.tensors.items():
        assert (found.members[name].begin - found.start) % max(t.dtype.bits // 8, 1) == 0
        assert (t.dtype, t.shape) == (tensors[name].dtype, tensors[name].shape)
        assert t.tobytes() == tensors[name].tobytes()
    assert {n: bytes(f["data"]) for n, f in reference.deserialize(raw)} == {
        n: t.tobytes() for n, t in tensors.items()
    }


def test_order_of_the_header_is_kept_and_metadata_too(tmp_path):
    entries = {
        "__metadata__": {"z": "1", "a": "2"},
        "late": entry(shape=[1], offsets=[8, 12]),
        "early": entry(shape=[2], offsets=[0, 8]),
        "none": entry(shape=[0, 5], offsets=[8, 8]),
        "scalar": entry("U8", (), [12, 13]),
    }
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(entries) + bytes(range(13)))
    found = safetensors.read(path)
    assert list(found.tensors) == ["late", "early", "none", "scalar"]
    assert list(found.metadata.items()) == [("z", "1"), ("a", "2")]
    assert found.members["late"].begin - found.start == 8
    assert found.nbytes == 13
    assert found.tensors["none"].shape == (0, 5)
    assert found.tensors["scalar"].numpy() == 12


@pytest.mark.parametrize("metadata", [None, {}, {"a": ""}])
def test_no_metadata_and_empty_metadata_differ(metadata, tmp_path):
    path = tmp_path / "a.safetensors"
    file_formats.write(path, [], metadata)
    assert safetensors.read(path).metadata == metadata
    assert reference.deserialize(path.read_bytes()) == []


def test_unaligned_data_are_read_without_a_copy(tmp_path):
    path = tmp_path / "a.safetensors"
    values = np.arange(6, dtype="<f4")
    entries = {"b": entry("BOOL", [1], [0, 1]), "a": entry(offsets=[1, 25])}
    path.write_bytes(header(entries, pad=False) + b"\1" + values.tobytes())
    t = safetensors.read(path).tensors["a"]
    np.testing.assert_array_equal(t.numpy(), values.reshape(2, 3))
    np.testing.assert_array_equal(sj.ascontiguous(t.T).numpy(), values.reshape(2, 3).T)
    assert not t.buffer.flags.writeable
    assert not t.numpy().flags.writeable


def test_a_tensor_keeps_the_map_alive_after_its_file_is_gone(tmp_path):
    path = tmp_path / "a.safetensors"
    t = random_tensor("bfloat16", (64, 1024))
    file_formats.write(path, [New.of("t", t)])
    view = safetensors.read(path).tensors["t"].T[3:5]
    path.unlink()
    gc.collect()
    assert view.tobytes() == t.T[3:5].tobytes()


# Broken files: what is wrong, and what the error says of it

OK = header({"a": entry()}) + bytes(24)
HUGE = 10**30
EMPTY = b'{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
BROKEN = {
    "empty": (b"", "ends after 0 bytes"),
    "seven bytes": (OK[:7], "ends after 7 bytes"),
    "no header": (bytes(8), "does not begin with"),
    "cut in the header": (OK[:20], "but only 12 follow"),
    "header beyond the file": ((1000).to_bytes(8, "little") + OK[8:], "is 1000 bytes, but only"),
    "header beyond 100 MB": ((10**8 + 1).to_bytes(8, "little") + OK[8:], "allows 100000000"),
    "header beyond int64": (b"\xff" * 8 + OK[8:], "18446744073709551615 bytes"),
    "UTF-8": (header(b'{"\xff": 1}'), r"not UTF-8 \(byte 2\)"),
    "white space first": (header(b' {"a": 1}'), "does not begin with '{'"),
    "an array": (header(b"[]"), "does not begin with '{'"),
    "JSON": (header(b'{"a": }'), "not JSON"),
    "JSON and more": (header(b"{} {}"), "not JSON"),
    "unfinished": (header(b'{"a": {"dtype"'), "not JSON"),
    "nesting": (header(b'{"a":' + b"[" * 200_000), "nested too deeply"),
    "closed nesting": (header(b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"), "'a'.*not a JSON object"),
    "names twice, the first with a fault": (
        header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,0]},"a":%s}' % EMPTY),
        "'a' occurs twice in its header",
    ),
    "names twice": (header(b'{"a":%s,"a":%s}' % (EMPTY, EMPTY)), "'a' occurs twice in its header"),
    "metadata twice": (header(b'{"__metadata__":{},"__metadata__":{}}'), "'__metadata__' occurs"),
    "key twice in metadata": (header(b'{"__metadata__":{"k":"","k":""}}'), "'k' occurs twice"),
    "field twice": (
        header(b'{"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}') + b"0",
        "tensor 'a': 'dtype' occurs twice",
    ),
    "metadata no map": (header({"__metadata__": ["a"]}), "__metadata__ is not a JSON object"),
    "metadata no text": (header({"__metadata__": {"a": 1}}), "'a' in __metadata__ must be text"),
    "lone surrogate": (header(b'{"\\ud800": {}}'), "not Unicode text"),
    "lone surrogate value": (header(b'{"__metadata__": {"a": "\\ud800"}}'), "not Unicode text"),
    "entry no object": (header({"a": [1, 2]}), r"its entry is not a JSON object but \[1"),
    "entry empty": (header({"a": {}}), "lacks 'data_offsets'"),
    "field missing": (header({"a": {"dtype": "U8", "data_offsets": [0, 0]}}), "lacks 'shape'"),
    "field too many": (header({"a": entry(strides=[1])}) + bytes(24), "has 'strides'"),
    "dtype": (header({"a": entry("F7")}) + bytes(24), "tensor 'a': its dtype 'F7' is unknown"),
    "dtype lower case": (header({"a": entry("f32")}) + bytes(24), "dtype 'f32' is unknown"),
    "dtype no text": (header({"a": entry(1)}) + bytes(24), "its dtype 1 is unknown"),
    "dtype a list": (header({"a": entry(["F32"])}) + bytes(24), "is unknown"),
    "dtype an object": (header({"a": entry({"F32": None})}) + bytes(24), "is unknown"),
    "shape no array": (header({"a": {**entry(), "shape": 6}}) + bytes(24), "is not a JSON array"),
    "shape text": (header({"a": {**entry(), "shape": "6"}}) + bytes(24), "array but '6'"),
    "shape float": (header({"a": entry(shape=[2.0, 3])}) + bytes(24), "holds 2.0 at 0"),
    "shape exponent": (header(b'{"a":{"dtype":"U8","shape":[6e0],"data_offsets":[0,6]}}'), "6e0"),
    "shape bool": (header({"a": entry(shape=[2, 3, True])}) + bytes(24), "holds True at 2"),
    "shape null": (header({"a": entry(shape=[None])}) + bytes(24), "holds None at 0"),
    "shape text within": (header({"a": entry(shape=["6"])}) + bytes(24), "holds '6' at 0"),
    "shape negative": (header({"a": entry(shape=[-2, -3])}) + bytes(24), "holds -2 at 0"),
    "shape minus zero": (header(b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'), "-0"),
    "shape NaN": (header({"a": entry(shape=[float("nan")])}) + bytes(24), "holds NaN at 0"),
    "shape Infinity": (header({"a": entry(shape=[float("-inf")])}) + bytes(24), "-Infinity"),
    "shape huge": (header({"a": entry(shape=[HUGE])}) + bytes(24), "10000000000.*is not a size"),
    "shape beyond int64": (header({"a": entry(shape=[2**63, 0], offsets=[0, 0])}), "not a size"),
    "digits": (header(b'{"a":{"shape":[' + b"9" * 10_000 + b"]}}"), "lacks"),
    "digits in shape": (
        header(json.dumps({"a": entry(shape=[777])}).replace("777", "7" * 10_000).encode()),
        r"holds 7+\.\.\.7+ at 0",
    ),
    "shape overflows": (header({"a": entry(shape=[2**32, 2**32])}) + bytes(24), "overflow int64"),
    "bits overflow": (header({"a": entry(shape=[2**60])}) + bytes(24), "overflow int64"),
    "overflow beside zero": (
        header({"a": entry(shape=[2**40, 2**40, 0], offsets=[0, 0])}),
        "overflow int64",
    ),
    "overflow behind zero": (
        header({"a": entry(shape=[0, 2**40, 2**40], offsets=[0, 0])}),
        "overflow int64",
    ),
    "rank": (header({"a": entry("U8", [1] * 65, [0, 1])}) + b"0", "has 65 dims, more than 64"),
    "one offset": (header({"a": entry(offsets=[24])}) + bytes(24), "not a pair"),
    "three offsets": (header({"a": entry(offsets=[0, 24, 24])}) + bytes(24), "not a pair"),
    "offsets turned": (header({"a": entry(offsets=[24, 0])}) + bytes(24), r"\[24, 0\] are not"),
    "offsets negative": (header({"a": entry(offsets=[-24, 0])}) + bytes(24), "holds -24 at 0"),
    "offsets float": (header({"a": entry(offsets=[0, 24.0])}) + bytes(24), "holds 24.0 at 1"),
    "offsets beyond": (header({"a": entry(offsets=[8, 32])}) + bytes(24), "end at byte 32"),
    "cut in the data": (OK[:-1], "end at byte 24, but the file has 23"),
    "too short for its shape": (
        header({"a": entry(offsets=[0, 20])}) + bytes(20),
        r"6 elements of float32 in shape \(2, 3\) are 24 bytes, .* hold 20",
    ),
    "too long for its shape": (header({"a": entry(offsets=[0, 28])}) + bytes(28), "hold 28"),
    "half a byte": (
        header({"a": entry("F4", [3], [0, 2])}) + bytes(2),
        "3 elements of float4_e2m1fn are 12 bits: safetensors holds whole bytes only",
    ),
    "gap at the start": (header({"a": entry(offsets=[1, 25])}) + bytes(25), "1 bytes before"),
    "gap": (
        header({"a": entry(), "b": entry(offsets=[25, 49])}) + bytes(49),
        "tensor 'b': 1 bytes before its data",
    ),
    "overlap": (
        header({"a": entry(), "b": entry(offsets=[20, 44])}) + bytes(44),
        "tensor 'b': its data overlap those of tensor 'a'",
    ),
    "the same bytes": (header({"a": entry(), "b": entry()}) + bytes(24), "overlap"),
    "trailing": (OK + b"0", "1 bytes at its end belong to no tensor"),
    "trailing without tensors": (header({}) + b"0", "1 bytes at its end"),
    "empty tensor out of range": (
        header({"a": entry(shape=[0], offsets=[9, 9])}) + bytes(8),
        "end at byte 9",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused(case, tmp_path):
    raw, words = BROKEN[case]
    path = tmp_path / "broken.safetensors"
    path.write_bytes(raw)
    with pytest.raises(sj.FileFormatError, match=words) as caught:
        safetensors.read(path)
    assert str(caught.value).startswith(f"{path}:")
    assert len(str(caught.value)) < 1000


def test_the_valid_one_among_them_is_read(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(OK)
    assert safetensors.read(path).tensors["a"].shape == (2, 3)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_only_regular_files_are_read_and_replaced(make, tmp_path):
    path = tmp_path / "odd"
    make(path)
    with pytest.raises(sj.FileFormatError, match="regular file"):
        safetensors.read(path)
    what = "a folder" if make is Path.mkdir else "not a regular file"
    with pytest.raises(sj.FileFormatError, match=f"it is {what}, so it cannot be replaced"):
        file_formats.write(path, [])
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        safetensors.read(tmp_path / "none.safetensors")


# What hostile and what large headers cost

EMPTY_JSON = EMPTY.decode()
LINES = "\n" * 10**5
MANY = 300_000
HOSTILE = {
    "lists": b'{"a":[' + b"[]," * MANY + b"[]]}",
    "objects": b'{"a":[' + b"{}," * MANY + b"{}]}",
    "a long shape": b'{"a":{"dtype":"U8","data_offsets":[0,0],"shape":[' + b"0," * MANY + b"0]}}",
    "long offsets": b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[' + b"0," * MANY + b"0]}}",
    "many fields": b'{"a":{' + b",".join(b'"%x":0' % i for i in range(MANY)) + b"}}",
    "names without entries": b"{" + b",".join(b'"%x":0' % i for i in range(MANY)) + b"}",
    "numbers as metadata": b'{"__metadata__":{'
    + b",".join(b'"%x":0' % i for i in range(MANY))
    + b"}}",
    "nesting": b'{"a":' + b"[" * 3 * MANY,
    "no end": b'{"' + b"\\n" * MANY,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_takes_no_more_memory_than_its_bytes(case, tmp_path):
    raw = header(HOSTILE[case])
    (tmp_path / "a").write_bytes(raw)
    tracemalloc.start()
    try:
        with pytest.raises(sj.FileFormatError):
            safetensors.read(tmp_path / "a")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(raw) + 4 * 2**20


def test_a_header_of_many_tensors(tmp_path):
    count, path = 20_000, tmp_path / "a"
    entries = {
        f"layers.{i}.weight": entry("U8", (1, i % 3), [at, at + i % 3])
        for i, at in enumerate(np.cumsum([0, *(i % 3 for i in range(count - 1))]).tolist())
    }
    raw = header(entries)
    size = max(e["data_offsets"][1] for e in entries.values())
    path.write_bytes(raw + bytes(size))
    tracemalloc.start()
    found = safetensors.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert list(found.tensors) == list(entries)
    assert [list(e.shape) for e in found.members.values()] == [e["shape"] for e in entries.values()]
    assert found.tensors["layers.19999.weight"].shape == (1, 1)
    assert peak < 6 * len(raw)


@pytest.mark.parametrize(
    "text",
    [
        r'{"\u0061":{"dtyp\u0065":"U\u0038","shape":[2],"data_offsets":[0,2]}}',
        '{ "a" :\n{ "shape" : [ 2 ] ,\t"data_offsets" : [ 0 , 2 ] , "dtype" : "U8" } }\r\n',
        f'{{"a":{" " * 10**5}{{"dtype":"U8","shape":[{LINES}2],"data_offsets":[0,2]}}}}',
        '{"a":{"dtyp\\u0065":"U8","shape":[2],"data_offsets":[0,%s2]}}' % (" " * 10**4),
        '{"__met\\u0061data__":null,"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
    ],
    ids=["escapes", "white space", "much white space", "both", "no metadata"],
)
def test_json_that_is_written_in_unusual_ways(text, tmp_path):
    raw = header(text.encode(), pad=False) + b"\1\2"
    check_against_reference(raw, tmp_path / "a")
    found = safetensors.read(tmp_path / "a")
    assert found.metadata is None
    assert found.tensors["a"].tobytes() == b"\1\2"


def test_metadata_in_unusual_words(tmp_path):
    text = '{ "__metadata__" : { "\\u0061\\n" : "\\ud83d\\ude00" , "ü" : "" } , "a" : %s }'
    (tmp_path / "a").write_bytes(header((text % EMPTY_JSON).encode()))
    assert safetensors.read(tmp_path / "a").metadata == {"a\n": "\U0001f600", "ü": ""}


def test_much_metadata(tmp_path):
    metadata = {f"key {i}": f"{i}, \n" for i in range(10_000)}
    (tmp_path / "a").write_bytes(header({"__metadata__": metadata}))
    assert list(safetensors.read(tmp_path / "a").metadata.items()) == list(metadata.items())
    text = json.dumps(metadata)[1:-1]
    (tmp_path / "a").write_bytes(header(f'{{"__metadata__":{{{text}, "key 7":""}}}}'.encode()))
    with pytest.raises(sj.FileFormatError, match="'key 7' occurs twice in __metadata__"):
        safetensors.read(tmp_path / "a")


# Messages


def test_a_long_name_is_shortened_in_messages(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(header({"x" * 10**6: entry("F7" * 10**4, [0], [0, 0])}))
    with pytest.raises(sj.FileFormatError, match=r"tensor 'xxx.*\.\.\..*xxx': its dtype") as caught:
        safetensors.read(path)
    assert str(caught.value).endswith("is unknown")
    assert len(str(caught.value)) < 1000


def test_control_characters_are_escaped_in_messages(tmp_path):
    path = tmp_path / "a\x1b[2J\nb"
    path.write_bytes(header({"w\x1b[2J\n": entry("F\x07", [0], [0, 0])}))
    with pytest.raises(sj.FileFormatError) as caught:
        safetensors.read(path)
    assert str(caught.value).isprintable()
    assert str(caught.value).endswith(
        r"a\x1b[2J\nb': tensor 'w\x1b[2J\n': its dtype 'F\x07' is unknown"
    )


# Against the reference: what it accepts is accepted, but for this list

STRICTER = [
    "does not begin with '{'",  # the reference allows white space, its documentation does not
    "occurs twice",  # the reference takes the last one
    "its entry has ",  # fields that the reference ignores
    "its entry is not a JSON object",  # the reference takes the fields as an array, too
    "its dtype .* is unknown",  # the reference takes {"F32": null} for "F32"
    "not a size",  # beyond int64 (the reference: uint64), beside a size of 0
    "overflow int64",  # the reference multiplies up to a 0, and counts up to uint64
    "more than 64",  # dims, as in NumPy
]


def accepted(raw):
    try:
        return {
            name: (found["dtype"], tuple(found["shape"]), bytes(found["data"]))
            for name, found in reference.deserialize(raw)
        }
    except reference.SafetensorError:
        return None


def last_ones(raw):
    """The same file without the entries that a later one of the same name replaces."""
    end = 8 + int.from_bytes(raw[:8], "little")
    return header(json.loads(raw[8:end])) + raw[end:]


def check_against_reference(raw, path):
    path.write_bytes(raw)
    theirs = accepted(raw)
    try:
        found = safetensors.read(path).tensors
    except sj.FileFormatError as caught:
        fault, mine = caught, None
    else:
        mine = {n: (t.dtype.safetensors, t.shape, t.tobytes()) for n, t in found.items()}
    if mine is None and theirs is not None:
        if not any(re.search(words, fault.reason) for words in STRICTER):
            # The fault is of the first of two entries, which the reference does not read.
            assert last_ones(raw) != raw, fault
            check_against_reference(last_ones(raw), path)
    else:
        assert mine == theirs


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_against_the_reference(case, tmp_path):
    check_against_reference(BROKEN[case][0], tmp_path / "a.safetensors")


SEED = header(
    {
        "__metadata__": {"format": "pt"},
        "a.b": entry("BF16", (2, 3), [0, 12]),
        "c": entry("F4", (4,), [12, 14]),
        "d": entry("F8_E4M3", (0, 7), [14, 14]),
        "é": entry("U8", (1,), [14, 15]),
    }
) + bytes(range(15))
TOKENS = [
    b"0",
    b"-1",
    b"1e1",
    b"{}",
    b"[]",
    b"null",
    b"true",
    b'"',
    b"\\",
    b",",
    b"\xff",
    b" ",
    b"2",
]


@st.composite
def mutated(draw):
    raw = bytearray(SEED)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(draw(st.sampled_from([0, 8, 8, 8])), max(len(raw) - 1, 8)))
        how = draw(st.sampled_from(["set", "digit", "cut", "token", "drop"]))
        if how == "set" and at < len(raw):
            raw[at] = draw(st.integers(0, 255))
        elif how == "digit":
            digits = [i for i, byte in enumerate(raw) if chr(byte).isdigit()]
            if digits:
                raw[draw(st.sampled_from(digits))] = ord(draw(st.sampled_from("0123456789")))
        elif how == "cut":
            del raw[max(at, 1) :]
        else:
            token = draw(st.sampled_from(TOKENS)) if how == "token" else b""
            stop = min(at + draw(st.integers(0, 4)), len(raw))
            raw[at:stop] = token
            if at >= 8 and draw(st.booleans()):
                size = int.from_bytes(raw[:8], "little") + len(token) - (stop - at)
                raw[:8] = (size % 2**64).to_bytes(8, "little")
    return bytes(raw)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mutated())
def test_mutations_are_refused_or_read_as_the_reference_reads_them(tmp_path, raw):
    check_against_reference(raw, tmp_path / "a.safetensors")


ODD = st.sampled_from(
    [None, True, -1, 2.0, "2", [], {}, [2], 2**31, 2**40, 2**62, 2**63, 2**64 - 1, 2**64, HUGE]
)
TYPES = st.sampled_from(["F32", "BF16", "F4", "F6_E2M3", "U8", "C64", "I64"])


@st.composite
def nearly_valid(draw):
    """A header that covers its data, but for what is wrong in at most two places."""
    unique = draw(st.integers(0, 9)) > 0
    names = draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=unique))
    pairs, at = [], 0
    for name in names:
        kind = sj.dtype(draw(TYPES), vocabulary="safetensors")
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        end = at + kind.nbytes(int(np.prod(shape, dtype=int)))
        pairs.append([name, entry(kind.safetensors, shape, [at, end])])
        at = end
    pairs = draw(st.permutations(pairs))
    for _ in range(draw(st.integers(0, 2)) if pairs else 0):
        found = draw(st.sampled_from(pairs))[1]
        field = draw(st.sampled_from(["dtype", "shape", "data_offsets", "more", "none"]))
        if type(found.get(field)) is list and found[field] and draw(st.booleans()):
            i = draw(st.integers(0, len(found[field]) - 1))
            found[field] = [*found[field]]
            found[field][i] = draw(st.one_of(ODD, st.integers(0, 9)))
        elif field == "none" and found:
            found.pop(draw(st.sampled_from(sorted(found))))
        else:
            found[field] = draw(ODD)
    if draw(st.integers(0, 4)) == 0:
        pairs.append(["__metadata__", draw(st.sampled_from([None, {}, {"a": "b"}, {"a": 1}, 1]))])
    text = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs)
    size = max(at + draw(st.sampled_from([0] * 8 + [-1, 1])), 0)
    return header(f"{{{text}}}".encode()) + bytes(size)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(nearly_valid())
@example(
    header(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,0]},'
        b'"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}'
    )
    + bytes(4)
)
def test_headers_that_are_nearly_valid_are_read_as_the_reference_reads_them(tmp_path, raw):
    check_against_reference(raw, tmp_path / "a.safetensors")


# Writing


@pytest.mark.parametrize("kind", WITHOUT, ids=str)
def test_dtypes_without_a_name_are_refused(kind, tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(
        sj.FileFormatError, match=f"tensor 't': safetensors has no dtype for {kind}"
    ):
        file_formats.write(path, [New.of("t", random_tensor(kind, (8,)))])
    assert list(tmp_path.iterdir()) == []


def refuse(*_):
    raise AssertionError("the data of a refused file were asked for")


U8 = sj.dtype("uint8")


@pytest.mark.parametrize(
    ("tensors", "metadata", "words"),
    [
        ([New("s", sj.dtype("string"), (1,), refuse)], None, "'s': safetensors has no dtype"),
        ([New("t", U8, (1,), refuse)] * 2, None, "'t': occurs twice"),
        ([New("__metadata__", U8, (1,), refuse)], None, "cannot be a name"),
        ([New("\ud800", U8, (1,), refuse)], None, "cannot be a name"),
        ([New("t", U8, (1,) * 65, refuse)], None, "65 dims"),
        ([New("t", U8, (2**62, 4), refuse)], None, "overflow"),
        ([New("t", sj.dtype("float6_e2m3fn"), (3,), refuse)], None, "18 bits"),
        ([New("t" * 100_000_001, U8, (1,), refuse)], None, "the format allows 100000000"),
        ([], {"a": 1}, "metadata must be text, not 1"),
        ([], {"a": "\ud800"}, "metadata must be text"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_the_format_cannot_hold_is_refused_first(tensors, metadata, words, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(sj.FileFormatError, match=words):
        file_formats.write(path, tensors, metadata)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def fails(fault):
    def fail(*_):
        raise fault

    return fail


@pytest.mark.parametrize("at", ["data", "write", "fsync", "replace", "fstatvfs", "progress"])
@pytest.mark.parametrize(
    "fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), ValueError()]
)
def test_a_failure_leaves_the_destination_and_no_other_file(at, fault, tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    t = random_tensor("float32")
    data, progress = (lambda: [t.buffer]), None
    if at == "data":
        data = fails(fault)
    elif at == "progress":
        progress = fails(fault)
    else:
        monkeypatch.setattr(os, at, fails(fault))
    tensors = [New.of("first", t), New("t", t.dtype, t.shape, data)]
    with pytest.raises(type(fault)) as caught:
        file_formats.write(path, tensors, None, progress)
    if isinstance(fault, OSError):
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(path)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("at", ["write", "progress"])
def test_a_failure_beside_the_thread_that_writes(at, tmp_path, monkeypatch):
    path, write, calls = tmp_path / "a.safetensors", os.write, []
    path.write_bytes(b"old")

    def fail(*given):
        calls.append(threading.current_thread())
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*given) if at == "write" else None

    if at == "write":
        monkeypatch.setattr(os, "write", fail)
    tensor = sj.asarray(np.zeros((5, 2**22), np.uint8))
    tensors, progress = [New.of(f"{k}", tensor) for k in range(2)], None
    if at == "progress":
        progress = fail
    with pytest.raises(OSError, match="No space left"):
        file_formats.write(path, tensors, None, progress)
    monkeypatch.undo()
    assert (set(calls) == {threading.main_thread()}) == (at == "progress")
    assert set(threading.enumerate()).isdisjoint(set(calls) - {threading.main_thread()})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from shapejit.files import file_formats
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
file_formats.write(sys.argv[1], [])
"""


def test_the_file_of_a_killed_writer_is_removed_by_the_next(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], check=False)
    (left,) = new_files(tmp_path)
    others = [
        tmp_path / ".shapejit-0123.tmp",  # another name
        tmp_path / left.name.replace(".tmp", ".safetensors"),
        tmp_path / f"x{left.name}",
        tmp_path / f".shapejit-{'0' * 32}.tmp",  # a folder, see below
        tmp_path / f".shapejit-{'1' * 32}.tmp",  # a link
    ]
    for path in others[:3]:
        path.write_bytes(b"mine")
    others[3].mkdir()
    others[4].symlink_to(others[0])
    file_formats.write(tmp_path / "a", [])
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a", *others])
    assert others[0].read_bytes() == b"mine"


def test_the_file_of_a_living_writer_stays(tmp_path):
    t = random_tensor("uint8", (3,))

    def data():
        """Written in the middle of another write to the same file."""
        file_formats.write(tmp_path / "a", [New.of("inner", t)])
        assert len(new_files(tmp_path)) == 1
        yield t.buffer

    file_formats.write(tmp_path / "a", [New("outer", t.dtype, t.shape, data)])
    assert list(safetensors.read(tmp_path / "a").tensors) == ["outer"]
    assert new_files(tmp_path) == []


def test_a_writer_whose_file_is_removed_before_it_is_locked_makes_another(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    flock = fcntl.flock

    def another_process_is_faster(descriptor, how):
        monkeypatch.undo()
        file_formats.write(tmp_path / "b", [])
        assert new_files(tmp_path) == []
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", another_process_is_faster)
    file_formats.write(tmp_path / "a", [])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", fails(OSError(errno.ENOLCK, "No locks available")))
    (tmp_path / f".shapejit-{'0' * 32}.tmp").write_bytes(b"perhaps alive")
    file_formats.write(tmp_path / "a", [])
    assert len(new_files(tmp_path)) == 1
    assert safetensors.read(tmp_path / "a").tensors == {}


def test_data_other_than_announced_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    t = random_tensor("float32", (4,))
    for size in (3, 5):
        with pytest.raises(sj.FileFormatError, match=r"tensor 't': announced as .* have 16"):
            file_formats.write(path, [New.of("t", t)._replace(shape=(size,))])
        assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_a_few_bytes_at_a_time(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    t = random_tensor("float32")
    file_formats.write(tmp_path / "a", [New.of("t", t.T if t.ndim == 2 else t)])
    monkeypatch.undo()
    assert safetensors.read(tmp_path / "a").tensors["t"].tobytes() == t.tobytes()


def test_permissions_come_from_the_umask_or_from_the_file_before(tmp_path):
    path = tmp_path / "a"
    before = os.umask(0o027)
    try:
        file_formats.write(path, [])
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        file_formats.write(path, [])
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    file_formats.write(link, [])
    assert link.is_symlink()
    assert safetensors.read(real).tensors == {}
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="loop"):
        file_formats.write(loop, [])
    assert new_files(tmp_path) == []


@pytest.mark.parametrize("name", ["a/", "a//", "old/.", "none/.", "none/..", ".", "..", "/"])
def test_the_name_of_a_folder_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("old").write_bytes(b"old")
    with pytest.raises(sj.FileFormatError, match="it names a folder, not a file"):
        file_formats.write(name, [])
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("name", ["", "\0", "a\0b", "\ud800"], ids=repr)
def test_what_can_name_no_file_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (safetensors.read, lambda path: file_formats.write(path, [])):
        with pytest.raises(sj.FileFormatError) as caught:
            call(name)
        assert str(caught.value) == f"{name!r}: no file can have this name"
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_unicode(tmp_path):
    path = os.path.join(tmp_path, os.fsdecode(b"\xff"))
    file_formats.write(path, [])
    assert safetensors.read(path).tensors == {}


@pytest.mark.parametrize("piece", [1, 5, 64, 1000])
@pytest.mark.parametrize("kind", ["float32", "uint8", "float4_e2m1fn", "float6_e3m2fn"])
def test_views_are_written_piece_by_piece(kind, piece, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece)
    path = tmp_path / "a"
    base = random_tensor(kind, (2, 6, 5, 4))
    views = {
        "itself": base,
        "turned": base.permute_dims((3, 1, 0, 2)),
        "flipped": base.flip(),
        "sliced": base[:, ::3, :4, 1:3],
        "repeated": base[:1, :1].broadcast_to((3, 6, 5, 4)),
        "none": base[:, :0],
    }
    written = []
    file_formats.write(path, [New.of(*item) for item in views.items()], None, written.append)
    found = safetensors.read(path)
    assert sum(written) == found.nbytes
    for name, view in views.items():
        assert found.tensors[name].tobytes() == view.tobytes(), name
