"""Tensors that are converted some rows at a time: the same bytes, in bounded memory."""

import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scheme_fixtures

import shapejit as sj
from shapejit import conversion
from shapejit.conversion import actions, weights
from shapejit.files import file_formats, planned
from shapejit.quantization import transcoding

RNG = np.random.default_rng(9)
X = RNG.standard_normal((24, 10, 6)).astype(np.float32)
PLAIN = {"a": X, "b": X[::-1].copy(), "c": X[:, :, :4].copy()}
CODES = {"q": RNG.integers(-(2**31), 2**31, (64, 8)).astype(np.int32)}
COPIED = [("permute", ".*=1,0,2"), ("reshape", ".*=16,15,-1"), ("permute", ".*=0,2,1")]
WEIGHTS = {
    name: scheme_fixtures.named(name).checkpoint()
    for name in ("awq-gemm", "fp8-block-16x32", "gptq-4bit-act-order", "mxfp4-gpt-oss-gate-up",
                 "nvfp4-modelopt", "int4-ct-ragged", "bnb-nf4")
}  # fmt: skip
CASES = {
    "permute": (PLAIN, [("permute", ".*=0,2,1")]),
    "reversed": (PLAIN, [("permute", ".*=2,1,0"), ("slice", ".*=::-1")]),
    "copied twice": (PLAIN, COPIED),
    "copied, then cast": (PLAIN, [*COPIED, ("cast", ".*=BF16")]),
    "concat": (PLAIN, [("concat", "a=-1:b,c->d"), ("permute", "d=0,2,1")]),
    "concat of casts": (PLAIN, [("cast", ".*=F16"), ("concat", "a=2:b,c->d"), ("slice", "d=3:21")]),
    "rows": (PLAIN, [("concat", "a=0:b->d"), ("exclude", "c"), ("slice", "d=20:30:3")]),
    "interleave": (PLAIN, [("interleave", "a=0:b->d")]),
    "stack": (PLAIN, [("select", "[ab]"), ("rename", "s/a/e.1/"), ("rename", "s/b/e.0/"),
                      ("permute", "e.1=0,2,1"), ("permute", "e.1=0,2,1"), ("stack", "e.#")]),
    "split": (PLAIN, [("interleave", "a=0:b->d"), ("split", "d=0:e,f,g"), ("permute", "f=2,0,1")]),
    "repack": (CODES, [("repack", "q=awq:gemm->gptq:qweight")]),
    "repack back": (CODES, [("repack", "q=gptq:qweight->awq:gemm"), ("slice", "q=8:40")]),
    **{f"{name} cut": (x, [("to", "f32"), ("slice", ".*=1:")]) for name, x in WEIGHTS.items()},
    "fp8-block-16x32 rows": (WEIGHTS["fp8-block-16x32"], [("to", "f32"), ("slice", ".*=:16")]),
    **{f"{name} turned": (x, [("to", "f32"), ("reshape", ".*=2,2,-1"), ("permute", ".*=2,0,1")])
       for name, x in WEIGHTS.items()},
}  # fmt: skip


def sparse_fp8(folder, count, rows):
    """A folder with so many FP8 weights of 4096 columns, of which the file is a hole."""
    folder.mkdir()
    entries, at = {}, 0
    for k in range(count):
        for part, kind, shape in (("", "F8_E4M3", [rows, 4096]), ("_scale", "F32", [rows, 1])):
            ends = [at, at + rows * (4 if part else 4096)]
            entries[f"{k}.weight{part}"] = {"dtype": kind, "shape": shape, "data_offsets": ends}
            at = ends[1]
    header = json.dumps(entries).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + at)


def converted(source, target, rules, **options):
    sj.files.convert(source, target, rules, **options)
    return target.read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_some_rows_at_a_time_make_the_same_bytes(case, tmp_path, monkeypatch):
    tensors, rules = CASES[case]
    source = tmp_path / "in.safetensors"
    sj.save_file(tensors, source)
    config = scheme_fixtures.named(case.split()[0]).config if case.split()[0] in WEIGHTS else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    wanted = converted(source, tmp_path / "whole.safetensors", rules)
    for module in (planned, actions):
        monkeypatch.setattr(module, "PIECE_BYTES", 300)
    monkeypatch.setattr(weights, "BAND", 1)
    assert converted(source, tmp_path / "rows.safetensors", rules) == wanted


