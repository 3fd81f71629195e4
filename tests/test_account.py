"""Conversions account for every tensor of a quantised weight: none is lost or misread silently."""

import json
import re

import ml_dtypes
import numpy as np
import pytest
import scheme_fixtures
from safetensors import safe_open

import shapejit as sj
from shapejit.__main__ import main
from shapejit.quantization.configuration import declared

RNG = np.random.default_rng(5)
E4M3, E8M0, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.bfloat16
FP8 = scheme_fixtures.named("fp8-block-128")
DECODED = f"{FP8.prefix}.weight"
ONES = np.ones((4, 2), np.float32)


def e4m3(*shape):
    return RNG.integers(0, 126, shape, np.uint8).view(E4M3)


def e8m0(*shape):
    return RNG.integers(100, 140, shape, np.uint8).view(E8M0)


def packed(kind, *shape):
    return RNG.integers(0, 100, shape).astype(kind)


def folder_of(path, tensors, config):
    """A folder with one file and its config.json."""
    path.mkdir()
    sj.save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({"model_type": "x", **config}))
    return path


def given(kind, tmp_path, tensors, config=FP8.config):
    """A source and a destination, as folders or as single files."""
    if kind == "folder":
        return folder_of(tmp_path / "in", tensors, config), tmp_path / "out"
    sj.save_file(tensors, tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors", tmp_path / "out.safetensors"


def run(capsys, *words):
    """The exit code of the command line, and what it says."""
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


KINDS = pytest.mark.parametrize("kind", ["folder", "file"])
EXPERTS = "layers.0.mlp.experts"
# Named as these projects name them, in shapes that are no scheme's.
STRAYS = {
    "ModelOpt's fused experts": {
        f"{EXPERTS}.gate_up_proj": packed(np.uint8, 2, 16, 16),
        f"{EXPERTS}.gate_up_proj_weight_scale": e4m3(2, 16, 2),
        f"{EXPERTS}.gate_up_proj_weight_scale_2": np.ones(2, np.float32),
    },
    "ModelOpt's FP8 experts": {
        f"{EXPERTS}.gate_up_proj": e4m3(2, 16, 16),
        f"{EXPERTS}.gate_up_proj_weight_scale": np.ones(3, np.float32),
    },
    "transformers' FP8 experts": {
        f"{EXPERTS}.down_proj": e4m3(2, 16, 16),
        f"{EXPERTS}.down_proj_scale_inv": np.ones((2, 3, 5), np.float32),
    },
    "FBGEMM's experts": {
        f"{EXPERTS}.down_proj": e4m3(2, 16, 16),
        f"{EXPERTS}.down_proj_scale": np.ones((2, 16, 3), np.float32),
    },
    "HQQ": {"layers.0.up.W_q": packed(np.uint8, 16, 16), "layers.0.up.meta": ONES},
    "EXL3": {"layers.0.up.trellis": packed(np.int16, 4, 4, 16)},
    "words": {"layers.0.up.idxs": packed(np.uint32, 40)},
    "scales of no codes": {"layers.0.up.exponents": e8m0(4, 2)},
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("stray", STRAYS)
def test_codes_that_nothing_tells_of_any_more_are_refused(stray, kind, tmp_path, capsys):
    """Where the config goes, whatever their name: by convert, its dry run, and verify."""
    source, target = given(kind, tmp_path, {**FP8.checkpoint(), **STRAYS[stray]})
    name = next(iter(STRAYS[stray]))
    for more in ([], ["--dry-run"]):
        code, said = run(capsys, "convert", source, target, "--to", "bf16", *more)
        assert code == 2
        assert name in said.err
    assert not target.exists()
    made = {DECODED: FP8.expected["bfloat16"], **STRAYS[stray]}
    if kind == "folder":
        folder_of(target, made, {})
    else:
        sj.save_file(made, target)
    code, said = run(capsys, "verify", source, target)
    assert code == 1
    assert f"{name}: " in said.out
    assert run(capsys, "verify", source, source)[0] == 0


@KINDS
def test_what_is_left_out_or_kept_is_no_surprise(kind, tmp_path):
    stray = STRAYS["HQQ"]
    source, target = given(kind, tmp_path, {**FP8.checkpoint(), **stray})
    sj.files.convert(source, target, [("keep", ".*W_q"), ("to", "bf16")])
    assert sj.load_file(target).keys() == {DECODED, *stray}
    other = target.with_name("b" + target.suffix)
    sj.files.convert(source, other, [("exclude", ".*W_q"), ("to", "bf16")])
    assert sj.load_file(other).keys() == {DECODED, "layers.0.up.meta"}
    kept = target.with_name("c" + target.suffix)
    rules = [("keep", f"{FP8.prefix}.*"), ("to", "bf16")]
    with pytest.raises(sj.FormatError, match="no quantised weight"):
        sj.files.convert(source, kept, rules)


@KINDS
def test_float8_that_is_moved_is_no_less_float8(kind, tmp_path):
    stray = {"experts.gate_up": e4m3(2, 8, 4), "h.0.attn.bias": np.tri(8, dtype=np.uint8)}
    source, target = given(kind, tmp_path, {**FP8.checkpoint(), **stray})
    rules = [("permute", "experts.gate_up=0,2,1"), ("rename", r"s/h\.0\.attn\.bias/causal/")]
    with pytest.raises(sj.FormatError, match=r"experts\.gate_up"):
        sj.files.convert(source, target, [*rules, ("to", f"{FP8.prefix}.*=bf16")])
    rules = [("exclude", "experts.*"), *rules[1:], ("to", "bf16")]
    sj.files.convert(source, target, rules)
    assert sj.load_file(target)["causal"].tobytes() == stray["h.0.attn.bias"].tobytes()


BESIDE = {"weight_perm": packed(np.int32, 144), "hadamard": ONES, "svd_up": ONES}


@KINDS
@pytest.mark.parametrize("name", BESIDE)
def test_what_belongs_to_a_decoded_weight_is_not_forgotten(name, kind, tmp_path, capsys):
    beside = {f"{FP8.prefix}.{name}": BESIDE[name]}
    source, target = given(kind, tmp_path, {**FP8.checkpoint(), **beside})
    with pytest.raises(sj.FormatError, match=rf"up_proj\.{name}"):
        sj.files.convert(source, target, [("to", "bf16")])
    sj.save_file({DECODED: FP8.expected["bfloat16"], **beside}, tmp_path / "b.safetensors")
    code, said = run(capsys, "verify", source, tmp_path / "b.safetensors")
    assert code == 1
    assert f"{FP8.prefix}.{name}: fp8:block has no {name}" in said.out


HARMLESS = {
    f"{FP8.prefix}.bias": np.ones(136, BF16),
    f"{FP8.prefix}.input_scale": np.ones((), np.float32),
    f"{FP8.prefix}.activation_scale": np.ones((), np.float32),
    "layers.0.self_attn.k_scale": np.ones((), np.float32),
    "h.0.attn.bias": np.tri(8, dtype=np.uint8).reshape(1, 1, 8, 8),
    "h.0.attn.masked_bias": np.float32(-1e4).reshape(()),
    "gpt_neox.layers.0.attention.bias": np.tri(8, dtype=bool).reshape(1, 1, 8, 8),
    "h.0.attn.causal_mask": np.tri(8, dtype=np.uint8),
    "embeddings.position_ids": np.arange(77)[None],
    "embeddings.token_type_ids": np.zeros((1, 77), np.int32),
    "layers.0.blocks.0.attn.relative_position_index": np.arange(16).reshape(4, 4),
    "rotary_emb.inv_freq": np.ones(8, np.float32),
    "bn.num_batches_tracked": np.array(3),
    "layers.0.ffn.gate.tid2eid": np.zeros((9, 2), np.int32),
    "layers.0.mlp.gate.e_score_correction_bias": np.ones(4, np.float32),
    "layers.0.mlp.gate.expert_bias": np.ones(4, np.float32),
    "spiece_model": packed(np.uint8, 50),
    "v_pred": np.zeros(0, E4M3),
}  # fmt: skip


@KINDS
def test_index_and_mask_buffers_stay(kind, tmp_path, capsys):
    source, target = given(kind, tmp_path, {**FP8.checkpoint(), **HARMLESS})
    sj.files.convert(source, target, [("to", "bf16")])
    found = sj.load_file(target)
    gone = f"{FP8.prefix}.input_scale"
    assert found.keys() == {DECODED, *HARMLESS} - {gone}
    assert found[DECODED].numpy().tobytes() == FP8.expected["bfloat16"].tobytes()
    for name in HARMLESS.keys() - {gone}:
        assert found[name].tobytes() == np.ascontiguousarray(HARMLESS[name]).tobytes()
    code, said = run(capsys, "verify", source, target)
    assert (code, said.out.splitlines()[-1]) == (0, f"none of {len(found)} weights differ")


# Rules on parts of quantised weights

TWO = {f"{p}.{k}": x for p in ("q_proj", "k_proj") for k, x in FP8.parts.items()}


@KINDS
@pytest.mark.parametrize(
    "rules",
    [
        [("permute", r"q_proj\.weight=1,0")],
        [("cast", r"q_proj\.weight=BF16")],
        [("slice", r"q_proj\.weight=0:16")],
        [("concat", r"q_proj\.weight=0:k_proj.weight->qk.weight")],
        [("stack", "w.#")],
    ],
    ids=lambda rules: rules[0][0],
)
def test_an_earlier_rule_hides_no_weight(rules, kind, tmp_path):
    tensors = dict(TWO)
    if rules[0][0] == "stack":
        tensors = {name.replace("q_proj", "w.0"): x for name, x in TWO.items()}
    source, target = given(kind, tmp_path, tensors)
    with pytest.raises(sj.FormatError, match="changed by an earlier rule"):
        sj.files.convert(source, target, [*rules, ("to", "bf16")])
    assert not target.exists()


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([("permute", r"q_proj\.weight=1,0")], r"'[kq]_proj\.weight' would hold"),
        ([("permute", r"q_proj\.weight_scale_inv=1,0")], r"'[kq]_proj\.weight' would hold"),
        ([("permute", r"q_proj\..*=1,0")], r"'[kq]_proj\.weight' would hold"),
        ([("slice", r".*\.weight=0:16")], r"'[kq]_proj\.weight' would hold"),
        ([("slice", r".*\.weight=::-1,::-1")], r"'[kq]_proj\.weight' would hold"),
        ([("cast", r".*\.weight=BF16")], r"'[kq]_proj\.weight' would hold"),
        ([("cast", ".*scale_inv=BF16")], r"'[kq]_proj\.weight' would hold"),
        ([("exclude", ".*scale_inv")], r"'[kq]_proj\.weight' would hold"),
        ([("select", r".*\.weight")], r"'[kq]_proj\.weight' would hold"),
        ([("rename", r"s/q_proj\.weight/w/")], "'w' would hold codes of fp8:block that cannot be"),
        ([("rename", r"s/q_proj\.weight_scale_inv/q_proj.scale/")], "'q_proj.weight' would hold"),
        (
            [("rename", r"s/k_proj\.weight_scale_inv/a/"),
             ("rename", r"s/q_proj\.weight_scale_inv/k_proj.weight_scale_inv/"),
             ("rename", "s/a/q_proj.weight_scale_inv/")],
            r"'[kq]_proj\.weight' would hold",
        ),
        (
            [("concat", r"q_proj\.weight(.*)=0:k_proj.weight\1->qk.weight\1")],
            "'qk.weight' would hold",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("config", [FP8.config, {}], ids=["config", "none"])
def test_parts_that_do_not_fit_their_config_are_refused(config, rules, text, tmp_path):
    """Names tell of them where no config does."""
    source = folder_of(tmp_path / "in", {**TWO, "norm": np.ones(3, np.float32)}, config)
    with pytest.raises(sj.FormatError, match=text + r".*decode.*\(--to bf16\)"):
        sj.files.convert(source, tmp_path / "out", rules)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rule", [".*qweight=awq:gemm->gptq:qweight", ".*qweight=awq:gemm->lsb"])
@pytest.mark.parametrize("config", [{"quant_method": "awq"}, {}], ids=["config", "none"])
def test_codes_are_not_repacked_without_their_weight(config, rule, tmp_path):
    """The zero points and the config would stay another scheme's; --keep before it means that."""
    parts = sj.schemes["awq"].encode(np.eye(128, 256, dtype=np.float32))
    tensors = {f"fc.{part}": x for part, x in parts.items()}
    source = folder_of(tmp_path / "in", tensors, {"quantization_config": config})
    with pytest.raises(sj.FormatError, match=r"'fc\.qweight'.* of awq "):
        sj.files.convert(source, tmp_path / "out", [("repack", rule)])
    assert not (tmp_path / "out").exists()
    rules = [("keep", ".*qweight"), ("repack", rule)]
    assert sj.files.convert(source, tmp_path / "out", rules).changed == 1


@pytest.mark.parametrize("scheme", ["awq", "gptq"])
def test_codes_of_another_scheme_are_not_repacked(scheme, tmp_path):
    """The config would say that they are as that scheme stores them."""
    parts = sj.schemes["awq"].encode(np.eye(128, 256, dtype=np.float32))
    tensors = {f"fc.{part}": x for part, x in parts.items()}
    if scheme == "awq":  # which is quantised by a rule
        tensors = {"fc.weight": np.eye(128, 256, dtype=np.float32)}
    source = folder_of(tmp_path / "in", tensors, {})
    formats = {"awq": "awq:gemm->gptq:qweight", "gptq": "gptq:qweight->awq:gemm"}[scheme]
    rules = [("to", scheme), ("repack", f".*qweight={formats}")]
    with pytest.raises(
        sj.FormatError, match=rf"'fc\.qweight': an earlier .* as {scheme}\n  asked by --rep"
    ):
        sj.files.convert(source, tmp_path / "out", rules)
    assert not (tmp_path / "out").exists()


def test_codes_of_mlx_are_not_repacked_alone(tmp_path):
    """What was stored are codes, whatever the elements are called once they are repacked."""
    parts = sj.schemes["mlx"].encode(np.eye(64, 128, dtype=np.float32))
    tensors = {f"q_proj.{part}": x for part, x in parts.items()}
    config = {"quantization": {"bits": 4, "group_size": 64}}
    source = folder_of(tmp_path / "in", tensors, config)
    rule = ("repack", r".*proj\.weight=mlx->padded")
    with pytest.raises(sj.FormatError, match=r"codes of mlx that cannot be read any more.*--keep"):
        sj.files.convert(source, tmp_path / "out.npz", [rule])
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    "rules",
    [
        [("rename", "s/q_proj(.*)/a\\1/")],
        [("exclude", r"q_proj\..*")],
        [("select", "k_proj.*")],
        [("rename", r"s/(.)_proj\.(.*)/\1.\2/")],
        [("rename", "s/k_proj(.*)/w.0\\1/"), ("rename", "s/q_proj(.*)/w.1\\1/")],
    ],
    ids=lambda rules: " ".join(rules[0]),
)
def test_rules_on_whole_weights_are_meant(rules, tmp_path):
    source = folder_of(tmp_path / "in", TWO, FP8.config)
    sj.files.convert(source, tmp_path / "out", rules)
    found = sj.schemes.detect(sj.load_file(tmp_path / "out"), FP8.config)
    assert {each.scheme for each in found} == {"fp8:block"}
    assert found.unclear == []


CULPRITS = {
    "weight": ("fp8:channel", ("rename", r"s/m\.a\.weight/m.q.weight/"),
               "'m.a.weight_scale' is not beside them"),
    "scale": ("fp8:channel", ("rename", r"s/m\.a\.weight_scale/m.a.s/"),
              "'m.a.weight_scale' is not beside them"),
    "dropped": ("fp8:channel", ("exclude", ".*_scale"), "'m.a.weight_scale' is not beside them"),
    "cast": ("gptq", ("cast", r".*\.g_idx=bfloat16"), "a rule changes 'm.a.g_idx'"),
    "slice": ("gptq", ("slice", r"m\.a\.qzeros=0:1"), "a rule changes 'm.a.qzeros'"),
    "repack": ("awq", ("repack", ".*qweight=awq:gemm->gptq:qweight"),
               "a rule changes 'm.a.qweight'"),
    "all": ("gptq", ("slice", "m.*=1:"), "no scheme has codes of this shape and name"),
}  # fmt: skip


@pytest.mark.parametrize("case", CULPRITS)
def test_the_part_that_is_missing_beside_codes_is_named(case, tmp_path):
    scheme, rule, why = CULPRITS[case]
    parts = sj.schemes[scheme].encode(np.eye(256, 256, dtype=np.float32))
    tensors = {f"m.a.{name}": x for name, x in parts.items()}
    if scheme == "gptq":
        tensors["m.a.g_idx"] = np.arange(256, dtype=np.int32) // 128
    source, target = given("file", tmp_path, tensors)
    with pytest.raises(sj.FormatError, match=f"since {re.escape(why)}: decode"):
        sj.files.convert(source, target, [rule])
    assert not target.exists()


def test_weights_of_renamed_modules_need_not_be_detected(tmp_path, monkeypatch):
    """That takes seconds, of tens of thousands of tensors."""

    def refused(*_):
        raise AssertionError

    parts = sj.schemes["gptq"].encode(np.eye(128, 256, dtype=np.float32))
    given = {f"a.{module}.{part}": x for module in "qk" for part, x in parts.items()}
    tensors, config = {**given, "norm": ONES}, {"quantization_config": {"quant_method": "gptq"}}
    source = folder_of(tmp_path / "in", tensors, config)
    with monkeypatch.context() as patched:
        patched.setattr("shapejit.conversion.tensors.detected", refused)
        sj.files.convert(source, tmp_path / "out", [("rename", r"s/a\.(.*)/b.c.\1/")])
        with pytest.raises(AssertionError):  # as one part is renamed alone
            sj.files.convert(source, tmp_path / "bad", [("rename", r"s/a\.q\.scales/b.scales/")])
        patched.undo()
        patched.setattr("shapejit.conversion.remaining.detected", refused)  # a second time
        rules = [("exclude", "norm"), ("rename", r"s/a\.(.*)/b.c.\1/")]
        sj.files.convert(source, tmp_path / "less", rules)
        with pytest.raises(AssertionError):
            sj.files.convert(source, tmp_path / "bad", [("rename", r"s/a\.q\.scales/b.scales/")])
    for name in ("out", "less"):
        assert sj.load_file(tmp_path / name).keys() - {"norm"} == {f"b.c.{n[2:]}" for n in given}


def rows_and_columns(scheme, **settings):
    """Random weights of 256 x 256 as this scheme stores them, and a rule for each of its parts."""
    parts = sj.schemes[scheme].encode(RNG.normal(size=(256, 256)).astype(np.float32), **settings)
    return {name: np.asarray(x) for name, x in parts.items()}


BLOCKS, ROWS_, GROUPS = (
    rows_and_columns(scheme) for scheme in ("fp8:block", "fp8:channel", "gptq")
)
EXPERTS = {name: np.stack([x, x[::-1], -x]) for name, x in ROWS_.items()}
JOINED = r"a\.(.*)=0:b.\1->a.\1"
STACKED = [("rename", "s/a(.*)/e.0\\1/"), ("rename", "s/b(.*)/e.1\\1/"), ("stack", "e.#"),
           ("rename", "s/e(.*)/a\\1/")]  # fmt: skip
SWAPPED = [("rename", "s/a(.*)/e.0\\1/"), ("rename", "s/b(.*)/e.1\\1/"),
           ("rename", r"s/e.0(\..*_scale)/e.2\1/"), ("rename", r"s/e.1(\..*_scale)/e.0\1/"),
           ("rename", r"s/e.2(\..*_scale)/e.1\1/"), ("stack", "e.#")]  # fmt: skip
MOVES = {
    "stacked": (ROWS_, STACKED, lambda a, b: np.stack([a, b])),
    "stacked blocks": (BLOCKS, STACKED, lambda a, b: np.stack([a, b])),
    "stacked apart": (ROWS_, SWAPPED, None),
    "stacked, groups in order": (GROUPS, STACKED, lambda a, b: np.stack([a, b])),
    "stacked, unreadable": (GROUPS | {"g_idx": np.arange(256, dtype=np.int32)[::-1] // 128},
                            STACKED, None),
    "stacked, half of it": (ROWS_, [*STACKED, ("slice", "a.*=1:")], lambda a, b: b[None]),
    "unstacked": (EXPERTS, [("rename", r"s/a\.(.*)/a.e.\1/"), ("unstack", "a.e.#"),
                            ("rename", r"s/a\.e\.1\.(.*)/a.\1/")], lambda a, b: a[1]),
    "experts chosen": (EXPERTS, [("slice", "a.*=::-2")], lambda a, b: a[::-2]),
    "experts chosen apart": (EXPERTS, [("slice", ".*weight=1:"), ("slice", ".*scale=:2")], None),
    "no experts in another shape": ({name: x[None] for name, x in BLOCKS.items()},
                                    [("slice", "a.*=1:"), ("reshape", "a.*=4,1,128,-1")], None),
    "experts in different numbers": (EXPERTS, [("slice", ".*weight=1:")], None),
    "experts joined": (EXPERTS, [("concat", JOINED)], lambda a, b: np.concatenate([a, b])),
    "experts interleaved": (EXPERTS, [("interleave", JOINED)],
                            lambda a, b: np.stack([a, b], 1).reshape(6, 256, 256)),
    "experts split": (EXPERTS, [("split", r"a\.(.*)=0:a.\1:2,c.\1:1")], lambda a, b: a[:2]),
    "rows of experts": (EXPERTS, [("slice", ".*=:,::2")], None),
    "every second row of blocks": (BLOCKS, [("slice", ".*=::2")], None),
    "blocks": (BLOCKS, [("slice", r".*weight=0:128,128:256"), ("slice", r".*_inv=0:1,1:2")], None),
    "joined blocks": (BLOCKS, [("concat", JOINED)], None),
    "blocks in another order": (BLOCKS, [("permute", ".*=1,0")], None),
    "blocks in another shape": (BLOCKS, [("reshape", ".*weight=128,512"),
                                         ("reshape", ".*_inv=1,4")], None),
    "reversed rows": (ROWS_, [("slice", ".*weight=::-1")], None),
    "interleaved rows": (ROWS_, [("interleave", JOINED)], None),
    "outputs": (GROUPS, [("slice", ".*(qweight|scales)=:,64:128"), ("slice", ".*qzeros=:,8:16")],
                None),
    "no g_idx": (GROUPS | {"g_idx": np.arange(256, dtype=np.int32) // 128},
                 [("exclude", ".*g_idx")], None),
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("case", MOVES)
def test_parts_that_are_moved_stay_one_weight_or_are_refused(case, kind, tmp_path):
    parts, rules, expected = MOVES[case]
    (one,) = sj.schemes.detect({f"a.{name}": x for name, x in parts.items()})
    scheme = sj.schemes[one.scheme]
    other = {name: np.ascontiguousarray(x[..., ::-1]) for name, x in parts.items()}
    other = parts if "qweight" in parts else other
    tensors = {f"a.{k}": x for k, x in parts.items()} | {f"b.{k}": x for k, x in other.items()}
    source, target = given(kind, tmp_path, tensors, {})
    if expected is None:
        with pytest.raises(sj.FormatError, match="--keep before"):
            sj.files.convert(source, target, rules)
        assert not target.exists()
        rules = [("keep", ".*"), *rules]
        sj.files.convert(source, target, rules)
        return
    sj.files.convert(source, target, rules)
    found = next(each for each in sj.schemes.detect(sj.load_file(target)) if each.prefix == "a")
    a, b = (scheme.decode(each, dtype="float32").numpy() for each in (parts, other))
    made = scheme.decode(found.parts, dtype="float32").numpy()
    assert np.array_equal(made, expected(a, b))


def test_weights_that_are_stacked_beside_decoded_ones_stay_described(tmp_path):
    parts = {f"{w}.{k}": x for w in ("e.0", "e.1", "q_proj") for k, x in FP8.parts.items()}
    source = folder_of(tmp_path / "in", parts, FP8.config)
    sj.files.convert(source, tmp_path / "out", [("stack", "e.#"), ("to", "q_proj.*=bf16")])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["modules_to_not_convert"] == ["q_proj"]
    (found,) = sj.schemes.detect(sj.load_file(tmp_path / "out"), config)
    made = sj.schemes[found.scheme].decode(found.parts, dtype="bfloat16").numpy()
    assert made.tobytes() == 2 * FP8.expected["bfloat16"].tobytes()


def test_weights_of_which_one_is_flipped_are_not_stacked(tmp_path):
    """What is stacked begins with a tensor whose elements are in another order than its scales."""
    parts = {f"{w}.{k}": x for w in ("e.0", "e.1") for k, x in FP8.parts.items()}
    source = folder_of(tmp_path / "in", parts, FP8.config)
    rules = [("slice", r"e\.0\.weight=:,::-1"), ("stack", "e.#"), ("slice", "e.*=0:1")]
    for some in (rules[:2], rules):
        with pytest.raises(sj.FormatError, match=r"a rule changes 'e\.weight'"):
            sj.files.convert(source, tmp_path / "out", some)
    assert not (tmp_path / "out").exists()


def test_codes_that_nothing_describes_are_not_copied_in_another_order(tmp_path):
    tensors = {**FP8.checkpoint(), "experts.W_q": np.arange(64, dtype=np.uint8).reshape(4, 16)}
    source, target = given("folder", tmp_path, tensors)
    rules = [("permute", "experts.W_q=1,0"), ("to", "bf16")]
    with pytest.raises(sj.FormatError, match=r"'experts\.W_q' would be copied.*--keep"):
        sj.files.convert(source, target, rules)
    sj.files.convert(source, target, [("keep", "experts.W_q"), *rules])
    assert sj.load_file(target)["experts.W_q"].shape == (16, 4)


# Rules for the other kind of weights


@KINDS
def test_dtype_says_that_quantised_weights_stay(kind, tmp_path, capsys):
    source, target = given(kind, tmp_path, {**FP8.checkpoint(), "n.weight": ONES})
    words = "convert", source, target
    for rules in (["--dtype", "bf16"], ["--dtype", "f16", "--dry-run"]):
        assert run(capsys, *words, *rules, "--strict", "--dry-run")[0] == 2
        code, said = run(capsys, *words, *rules)
        assert code == 0
        assert f"{rules[0]} {rules[1]} casts no quantised weights: 1 stay" in said.err
        assert "(--to " in said.err
    for rules in (["--dtype", "bf16", "--to", "bf16"], ["--dtype", "n.*=bf16"],
                  ["--keep", f"{FP8.prefix}.*", "--dtype", "bf16"]):  # fmt: skip
        code, said = run(capsys, *words, *rules, "--dry-run")
        assert (code, "casts no quantised" in said.err) == (0, False)


@KINDS
def test_to_of_floats_names_dtype(kind, tmp_path, capsys):
    source, target = given(kind, tmp_path, {"n.weight": ONES}, {})
    code, said = run(capsys, "convert", source, target, "--to", "n.*=bf16")
    assert code == 2
    assert "no quantised weight has a name" in said.err
    assert "; --dtype n.*=bf16 casts floats" in said.err
    assert run(capsys, "convert", source, target, "--dtype", "n.*=bf16")[0] == 0


# Types of GGUF


def test_blocks_are_not_written_to_files_without_their_type(tmp_path, capsys):
    blocks = sj.schemes["gguf:q4_0"].encode(np.ones((4, 64), np.float32))["weight"]
    sj.save_file({"blk.0.w.weight": blocks, "n": ONES}, tmp_path / "a.gguf",
                 types={"blk.0.w.weight": "Q4_0"})  # fmt: skip
    for more in ([], ["--dry-run"], ["--select", "blk.*"], ["--rename", r"s/blk\.(.*)/b.\1/"]):
        for end in ("safetensors", "npz"):
            words = tmp_path / "a.gguf", tmp_path / f"b.{end}", *more
            code, said = run(capsys, "convert", *words)
            assert code == 2
            assert "'blk.0.w.weight' holds blocks of type Q4_0" in said.err
            assert not (tmp_path / f"b.{end}").exists()
    for rules in ([("to", "f32")], [("select", "n")]):
        sj.files.convert(tmp_path / "a.gguf", tmp_path / "b.safetensors", rules)
    sj.files.convert(tmp_path / "a.gguf", tmp_path / "b.gguf", [("rename", r"s/blk\.(.*)/b.\1/")])


# Keys and values of configs

CT = scheme_fixtures.named("int4-ct-asymmetric")
GPTQ = scheme_fixtures.named("gptq-4bit-v2")
AWQ = scheme_fixtures.named("awq-gemm")


def changed(config, key, value, *, of="quantization_config"):
    """A config with one more key, in the section or in what it says of weights."""
    made = json.loads(json.dumps(config))
    section = made["quantization_config"]
    if of == "weights":
        section = section["config_groups"]["group_0"]["weights"]
    section[key] = value
    return made


@KINDS
def test_an_unknown_key_is_warned_of(kind, tmp_path, capsys):
    config = changed(FP8.config, "shuffled", True)
    folder = folder_of(tmp_path / "model", FP8.checkpoint(), config)
    source = folder if kind == "folder" else folder / "model.safetensors"
    target = tmp_path / ("out" if kind == "folder" else "out.safetensors")
    text = "the key 'shuffled' of quantization_config is unknown"
    assert any(text in warning for warning in sj.schemes.detect(FP8.checkpoint(), config).warnings)
    for more in (["--dry-run"], []):
        code, said = run(capsys, "convert", source, target, "--to", "bf16", *more)
        assert code == 0
        assert f"warning: {text}" in said.err
    code, said = run(capsys, "convert", source, target, "--to", "bf16", "--json")
    assert text in json.loads(said.out)["warnings"][0]
    other = target.with_name("b" + target.suffix)
    for more in (["--dry-run"], []):
        code, said = run(capsys, "convert", source, other, "--to", "bf16", "--strict", *more)
        assert (code, text in said.err, other.exists()) == (2, True, False)
    report = sj.files.convert(source, other, [("to", "bf16")])
    assert text in report.warnings[0]
    with pytest.raises(sj.FormatError, match="shuffled"):
        sj.files.convert(source, other, [("to", "bf16")], strict=True)
    code, said = run(capsys, "verify", source, target)
    assert code == 0
    assert f"A: warning: {text}" in said.out


@pytest.mark.parametrize(
    ("fixture", "key", "value", "of"),
    [
        (GPTQ, "checkpoint_format", "gptq_v3", "quantization_config"),
        (GPTQ, "packing_format", "planes", "quantization_config"),
        (GPTQ, "pack_dtype", "int16", "quantization_config"),
        (GPTQ, "is_marlin_format", True, "quantization_config"),
        (CT, "actorder", "random", "weights"),
        (CT, "type", "codebook", "weights"),
        (CT, "format", "marlin-24", "quantization_config"),
        (CT, "transform_config", {"config_groups": {"R3": {}, "u": 1}}, "quantization_config"),
        (CT, "sparsity_config", {"format": "sparse-24-bitmask"}, "quantization_config"),
        (FP8, "quant_method", "mxfp8", "quantization_config"),
        (FP8, "scale_fmt", "log2", "quantization_config"),
        (FP8, "checkpoint_format", "gptq_p", "quantization_config"),
        (AWQ, "version", "marlin", "quantization_config"),
        (AWQ, "group_size", -7, "quantization_config"),
        (AWQ, "bits", -4, "quantization_config"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_unknown_value_is_refused(fixture, key, value, of, tmp_path):
    config = changed(fixture.config, key, value, of=of)
    source = folder_of(tmp_path / "in", fixture.checkpoint(), config)
    with pytest.raises(sj.FormatError, match=key):
        sj.files.convert(source, tmp_path / "out", [("to", "bf16")])
    found = sj.schemes.detect(fixture.checkpoint(), config)
    assert (found, len(found.unclear)) == ([], 1)
    nested = {"text_config": {"llm_config": config}}
    assert sj.schemes.detect(fixture.checkpoint(), nested) == [] or key == "checkpoint_format"


@pytest.mark.parametrize("path", [(), ("quantization_config",), ("quantization", "text_config")])
def test_groups_tell_settings_of_weights_only(path):
    """Neither modules nor the format of the model, which the section itself tells."""
    weights = {"num_bits": 4, "group_size": 128, "strategy": "group", "actorder": "static"}
    group = {"weights": weights, "input_activations": {"num_bits": 8}, "format": "pack-quantized"}
    config = {"format": "mixed-precision", "quant_method": "compressed-tensors"}
    config |= {"config_groups": {"group_0": group, "group_1": {"weights": {"num_bits": 8}}}}
    for key in path:
        config = {key: config}
    said = declared(config)
    assert said.words == {"mixed-precision", "compressed-tensors", "group"}
    assert said.layouts == {"format": {"mixed-precision"}, "actorder": {"static"}}
    assert said.settings == ({"bits": 4, "group_size": 128}, {"bits": 8})
    assert said.modules == {}
    assert [*said.texts("format")] == ["mixed-precision"]
    assert said.texts("strategy") == {}


# What the projects write beside what is read; none of it changes a number.
WRITTEN = [
    (CT, {"kv_cache_scheme": None, "sparsity_config": {}, "transform_config": {}, "ignore": [],
          "global_compression_ratio": None, "version": "0.14.0.1"}),
    (CT, {"transform_config": {"config_groups": {}}, "sparsity_config": {"format": "dense"}}),
    (GPTQ, {"damp_percent": 0.1, "true_sequential": True, "static_groups": False, "lm_head": False,
            "meta": {"quantizer": ["gptqmodel:7.0"]}, "dynamic": {}, "backend": "auto"}),
    (FP8, {"modules_to_not_convert": ["lm_head"], "scale_fmt": "ue8m0", "expert_dtype": "fp8",
           "dequantize": False, "modules_to_convert": None}),
    (scheme_fixtures.named("awq-gemm"), {"do_fuse": False, "backend": "autoawq", "version": "GEMM",
                                         "modules_to_not_convert": None, "exllama_config": None}),
    (scheme_fixtures.named("bnb-nf4"), {"llm_int8_threshold": 6.0, "_load_in_4bit": True,
                                        "llm_int8_skip_modules": None, "load_in_8bit": False}),
    (scheme_fixtures.named("nvfp4-modelopt"), {"kv_cache_scheme": {"dynamic": False, "num_bits": 8,
                                               "type": "float"}, "quant_library": "modelopt"}),
    (scheme_fixtures.named("mxfp4-gpt-oss-down"), {"dequantize": False}),
]  # fmt: skip


@pytest.mark.parametrize(("fixture", "keys"), WRITTEN, ids=lambda x: getattr(x, "name", ""))
def test_harmless_keys_are_no_matter(fixture, keys, tmp_path):
    config = fixture.config
    for key, value in keys.items():
        config = changed(config, key, value)
    if fixture is CT:
        config = changed(config, "actorder", None, of="weights")
        config = changed(config, "observer", "mse", of="weights")
    source = folder_of(tmp_path / "in", fixture.checkpoint(), config)
    kind = "float32" if "float32" in fixture.expected else "bfloat16"
    report = sj.files.convert(source, tmp_path / "out", [("to", kind)], strict=True)
    assert report.warnings == ()
    (found,) = sj.load_file(tmp_path / "out").values()
    assert found.numpy().tobytes() == fixture.expected[kind].tobytes()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("version", "gemv", "says version 'gemv', but its tensors are stored as gemm"),
        ("zero_point", False, "says zero_point false, but it has zero points"),
    ],
)
def test_what_a_config_says_of_other_tensors_is_warned_of(key, value, text, tmp_path):
    source = folder_of(tmp_path / "in", AWQ.checkpoint(), changed(AWQ.config, key, value))
    report = sj.files.convert(source, tmp_path / "out", [("to", "f32")])
    assert [f"{AWQ.prefix}: quantization_config {text}" in line for line in report.warnings] == [1]
    (found,) = sj.load_file(tmp_path / "out").values()
    assert found.numpy().tobytes() == AWQ.expected["float32"].tobytes()
    with pytest.raises(sj.FormatError, match=r"in: .*--strict"):
        sj.files.convert(source, tmp_path / "out", [("to", "f32")], strict=True)


def test_what_detect_warns_of_convert_prints(tmp_path, capsys):
    gptq = scheme_fixtures.named("gptq-4bit-v1").checkpoint()
    sj.save_file(gptq, tmp_path / "a.safetensors")
    (text,) = sj.schemes.detect(gptq).warnings
    words = tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--to", "bf16"
    code, said = run(capsys, "convert", *words)
    assert code == 0
    assert f"warning: {text}" in said.err
    assert run(capsys, "convert", *words, "--strict")[0] == 2
    assert run(capsys, "convert", *words[:2], "--rename", "s/model(.*)/a\\1/", "--strict")[0] == 0


def test_what_is_unclear_stays_only_with_its_config(tmp_path):
    lone = {"lone.weight_scale": ONES}
    source = folder_of(tmp_path / "in", {**FP8.checkpoint(), **lone}, FP8.config)
    with pytest.raises(sj.FormatError, match=r"'lone\.weight_scale' .* no codes belong"):
        sj.files.convert(source, tmp_path / "out", [("to", f"{FP8.prefix}.*=bf16")])
    two = {f"b.{name}": x for name, x in FP8.parts.items()}
    source = folder_of(tmp_path / "two", {**FP8.checkpoint(), **lone, **two}, FP8.config)
    report = sj.files.convert(source, tmp_path / "out", [("to", f"{FP8.prefix}.*=bf16")])
    assert "lone.weight_scale: no codes belong to it" in report.warnings


# What is unclear, what differs, what is meant


def test_mlx_without_a_config_is_unclear(tmp_path, capsys):
    """8 bits in groups of 32 have the shapes of 4 bits in groups of 64."""
    mx = pytest.importorskip("mlx.core")
    x = RNG.standard_normal((32, 128)).astype(np.float32)
    for bits, group in ((8, 32), (4, 64)):
        stored = mx.quantize(mx.array(x), group, bits)
        parts = dict(zip(("weight", "scales", "biases"), map(np.array, stored), strict=True))
        tensors = {f"q.{key}": value for key, value in parts.items()}
        found = sj.schemes.detect(tensors)
        assert found == []
        assert "nothing tells bits or group_size" in str(found.unclear[0])
        sj.save_file(tensors, tmp_path / "a.safetensors")
        code, said = run(capsys, "convert", tmp_path / "a.safetensors", tmp_path / "b.npz",
                         "--to", "f32")  # fmt: skip
        assert (code, "bits or group_size" in said.err) == (2, True)
        wanted = np.array(mx.dequantize(*stored, group, bits))
        for key in ("bits", "group_size"):
            config = {"quantization": {key: {"bits": bits, "group_size": group}[key]}}
            (one,) = sj.schemes.detect(tensors, config) or [None]
            if one is not None:  # the usual other one fits
                made = sj.schemes["mlx"].decode(one.parts, dtype="float32").numpy()
                assert np.abs(made - wanted).max() < 1e-5


def test_compressed_tensors_without_sizes_is_unclear():
    fixture = scheme_fixtures.named("int4-ct-group32")
    tensors = {k: x for k, x in fixture.checkpoint().items() if not k.endswith("weight_shape")}
    found = sj.schemes.detect(tensors)
    assert (found, len(found.unclear)) == ([], 1)
    assert [each.scheme for each in sj.schemes.detect(tensors, fixture.config)] == [fixture.scheme]
    assert len(sj.schemes.detect(fixture.checkpoint())) == 1


def test_verify_sees_the_sign_of_zeros_of_float8(tmp_path, capsys):
    codes = np.arange(32, dtype=np.uint8).reshape(4, 8)
    codes[1, 2] = 0x80
    tensors = {"q.weight": codes.view(E4M3), "q.weight_scale": np.ones((4, 1), np.float32)}
    sj.save_file(tensors, tmp_path / "a.safetensors")
    decoded = codes.view(E4M3).astype(BF16)
    for plain, code in ((decoded, 0), (decoded + BF16(0), 1)):
        sj.save_file({"q.weight": plain}, tmp_path / "b.safetensors")
        for pair in (["a", "b"], ["b", "a"]):
            words = [tmp_path / f"{name}.safetensors" for name in pair]
            found, said = run(capsys, "verify", *words)
            assert (found, "q.weight[1, 2]" in said.out) == (code, code == 1)
            assert run(capsys, "verify", *words, "--tolerance", "0.1")[0] == 0


@pytest.mark.parametrize("static", [False, True])
def test_autofp8(static, tmp_path):
    """quant_method fp8, a scalar weight_scale; the words of others do not fit it."""
    fixture = scheme_fixtures.named("fp8-tensor-modelopt")
    tensors = {f"q.{key}": x for key, x in fixture.parts.items()}
    config = {"quant_method": "fp8", "activation_scheme": "static" if static else "dynamic",
              "ignored_layers": ["lm_head"]}  # fmt: skip
    if static:
        tensors["q.input_scale"] = np.ones((), np.float32)
    source = folder_of(tmp_path / "in", tensors, {"quantization_config": config})
    report = sj.files.convert(source, tmp_path / "out", [("to", "f32")], strict=True)
    assert report.warnings == ()
    (found,) = sj.load_file(tmp_path / "out").values()
    assert (
        found.tobytes()
        == scheme_fixtures.named("fp8-tensor-modelopt").expected["float32"].tobytes()
    )
    for word in ("fbgemm_fp8", "mxfp8", "quark"):
        stated = {"quantization_config": {**config, "quant_method": word}}
        assert sj.schemes.detect(tensors, stated) == []
    channel = scheme_fixtures.named("fp8-channel-f32")
    stated = {"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}}
    (one,) = sj.schemes.detect(channel.checkpoint(), stated)
    assert one.scheme == "fp8:channel"


@pytest.mark.parametrize("kind", [np.float32, np.float16, BF16], ids=["F32", "F16", "BF16"])
def test_gguf_of_floats_becomes_float32(kind, tmp_path):
    x, norm = (RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (5,)))
    tensors = {"blk.0.w.weight": x.astype(kind), "blk.0.norm.weight": norm}
    sj.save_file(tensors, tmp_path / "a.gguf")
    for to, wide in (("f32", np.float32), ("bf16", BF16)):
        sj.files.convert(tmp_path / "a.gguf", tmp_path / "b.safetensors", [("to", to)])
        found = sj.load_file(tmp_path / "b.safetensors")
        wanted = x.astype(kind).astype(wide)
        assert found["blk.0.w.weight"].dtype.name == np.dtype(wide).name
        assert found["blk.0.w.weight"].tobytes() == wanted.tobytes()
        assert found["blk.0.norm.weight"].tobytes() == norm.tobytes()
    with pytest.raises(sj.FormatError, match="no quantised weight"):
        sj.files.convert(tmp_path / "a.gguf", tmp_path / "b.safetensors", [("to", "none=f32")])
    sj.save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(sj.FormatError, match="no quantised weight"):
        sj.files.convert(tmp_path / "a.safetensors", tmp_path / "c.safetensors", [("to", "f32")])


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("int4", "unknown dtype or scheme 'int4'; did you mean 'int4:compressed-tensors'?"),
        ("AWQ", "unknown dtype or scheme 'AWQ'; did you mean 'awq'?"),
        ("awq", "a code is an integer of 4 bits, not float8_e4m3fn"),
        ("gptq", "a code is an integer of 2, 3, 4 or 8 bits, not float8_e4m3fn"),
        ("mlx", "a code is float4_e2m1fn, not float8_e4m3fn"),
        ("gguf:q4_0", "a code is an integer of 4 bits, not float8_e4m3fn"),
        ("bnb:nf4", "weights of 1 dim, these have 2"),
        ("nvfp4:modelopt", "a code is float4_e2m1fn, not float8_e4m3fn"),
        ("fp8:channel", "has a scale for each (1, 144) elements, not (128, 128)"),
    ],
)
def test_messages_say_what_a_scheme_has(to, text, tmp_path):
    sj.save_file(FP8.checkpoint(), tmp_path / "a.npz")
    with pytest.raises(sj.FormatError) as caught:
        sj.files.convert(tmp_path / "a.npz", tmp_path / "b.npz", [("to", to)])
    assert text in str(caught.value)
    assert "known are" not in str(caught.value)
    assert str(caught.value).count(DECODED) <= 1


def test_what_no_scheme_can_hold_is_decoded_first(tmp_path):
    sj.save_file(FP8.checkpoint(), tmp_path / "a.npz")
    with pytest.raises(sj.FormatError, match=r"\n  --to bf16 --to fp8:channel rounds the weight"):
        sj.files.convert(tmp_path / "a.npz", tmp_path / "b.npz", [("to", "fp8:channel")])
    rules = [("to", "bf16"), ("to", "fp8:channel")]
    sj.files.convert(tmp_path / "a.npz", tmp_path / "b.npz", rules)
    (found,) = sj.schemes.detect(sj.load_file(tmp_path / "b.npz"))
    wanted = sj.schemes["fp8:channel"].encode(FP8.expected["bfloat16"])
    assert {k: x.tobytes() for k, x in found.parts.items()} == {
        k: x.tobytes() for k, x in wanted.items()
    }


def test_the_metadata_of_comfyui_go_on_to_tell_of_what_is_left(tmp_path):
    fixture = scheme_fixtures.named("nvfp4-comfyui")
    own = {key: x for key, x in fixture.parts.items() if key != "comfy_quant"}
    tensors = {f"{name}.{key}": x for name in ("a", "b") for key, x in own.items()}
    layers = {name: {"format": "nvfp4"} for name in ("a", "b")}
    stated = {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})}
    sj.save_file(tensors, tmp_path / "in.safetensors", metadata=stated)
    sj.files.convert(tmp_path / "in.safetensors", tmp_path / "b.safetensors", [("to", "a.*=f32")])
    with safe_open(tmp_path / "b.safetensors", "numpy") as file:
        made = json.loads(file.metadata()["_quantization_metadata"])
    assert made == {"format_version": "1.0", "layers": {"b": {"format": "nvfp4"}}}
    sj.files.convert(tmp_path / "b.safetensors", tmp_path / "c.safetensors", [("to", "f32")])
    found = sj.load_file(tmp_path / "c.safetensors")
    assert found["a.weight"].tobytes() == found["b.weight"].tobytes()
    with safe_open(tmp_path / "c.safetensors", "numpy") as file:
        assert not file.metadata()


@KINDS
@pytest.mark.parametrize(
    ("rules", "layers"),
    [
        ([], ["a", "b"]),
        ([("rename", r"s/b\.(.*)/c.\1/")], ["a", "c"]),
        ([("exclude", r"b\..*")], ["a"]),
        ([("keep", ".*"), ("rename", r"s/b\.weight/weight/")], ["a"]),
        ([("to", "p.*=bf16")], ["b"]),
        ([("to", "bf16")], []),
    ],
)
def test_layers_of_comfyui_without_a_prefix_stay(rules, layers, kind, tmp_path):
    parts = sj.schemes["fp8:tensor"].encode(np.ones((16, 16), np.float32))
    tensors = {f"{name}.{key}": x for name in ("p.a", "b") for key, x in parts.items()}
    stated = {"layers": {name: {"format": "float8_e4m3fn"} for name in "ab"}}
    source, target = given(kind, tmp_path, tensors, {})
    path, made = (
        each / "model.safetensors" if kind == "folder" else each for each in (source, target)
    )
    sj.save_file(tensors, path, metadata={"_quantization_metadata": json.dumps(stated)})
    sj.files.convert(source, target, rules)
    with safe_open(made, "np") as file:
        found = (file.metadata() or {}).get("_quantization_metadata", '{"layers": {}}')
    assert [*json.loads(found)["layers"]] == layers


@KINDS
def test_the_metadata_of_comfyui_have_the_names_that_rules_give(kind, tmp_path):
    fixture = scheme_fixtures.named("nvfp4-comfyui")
    own = {key: x for key, x in fixture.parts.items() if key != "comfy_quant"}
    tensors = {f"{name}.{key}": x for name in "abc" for key, x in own.items()}
    layers = {name: {"format": "nvfp4", "of": name} for name in "abc"}
    stated = {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})}
    source, target = given(kind, tmp_path, tensors, {})
    file = source / "model.safetensors" if kind == "folder" else source
    sj.save_file(tensors, file, metadata={"by": "me", **stated})
    made = target / "model.safetensors" if kind == "folder" else target

    def metadata(*rules):
        sj.files.convert(source, target, rules)
        with safe_open(made, "numpy") as found:
            return found.metadata()

    assert metadata(("keep", "a.*")) == {"by": "me", **stated}
    renamed = metadata(("rename", r"s/a\.(.*)/blocks.0.\1/"), ("exclude", "c.*"))
    assert renamed["by"] == "me"
    assert json.loads(renamed["_quantization_metadata"])["layers"] == {
        "blocks.0": layers["a"], "b": layers["b"]
    }  # fmt: skip
    assert metadata(("select", "b.*"), ("to", "f32")) == {"by": "me"}


