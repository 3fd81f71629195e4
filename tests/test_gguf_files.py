"""GGUF files that are written, against reader, writer and decoders of the package gguf."""

import numpy as np
import pytest

import shapejit as sj
from shapejit.files import file_formats

gguf = pytest.importorskip("gguf")

ENCODED = [
    "gguf:q4_0",
    "gguf:q4_1",
    "gguf:q5_0",
    "gguf:q5_1",
    "gguf:q8_0",
    "mxfp4:gguf",
    "nvfp4:gguf",
]
X = np.random.default_rng(0).normal(size=(3, 256)).astype(np.float32)
KINDS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32"]
VALUES = {
    "general.architecture": "llama",
    "flag": True,
    "small": 7,
    "negative": -7,
    "large": 2**40,
    "largest": 2**64 - 1,
    "low": -(2**40),
    "half": 0.5,
    "huge": 1e300,
    "double": np.float64(0.1),
    "byte": np.uint8(9),
    "short": np.int16(-9),
    "signed": np.int64(5),
    "words": ["a", "ünï"],
    "numbers": [1, 2, 300],
    "mixed": [-1, 2**31 - 1],
    "wide": [-1, 2**33],
    "floats": (0.25, 0.5),
    "array": np.arange(3, dtype=np.uint16),
}
STORED = {
    "flag": "BOOL", "small": "UINT32", "negative": "INT32", "large": "INT64", "largest": "UINT64",
    "low": "INT64", "half": "FLOAT32", "huge": "FLOAT64", "double": "FLOAT64", "byte": "UINT8",
    "short": "INT16", "signed": "INT64", "numbers": "UINT32", "mixed": "INT32", "wide": "INT64",
    "floats": "FLOAT32", "array": "UINT16", "words": "STRING",
}  # fmt: skip


def read(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("scheme", ENCODED)
def test_schemes_are_read_and_decoded_by_gguf(scheme, tmp_path):
    kind = sj.schemes[scheme].row.file_type
    parts = sj.schemes[scheme].encode(X)
    tensors = {f"blk.0.w.{name}": t for name, t in parts.items()}
    sj.save_file(tensors, tmp_path / "a.gguf", types={"blk.0.w.weight": kind})
    found = read(tmp_path / "a.gguf")["blk.0.w.weight"]
    assert (found.tensor_type.name, found.shape.tolist()) == (kind, [256, 3])
    wanted = gguf.quants.dequantize(found.data, found.tensor_type)
    np.testing.assert_array_equal(sj.schemes[scheme].decode(parts, dtype="float32").numpy(), wanted)
    checkpoint = file_formats.read(tmp_path / "a.gguf")
    ((prefix, stated, _),) = sj.schemes.detect(checkpoint.typed)
    assert (prefix, stated) == ("blk.0.w", scheme)
    assert all(sj.array_equal(checkpoint.tensors[name], t) for name, t in tensors.items())


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64", "int8", "int16",
                                  "int32", "int64"])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 4), (1, 2, 3, 4), (0, 3)])
def test_plain_dtypes(name, shape, tmp_path):
    count = int(np.prod(shape))
    t = sj.cast(np.arange(count, dtype=np.int32).reshape(shape), name)
    turned = sj.asarray(t).permute_dims(range(t.ndim)[::-1])
    sj.save_file({"w": t, "turned": turned}, tmp_path / "a.gguf")
    found = sj.load_file(tmp_path / "a.gguf")
    assert sj.array_equal(found["w"], t)
    assert found["turned"].shape == shape[::-1]
    if name == "bfloat16" and shape == ():
        return  # their reader takes it for blocks
    theirs = read(tmp_path / "a.gguf")["w"]
    assert theirs.tensor_type.name == sj.dtype(name).gguf
    assert theirs.data.tobytes() == t.tobytes()


def test_metadata_of_every_type(tmp_path):
    sj.save_file({"w": X}, tmp_path / "a.gguf", metadata=VALUES)
    fields = gguf.GGUFReader(tmp_path / "a.gguf").fields
    for key, value in VALUES.items():
        field = fields[key]
        np.testing.assert_array_equal(field.contents(), value)
        assert key not in STORED or field.types[-1].name == STORED[key]
    metadata = file_formats.read(tmp_path / "a.gguf").metadata
    assert metadata["words"] == ["a", "ünï"]
    assert metadata["wide"] == [-1, 2**33]


