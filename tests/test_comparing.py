"""Checkpoints compared: across files, shards, layouts, packings and schemes."""

import json
import os
from collections.abc import Mapping
from weakref import ref

import ml_dtypes
import numpy as np
import pytest
from scheme_fixtures import by_scheme, named

import shapejit as sj
from shapejit.__main__ import main
from shapejit.conversion.comparing import Weights, differences

FIXTURES = [f for scheme, group in by_scheme().items() if scheme in sj.schemes for f in group]
X = np.arange(24, dtype=np.float32).reshape(4, 6)


def found(a, b, tolerance=None):
    """The differences of two sides, each tensors or tensors and a config, as text."""
    sides = [Weights(*side) if isinstance(side, tuple) else Weights(side) for side in (a, b)]
    return [str(each) for each in differences(*sides, tolerance)]


def with_bit(x, at):
    """A copy with the lowest bit of byte `at` changed."""
    made = x.copy()
    made.reshape(-1).view(np.uint8)[at] ^= 1
    return made


class Loaded(Mapping):
    """Tensors that are made on each access; `most` of them existed at a time."""

    def __init__(self, names):
        self.names, self.most, self.made = names, 0, []

    def __getitem__(self, name):
        made = np.zeros(2, np.float32)
        self.made.append(ref(made))
        self.most = max(self.most, sum(each() is not None for each in self.made))
        return made

    def __iter__(self):
        return iter(self.names)

    def __len__(self):
        return len(self.names)


def test_tensors_of_a_mapping_are_loaded_one_by_one():
    a, b = (Loaded([f"w.{k}" for k in range(20)]) for _ in "ab")
    assert list(differences(a, b)) == []
    assert a.most <= 2
    assert b.most <= 2


def test_tensors_of_one_side_are_not_read():
    assert found({"x": X}, {"x": X, "y": np.array([None])}) == ["y: only in B"]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.name)
def test_a_quantised_weight_equals_what_its_project_decodes(fixture):
    quantised = fixture.checkpoint(), fixture.config
    (name,) = Weights(*quantised)
    for kind, x in fixture.expected.items():
        if fixture.rounded_once.get(kind, kind == "float32"):
            assert found(quantised, {name: x}) == []
            assert found({name: x}, quantised) == []
            wrong = x.copy()
            wrong[-1, ..., 1] += 1 + abs(wrong[-1, ..., 1])
            place = [
                n - 1 if k == 0 else 1 if k == x.ndim - 1 else 0 for k, n in enumerate(x.shape)
            ]
            (text,) = found(quantised, {name: wrong})
            assert text.startswith(f"{name}{place}: ")


