"""Folders converted: quantised weights decoded, shards, config.json, and what is interrupted."""

import json

import ml_dtypes
import numpy as np
import pytest
import scheme_fixtures
from safetensors import safe_open

import shapejit as sj
from shapejit import conversion
from shapejit.conversion import sources
from shapejit.files import file_formats

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
    words = [conversion.rule(*r) for r in rules]
    plan = conversion.plan(file_formats.read(source), words, conversion.dialect())
    plan.write(target, **options)
    return sj.load_file(target)


def bits(x):
    x = np.ascontiguousarray(x)
    return x.shape, x.dtype, x.view(np.uint8).tobytes()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.name)
@pytest.mark.parametrize("band", [1, 1 << 22])
def test_each_scheme_is_decoded_as_its_own_project_does(fixture, band, tmp_path, monkeypatch):
    """In a folder: companions in other shards, config and index follow, other files are copied."""
    monkeypatch.setattr(sources, "BAND", band)  # elements that are decoded at a time
    source = folder_of(tmp_path / "in", fixture)
    told = {"quantization_config", "compression_config", "quantization"}
    plain = {"model_type": "x", **{k: v for k, v in fixture.config.items() if k not in told}}
    for name, short in (("float32", "f32"), ("bfloat16", "bf16")):
        once = fixture.rounded_once.get(name, True) and "float32" in fixture.expected
        if not (once or name == "float32") or name not in fixture.expected:
            continue
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
    "casts": ([("select", "l.up.w"), ("cast", ".*=BF16"), ("split", ".*=0:a,b"),
               ("concat", "b=1:a->c")],
              {"c": np.concatenate([UP[3:], UP[:3]], axis=1).astype(ml_dtypes.bfloat16)}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rules_for_several_tensors_are_numpys(case, tmp_path):
    rules, wanted = CASES[case]
    source = plain_folder(tmp_path / "in", SOURCE)
    found = converted(source, tmp_path / "out", *rules)
    assert list(found) == list(wanted)
    for name, x in wanted.items():
        assert bits(found[name].numpy()) == bits(x)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([("rename", "s/l.*/a/")], "makes two tensors 'a'"),
        ([("rename", "s/l.gate.w/l.up.w/")], "makes two tensors 'l.up.w'"),
        ([("rename", r"s/l.gate.w/\2/")], "is not a name"),
        ([("rename", "l/a/")], "is not of the form s/REGEX/REPLACEMENT/"),
        ([("split", "l.gate.w=0:a,b,c,d")], "cannot be split"),
        ([("split", "l.gate.w=0:a:4,b:1")], "cannot be split"),
        ([("split", "l.gate.w=0:a:4,b")], "either all parts have a size, or none"),
        ([("split", "l.gate.w=2:a,b")], "axis 2 is out of bounds"),
        ([("split", "l.gate.w=a,b")], "is not AXIS:NAME"),
        ([("concat", "l.gate.w=0:none->a")], "there is no tensor 'none'"),
        ([("concat", "l.gate.w=0:l.up.w")], "is not AXIS:NAME,NAME...->NAME"),
        ([("concat", "l.gate.w=1:l.qkv.w->a")], "has shape (12, 5), not (6, 5)"),
        ([("cast", "l.up.w=F16"), ("interleave", "l.gate.w=0:l.up.w->a")], "is float16, not"),
        ([("exclude", "h.experts.3.w"), ("stack", "experts.#")], "number 3 is missing"),
        ([("stack", "experts")], "is not a part of a name and '.#'"),
        ([("unstack", "qkv.#"), ("unstack", "nothing.#")], "no tensor has a name"),
        ([("slice", "l.up.w=7")], "index 7 is out of bounds"),
        ([("slice", "l.up.w=::0")], "is not an index or a slice"),
        ([("to", "bf16")], "no quantised weight has a name that --to bf16 matches"),
        ([("to", "int3")], "unknown dtype or scheme 'int3'"),
        ([("cut", "a")], "unknown rule 'cut'"),
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
