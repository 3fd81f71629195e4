"""Rules: their syntax, their effect on a checkpoint, what is refused before anything is written."""

import os
import pickle
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import shapejit as sj
from shapejit import conversion
from shapejit.files import file_formats, open_files, pieces, planned, safetensors, stored
from shapejit.files.writing import New

KINDS = [kind for kind in sj.dtypes.all() if kind.safetensors]


def checkpoint(path, tensors, metadata=None):
    file_formats.write(path, [New.of(*item) for item in tensors.items()], metadata)
    return safetensors.read(path)


def numbered(kind, shape):
    """A tensor whose codes tell its elements apart as far as its bits allow."""
    kind = sj.dtype(kind)
    raw = np.random.default_rng(len(shape)).integers(
        0, 256, kind.nbytes(int(np.prod(shape, dtype=int))), np.uint8
    )
    return sj.Tensor.frombuffer(raw, kind, shape)


def elements_of(t):
    """One item an element, of any dtype, as NumPy can move it: codes or raw bytes."""
    if t.dtype.packed:
        return t.unpack().view(np.uint8)
    return np.frombuffer(t.tobytes(), f"V{t.dtype.bits // 8}").reshape(t.shape)


def plan(found, *words, **spec):
    rules = [conversion.rule(*pair) for pair in words]
    made = conversion.plan(found, rules, conversion.dialect(**spec))
    return Plan(tuple(made.changes.values()), found.path, words, spec)


class Plan(NamedTuple):
    """The planned tensors, and the arguments that write them."""

    changes: tuple
    source: str
    rules: tuple
    spec: dict

    def write(self, path, progress=None, **more):
        options = {**self.spec, **more, "proof": False, "progress": progress}
        return sj.files.convert(self.source, path, self.rules, **options)


# Rules


@pytest.mark.parametrize(
    ("text", "pattern", "values"),
    [
        ("a=1,2", "a", (1, 2)),
        ("a=", "a", ()),
        ("a= ", "a", ()),
        ("a= 1, -1", "a", (1, -1)),
        (r"a=b=\d=3", r"a=b=\d", (3,)),
        ("(?=a).*=0", "(?=a).*", (0,)),
        ("=7", "", (7,)),
        ("a=-0", "a", (0,)),
        ("a=9223372036854775807", "a", (2**63 - 1,)),
    ],
)
def test_a_rule_is_split_at_the_last_equals_sign(text, pattern, values):
    r = conversion.rule("reshape", text)
    assert (r.pattern.pattern, r.values) == (pattern, values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=0:x->y->z", (0, ("x",), "y->z")),
        ("a=-1:x,y->z->w", (-1, ("x", "y"), "z->w")),
        ("a=0:x->y,z->w", (0, ("x",), "y,z->w")),
    ],
)
def test_names_of_a_join_end_at_the_first_arrow(text, values):
    assert conversion.rule("concat", text).values == values


@pytest.mark.parametrize(
    ("option", "text"),
    [("slice", ".*=0:4,::2,1"), ("permute", "x=1,0"), ("to", "bf16"), ("stack", "experts.#"),
     ("split", r"(.*)=0:\1.a:2,\1.b:3"), ("repack", "q=lsb->gptq:qweight")],
)  # fmt: skip
def test_a_rule_goes_to_another_process_as_it_is(option, text):
    rule = conversion.rule(option, text)
    other = pickle.loads(pickle.dumps(rule))
    assert other == rule
    assert hash(other) == hash(rule)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", "has no '='"),
        ("", "has no '='"),
        ("(=1", "'\\(' is not a regular expression: missing \\)"),
        ("a{2,1}=1", "not a regular expression"),
        ("a{99999999999}=1", "not a regular expression"),
        ("(" * 5000 + "=1", "not a regular expression"),
        ("a=x", "'x' is not an integer"),
        ("a=1,,2", "'' is not an integer"),
        ("a=1,", "'' is not an integer"),
        ("a=1.0", "'1.0' is not an integer"),
        ("a=1_0", "'1_0' is not an integer"),
        ("a=٣", "is not an integer"),
        ("a=--1", "is not an integer"),
        ("a=" + "9" * 5000, "is not an integer of 64 bits"),
        (f"a=0,-{10**19}", f"'-{10**19}' is not an integer of 64 bits"),
    ],
)
def test_a_bad_rule_is_refused(text, words):
    with pytest.raises(sj.ReshapeError, match=words):
        conversion.rule("permute", text)


