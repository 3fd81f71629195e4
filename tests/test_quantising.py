"""convert --to a scheme of a checkpoint of floats: what is encoded, kept and reported."""

import json

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj
from shapejit.__main__ import main

LINEAR = {
    "self_attn.q_proj": (256, 256), "self_attn.k_proj": (128, 256), "self_attn.v_proj": (128, 256),
    "mlp.gate_proj": (384, 256), "mlp.up_proj": (384, 256), "mlp.down_proj": (256, 384),
}  # fmt: skip
SCHEMES = {
    "fp8:block": ("fp8", None),
    "fp8:channel": ("compressed-tensors", "float-quantized"),
    "fp8:tensor": ("compressed-tensors", "float-quantized"),
    "mxfp4:compressed-tensors": ("compressed-tensors", "mxfp4-pack-quantized"),
    "mxfp8:compressed-tensors": ("compressed-tensors", "mxfp8-quantized"),
    "nvfp4:compressed-tensors": ("compressed-tensors", "nvfp4-pack-quantized"),
    "nvfp4:modelopt": ("modelopt", None),
    "int8:compressed-tensors": ("compressed-tensors", "int-quantized"),
    "int4:compressed-tensors": ("compressed-tensors", "pack-quantized"),
}
LEFT = ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
        "model.layers.0.mlp.gate.weight")  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a layer of bfloat16."""
    rng = np.random.default_rng(0)

    def weight(*shape):
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)

    given = {name: weight(16, 256) for name in LEFT} | {"model.norm.weight": weight(256)}
    given |= {f"model.layers.0.{name}.weight": weight(*shape) for name, shape in LINEAR.items()}
    folder = tmp_path_factory.mktemp("quantising") / "model"
    folder.mkdir()
    sj.save_file(given, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    return folder


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_weights_are_encoded_and_config_json_tells(scheme, model, tmp_path):
    report = sj.files.convert(model, tmp_path / "to", [("to", scheme)])
    config, tensors = config_of(tmp_path / "to"), sj.load_file(tmp_path / "to")
    found = sj.schemes.detect(tensors, config)
    assert (found.unclear, found.warnings) == ([], [])
    assert {prefix for prefix, _, _ in found} == {f"model.layers.0.{name}" for name in LINEAR}
    assert dict(report.left_out).keys() == set(LEFT)
    before = sj.load_file(model)
    for prefix, name, parts in found:
        assert name == scheme
        x = before[f"{prefix}.weight"].numpy().astype(np.float32)
        y = sj.schemes[name].decode(parts, dtype="float32").numpy()
        assert np.abs(x - y).max() < 0.08 * np.abs(x).max() + (0.5 if "4" in name else 0.01)
        if not name.startswith("nvfp4"):
            for key, t in sj.schemes[name].encode(before[f"{prefix}.weight"]).items():
                assert parts[key].tobytes() == t.tobytes()
    for name in LEFT:
        assert tensors[name].tobytes() == before[name].tobytes()
    reported = config["quantization_config"]
    assert (reported["quant_method"], reported.get("format")) == SCHEMES[scheme]
    left = {"lm_head", "model.layers.0.mlp.gate"}
    assert left <= {*reported.get("ignore", reported.get("modules_to_not_convert", []))}


@pytest.mark.parametrize("scheme", ["nvfp4:compressed-tensors", "nvfp4:modelopt"])
def test_projections_that_kernels_run_as_one_share_their_global_scale(scheme, model, tmp_path):
    sj.files.convert(model, tmp_path / "to", [("to", scheme)])
    found = sj.schemes.detect(sj.load_file(tmp_path / "to"), config_of(tmp_path / "to"))
    factors = {
        prefix.split(".")[-1]: float(np.ravel(parts[key].numpy())[0])
        for prefix, _, parts in found
        for key in parts
        if key in ("weight_global_scale", "weight_scale_2")
    }
    assert factors["q_proj"] == factors["k_proj"] == factors["v_proj"]
    assert factors["gate_proj"] == factors["up_proj"] != factors["down_proj"]
    weights = sj.load_file(model)
    top = max(
        float(np.abs(weights[f"model.layers.0.self_attn.{n}_proj.weight"].numpy()).max())
        for n in "qkv"
    )
    factor = np.float32(2688) / np.float32(top)
    assert factors["q_proj"] == float(
        factor if scheme.endswith("tensors") else np.float32(top) / np.float32(2688)
    )


@pytest.mark.parametrize("scheme", ["gguf:q8_0", "gguf:q4_0", "mxfp4:gguf"])
def test_gguf_is_read_by_its_own_package(scheme, model, tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    sj.files.convert(model, path, [("to", scheme)])
    kind = {"mxfp4:gguf": "MXFP4"}.get(scheme, scheme.removeprefix("gguf:").upper())
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    before = sj.load_file(model)
    for name in LINEAR:
        tensor = found[f"model.layers.0.{name}.weight"]
        x = before[tensor.name].numpy().astype(np.float32)
        assert tensor.tensor_type.name == kind
        wanted = gguf.quants.quantize(x, tensor.tensor_type)
        assert tensor.data.tobytes() == wanted.tobytes()
    assert found["lm_head.weight"].tensor_type.name == "BF16"


def test_keep_and_a_regex_choose(model, tmp_path):
    rules = [("to", r".*\.mlp\..*=fp8:channel"), ("keep", r".*down_proj\.weight")]
    sj.files.convert(model, tmp_path / "to", rules)
    found = sj.schemes.detect(sj.load_file(tmp_path / "to"), config_of(tmp_path / "to"))
    assert {prefix.split(".")[-1] for prefix, _, _ in found} == {"gate_proj", "up_proj"}
    ignored = config_of(tmp_path / "to")["quantization_config"]["ignore"]
    assert "model.layers.0.mlp.down_proj" in ignored
    assert "model.layers.0.self_attn.q_proj" in ignored


def test_what_is_named_alone_is_encoded(model, tmp_path):
    sj.files.convert(model, tmp_path / "to", [("to", r"lm_head\.weight=fp8:channel")])
    assert sj.load_file(tmp_path / "to")["lm_head.weight"].dtype.name == "float8_e4m3fn"


def test_quantised_weights_are_carried_over_and_floats_beside_them_stay(tmp_path):
    fp8 = sj.schemes["fp8:block"].encode(np.eye(128, dtype=np.float32))
    given = {f"a.{key}": part for key, part in fp8.items()} | {"b.weight": np.eye(128)}
    sj.save_file(given, tmp_path / "a.safetensors")
    sj.files.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", [("to", "fp8:block")])
    found = sj.load_file(tmp_path / "b.safetensors")
    assert {name: t.dtype.name for name, t in found.items()} == {
        "a.weight": "float8_e4m3fn", "a.weight_scale_inv": "float32", "b.weight": "float64",
    }  # fmt: skip


def test_stacked_experts(tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 64, 96)).astype(np.float32)
    path, to = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    sj.save_file({"mlp.experts.gate_up_proj": x, "fc.weight": x[0]}, path)
    sj.files.convert(path, to, [("to", "mxfp4:gpt-oss")])
    wanted = sj.schemes["mxfp4:gpt-oss"].encode(x)
    found = sj.load_file(to)
    assert found.keys() == {"mlp.experts.gate_up_proj_blocks", "mlp.experts.gate_up_proj_scales",
                            "fc.weight"}  # fmt: skip
    assert found["mlp.experts.gate_up_proj_blocks"].tobytes() == wanted["blocks"].tobytes()
    report = sj.files.convert(path, to, [("to", "fp8:channel")])
    assert "stacked experts" in dict(report.left_out)["mlp.experts.gate_up_proj"]
    rules = [("unstack", "gate_up_proj.#"),
             ("rename", r"s/mlp\.experts\.gate_up_proj\.(\d)/mlp.experts.\1.gate_up_proj.weight/"),
             ("permute", r".*gate_up_proj\.weight=1,0"), ("to", "fp8:channel")]  # fmt: skip
    sj.files.convert(path, to, rules)
    codes = sj.schemes["fp8:channel"].encode(np.ascontiguousarray(x[1].T))["weight"]
    assert sj.load_file(to)["mlp.experts.1.gate_up_proj.weight"].tobytes() == codes.tobytes()


def test_config_json_names_stacked_experts_that_are_left_out(tmp_path):
    """Readers replace the module with all of its experts, which has no weight of its own."""
    rng = np.random.default_rng(0)
    experts = "layers.0.mlp.experts"
    given = {f"{experts}.{name}": rng.standard_normal((2, 64, 128)).astype(np.float32)
             for name in ("gate_up_proj", "down_proj")}  # fmt: skip
    given["layers.0.q_proj.weight"] = given[f"{experts}.down_proj"][0]
    (tmp_path / "a").mkdir()
    sj.save_file(given, tmp_path / "a/model.safetensors")
    (tmp_path / "a/config.json").write_text("{}")
    for scheme, names in (("fp8:block", {experts, "lm_head"}),
                          ("mxfp4:gpt-oss", {"layers.0.q_proj", "lm_head"})):  # fmt: skip
        sj.files.convert(tmp_path / "a", tmp_path / "b", [("to", scheme)])
        said = config_of(tmp_path / "b")["quantization_config"]
        assert set(said["modules_to_not_convert"]) == names


def test_dry_run_tells_sizes(model, tmp_path, capsys):
    command = ["convert", str(model), str(tmp_path / "to"), "--to", "fp8:block", "--dry-run"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "left as it is: lm_head.weight (the head)" in err
    assert "float8_e4m3fn" in out
    assert main([*command, "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    codes = [row for row in groups if row["after"].startswith("float8_e4m3fn")]
    assert sum(row["count"] for row in codes) == len(LINEAR)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("scheme", [*SCHEMES, "bnb:nf4", "gguf:q4_0"])
def test_weights_that_cannot_be_encoded(scheme, tmp_path, capsys):
    """One without elements stays; one with a number that is not finite is named."""
    made = tmp_path / ("b.gguf" if scheme == "gguf:q4_0" else "b.safetensors")
    x, source = np.ones((128, 256), np.float32), tmp_path / "a.safetensors"
    sj.save_file({"a.weight": np.zeros((0, 256), np.float32), "b.weight": x}, source)
    report = sj.files.convert(source, made, [("to", scheme)])
    assert ("a.weight", "without elements") in report.left_out
    for number in (np.nan, -np.inf):
        x[77, 100] = number
        sj.save_file({"b.weight": x}, source)
        assert main(["convert", str(source), str(made), "--to", scheme]) == 2
        assert "a.safetensors: weight 'b.weight': " in capsys.readouterr().err


def test_rows_that_are_no_whole_words_stay(tmp_path):
    """The zero points of 300 outputs, of 4 bits each, do not fill words of 32 bits."""
    tensors = {f"{n}.weight": np.ones((n, 256), np.float32) for n in (300, 304)}
    sj.save_file(tensors, tmp_path / "a.safetensors")
    report = sj.files.convert(tmp_path / "a.safetensors", tmp_path / "b.npz", [("to", "gptq")])
    reason = "gptq:qzeros@v1 needs rows of a multiple of 8 elements, not 300: (300, 2)"
    assert report.left_out == (("300.weight", reason),)
    assert {"300.weight", "304.qweight"} <= sj.load_file(tmp_path / "b.npz").keys()


def test_what_is_refused(model, tmp_path):
    with pytest.raises(sj.FormatError, match=r"quantises no weight: 'model.norm.weight'.*a vector"):
        sj.files.convert(model, tmp_path / "to", [("to", r"model\.norm\.weight=fp8:block")])
    with pytest.raises(sj.FormatError, match=r"floats cannot be quantised to"):
        sj.files.convert(model, tmp_path / "x.gguf", [("to", "gguf:q6_k")])
    with pytest.raises(sj.FormatError, match=r"config\.json cannot describe gguf:q8_0"):
        sj.files.convert(model, tmp_path / "to", [("to", "gguf:q8_0")])