@pytest.fixture(params=[32, 128])
def model(request, tmp_path):
    """A file by gguf's own writer, with values of every type."""
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(request.param)
    for kind in [*KINDS, "float64"]:
        getattr(writer, f"add_{kind}")(f"a.{kind}", 3)
    writer.add_bool("a.bool", True)
    writer.add_array("a.array", [1, 2, 3])
    writer.add_array("a.words", ["x", "yz"])
    blocks = gguf.quants.quantize(X, gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("q", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("odd", np.arange(3, dtype=np.int8))
    writer.add_tensor("w", X)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_same_tensors_and_metadata_make_the_same_file(model, tmp_path):
    sj.save_file(sj.load_file(model), tmp_path / "b.gguf", source=model)
    assert (tmp_path / "b.gguf").read_bytes() == model.read_bytes()
    found = file_formats.read(model)
    new = [file_formats.New.of(name, t) for name, t in found.tensors.items()]
    size = file_formats.write(tmp_path / "c.gguf", new, found.metadata, source=found)
    assert (tmp_path / "c.gguf").read_bytes() == model.read_bytes()
    assert size == model.stat().st_size


def test_other_tensors_with_the_metadata_of_a_source(model, tmp_path):
    q8 = sj.schemes["gguf:q8_0"].encode(X)["weight"]
    half = sj.cast(X, "float16")
    sj.save_file({"q": q8, "w": half}, tmp_path / "b.gguf", source=model, types={"q": "Q8_0"})
    found = read(tmp_path / "b.gguf")
    assert {name: t.tensor_type.name for name, t in found.items()} == {"q": "Q8_0", "w": "F16"}
    np.testing.assert_array_equal(found["w"].data, half)
    before, after = (gguf.GGUFReader(path).fields for path in (model, tmp_path / "b.gguf"))
    for key in before.keys() - {"GGUF.tensor_count"}:
        assert after[key].types == before[key].types
        assert after[key].contents() == before[key].contents()


def test_some_metadata_of_a_source_changed(model, tmp_path):
    metadata = {**file_formats.read(model).metadata, "a.int64": 4}
    sj.save_file({"w": X}, model, source=model, metadata=metadata)
    fields = gguf.GGUFReader(model).fields
    assert (fields["a.int64"].types[-1].name, fields["a.int64"].contents()) == ("UINT32", 4)
    assert (fields["a.int16"].types[-1].name, fields["a.int16"].contents()) == ("INT16", 3)


Q4 = np.zeros((2, 18), np.uint8)


@pytest.mark.parametrize(
    ("tensors", "words", "reason"),
    [
        ({"w": Q4}, {}, "GGUF has no type for uint8: types= must name"),
        ({"w": Q4[:, 1:]}, {"types": {"w": "Q4_0"}}, "blocks of 18 bytes"),
        ({"w": Q4[0, 0]}, {"types": {"w": "Q4_0"}}, "blocks of 18 bytes"),
        ({"w": Q4}, {"types": {"w": "Q4_9"}}, "the type 'Q4_9' is unknown"),
        ({"w": Q4}, {"types": {"w": "F32"}}, "F32 is stored as float32, not uint8"),
        ({"w": X}, {"types": {"w": "Q4_0"}}, "Q4_0 is stored as uint8, not float32"),
        ({"w": X}, {"types": {"v": "F32"}}, "is named by types=, but is not among the tensors"),
        ({"w": X.astype(np.complex64)}, {}, "no type for complex64"),
        ({"w": X[None, None, None]}, {}, "5 dims, more than 4"),
        ({"n" * 65: X}, {}, "cannot be a name in GGUF"),
        ({"w": X}, {"metadata": {"k": None}}, "no type for 'None', the value of 'k'"),
        ({"w": X}, {"metadata": {"k": []}}, "no type for"),
        ({"w": X}, {"metadata": {"k": [1, "a"]}}, "no type for"),
        ({"w": X}, {"metadata": {"k": [-1, 2**64 - 1]}}, "no type for"),
        ({"w": X}, {"metadata": {"k": 2**64}}, "no type for"),
        ({"w": X}, {"metadata": {"k": "\ud800"}}, "no type for"),
        ({"w": X}, {"metadata": {1: "v"}}, "cannot be a key"),
        ({"w": X}, {"metadata": {"general.alignment": 3}}, "not a power of two"),
    ],
)
def test_what_gguf_cannot_hold_is_refused_first(tensors, words, reason, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"old")
    with pytest.raises(sj.FileFormatError, match=reason):
        sj.save_file(tensors, tmp_path / "a.gguf", **words)
    assert (tmp_path / "a.gguf").read_bytes() == b"old"
    assert len([*tmp_path.iterdir()]) == 1


def test_other_formats_have_no_types(tmp_path):
    with pytest.raises(sj.FileFormatError, match="npz has no types="):
        sj.save_file({"w": Q4}, tmp_path / "a.npz", types={"w": "Q4_0"})


def test_the_scale_beside_blocks_of_nvfp4_belongs_to_them(tmp_path):
    parts = sj.schemes["nvfp4:gguf"].encode(X)
    tensors = {"blk.0.w.weight": parts["weight"], "blk.0.w.scale": np.array([4], np.float32)}
    sj.save_file(tensors, tmp_path / "a.gguf", types={"blk.0.w.weight": "NVFP4"})
    ((_, scheme, found),) = sj.schemes.detect(file_formats.read(tmp_path / "a.gguf").typed)
    assert found.names == {"weight": "blk.0.w.weight", "scale": "blk.0.w.scale"}
    theirs = read(tmp_path / "a.gguf")["blk.0.w.weight"]
    wanted = 4 * gguf.quants.dequantize(theirs.data, theirs.tensor_type)
    decoded = sj.schemes[scheme].decode(found, dtype="float32").numpy()
    np.testing.assert_array_equal(decoded, wanted)