# What rules do


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_dtype_moves_as_numpy_moves_it(kind, tmp_path):
    t = numbered(kind, (12, 5, 8))
    found = checkpoint(tmp_path / "a", {"x": t, "kept": t})
    made = plan(found, ("reshape", "x=3,4,5,8"), ("permute", "x=2,0,3,1"), ("reshape", "x=5,-1"))
    report = made.write(tmp_path / "b")
    result = safetensors.read(tmp_path / "b")
    wanted = elements_of(t).reshape(3, 4, 5, 8).transpose(2, 0, 3, 1).reshape(5, -1)
    assert result.tensors["x"].shape == (5, 96)
    assert elements_of(result.tensors["x"]).tobytes() == wanted.tobytes()
    assert result.tensors["kept"].tobytes() == t.tobytes()
    assert (report.tensors, report.changed, report.moved) == (2, 1, 1)
    assert report.bytes_read == report.bytes_written == 2 * t.nbytes


def test_without_rules_the_file_is_the_same(tmp_path):
    tensors = {f"{i}": numbered(kind, (8, 3)) for i, kind in enumerate(KINDS)}
    found = checkpoint(tmp_path / "a", tensors, {"b": "1", "a": "2"})
    report = plan(found).write(tmp_path / "b")
    assert (report.changed, report.moved) == (0, 0)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_metadata_are_kept(tmp_path):
    found = checkpoint(tmp_path / "a", {"x": numbered("int8", (6,))}, {"z": "é", "a": ""})
    plan(found, ("reshape", "x=2,3")).write(tmp_path / "b")
    assert list(safetensors.read(tmp_path / "b").metadata.items()) == [("z", "é"), ("a", "")]


def test_rules_apply_in_order_to_every_name_that_matches_as_a_whole(tmp_path):
    shapes = {"a.weight": (6,), "a.weight.more": (6,), "b.weight": (6,), "A.weight": (6,)}
    found = checkpoint(tmp_path / "a", {n: numbered("uint8", s) for n, s in shapes.items()})
    made = plan(
        found,
        ("reshape", r"[ab]\.weight=2,3"),
        ("permute", r"a\.weight=1,0"),
        ("reshape", r".\.weight=1,-1,1"),
        ("permute", r"b.*|nothing=2,1,0"),
    )
    assert {c.name: (c.shape, c.same) for c in made.changes} == {
        "a.weight": ((1, 6, 1), False),
        "a.weight.more": ((6,), True),
        "b.weight": ((1, 6, 1), False),
        "A.weight": ((1, 6, 1), False),
    }
    made.write(tmp_path / "b")
    result = safetensors.read(tmp_path / "b").tensors
    source = elements_of(found.tensors["a.weight"])
    assert elements_of(result["a.weight"]).tobytes() == source.reshape(2, 3).T.tobytes()


def test_scalars_and_empty_tensors(tmp_path):
    tensors = {"one": numbered("float32", (1, 1)), "none": numbered("bfloat16", (4, 0, 2))}
    found = checkpoint(tmp_path / "a", tensors)
    made = plan(
        found,
        ("reshape", "one="),
        ("permute", "one="),
        ("permute", "none=1,0,2"),
        ("reshape", "none=0,7"),
    )
    made.write(tmp_path / "b")
    result = safetensors.read(tmp_path / "b").tensors
    assert (result["one"].shape, result["none"].shape) == ((), (0, 7))
    assert result["one"].tobytes() == tensors["one"].tobytes()


def test_only_what_must_be_copied_in_between_is(tmp_path):
    found = checkpoint(tmp_path / "a", {"x": numbered("int16", (4, 6))})

    def stages(*words):
        (change,) = plan(found, *words).changes
        return len(change.stages), change.moves

    assert stages(("reshape", "x=2,2,6")) == (1, False)
    assert stages(("permute", "x=1,0"), ("permute", "x=-1,0")) == (1, False)
    assert stages(("permute", "x=1,0"), ("reshape", "x=2,3,4")) == (1, True)
    # At the end, even a reshape that has no view costs nothing.
    assert stages(("permute", "x=1,0"), ("reshape", "x=-1"), ("reshape", "x=8,3")) == (1, True)
    assert stages(("permute", "x=1,0"), ("reshape", "x=8,3"), ("permute", "x=1,0")) == (2, True)


@st.composite
def chains(draw):
    """A shape, and rules for a tensor of that shape with the same steps for NumPy."""
    sizes = st.sampled_from([(4, 6), (2, 3, 4), (24,), (2, 2, 2, 3), (1, 24, 1), (6, 4)])
    steps = draw(st.lists(st.one_of(sizes, st.just("permute")), max_size=6))
    return draw(sizes), steps, draw(st.randoms(use_true_random=False))


