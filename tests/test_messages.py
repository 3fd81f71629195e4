"""Error messages for small deviations from the documentation."""

import json

import numpy as np
import pytest

import shapejit as sj

X = np.ones((2, 3), np.float32)


class Wrapped:
    """Of a library that is not known."""


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sj.cast({"w": X}, "bf16"), "not dict; call the function for each of its values"),
        (lambda: sj.cast([1.0], "bf16"), "not list; wrap it with"),
        (lambda: sj.cast(Wrapped(), "bf16"), "not test_messages.Wrapped; wrap it with"),
        (
            lambda: sj.reshape(X, (2, 3), out=sj.asarray(X)),
            "numpy.ndarray like the source",
        ),
        (lambda: sj.save_file({"a": np.array(["x"])}, "a.npz"), "Tensors and save_file do not"),
        (lambda: sj.reshape(X, sj.onnx.request([0, -1])), "pass resolve(x.shape, request), or"),
        (lambda: sj.unpack(X), "unpack takes a shapejit.Tensor, not numpy.ndarray"),
        (lambda: sj.save_file(X, "a.npz"), "takes a mapping of names to arrays, not numpy.ndarray"),
        (lambda: sj.save_file(3, "a.npz"), "takes a mapping of names to arrays, not int"),
        (lambda: sj.save_file({"a": None}, "a.npz"), "tensor 'a': expected an array, not NoneType"),
        (lambda: sj.save_file({"w": X}, "a.onnx"), "pass its path as save_file(..., source=)"),
        (lambda: sj.save_file({"w": X}, "a.pt"), "these can: .safetensors, .npy, .npz"),
        (lambda: sj.dtype("int3"), "unknown dtype 'int3'; known are int1, int2, int4, int8,"),
        (lambda: sj.schemes["awq:gemm"], "unknown scheme 'awq:gemm'; did you mean 'awq'?"),
        (lambda: sj.formats["awq"], "did you mean 'awq:gemm'?"),
        (lambda: sj.cast(X, "bfloat"), "unknown dtype 'bfloat'; did you mean 'bfloat16'?"),
        (lambda: sj.broadcast_to(X, (2**62, 2, 3)), "the product of the non-zero sizes does not"),
        (lambda: sj.broadcast_to(X, (-1, 2, 3)), "dim 0: -1 is negative"),
        (lambda: sj.plan((32, None), "int8", lambda t: t), "only dim 0 may be None, of any length"),
        (
            lambda: sj.plan((None, 3), "float32", lambda t: t.T).map([X, X[:1]], out=X),
            "the results differ in shape: out= must be a sequence, not one array",
        ),
    ],
)
def test_what_a_message_says(call, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sj.ShapeJitError) as caught:
        call()
    assert text in str(caught.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", [np.asarray, sj.asarray])
@pytest.mark.parametrize(
    ("locked", "turned", "text"),
    [(0, 1, "C-contiguous"), (1, 0, "writable"), (1, 1, "C-contiguous and writable")],
)
def test_what_out_must_be(locked, turned, text, kind):
    memory = np.ones((2, 3) if turned else (3, 2), np.float32)
    memory.flags.writeable = not locked
    out = kind(memory)
    with pytest.raises(sj.ReshapeError, match=f"^out= must be {text}$"):
        sj.reshape(kind(X), (3, 2), out=sj.permute_dims(out, (1, 0)) if turned else out)


def test_codes_and_scales_alone_are_told_apart():
    codes = sj.cast(X, "float8_e4m3fn")
    tensors = {"w": codes, "a.weight": codes, "b.weight_scale_inv": X, "c.qzeros": X}
    tensors["d.weight_scale"] = sj.cast(X, "float8_e4m3fn")
    found = {
        name: each.reason for each in sj.schemes.detect(tensors).unclear for name in each.names
    }
    assert found == {
        "w": "no scales belong to these codes",
        "a.weight": "no scales belong to these codes",
        "b.weight_scale_inv": "no codes belong to it",
        "c.qzeros": "no codes belong to it",
        "d.weight_scale": "no codes belong to it",
    }


@pytest.mark.parametrize(
    ("said", "missing", "reason"),
    [
        ({}, "qzeros", "awq: qzeros is missing"),
        ({"bits": 8}, "", "awq: has codes of 4 bits, the config says 8"),
        ({"quant_method": "none"}, "qzeros", "matmulnbits: qweight must be uint8, not int32"),
    ],
)
def test_the_reason_is_that_of_the_declared_scheme(said, missing, reason):
    parts = sj.schemes["awq"].encode(np.ones((128, 256), np.float32))
    tensors = {f"fc.{name}": x for name, x in parts.items() if name != missing}
    config = {"quantization_config": {"quant_method": "awq", "group_size": 128, **said}}
    found = sj.schemes.detect(tensors, config)
    assert not found
    assert [each.reason for each in found.unclear] == [f"fits no scheme ({reason})"]


METHODS = {"awq": "awq", "gptq": "gptq", "fp8:block": "fp8", "bnb:nf4": "bitsandbytes"}


@pytest.mark.parametrize("scheme", METHODS)
@pytest.mark.parametrize(
    "said",
    [
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "mxfp4"},
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"quant_method": "awq", "bits": 4},
        {"quant_method": "gptq", "bits": 4},
    ],
)
def test_the_config_of_another_method_is_named(scheme, said):
    parts = sj.schemes[scheme].encode(np.ones((128, 256), np.float32))
    tensors = {f"fc.{name}": x for name, x in parts.items()}
    found = sj.schemes.detect(tensors, {"quantization_config": said})
    key, method = next(iter(said.items()))
    if method == METHODS[scheme]:
        assert [each.scheme for each in found] == [scheme]
        return
    assert not found
    (unclear,) = found.unclear
    assert (unclear.names, unclear.schemes) == (tuple(sorted(tensors)), (scheme,))
    told = f"fits {scheme}, but the config says {key} '{method}'"
    own = f" ({method}: " if {scheme, method} == {"awq", "gptq"} else ""
    assert unclear.reason.startswith(told + own)
    assert own or unclear.reason == told