@pytest.mark.parametrize("kind", [E4M3, ml_dtypes.float8_e5m2, E8M0])
def test_inspect_names_floats_of_8_bits_whatever_they_are_called(kind, tmp_path, capsys):
    tensors = {"experts.gate_up": packed(np.uint8, 4, 4).view(kind), "mark": np.zeros(0, kind)}
    tensors |= {f"plain.{wide}": np.ones(4, wide) for wide in ("f8", "f4", "f2", "i8", "?")}
    sj.save_file(tensors, tmp_path / "a.safetensors")
    code, said = run(capsys, "inspect", tmp_path / "a.safetensors")
    assert (code, said.out.count("unclear: experts.gate_up")) == (0, 1)
    assert said.out.count("unclear") == 1


@pytest.mark.parametrize("value", [7, "fp8", ["fp8"], True, 0, "", [], False])
@pytest.mark.parametrize(
    ("where", "config"),
    [
        ("quantization_config", lambda value: {"quantization_config": value}),
        ("text_config.quantization", lambda value: {"text_config": {"quantization": value}}),
        ("quant_config.json", lambda value: {"quant_config.json": value}),
    ],
)
def test_a_section_that_is_no_object_is_warned_of(where, config, value):
    tensors = {"a.weight": np.ones((4, 4), np.float32)}
    (text,) = sj.schemes.detect(tensors, config(value)).warnings
    assert text == f"{where} is {json.dumps(value)}, not an object, and is ignored"