@settings(max_examples=150, deadline=None)
@given(chains(), st.sampled_from(["float4_e2m1fn", "uint8", "bfloat16", "float6_e2m3fn"]))
def test_chains_of_rules_are_numpys(tmp_path_factory, chain, kind):
    shape, steps, random = chain
    folder = tmp_path_factory.mktemp("chain")
    t = numbered(kind, shape)
    wanted, words = elements_of(t), []
    for step in steps:
        if step == "permute":
            axes = random.sample(range(wanted.ndim), wanted.ndim)
            wanted = wanted.transpose(axes)
            words.append(("permute", "x=" + ",".join(map(str, axes))))
        else:
            wanted = wanted.reshape(step)
            words.append(("reshape", "x=" + ",".join(map(str, step))))
    plan(checkpoint(folder / "a", {"x": t}), *words).write(folder / "b")
    result = safetensors.read(folder / "b").tensors["x"]
    assert result.shape == wanted.shape
    assert elements_of(result).tobytes() == wanted.tobytes()


# Specifications


@pytest.mark.parametrize(
    ("spec", "shape", "target", "result"),
    [
        ({"spec": "array"}, (2, 3, 4), "0,-1", None),
        ({"spec": "array"}, (0, 3), "3,0", (3, 0)),
        ({"spec": "onnx"}, (2, 3, 4), "0,-1", (2, 12)),
        ({"spec": "onnx"}, (0, 3), "3,0", None),
        ({"spec": "onnx", "allowzero": True}, (0, 3), "3,0", (3, 0)),
        ({"spec": "onnx", "allowzero": True}, (2, 3, 4), "0,-1", None),
        ({"spec": "openvino"}, (2, 3, 4), "0,-1", None),
        ({"spec": "openvino", "special_zero": True}, (2, 3, 4), "0,-1", (2, 12)),
        ({"spec": "openvino", "special_zero": True}, (4, 0, 2), "-1,0", (8, 0)),
        ({"spec": "onednn"}, (0, 3), "3,0", (3, 0)),
        ({"spec": "onednn", "special_zero": True}, (2, 3, 4), "0,0,-1,1", (2, 3, 4, 1)),
        ({"spec": "onednn", "special_zero": True}, (4, 0, 2), "-1,0", None),
    ],
)
def test_each_specification_has_its_own_zero(spec, shape, target, result, tmp_path):
    found = checkpoint(tmp_path / "a", {"x": numbered("float32", shape)})
    if result is None:
        with pytest.raises(sj.ReshapeError, match="a: tensor 'x': cannot reshape"):
            plan(found, ("reshape", f"x={target}"), **spec)
    else:
        (change,) = plan(found, ("reshape", f"x={target}"), **spec).changes
        assert change.shape == result


@pytest.mark.parametrize(
    ("spec", "kinds", "refused"),
    [
        ("array", KINDS, ()),
        ("onnx", KINDS, ("float6_e2m3fn", "float6_e3m2fn")),
        ("openvino", KINDS, [k.name for k in KINDS if k.openvino is None]),
        ("onednn", KINDS, [k.name for k in KINDS if k.onednn is None]),
    ],
)
def test_each_specification_takes_the_dtypes_that_it_lists(spec, kinds, refused, tmp_path):
    assert spec == "array" or refused
    for kind in kinds:
        found = checkpoint(tmp_path / "a", {"x": numbered(kind, (8,)), "y": numbered(kind, (8,))})
        # Only a reshape is the specification's, and only for the tensors that it names.
        words = ("permute", "y=0"), ("reshape", "x=2,4")
        if kind.name in refused:
            with pytest.raises(
                sj.DTypeError, match=rf"(?s)a: tensor 'x': .*{kind}.*--reshape x=2,4"
            ):
                plan(found, *words, spec=spec)
        else:
            assert plan(found, *words, spec=spec).changes[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"spec": "array", "special_zero": True},
            "--special-zero is not an attribute of",
        ),
        ({"spec": "array", "allowzero": True}, "--allowzero is not an attribute"),
        (
            {"spec": "onnx", "special_zero": True},
            "not an attribute of --spec onnx",
        ),
        ({"spec": "openvino", "allowzero": True}, "--allowzero is not an attribute"),
        ({"spec": "onednn", "allowzero": True}, "not an attribute of --spec onednn"),
        ({"spec": "tf"}, "unknown specification 'tf'; known are array, onnx, openvino, onednn"),
    ],
)
def test_flags_belong_to_their_specification(spec, words):
    with pytest.raises(sj.ReshapeError, match=words):
        conversion.dialect(**spec)


