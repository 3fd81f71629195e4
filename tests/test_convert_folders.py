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