@pytest.mark.parametrize(
    ("name", "to", "shape"),
    [
        ("int4:compressed-tensors", "gptq", (384, 256)),
        ("awq", "int4:compressed-tensors", (384, 256)),
        ("nvfp4:comfyui", "nvfp4:modelopt", (400, 256)),
        ("mxfp4:gpt-oss", "mxfp4:gguf", (3, 96, 64)),
        ("fp8:tensor", "fp8:block", (384, 256)),
    ],
)
def test_codes_go_to_another_scheme_some_rows_at_a_time(name, to, shape, tmp_path, monkeypatch):
    """Scales of fp8:tensor are one for all rows: some would have a block of another size."""
    parts = sj.schemes[name].encode(RNG.standard_normal(shape).astype(np.float32))
    wanted = sj.schemes[name].convert(parts, to)
    sj.save_file({f"w.{key}": t for key, t in parts.items()}, tmp_path / "in.npz")
    monkeypatch.setattr(weights, "BAND", 1)
    sj.files.convert(tmp_path / "in.npz", tmp_path / "out.npz", [("to", to)])
    found = sj.load_file(tmp_path / "out.npz")
    assert found.keys() == {f"w.{key}" for key in wanted}
    for key, t in wanted.items():
        made = found[f"w.{key}"]
        assert (made.dtype, made.shape, made.tobytes()) == (t.dtype, t.shape, t.tobytes()), key


def test_another_scheme_takes_little_memory_beside_its_parts(tmp_path, monkeypatch):
    parts = sj.schemes["int4:compressed-tensors"].encode(np.ones((4096, 512), np.float32))
    sj.save_file({f"w.{key}": t for key, t in parts.items()}, tmp_path / "in.npz")
    monkeypatch.setattr(weights, "BAND", 1)
    rules = [("to", "gptq")]
    sj.files.convert(tmp_path / "in.npz", tmp_path / "out.npz", rules, proof=False)
    tracemalloc.start()
    sj.files.convert(tmp_path / "in.npz", tmp_path / "out.npz", rules, proof=False)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2 * sum(t.nbytes for t in parts.values())


@pytest.mark.parametrize(
    ("name", "settings", "to"),
    [
        ("gptq", {"bits": 3}, "int4:compressed-tensors"),
        ("int4:compressed-tensors", {"bits": 5, "group_size": 32}, "gguf:q5_0"),
        ("mlx", {"bits": 5, "group_size": 32}, "gguf:q5_1"),
        ("gguf:q5_1", {}, "mlx"),
        ("gguf:q5_0", {}, "int4:compressed-tensors"),
        ("nvfp4:modelopt", {}, "nvfp4:gguf"),
        ("gptq", {"bits": 4}, "matmulnbits"),
    ],
)
def test_codes_of_any_width_take_no_more_memory_than_is_said(
    name, settings, to, tmp_path, monkeypatch
):
    """Also where they are unpacked, which takes a byte each and more; the bytes are the same."""
    parts = sj.schemes[name].encode(
        RNG.standard_normal((2048, 1024)).astype(np.float32), **settings
    )
    wanted = sj.schemes[name].convert(parts, to)
    types = {"w.weight": name.removeprefix("gguf:").upper()} if name.startswith("gguf") else None
    source = tmp_path / ("in.gguf" if types else "in.npz")
    sj.save_file({f"w.{key}": t for key, t in parts.items()}, source, types=types)
    config = {"quant_method": name.partition(":")[2] or name, **parts.settings}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    for module in (transcoding, weights):
        monkeypatch.setattr(module, "UNPACKED", 1 << 14)
    tensors = conversion.plan(
        file_formats.read(source), [conversion.rule("to", to)], conversion.dialect()
    )
    changes = [*tensors.changes.values()]
    weights.LAST_RESULT.clear()  # planning has converted it once
    tracemalloc.start()
    found = {change.name: change.tensor().tobytes() for change in changes}
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    weights.LAST_RESULT.clear()
    assert found == {f"w.{key}": t.tobytes() for key, t in wanted.items()}
    assert most - sum(map(len, found.values())) <= changes[0].peak_bytes


