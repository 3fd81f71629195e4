"""convert --dtype: floats of a checkpoint in another dtype, and the tensors that stay."""

import json

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj
from shapejit.__main__ import main


@pytest.fixture
def model(tmp_path):
    """A folder with floats, integers, and one FP8 weight with its scales."""
    rng = np.random.default_rng(0)
    fp8 = sj.schemes["fp8:channel"].encode(np.eye(32, dtype=np.float32))
    given = {
        "model.embed_tokens.weight": rng.standard_normal((8, 32), np.float32),
        "model.layers.0.input_layernorm.weight": np.ones(32, ml_dtypes.bfloat16),
        "model.layers.0.mlp.gate.weight": rng.standard_normal((4, 32), np.float32),
        "model.layers.0.mlp.up_proj.weight": rng.standard_normal((32, 32), np.float32),
        "model.layers.0.mlp.down_proj.bias": np.ones(32, np.float32),
        "position_ids": np.arange(8),
        **{f"model.layers.0.q_proj.{name}": part for name, part in fp8.items()},
    }
    folder = tmp_path / "model"
    folder.mkdir()
    sj.save_file(given, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "torch_dtype": "float32", "quantization_config": {"quant_method": "compressed-tensors"},
    }))  # fmt: skip
    return folder


def dtypes(folder):
    names = {"embed_tokens", "input_layernorm", "gate", "up_proj", "down_proj"}
    found = sj.load_file(folder)
    assert found["position_ids"].dtype.name == "int64"
    assert found["model.layers.0.q_proj.weight"].dtype.name == "float8_e4m3fn"
    assert found["model.layers.0.q_proj.weight_scale"].dtype.name == "float32"
    return {n: t.dtype.name for name, t in found.items() if (n := name.split(".")[-2:][0]) in names}


def test_floats_alone_are_cast(model, tmp_path):
    assert main(["convert", str(model), str(tmp_path / "to"), "--dtype", "bf16"]) == 0
    assert set(dtypes(tmp_path / "to").values()) == {"bfloat16"}
    before, after = (sj.load_file(x)["model.embed_tokens.weight"] for x in (model, tmp_path / "to"))
    assert after.tobytes() == before.numpy().astype(ml_dtypes.bfloat16).tobytes()
    with open(tmp_path / "to" / "config.json") as file:
        assert json.load(file)["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize("first", [True, False])
def test_keep_is_an_exception_wherever_it_stands(model, tmp_path, first):
    rules = [("dtype", "f16"), ("keep", r".*\.gate\.weight")]
    sj.files.convert(model, tmp_path / "to", rules[:: -1 if first else 1])
    assert dtypes(tmp_path / "to") == {
        "embed_tokens": "float16", "input_layernorm": "float16", "gate": "float32",
        "up_proj": "float16", "down_proj": "float16",
    }  # fmt: skip


def test_llama_cpps_policy_keeps_vectors_norms_and_routers_in_float32(model, tmp_path):
    sj.files.convert(model, tmp_path / "to", [("dtype", "llama.cpp:bf16")])
    assert dtypes(tmp_path / "to") == {
        "embed_tokens": "bfloat16", "input_layernorm": "float32", "gate": "float32",
        "up_proj": "bfloat16", "down_proj": "float32",
    }  # fmt: skip


def test_what_is_refused(model, tmp_path):
    with pytest.raises(sj.FormatError, match="unknown dtype 'int8'; known are bf16, f16, f32, "):
        sj.files.convert(model, tmp_path / "to", [("dtype", "int8")])
    with pytest.raises(sj.FormatError, match=r"unknown dtype 'bfloat'; did you mean 'bfloat16'\?"):
        sj.files.convert(model, tmp_path / "to", [("dtype", "bfloat")])
    with pytest.raises(sj.ReshapeError, match=r"no tensor of floats .* matches"):
        sj.files.convert(model, tmp_path / "to", [("dtype", "position_ids=bf16")])