@pytest.mark.parametrize("value", [None, {}])
def test_an_empty_section_is_as_good_as_none(value):
    tensors = {"a.weight": np.ones((4, 4), np.float32)}
    assert sj.schemes.detect(tensors, {"quantization_config": value}).warnings == []


def test_modules_listed_as_not_quantised_contradict_their_tensors(tmp_path):
    awq = scheme_fixtures.named("awq-gemm")
    config = changed(awq.config, "modules_to_not_convert", [awq.prefix, "lm_head"])
    source = folder_of(tmp_path / "in", awq.checkpoint(), config)
    where = "quantization_config.modules_to_not_convert"
    (warning,) = sj.schemes.detect(awq.checkpoint(), config).warnings
    assert warning.startswith(f"{awq.prefix}: {where} lists it as not quantised")
    with pytest.raises(sj.FormatError, match=rf"{where} lists it .*--strict"):
        sj.files.convert(source, tmp_path / "out", [("to", "gptq")], strict=True)
    report = sj.files.convert(source, tmp_path / "out", [("to", "gptq")])
    assert report.warnings == (warning,)
    made = json.loads((tmp_path / "out" / "config.json").read_text())
    assert made["quantization_config"]["modules_to_not_convert"] == ["lm_head"]


def test_sizes_of_two_files_that_contradict_each_other_are_warned_of():
    """The tensors decide; a component of the model, or a module, may have sizes of its own."""
    awq = scheme_fixtures.named("awq-gemm")
    tensors = awq.checkpoint()
    ((_, _, parts),) = sj.schemes.detect(tensors, awq.config)
    sizes = {key: parts.settings[key] for key in ("bits", "group_size")}
    for key, other in (("bits", 8), ("group_size", 2 * sizes["group_size"])):
        config = changed(awq.config, key, other) | {"quant_config.json": sizes}
        ((_, _, parts),) = found = sj.schemes.detect(tensors, config)
        assert {name: parts.settings[name] for name in sizes} == sizes
        (warning,) = found.warnings
        reason = f"quantization_config says {key} {other}, but its tensors have {sizes[key]}"
        assert warning == f"{awq.prefix}: {reason}, and are read so"
        own = changed(config, "extra_config", {awq.prefix: sizes})
        assert sj.schemes.detect(tensors, own).warnings == []
        section = config.pop("quantization_config")
        apart = config | {"audio_config": {"quantization_config": section}}
        assert sj.schemes.detect(tensors, apart).warnings == []


