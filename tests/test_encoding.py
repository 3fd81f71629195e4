"""Weights encoded by kernels: the same bytes as by NumPy, whatever the weights are."""

import os
import platform
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from compiled import COMPILED
from guarded import guarded

import shapejit as sj
from shapejit.engine import patience
from shapejit.quantization import encoding, rules

pytestmark = pytest.mark.skipif(not COMPILED, reason="with the JIT off NumPy encodes")

X86 = platform.machine() in ("x86_64", "AMD64")
SOURCES = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000}  # bits of infinity
ENCODED = [name for name in sj.schemes if sj.schemes[name].encodes]
# Schemes that kernels do not encode: tables, zero points, codes in columns.
BY_NUMPY = {"gptq", "awq", "bnb:nf4", "bnb:fp4", "mlx", "gguf:q4_1", "gguf:q5_0", "gguf:q5_1"}


def check(name, x, **settings):
    """Kernels and NumPy make the same parts."""
    encode = sj.schemes[name].encode
    with patience.force_numpy():
        wanted = encode(x, **settings)
    with patience.force_kernels():
        found = encode(x, **settings)
    assert found.settings == wanted.settings
    assert {key: (t.shape, t.dtype.name) for key, t in found.items()} == {
        key: (t.shape, t.dtype.name) for key, t in wanted.items()
    }
    for key, t in wanted.items():
        ours, numpys = (np.frombuffer(each.tobytes(), np.uint8) for each in (found[key], t))
        wrong = np.flatnonzero(ours != numpys)
        assert not wrong.size, (key, wrong.size, wrong[:5], ours[wrong[:5]], numpys[wrong[:5]])


