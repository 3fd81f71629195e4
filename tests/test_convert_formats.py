"""Every rule on every file format that can hold the result, checked by NumPy and other readers."""

import json
import os

import gguf
import ml_dtypes
import numpy as np
import onnx
import pytest
import scheme_fixtures

import shapejit as sj

RNG = np.random.default_rng(5)
SUFFIXES = {"folder": "", "safetensors": ".safetensors", "npz": ".npz", "npy": ".npy",
            "onnx": ".onnx", "gguf": ".gguf"}  # fmt: skip


def x_of(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


A, B, C = x_of(4, 6), x_of(4, 6), x_of(3, 4, 6)
CODES = RNG.integers(-(2**31), 2**31, (32, 6)).astype(np.int32)
REPACKED = sj.repack(CODES, shape=(32, 48), dtype="uint4", source="awq:gemm", target="gptq:qweight")
MANY = {"a": A, "b": B, "c": C}
# Names in ONNX belong to its graph, so it takes the rules that keep them, and NPY one tensor.
RULES = {
    "none": ([], MANY, MANY),
    "reshape": ([("reshape", ".*=2,-1")], {"a": A}, {"a": A.reshape(2, 12)}),
    "permute": ([("permute", "c=2,0,1")], MANY, {**MANY, "c": C.transpose(2, 0, 1)}),
    "permute one": ([("permute", ".*=1,0")], {"a": A}, {"a": A.T}),
    "cast": ([("cast", ".*=F16")], {"a": A}, {"a": A.astype(np.float16)}),
    "casts": ([("cast", "a|b=BF16")], MANY,
              {**MANY, "a": A.astype(ml_dtypes.bfloat16), "b": B.astype(ml_dtypes.bfloat16)}),
    "slice": ([("slice", ".*=1:,::-2")], {"a": A}, {"a": A[1:, ::-2]}),
    "repack": ([("repack", ".*=awq:gemm->gptq:qweight")], {"q": CODES}, {"q": REPACKED.view("i4")}),
    "select": ([("select", "a|b")], MANY, {"a": A, "b": B}),
    "exclude": ([("exclude", "a|b")], MANY, {"c": C}),
    "rename": ([("rename", r"s/(.)/layer.\1/")], MANY, {f"layer.{k}": x for k, x in MANY.items()}),
    "split": ([("split", "c=0:d,e,f")], MANY,
              {"a": A, "b": B, "d": C[:1], "e": C[1:2], "f": C[2:]}),
    "concat": ([("concat", "b=1:a->ab")], MANY, {"ab": np.concatenate([B, A], 1), "c": C}),
    "interleave": ([("interleave", "a=0:b->ab")], MANY,
                   {"ab": np.stack([A, B], 1).reshape(8, 6), "c": C}),
    "stack": ([("rename", "s/[ab]/e.0/"), ("stack", "e.#")], {"a": A}, {"e": A[None]}),
    "unstack": ([("unstack", "c.#")], MANY, {"a": A, "b": B, **{f"c.{k}": C[k] for k in range(3)}}),
    "several": ([("permute", "a|b=1,0"), ("cast", "a|b=F16"), ("concat", "a=0:b->c2"),
                 ("exclude", "c"), ("slice", "c2=::2")], MANY,
                {"c2": np.concatenate([A.T, B.T]).astype(np.float16)[::2]}),
}  # fmt: skip


def bits(x):
    x = np.ascontiguousarray(x)
    return x.shape, x.dtype, x.tobytes()


def model(tensors, path):
    """An ONNX model with these initialisers, each an output."""
    made = [onnx.numpy_helper.from_array(x, name) for name, x in tensors.items()]
    nodes = [onnx.helper.make_node("Identity", [t.name], [f"{t.name}_out"]) for t in made]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = onnx.helper.make_graph(nodes, "g", [], outputs, made)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]), path)