@pytest.mark.parametrize("entry", [["x"], {"a": 1}, None, 3])
def test_lists_of_modules_may_hold_anything(entry, tmp_path):
    awq = scheme_fixtures.named("awq-gemm")
    config = changed(awq.config, "modules_to_not_convert", [entry, awq.prefix])
    source = folder_of(tmp_path / "in", awq.checkpoint(), config)
    sj.files.convert(source, tmp_path / "out", [("to", "gptq")])
    made = json.loads((tmp_path / "out" / "config.json").read_text())
    assert made["quantization_config"]["modules_to_not_convert"] == [entry]
    plain = {"fc.weight": np.ones((64, 128), np.float32), "lm_head.weight": np.ones((8, 64), "f4")}
    config = {"quantization_config": {"ignore": [entry]}}
    source = folder_of(tmp_path / "plain", plain, config)
    sj.files.convert(source, tmp_path / "fp8", [("to", "fc.*=fp8:channel")])
    made = json.loads((tmp_path / "fp8" / "config.json").read_text())
    assert made["quantization_config"]["ignore"] == [entry, "lm_head"]


def test_stacked_experts_that_are_quantised_leave_the_list_of_modules(tmp_path):
    names = ("gate_up_proj", "down_proj")
    experts = {f"model.mlp.experts.{n}": np.ones((2, 256, 256), np.float32) for n in names}
    tensors = {**experts, "lm_head.weight": np.ones((8, 256), np.float32)}
    config = {"quantization_config": {"ignore": ["model.mlp.experts"]}}
    source = folder_of(tmp_path / "in", tensors, config)
    sj.files.convert(source, tmp_path / "out", [("to", ".*experts.*=mxfp4:gpt-oss")])
    made = json.loads((tmp_path / "out" / "config.json").read_text())
    assert made["quantization_config"]["modules_to_not_convert"] == ["lm_head"]


def test_a_folder_without_a_config_that_is_quantised_is_warned_of(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    sj.save_file({"fc.weight": np.ones((64, 128), np.float32)}, source / "model.safetensors")
    report = sj.files.convert(source, tmp_path / "out", [("to", "awq")])
    assert [w for w in report.warnings if "the source has no config.json" in w and "(awq)" in w]
    with pytest.raises(
        sj.FormatError, match=r"no config describes its quantised weights .*--strict"
    ):
        sj.files.convert(source, tmp_path / "new", [("to", "awq")], strict=True)
    assert not (tmp_path / "new").exists()


def test_a_destination_in_no_folder_names_the_folder_that_is_missing(tmp_path):
    awq = scheme_fixtures.named("awq-gemm")
    source = folder_of(tmp_path / "in", awq.checkpoint(), awq.config)
    with pytest.raises(FileNotFoundError) as caught:
        sj.files.convert(source, tmp_path / "a" / "b", [("to", "bf16")])
    assert str(caught.value.filename) == str(tmp_path / "a")