def weights(shape, dtype, case="normal"):
    rng = np.random.default_rng(11)
    kind = sj.dtype(dtype).numpy
    x = rng.standard_normal(shape).astype(np.float32)
    if case == "ties":
        x = rng.integers(-16, 17, shape).astype(np.float32) / 4
    if case == "zeros":
        x[rng.random(shape) < 0.3] = 0
        x[rng.random(shape) < 0.3] *= -0.0
        x[..., : shape[-2] // 2, :] = 0
        x[..., 1, :] = -0.0
    if case == "small":  # of which scales are subnormal, or none at all
        x *= np.float32(1e-6 if dtype == "float16" else 1e-39)
    if case == "bits":
        width = 8 * np.dtype(kind).itemsize
        codes = rng.integers(0, 1 << width, shape, np.uint32)
        codes[codes & SOURCES[dtype] == SOURCES[dtype]] = 0
        return codes.astype(f"u{width // 8}").view(kind)
    return x.astype(kind)


@pytest.mark.parametrize("case", ["normal", "ties", "zeros", "small", "bits"])
@pytest.mark.parametrize("name", ENCODED)
def test_kernels_make_numpys_bytes(name, case):
    for dtype in SOURCES:
        check(name, weights((256, 512), dtype, case))


@pytest.mark.parametrize("exponent", [-20, 0, 60])
@pytest.mark.parametrize(
    "name",
    ["nvfp4:compressed-tensors", "nvfp4:modelopt", "nvfp4:comfyui", "nvfp4:gguf",
     "mxfp4:compressed-tensors", "mxfp4:gpt-oss", "mxfp4:gguf"],
)  # fmt: skip
def test_codes_of_all_numbers_of_a_block(name, exponent):
    """Blocks with each bfloat16 of an octave as the largest one, and all of six octaves below."""
    top = np.arange(128, dtype=np.uint16)[:, None] + np.uint16((127 + exponent) << 7)
    rest = top - np.arange(1, 6 * 128 + 9, dtype=np.uint16)[:768]
    rest = rest.reshape(128, -1, 12)
    rest[:, :, 6:] |= np.uint16(1 << 15)
    blocks = [np.repeat(top[:, None], rest.shape[1], axis=1), rest]
    blocks.append(np.zeros((128, rest.shape[1], 3), np.uint16))
    x = np.concatenate(blocks, axis=-1).reshape(128, -1).view(sj.dtype("bfloat16").numpy)
    if name.startswith("mxfp4"):  # of 32 numbers
        x = np.repeat(x.reshape(-1, 16), 2, axis=0).reshape(256, -1)
    x = x.T if name == "mxfp4:gpt-oss" else x
    check(name, x)
    if name in ("nvfp4:compressed-tensors", "nvfp4:modelopt"):
        for factor in (1.0078125, 1.3333334, 1.7, 3.1415927):
            check(name, x, amax=factor * 2.0 ** (exponent + 1))


@pytest.mark.parametrize("name", [name for name in ENCODED if name not in BY_NUMPY])
def test_kernels_encode_what_they_are_for(name, monkeypatch):
    monkeypatch.setattr(encoding, "encoded", None)
    with patience.force_kernels():
        assert sj.schemes[name].encode(weights((256, 512), "bfloat16"))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("fp8:block", (130, 257)),
        ("fp8:block", (1, 1)),
        ("fp8:block", (300, 1100)),
        ("fp8:block", (3, 129, 200)),
        ("fp8:channel", (7, 129)),
        ("fp8:channel", (5, 3000)),
        ("fp8:channel", (2, 3, 65)),
        ("fp8:tensor", (33, 1111)),
        ("fp8:tensor", (3, 40, 1000)),
        ("int8:compressed-tensors", (3, 77)),
        ("deepseek-v4", (130, 200)),
        ("mxfp8:compressed-tensors", (5, 48)),
        ("mxfp8:compressed-tensors", (4, 16)),
        ("mxfp4:compressed-tensors", (3, 32)),
        ("mxfp4:compressed-tensors", (2, 3, 96)),
        ("mxfp4:gpt-oss", (2, 64, 3)),
        ("nvfp4:modelopt", (3, 48)),
        ("nvfp4:modelopt", (3, 2, 128)),
        ("nvfp4:compressed-tensors", (3, 2, 64)),
        ("nvfp4:comfyui", (130, 96)),
        ("nvfp4:comfyui", (17, 70)),
        ("nvfp4:gguf", (2, 3, 192)),
        ("gguf:q4_0", (3, 96)),
        ("gguf:q8_0", (2, 5, 32)),
        ("mxfp4:gguf", (1, 1024)),
        ("matmulnbits", (96, 3)),
        ("matmulnbits", (16, 64)),
    ],
)
@pytest.mark.parametrize("dtype", SOURCES)
def test_weights_of_any_size(name, shape, dtype, kernels):
    check(name, weights(shape, dtype))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("int4:compressed-tensors", {"group_size": 32}),
        ("int4:compressed-tensors", {"group_size": 48}),
        ("int4:compressed-tensors", {"bits": 2, "group_size": 64}),
        ("int4:compressed-tensors", {"bits": 8, "scale_dtype": "float16"}),
        ("int4:compressed-tensors", {"symmetric": False}),
        ("int8:compressed-tensors", {"group_size": 64, "scale_dtype": "float32"}),
        ("fp8:block", {"weight_block_size": (32, 64), "scale_dtype": "bfloat16"}),
        ("fp8:block", {"weight_block_size": (1, 100)}),
        ("fp8:block", {"weight_block_size": (3, 7)}),
        ("fp8:block", {"weight_block_size": (1, 1024)}),
        ("matmulnbits", {"group_size": 128, "scale_dtype": "float16"}),
        ("mlx", {"dtype": "float4_e2m1fn", "group_size": 16}),
        ("mlx", {"dtype": "float4_e2m1fn", "group_size": 32}),
        ("nvfp4:modelopt", {"amax": 9.0}),
        ("nvfp4:compressed-tensors", {"amax": 0.0}),
    ],
)
@pytest.mark.parametrize("dtype", SOURCES)
def test_settings(name, settings, dtype):
    check(name, weights((96, 1152), dtype), **settings)