def test_errors_name_the_file_of_a_tensor_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for k in (1, 2):
        sj.save_file({f"{k}": X}, f"in/model-{k:05d}-of-00002.safetensors")
    places = {f"{k}": f"model-{k:05d}-of-00002.safetensors" for k in (1, 2)}
    index = tmp_path / "in" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    wrong = "in/model-00002-of-00002.safetensors"
    with pytest.raises(sj.ReshapeError, match=f"^{wrong}: tensor '2': cannot reshape"):
        sj.files.convert("in", "out", [("reshape", "2=5")])
    (tmp_path / wrong).write_bytes(b"")
    with pytest.raises(sj.FileFormatError, match=f"^{wrong}: "):
        sj.load_file("in")


def test_shapes_of_parts_are_said_in_sizes():
    parts = sj.schemes["fp8:block"].encode(np.zeros((512, 768), np.float32))
    parts["weight_scale_inv"] = np.ones((2, 3), np.float32)
    with pytest.raises(sj.FormatError) as caught:
        sj.schemes["fp8:block"].decode(parts)
    text = "(4, 6) (N/m K/k of N=512 rows, m=128, K=768 columns, k=128), not (2, 3)"
    assert text in str(caught.value)


def test_a_rule_that_matches_nothing_shows_a_whole_name(tmp_path):
    sj.save_file({"fc.weight": X}, tmp_path / "a.npz")
    for rule in (("permute", "weight=1,0"), ("rename", "s/fc/a/")):
        with pytest.raises(sj.ReshapeError, match=r"whole names are matched, such as 'fc\.weight'"):
            sj.files.convert(tmp_path / "a.npz", tmp_path / "b.npz", [rule])