# Refused before anything is written


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([("reshape", "x=4")], r"a: tensor 'x': cannot reshape (2, 3) into [4]"),
        ([("reshape", "x=-1,-1")], "a second -1"),
        ([("reshape", "x=-2,3")], "invalid size -2"),
        ([("reshape", "x=9999999999999999999")], "does not fit int64"),
        ([("reshape", "x=")], "tensor 'x': cannot reshape (2, 3) into []"),
        ([("permute", "x=0")], "a: tensor 'x': axes (0,) are not a permutation of the 2 dims"),
        ([("permute", "x=0,2")], "tensor 'x': axis 2 is out of bounds"),
        ([("permute", "x=0,0")], "not a permutation"),
        ([("permute", "x=")], "not a permutation"),
        ([("reshape", "x=6"), ("permute", "x=0,1")], "tensor 'x': axis 1 is out of bounds"),
        ([("reshape", "z=6")], "a: no tensor has a name that --reshape z=6 matches"),
        ([("reshape", "xx|=6")], "no tensor has a name"),
    ],
)
def test_a_rule_that_does_not_fit_names_file_tensor_and_rule(words, text, tmp_path):
    found = checkpoint(
        tmp_path / "a", {"x": numbered("uint8", (2, 3)), "y": numbered("int8", (6,))}
    )
    with pytest.raises(sj.ReshapeError) as caught:
        plan(found, ("reshape", "y=6"), *words)
    assert text in str(caught.value)
    option, rest = words[-1]
    assert f"--{option} {rest}" in str(caught.value)


def test_more_dims_than_the_format_takes(tmp_path):
    found = checkpoint(tmp_path / "a", {"x": numbered("int8", (1,))})
    ones = ",".join("1" * 64)
    for spec in conversion.SPECS:
        if spec != "onednn":  # which takes no int8
            (change,) = plan(found, ("reshape", f"x={ones}"), spec=spec).changes
            assert change.shape == (1,) * 64
            with pytest.raises(sj.ReshapeError) as caught:
                plan(found, ("reshape", f"x={ones},-1"), spec=spec)
            lines = str(caught.value).splitlines()
            assert lines[0].startswith(f"{tmp_path / 'a'}: tensor 'x': cannot reshape (1,) into [1")
            assert lines[1] == "  65 dims are more than the 64 of a file"
            assert lines[2] == f"  asked by --reshape x={ones},-1"


# The source while it is read