@pytest.mark.parametrize("name", ["fp8:block", "fp8:tensor", "nvfp4:modelopt", "gguf:q4_0"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_refused(name, value):
    encode = sj.schemes[name].encode
    for dtype in SOURCES:
        for at in ((0, 0), (77, 300), (-1, -1)):
            x = weights((128, 512), dtype)
            x[at] = value
            with patience.force_kernels(), pytest.raises(sj.FormatError, match="infinities"):
                encode(x)


@pytest.mark.parametrize(
    "name", ["fp8:block", "fp8:channel", "mxfp4:compressed-tensors", "gguf:q8_0"]
)
def test_weights_anywhere_in_memory(name):
    """They begin at any byte and end with their page; views are put in order first."""
    x = weights((96, 512), "float32")
    pages = guarded(x.nbytes + 64)
    for begin in (0, 1, 2, pages.size - x.nbytes):
        memory = pages[begin : begin + x.nbytes]
        memory[:] = x.reshape(-1).view(np.uint8)
        check(name, sj.Tensor.frombuffer(memory, "float32", x.shape))
    wide = weights((512, 192), "bfloat16")
    check(name, wide.T[::2])
    check(name, wide[::-1, 32:160])


@pytest.mark.parametrize(
    "features", ["", pytest.param("+avx2", marks=pytest.mark.skipif(not X86, reason="of x86"))]
)
def test_processors_without_fused_or_wide_instructions(features):
    """Compiled with fewer features than this processor has, in a process of its own."""
    code = """
from test_encoding import *
names = "fp8:block", "int8:compressed-tensors", "mxfp4:gguf", "nvfp4:modelopt"
for name in (*names, "gguf:q4_0", "gguf:q8_0"):
    for case in ("normal", "zeros"):
        for dtype in SOURCES:
            check(name, weights((256, 512), dtype, case))
check("gguf:q8_0", weights((8, 512), "float16", "ties"))
check("fp8:block", weights((131, 131), "float32"))
"""
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})"
    own = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    command = [sys.executable, "-c", start + code]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def digests():
    """Of all parts of all schemes."""
    made = {name: sj.schemes[name].encode(weights((256, 512), "bfloat16")) for name in ENCODED}
    return [
        (name, key, sha256(made[name][key].tobytes()).hexdigest())
        for name in ENCODED
        for key in sorted(made[name])
    ]