LIMITED = """
import json, resource, sys
import numpy as np, shapejit as sj
def sparse(path, rows):
    entries, at = {}, 0
    for name, kind, shape in (("a.weight", "F8_E4M3", (rows, 4096)),
                              ("a.weight_scale", "F32", (rows, 1)),
                              ("cast", "F16", (rows, 2048)),
                              ("move", "I8", (rows // 64, 64, 4096))):
        end = at + int(np.prod(shape)) * {"I8": 1, "F8": 1, "F1": 2, "F3": 4}[kind[:2]]
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    header = json.dumps(entries).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + at)
rules = [("to", "bf16"), ("cast", "cast=BF16"), ("permute", "move=0,2,1")]
source, target = (f"{sys.argv[1]}/{name}.safetensors" for name in ("in", "out"))
def data():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData")) << 10
sparse(source, 4096)
sj.files.convert(source, target, rules)
sparse(source, 3 * 2**13)  # 96 MiB each
resource.setrlimit(resource.RLIMIT_DATA, (data() + (80 << 20),) * 2)
for which in ("a.*", "cast", "move"):
    own = [r for r in rules if which[:2] in r[1] or (which == "a.*" and r[0] == "to")]
    sj.files.convert(source, target, [("select", which), *own])
"""


def test_tensors_larger_than_memory(tmp_path):
    """Three of 96 MiB in a file that is a hole, in a process that may take 80 MiB more."""
    subprocess.run([sys.executable, "-c", LIMITED, tmp_path], check=True, timeout=900)


MEMORY = """
import resource, sys
import numpy as np, shapejit as sj
from shapejit.__main__ import main
sj.cast(np.zeros(9, np.float32), "bfloat16")
small, large, out = sys.argv[1:]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
for rules in ([("to", "bf16")], [("keep", ".*"), ("select", ".*t"), ("permute", ".*t=1,0")]):
    sj.files.convert(small, out, rules)
before = peak()
sj.files.convert(large, out, [("to", "bf16")])
print(peak() - before)
stacked = [("to", "bf16"), ("rename", r"s/(\\d).weight/e.\\1/"), ("stack", "e.#")]
sj.files.convert(large, out, stacked)
print(peak() - before, file=sys.stderr)
sj.files.convert(large, out, [("to", "bf16")])
main(["verify", large, large, "--json"])
main(["verify", large, out, "--json"])
print(peak() - before, file=sys.stderr)
sj.files.convert(large, out, rules)
print(peak() - before, file=sys.stderr)
joined = [("keep", ".*"), ("select", "[01].weight"), ("interleave", "0.weight=1:1.weight->x")]
joined.append(("permute", "x=1,0"))
sj.files.convert(large, out, joined, proof=False)
print(peak() - before, file=sys.stderr)
"""


def test_memory_does_not_grow_with_the_weights(tmp_path):
    """Three weights of 64 MiB, of which the file is a hole.

    They are decoded in less than one, stacked or not, and compared with themselves and with what
    they became; one is permuted in about one, and two are joined and permuted in about two.
    """
    for name, rows in (("small", 256), ("large", 2**14)):
        sparse_fp8(tmp_path / name, 3, rows)
    command = [sys.executable, "-c", MEMORY, *(tmp_path / n for n in ("small", "large", "out"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count('"equal": true') == 2
    found = done.stdout.split()[0], *done.stderr.split()
    decoded, stacked, compared, permuted, joined = map(int, found)
    assert decoded < 48
    assert stacked < 64
    assert compared < 64
    assert permuted < 160
    assert joined < 224