def written(kind, path, tensors, config=None, **types):
    """A checkpoint in a file format, and a config.json beside it."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config or {}))
    file = path / f"model{SUFFIXES[kind] or '.safetensors'}"
    if kind == "onnx":
        model(tensors, file)
    else:
        sj.save_file(tensors, file, **types)
    return path if kind == "folder" else file


def fits(kind, source, before, after):
    """Whether a format can hold what a rule makes."""
    if kind == "onnx":
        return source == "onnx" and set(before) == set(after)
    return kind != "npy" or len(after) == 1


@pytest.mark.parametrize(
    ("case", "source"),
    [(c, s) for c, row in RULES.items() for s in SUFFIXES if s != "npy" or len(row[1]) == 1],
)
def test_every_rule_on_every_format(case, source, tmp_path):
    rules, before, after = RULES[case]
    path = written(source, tmp_path / "in", before)
    if source == "npy":
        after = dict.fromkeys(["e" if case == "stack" else "arr_0"], *after.values())
        rules = [(kind, text.replace("[ab]", "arr_0")) for kind, text in rules]
    for kind, suffix in SUFFIXES.items():
        target = tmp_path / f"out{suffix}"
        if not fits(kind, source, before, after):
            with pytest.raises(sj.FileFormatError):
                sj.files.convert(path, target, rules)
            assert not target.exists()
            continue
        if kind == "folder" and source != "folder":
            continue
        sj.files.convert(path, target, rules, verify=True)
        found, wanted = sj.load_file(target), after
        if kind == "npy":
            wanted = dict.fromkeys(["arr_0"], *after.values())
        assert {name: bits(t.numpy()) for name, t in found.items()} == {
            name: bits(x) for name, x in wanted.items()
        }
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize("kind", [kind for kind in SUFFIXES if kind != "folder"])
def test_a_file_is_verified_before_it_appears(kind, tmp_path, monkeypatch):
    """The disk changes a byte of what was written: what was there before stays."""
    source = written("onnx" if kind == "onnx" else "npz", tmp_path / "in", {"a": A})
    target, sync = tmp_path / f"out{SUFFIXES[kind]}", os.fsync
    target.write_bytes(b"mine")

    def damaged(descriptor):
        with open(os.readlink(f"/proc/self/fd/{descriptor}"), "r+b") as file:
            data = file.read()
            at = data.index(A.T.tobytes()) + 10
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", damaged)
    with pytest.raises(sj.FileFormatError, match=r"tensor 'a': its bytes in .* differ from those"):
        sj.files.convert(source, target, [("permute", "a=1,0")], verify=True)
    assert target.read_bytes() == b"mine"
    assert sorted(os.listdir(tmp_path)) == ["in", target.name]


def test_a_dtype_that_only_some_formats_have(tmp_path):
    path = written("onnx", tmp_path / "in", {"a": np.arange(-8, 8, dtype=np.float32)})
    for suffix in (".npz", ".onnx"):
        sj.files.convert(path, tmp_path / f"out{suffix}", [("cast", "a=int4")])
        found = sj.load_file(tmp_path / f"out{suffix}")["a"]
        assert (found.dtype.name, found.numpy().tolist()) == ("int4", [*range(-8, 8)])
    with pytest.raises(sj.FileFormatError, match="safetensors has no dtype for int4"):
        sj.files.convert(path, tmp_path / "out.safetensors", [("cast", "a=int4")])


# Quantised weights: fixtures, which other projects made, and GGUF's blocks


@pytest.mark.parametrize("source", ["folder", "safetensors", "npz", "onnx"])
@pytest.mark.parametrize(
    ("name", "to"),
    [("awq-gemm", "f32"), ("awq-gemm", "gptq"), ("mxfp4-gpt-oss-down", "mxfp4:gguf")],
)
def test_weights_go_from_every_format_to_every_other(name, to, source, tmp_path):
    fixture = scheme_fixtures.named(name)
    path = written(source, tmp_path / "in", fixture.checkpoint(), fixture.config)
    for kind, suffix in SUFFIXES.items():
        target = tmp_path / f"out{suffix}"
        if kind in ("folder", "onnx") or (kind == "npy" and to == "gptq"):
            if kind != "folder":
                with pytest.raises(sj.FileFormatError, match=r"graph|one tensor"):
                    sj.files.convert(path, target, [("to", to)])
            continue
        sj.files.convert(path, target, [("to", to)])
        (name, made), *_ = sj.load_file(target).items()
        wanted = fixture.expected["float32"]
        if to == "mxfp4:gguf":  # whose rows are outputs, other than gpt-oss's
            made, wanted = sj.schemes[to].decode({"weight": made}, dtype="float32"), wanted.mT
        elif to == "gptq":
            parts = {key.rpartition(".")[2]: t for key, t in sj.load_file(target).items()}
            made = sj.schemes[to].decode(parts, dtype="float32", bits=4, group_size=32, version=1)
        np.testing.assert_array_equal(made.numpy(), wanted)
        if kind == "gguf" and to == "mxfp4:gguf":
            (tensor,) = gguf.GGUFReader(target).tensors
            assert (tensor.name, tensor.tensor_type.name) == (name, "MXFP4")
            with np.errstate(over="ignore"):
                theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_array_equal(theirs, wanted)


@pytest.fixture
def blocks(tmp_path):
    """A GGUF file of Q8_0: three tensors of 4 rows of 2 blocks."""
    w = {name: gguf.quants.quantize(x_of(4, 64), gguf.GGMLQuantizationType.Q8_0) for name in "abc"}
    path = tmp_path / "blocks.gguf"
    types = dict.fromkeys(w, "Q8_0")
    sj.save_file(w, path, metadata={"general.name": "x"}, types=types)
    values = {
        name: gguf.quants.dequantize(x, gguf.GGMLQuantizationType.Q8_0) for name, x in w.items()
    }
    return path, values


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy", ".gguf"])
def test_blocks_of_gguf_are_decoded_to_every_format(suffix, blocks, tmp_path):
    path, values = blocks
    sj.files.convert(path, tmp_path / f"b{suffix}", [("select", "b"), ("to", "f32")])
    (made,) = sj.load_file(tmp_path / f"b{suffix}").values()
    assert bits(made.numpy()) == bits(values["b"])


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ([("select", "a"), ("rename", "s/a/w/")], lambda a, b, c: {"w": a}),
        ([("select", "a"), ("slice", "a=1::2")], lambda a, b, c: {"a": a[1::2]}),
        ([("select", "a"), ("reshape", "a=2,2,68")], lambda a, b, c: {"a": a.reshape(2, 2, 64)}),
        ([("select", "a"), ("reshape", "a=2,2,68"), ("permute", "a=1,0,2")],
         lambda a, b, c: {"a": a.reshape(2, 2, 64).swapaxes(0, 1)}),
        ([("select", "a"), ("split", "a=1:l,r")], lambda a, b, c: {"l": a[:, :32], "r": a[:, 32:]}),
        ([("concat", "a=0:b,c->w")], lambda a, b, c: {"w": np.concatenate([a, b, c])}),
        ([("concat", "a=1:b,c->w")], lambda a, b, c: {"w": np.concatenate([a, b, c], 1)}),
        ([("exclude", "c"), ("interleave", "a=0:b->w")],
         lambda a, b, c: {"w": np.stack([a, b], 1).reshape(8, 64)}),
        ([("select", "a"), ("to", "f32"), ("permute", "a=1,0")], lambda a, b, c: {"a": a.T}),
    ],
)  # fmt: skip
def test_blocks_of_gguf_that_stay_whole_keep_their_type(rules, wanted, blocks, tmp_path):
    path, values = blocks
    sj.files.convert(path, tmp_path / "b.gguf", rules)
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "b.gguf").tensors}
    made = {name: gguf.quants.dequantize(t.data, t.tensor_type) for name, t in found.items()}
    assert {name: bits(x) for name, x in made.items()} == {
        name: bits(x) for name, x in wanted(*values.values()).items()
    }


@pytest.mark.parametrize(
    "rule",
    [
        ("permute", "a=1,0"),
        ("slice", "a=:,17:51"),
        ("slice", "a=:,::-1"),
        ("interleave", "a=1:b->w"),
        ("reshape", "a=16,-1"),
    ],
)
def test_blocks_of_gguf_that_are_cut_have_no_type(rule, blocks, tmp_path):
    with pytest.raises(sj.FormatError, match=r"codes of gguf:q8_0 that cannot be read any more"):
        sj.files.convert(blocks[0], tmp_path / "b.gguf", [rule])
    with pytest.raises(sj.FileFormatError, match=r"GGUF has no type for uint8|is none"):
        sj.files.convert(blocks[0], tmp_path / "b.gguf", [("keep", ".*"), rule])
    assert os.listdir(tmp_path) == ["blocks.gguf"]