def test_the_same_bytes_with_the_jit_off():
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += "from test_encoding import digests; print(digests())"
    own = {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with patience.force_kernels():
        assert done.stdout.strip() == str(digests())


def test_weights_without_elements():
    for name in ("fp8:block", "mxfp4:compressed-tensors", "gguf:q8_0"):
        check(name, np.zeros((0, 64), np.float32))
    for name, shape in (("fp8:tensor", (0, 64)), ("fp8:channel", (64, 0))):
        with pytest.raises(sj.FormatError, match="no scale"):
            sj.schemes[name].encode(np.zeros(shape, np.float32))


def test_other_dtypes_are_encoded_as_float32():
    x = weights((64, 128), "float32")
    for dtype in ("float64", "float8_e5m2"):
        check("fp8:block", x.astype(sj.dtype(dtype).numpy))


def test_experts_of_nvfp4_have_a_factor_each():
    """Two factors of different sizes, as many as there are experts."""
    x = weights((2, 64, 128), "float32") * np.array([1, 50], np.float32)[:, None, None]
    for name in ("nvfp4:modelopt", "nvfp4:compressed-tensors"):
        check(name, x)
    scheme = sj.schemes["nvfp4:gguf"]
    both, parts = scheme.encode(x), [scheme.encode(each) for each in x]
    for k, one in enumerate(parts):
        assert both["weight"].numpy()[k].tobytes() == one["weight"].tobytes()


@pytest.mark.parametrize("name", [name for name in ENCODED if name not in BY_NUMPY])
def test_each_weight_has_parts_of_its_own(name):
    """What is known from one serves the next one of that shape, which leaves the first alone."""
    scheme = sj.schemes[name]
    with patience.force_kernels():
        first = scheme.encode(weights((256, 512), "bfloat16"))
        before = {key: t.tobytes() for key, t in first.items()}
        scheme.encode(weights((256, 512), "bfloat16", "bits"))
        zeros = scheme.encode(weights((256, 512), "bfloat16") * 0)
    assert {key: t.tobytes() for key, t in first.items()} == before
    with patience.force_numpy():
        wanted = scheme.encode(weights((256, 512), "bfloat16") * 0)
    assert {key: t.tobytes() for key, t in zeros.items()} == {
        key: t.tobytes() for key, t in wanted.items()
    }


def test_weights_of_one_shape_have_each_its_settings():
    x = weights((64, 128), "bfloat16")
    for settings in ({"amax": 9.0}, {"amax": 3.5}, {}, {"amax": 9.0}):
        check("nvfp4:modelopt", x, **settings)
    for settings in ({"group_size": 32}, {"group_size": 64}, {"symmetric": False}, {}):
        check("int4:compressed-tensors", x, **settings)


@pytest.mark.parametrize(
    ("scheme", "part"), [("gptq", "g_idx"), ("int4:compressed-tensors", "weight_shape")]
)
def test_parts_of_one_weight_are_not_written_for_stacked_experts(scheme, part):
    """GPTQModel stores modules, and compressed-tensors' pack_to_int32 takes two dims."""
    experts = np.ones((2, 128, 128), np.float32)
    wanted = f"{scheme}: stores no stacked experts: {part} is that of one weight"
    with pytest.raises(sj.FormatError, match=wanted):
        sj.schemes[scheme].encode(experts)
    parts = sj.schemes["awq"].encode(experts)
    with pytest.raises(sj.FormatError, match="stores no stacked experts"):
        sj.schemes["awq"].convert(parts, scheme)
    assert sj.schemes["awq"].decode(parts, dtype="float32").shape == experts.shape


@pytest.mark.parametrize("to", [name for name in sj.schemes if name.startswith("nvfp4")])
def test_scales_of_empty_weights_change_their_dtype(to):
    """A weight without inputs fits blocks of any size: its scales are converted, too."""
    parts = sj.schemes["mxfp4:gpt-oss"].encode(np.ones((0, 64), np.float32))
    made = sj.schemes["mxfp4:gpt-oss"].convert(dict(parts), to)
    assert sj.schemes[to].decode(dict(made), dtype="float32").size == 0


def test_the_number_of_largest_magnitude_keeps_its_sign_and_the_first_of_equal_ones_counts():
    x = rules.Blocks(np.array([[1, -3, 3, 2], [3, -3, 1, 2], [1, -4, 3, 2], [1, 4, -3, 2],
                               [0, 0, 0, 0]], np.float32), (1, 4))  # fmt: skip
    assert x.widest.reshape(-1).tolist() == [-3, 3, -4, 4, 0]


def test_the_first_of_equal_ones_is_looked_for_only_where_some_are_equal(monkeypatch):
    seen, taken = list[tuple[int, ...]](), np.take_along_axis
    monkeypatch.setattr(
        rules.np, "take_along_axis", lambda x, *a, **b: seen.append(x.shape) or taken(x, *a, **b)
    )
    x = np.random.default_rng(7).standard_normal((64, 32)).astype(np.float32)
    x[9, 3:5] = -9, 9
    found = rules.Blocks(x, (1, 32)).widest.reshape(-1)
    assert found.tolist() == [row[np.abs(row).argmax()] for row in x]
    assert seen == [(1, 32)]