@pytest.mark.parametrize(
    ("a", "b", "texts"),
    [
        ({"x": X}, {"x": sj.asarray(X.T.copy()).T, "y": X}, ["y: only in B"]),
        ({"x": X, "z": X}, {"x": X}, ["z: only in A"]),
        ({"x": X}, {"x": X.astype(np.float64)}, ["x: float32 (4, 6) against float64 (4, 6)"]),
        ({"x": X}, {"x": X.T}, ["x: float32 (4, 6) against float32 (6, 4)"]),
        ({"x": X}, {"x": with_bit(X, 4 * 15 + 3)}, ["x[2, 3]: 15.0 against 3.75"]),
        ({"x": np.zeros(2)}, {"x": np.array([0, -0.0])}, ["x[1]: 0.0 against -0.0"]),
        ({"x": np.array(7)}, {"x": np.array(6)}, ["x[]: 7 against 6"]),
        ({"x": np.full(2, np.nan, np.float16)},
         {"x": with_bit(np.full(2, np.nan, np.float16), 2)},
         ["x[1]: nan (0x7e00) against nan (0x7e01)"]),
        ({"x": sj.Tensor.frombuffer(b"\x21\x43", "int4", (4,))},
         {"x": sj.Tensor.frombuffer(b"\x21\x03", "int4", (4,))}, ["x[3]: 4 against 0"]),
        ({"x": sj.Tensor.frombuffer(b"\x21\x43", "nf4", (4,))},
         {"x": sj.Tensor.frombuffer(b"\x21\x42", "nf4", (4,))}, ["x[2]: 3 against 2"]),
        ({"a\x1b": X}, {}, ["'a\\x1b': only in A"]),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)  # fmt: skip
def test_the_first_difference_is_named(a, b, texts):
    assert found(a, b) == texts


def test_schemes_that_hold_the_same_weight():
    fixture = named("awq-gemm")
    awq = fixture.checkpoint(), fixture.config
    parts = sj.schemes.detect(*awq)[0].parts
    for scheme in ("int4:compressed-tensors", "matmulnbits"):
        other = {
            f"{fixture.prefix}.{k}": t for k, t in sj.schemes["awq"].convert(parts, scheme).items()
        }
        assert [each.scheme for each in Weights(other).values()] == [scheme]
        assert found(awq, other) == []
        codes = next(iter(other))
        other[codes] = sj.asarray(with_bit(other[codes].numpy(), 0))
        (text,) = found(other, awq)
        assert text.startswith(f"{fixture.prefix}.weight[")


def test_groups_of_one_scheme_are_compared_bit_for_bit():
    fixture = named("nvfp4-modelopt")
    tensors = fixture.checkpoint()
    name = f"{fixture.prefix}.input_scale"
    assert found((tensors, fixture.config), (tensors, fixture.config)) == []
    other = {**tensors, name: tensors[name] * 2}
    (text,) = found((tensors, fixture.config), (other, fixture.config))
    assert text.startswith(f"{name}[]: ")
    assert text.endswith(", as stored in nvfp4:modelopt, not decoded")


def test_zero_points_count_from_what_the_config_says():
    fixture = next(
        f
        for f in by_scheme()["gptq"]
        if f.config["quantization_config"].get("checkpoint_format") == "gptq"
    )
    v2 = {
        "quantization_config": {
            **fixture.config["quantization_config"],
            "checkpoint_format": "gptq_v2",
        }
    }
    assert found((fixture.checkpoint(), fixture.config), (fixture.checkpoint(), v2))


def test_decoded_nans_are_compared_as_numbers_and_zeros_of_float8_with_their_sign():
    codes = np.array([[0x80, 0x00, 0x7F, 0x38]] * 2, np.uint8).view(ml_dtypes.float8_e4m3fn)
    weights = {"x.weight": codes, "x.weight_scale": np.ones((2, 1), np.float32)}
    assert [each.scheme for each in Weights(weights).values()] == ["fp8:channel"]
    nan = with_bit(np.full(1, np.nan, np.float32), 0)[0]
    assert found(weights, {"x.weight": np.array([[-0.0, 0, nan, 1]] * 2, np.float32)}) == []
    for other in ([0, 0, nan, 1], [-0.0, -0.0, nan, 1]):
        x = np.array([other] * 2, np.float32)
        for kind in (np.float32, ml_dtypes.bfloat16, np.float16):
            assert len(found(weights, {"x.weight": x.astype(kind)})) == 1
        assert found(weights, {"x.weight": x}, 0) == []
    for wrong in ([1, 0, nan, 1], [-0.0, 0, 0, 1], [-0.0, 0, nan, nan]):
        assert len(found(weights, {"x.weight": np.array([wrong] * 2, np.float32)})) == 1


def test_tolerance():
    near = X.astype(ml_dtypes.bfloat16)
    rough = X + np.float32(0.25)
    assert found({"x": X}, {"x": near}, 0) == []
    assert found({"x": X}, {"x": rough}, 0.25 / 23) == []
    words = ["x[0, 0]: 0.0 against 0.25, the largest magnitude is 23"]
    assert found({"x": X}, {"x": rough}, 0.2 / 23) == words
    far = rough.copy()
    far[3, 1] = np.inf
    assert found({"x": X}, {"x": far}, 1)[0].startswith("x[3, 1]: 19.0 against inf")
    assert found({"x": far}, {"x": far}, 1) == []
    assert found({"x": X}, {"x": X.astype(np.int32)}, 1)[0].endswith("against int32 (4, 6)")
    codes = {f"x.{key}": t for key, t in sj.schemes["gguf:q8_0"].encode(np.ones((2, 32))).items()}
    assert found(codes, codes, 0) == []
    quantised = sj.schemes["fp8:channel"].encode(X)
    weights = {f"x.{key}": t for key, t in quantised.items()}
    assert found({"x.weight": X}, weights, 1 / 16) == []
    assert len(found({"x.weight": X}, weights)) == 1
    with pytest.raises(sj.FormatError, match="from 0 on"):
        found({}, {}, float("nan"))


def test_a_name_of_two_weights():
    fixture = named("awq-gemm")
    tensors = {**fixture.checkpoint(), f"{fixture.prefix}.weight": X}
    weights = Weights(tensors, fixture.config)
    assert list(weights) == [f"{fixture.prefix}.weight", f"{fixture.prefix}.qweight"]
    assert found((tensors, fixture.config), (tensors, fixture.config)) == []


# The command


def run(capsys, *words):
    code = main(["verify", *map(str, words)])
    return code, capsys.readouterr()


@pytest.fixture
def model(tmp_path):
    """A folder of two shards, the codes of its weight in one and the scales in the other."""
    fixture = named("awq-gemm")
    folder = tmp_path / "model"
    folder.mkdir()
    places = {}
    for name in fixture.checkpoint():
        shard = f"{'1' if name.endswith('qweight') else '2'}.safetensors"
        places[name] = shard
    for shard in set(places.values()):
        own = {n: x for n, x in fixture.checkpoint().items() if places[n] == shard}
        sj.save_file(own, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "config.json").write_text(json.dumps(fixture.config))
    return folder


def test_a_folder_against_a_file(model, tmp_path, capsys):
    fixture = named("awq-gemm")
    name, x = f"{fixture.prefix}.weight", fixture.expected["float32"].astype(np.float16)
    sj.save_file({name: x}, tmp_path / "a.npz")
    code, done = run(capsys, model, tmp_path / "a.npz")
    assert (code, done.out) == (0, "none of 1 weights differ\n")
    sj.save_file({name: with_bit(x, 2 * x.shape[1] + 2), "more": X}, tmp_path / "b.safetensors")
    code, done = run(capsys, model, tmp_path / "b.safetensors")
    first, second, last = done.out.splitlines()
    assert (code, last) == (1, "2 of 2 weights differ")
    assert first.startswith(f"{name}[1, 1]: ")
    assert second == "more: only in B"
    code, done = run(capsys, model, tmp_path / "b.safetensors", "--json")
    reported = json.loads(done.out)
    assert (code, reported["equal"], reported["weights"]) == (1, False, 2)
    assert reported["differences"][0]["index"] == [1, 1]
    assert reported["differences"][1]["reason"] == "only in B"
    code, done = run(capsys, tmp_path / "a.npz", tmp_path / "b.safetensors", "--tolerance", "0.01")
    assert (code, done.out) == (1, "more: only in B\n1 of 2 weights differ\n")


def test_the_config_of_a_part_of_the_model(model, tmp_path, capsys):
    fixture = named("awq-gemm")
    x = fixture.expected["float32"].astype(np.float16)
    sj.save_file({f"{fixture.prefix}.weight": x}, tmp_path / "a.npz")
    (model / "config.json").write_text(json.dumps({"quantization_config": {"version": "marlin"}}))
    assert run(capsys, model, tmp_path / "a.npz")[0] == 1
    (model / "config.json").write_text(json.dumps({"text_config": fixture.config}))
    assert run(capsys, model, tmp_path / "a.npz")[0] == 0
    (model / "hf_quant_config.json").write_text(json.dumps({"version": "marlin"}))
    assert run(capsys, model, tmp_path / "a.npz")[0] == 1
    (model / "hf_quant_config.json").unlink()
    os.rename(model / "config.json", tmp_path / "out.json")
    os.symlink(tmp_path / "out.json", model / "config.json")
    code, done = run(capsys, model, tmp_path / "a.npz")
    assert code == 2
    assert "leads out of the model's folder" in done.err


def test_bad_input(model, tmp_path, capsys):
    assert run(capsys, model, tmp_path / "none")[0] == 2
    for word in ("-1", "nan", "inf", "much"):
        code, done = run(capsys, model, model, f"--tolerance={word}")
        assert code == 2
        assert "--tolerance: not a number" in done.err
    (model / "config.json").write_text("[]")
    code, done = run(capsys, model, model)
    assert code == 2
    assert "config.json: it is not a JSON object" in done.err


def test_warnings_are_reported(tmp_path, capsys):
    fixture = named("awq-gemm")
    tensors = fixture.checkpoint()
    del tensors[f"{fixture.prefix}.scales"]
    sj.save_file(tensors, tmp_path / "a.safetensors")
    code, done = run(capsys, *[tmp_path / "a.safetensors"] * 2)
    assert code == 0
    assert f"A: warning: {fixture.prefix}.q" in done.out


def test_rules_are_applied_to_the_first(tmp_path, capsys):
    """What `convert` wrote equals its source after the same rules, decoded or as it was."""
    fc = sj.schemes["fp8:channel"].encode(np.arange(-16, 16, dtype=np.float32).reshape(4, 8))
    tensors = {f"model.fc.{part}": t for part, t in fc.items()} | {"model.norm": X}
    sj.save_file(tensors, tmp_path / "a.safetensors")
    for number, rules in enumerate([[("rename", r"s/model\.(.*)/\1/")], [("to", "f32")]]):
        file = tmp_path / f"{number}.toml"
        lines = (f"[[rule]]\n{name} = '{text}'\n" for name, text in rules)
        file.write_text("".join(lines))
        made = tmp_path / f"{number}.safetensors"
        sj.files.convert(tmp_path / "a.safetensors", made, rules)
        code, said = run(capsys, tmp_path / "a.safetensors", made, "--rules", file)
        assert (code, said.out) == (0, "none of 2 weights differ\n")
    code, said = run(capsys, tmp_path / "a.safetensors", tmp_path / "0.safetensors")
    assert code == 1
    assert "only in A" in said.out
    file.write_text("[[rule]]\nto = 'F7'\n")
    code, said = run(capsys, tmp_path / "a.safetensors", made, "--rules", file)
    assert code == 2
    assert "F7" in said.err