@pytest.mark.parametrize("words", [(), ("permute", "x=1,0"), ("reshape", "x=6,-1")])
@pytest.mark.parametrize("when", ["before", "amid"])
def test_a_source_that_is_truncated_is_an_error(when, words, tmp_path):
    source, out = tmp_path / "a", tmp_path / "b"
    out.write_bytes(b"old")
    found = checkpoint(source, {"w": numbered("int16", (8,)), "x": numbered("int16", (768, 4096))})
    made = plan(found, *[words] if words else [])

    def truncate(*_):
        os.truncate(source, 16384)

    with pytest.raises(sj.FileFormatError) as caught:
        made.write(out, **{"planned" if when == "before" else "progress": truncate})
    reason = "the file was truncated to 16384 bytes while it was read"
    assert str(caught.value) in [f"{source}: tensor {name!r}: {reason}" for name in "wx"]
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(range(4)),
    st.sampled_from(["float4_e2m1fn", "uint8", "float32", "float6_e2m3fn", "complex64"]),
    st.sampled_from([1, 16, 64, 1024]),
)
def test_a_tensor_that_is_read_in_bands_is_numpys(tmp_path_factory, axes, kind, band):
    """As if memory held only a few bytes of the file at a time."""
    folder = tmp_path_factory.mktemp("bands")
    t = numbered(kind, (4, 3, 8, 5))
    words = ("permute", "x=" + ",".join(map(str, axes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "READ_BYTES", band)
        patch.setattr(pieces, "PIECE_BYTES", 32)
        plan(checkpoint(folder / "a", {"x": t}), words).write(folder / "b")
    wanted = elements_of(t).transpose(axes)
    result = safetensors.read(folder / "b").tensors["x"]
    assert result.shape == wanted.shape
    assert elements_of(result).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("axis", [0, 1])
def test_permuted_tensors_are_read_once_where_they_are_joined(axis, tmp_path, monkeypatch):
    """Some rows of one need all of its file: they are not read again for the next rows."""
    x = np.random.default_rng(0).integers(0, 256, (256, 256), np.uint8)
    sj.save_file({"a": x, "b": x[::-1].copy()}, tmp_path / "a.safetensors")
    count, read = [], open_files.OpenFile.read
    for module, name in ((planned, "PIECE_BYTES"), (pieces, "PIECE_BYTES"), (stored, "READ_BYTES")):
        monkeypatch.setattr(module, name, 4096)
    monkeypatch.setattr(
        open_files.OpenFile,
        "read",
        lambda file, memory, *more: (count.append(len(memory)), read(file, memory, *more))[1],
    )
    rules = [("permute", ".=1,0"), ("concat", f"a={axis}:b->c")]
    sj.files.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", rules, proof=False)
    assert sum(count) < 1.5 * 2 * x.nbytes
    wanted = np.concatenate([x.T, x[::-1].T], axis)
    assert np.array_equal(sj.load_file(tmp_path / "b.safetensors")["c"].numpy(), wanted)


# Casts


@pytest.mark.parametrize("rules", [[], [("cast", ".*=f16")], [("permute", ".*=1,0")]])
@pytest.mark.parametrize("where", ["file", "folder", "workers"])
@pytest.mark.parametrize("change", ["bytes", "size"])
def test_a_source_that_is_changed_while_it_is_read_is_an_error(change, where, rules, tmp_path):
    source = tmp_path / "model.safetensors"
    sj.save_file({name: np.ones((1024, 1024), np.float32) for name in "abcd"}, source)
    os.utime(source, (1e9, 1e9))

    def progress(nbytes):
        with source.open("r+b") as file:
            if change == "bytes":
                file.seek(-100, os.SEEK_END)
                file.write(bytes(100))
            else:
                file.truncate(source.stat().st_size + 1)
                os.utime(source, (1e9, 1e9))

    given = source if where == "file" else tmp_path
    options = {"executor": "threads:1"} if where == "workers" else {}
    target = tmp_path.with_name(f"{tmp_path.name}-out") if where != "file" else tmp_path / "o.npz"
    with pytest.raises(sj.FileFormatError, match=r"tensor '[a-d]': it was changed while it was r"):
        sj.files.convert(given, target, rules, progress=progress, proof=False, **options)
    assert not target.exists()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "bfloat16"),
        ("float6_e2m3fn", "float32"),
        ("float32", "float6_e2m3fn"),
        ("float8_e4m3fn", "float4_e2m1fn"),
        ("int64", "float16"),
    ],
)
@pytest.mark.parametrize("shape", [(4,), (3, 8), (5, 0), (132, 8193)])
def test_casts(tmp_path, source, target, shape):
    """As sj.cast, whatever the pieces are that the file is read in."""
    t = sj.cast(numbered("uint8" if shape == (132, 8193) else "int8", shape), source)
    found = checkpoint(tmp_path / "a", {"t": t, "other": t})
    made = plan(found, ("permute", "t=" + ",".join(map(str, range(len(shape))[::-1]))),
                ("cast", f"t={target}"))  # fmt: skip
    report = made.write(tmp_path / "b")
    written = safetensors.read(tmp_path / "b")
    wanted = sj.cast(t.permute_dims(tuple(range(len(shape))[::-1])), target)
    assert written.tensors["t"].dtype is wanted.dtype
    assert written.tensors["t"].shape == wanted.shape
    assert written.tensors["t"].tobytes() == wanted.tobytes()
    assert written.tensors["other"].tobytes() == t.tobytes()
    assert report.bytes_written == wanted.nbytes + t.nbytes


def test_casts_one_after_the_other(tmp_path):
    """Each is rounded by itself, and overflows as --saturate says."""
    x = np.array([1.0, 1.03, 500, -1e9], np.float32)
    checkpoint(tmp_path / "a", {"t": sj.asarray(x)})
    rules = [conversion.rule("cast", "t=bf16"), conversion.rule("cast", "t=float8_e4m3fn")]
    for saturate in (True, False):
        sj.files.convert(tmp_path / "a", tmp_path / "b", rules, saturate=saturate)
        wanted = sj.cast(sj.cast(x, "bfloat16"), "float8_e4m3fn", saturate=saturate)
        assert safetensors.read(tmp_path / "b").tensors["t"].tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("t=float7", sj.DTypeError, "unknown dtype 'float7'"),
        ("t=complex64", sj.DTypeError, "complex"),
        ("t=nf4", sj.DTypeError, "there is no cast to nf4"),
        ("t", sj.ReshapeError, "REGEX=DTYPE"),
    ],
)
def test_casts_that_are_refused(tmp_path, text, error, reason):
    found = checkpoint(tmp_path / "a", {"t": sj.asarray(np.zeros(3, np.float32))})
    with pytest.raises(error, match=reason):
        plan(found, ("cast", text))
