"""Checkpoints of other projects with unexpected keys, values and tensors."""

import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import scheme_fixtures
from views import dirt

import shapejit as sj
from shapejit.__main__ import main

FIXTURES = [
    fixture
    for scheme, group in scheme_fixtures.by_scheme().items()
    for fixture in group
    if scheme in sj.schemes and "float32" in fixture.expected
]
CODES = [
    np.uint8,
    np.int8,
    np.uint16,
    np.int16,
    np.uint32,
    np.int32,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float4_e2m1fn,
]
PLAIN = [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.bool_, np.float64]  # fmt: skip
WORDS = ["trellis", "W_q", "gate_up_proj", "svh", "idxs", "codebooks", "lut", "perm", "exponents",
         "down_proj_scale_inv", "packed_weights", "outliers", "residual", "rot"]  # fmt: skip
BUFFERS = ["attn.bias", "attn.masked_bias", "attention.bias", "position_ids", "causal_mask",
           "embeddings.token_type_ids", "relative_position_index", "gate.tid2eid"]  # fmt: skip
HARMLESS = {
    "ignore": ["lm_head"], "modules_to_not_convert": ["lm_head"], "activation_scheme": "dynamic",
    "kv_cache_scheme": None, "damp_percent": 0.01, "quantization_status": "compressed",
    "transform_config": {}, "sparsity_config": {}, "actorder": None, "dequantize": False,
    "llm_int8_threshold": 6.0, "observer": "minmax", "true_sequential": True, "meta": {"by": "x"},
}  # fmt: skip
UNKNOWN = {
    "quant_method": ["mxfp8", "hqq", "quip", "fp7"], "quant_algo": ["W4A16_AWQ", "INT8_SQ"],
    "checkpoint_format": ["gptq_p", "marlin", "v3"], "packing_format": ["tiles", "gptq:v9"],
    "actorder": ["random", "columns"], "scale_fmt": ["log2"], "is_marlin_format": [True],
    "transform_config": [{"config_groups": {"R3": {"type": "hadamard"}}}, "online"],
    "sparsity_config": [{"format": "sparse-24-bitmask"}], "rotation": ["hadamard"],
}  # fmt: skip


class Drawn(NamedTuple):
    """A checkpoint, why it must be refused (names and values), and the keys to be warned of."""

    tensors: dict
    config: dict
    refused: list
    warned: list


def case(random):
    fixture = random.choice(FIXTURES)
    drawn = drawn_from(random, fixture)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in", Path(folder) / "out"
        source.mkdir()
        sj.save_file(drawn.tensors, source / "model.safetensors")
        (source / "config.json").write_text(json.dumps(drawn.config))
        if random.random() < 0.3:
            source, target = source / "model.safetensors", target.with_suffix(".safetensors")
        rules = [("to", random.choice(["f32", f"{fixture.prefix}.*=f32"]))]
        strict, refusal = random.random() < 0.2, None
        try:
            report = sj.files.convert(source, target, rules, strict=strict)
        except sj.FormatError as fault:
            refusal = str(fault)
        if refusal is None:
            check_right(drawn, fixture, target, report)
        else:
            known = drawn.refused + drawn.warned * strict
            assert any(text in refusal for text in known), f"refused without need: {refusal}"
            assert not target.exists()
        check_verified(drawn, fixture, source, Path(folder))


def drawn_from(random, fixture):
    config = json.loads(json.dumps(fixture.config))
    section = config.setdefault("quantization_config", {})
    tensors = {**fixture.checkpoint(), "norm.weight": np.ones(6, np.float32)}
    refused, warned = [], []
    for _ in range(random.randint(0, 3)):
        key = random.choice([*HARMLESS])
        section.setdefault(key, HARMLESS[key])
    if random.random() < 0.3:
        warned.append(f"{random.choice(['swap', 'interleave', 'zigzag'])}_{random.randrange(100)}")
        section[warned[0]] = random.choice([True, 4, "x", {"a": 1}, None])
    if random.random() < 0.2:
        key = random.choice([*UNKNOWN])
        section[key] = random.choice(UNKNOWN[key])
        refused += [key]
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        refused += stray(random, fixture, tensors)
    if random.random() < 0.2:
        part = random.choice(["text_config", "llm_config"])
        config = {part: {"quantization_config": section}}
    return Drawn(tensors, config, refused, warned)


def stray(random, fixture, tensors):
    """Add a tensor; why it must be refused, if it must."""
    where = random.choice([fixture.prefix, "layers.7.experts", "layers.7.up", "vision"])
    if random.random() < 0.4:
        name, kind = random.choice(BUFFERS), random.choice([np.uint8, np.int32, np.int64, np.bool_])
        tensors[f"h.0.{name}"] = values(random, kind)
        return []
    name, low = f"{where}.{random.choice(WORDS)}", random.random() < 0.6
    if name in tensors:
        return []
    tensors[name] = values(random, random.choice(CODES if low else PLAIN))
    weight = weight_of(fixture)
    part = weight == f"{where}.weight" or name.startswith(f"{weight}_")  # of a fused expert, too
    return [name] if low or part else []


def weight_of(fixture):
    """The name of the decoded weight."""
    (found,) = sj.schemes.detect(fixture.checkpoint(), fixture.config)
    return found.parts.weight


def values(random, kind):
    shape = random.choice([(4, 6), (2, 4, 8), (16,), (1, 1, 8, 8)])
    raw = dirt(int(np.prod(shape)), random.getrandbits(32)) % 2
    if kind is ml_dtypes.float8_e8m0fnu:
        return (raw + 126).view(kind).reshape(shape)
    x = raw.astype(kind).reshape(shape)
    return sj.pack(x) if kind is ml_dtypes.float4_e2m1fn else x


def check_right(drawn, fixture, target, report):
    """Nothing had to be refused, the numbers are the project's, warnings are there."""
    assert not drawn.refused, f"should have been refused: {drawn.refused}"
    for key in drawn.warned:
        assert any(repr(key) in text for text in report.warnings), f"no word of {key}"
    found = dict(sj.load_file(target))
    assert found.pop(weight_of(fixture)).numpy().tobytes() == fixture.expected["float32"].tobytes()
    for name, t in found.items():
        assert t.tobytes() == sj.asarray(drawn.tensors[name]).tobytes(), name


def check_verified(drawn, fixture, source, folder):
    """What a careless converter would have written is equal for `verify` if nothing is wrong."""
    parts = fixture.checkpoint().keys()
    careless = {name: x for name, x in drawn.tensors.items() if name not in parts}
    path = folder / "careless.safetensors"
    (folder / "config.json").unlink(missing_ok=True)
    sj.save_file({**careless, weight_of(fixture): fixture.expected["float32"]}, path)
    with redirect_stdout(StringIO()) as said, redirect_stderr(said):
        code = main(["verify", str(source), str(path)])
    assert code == (1 if drawn.refused else 0), said.getvalue()
