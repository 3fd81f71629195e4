"""Packing formats: every pair compared with an oracle that places each bit, and what is refused."""

import json
import math
from dataclasses import replace
from functools import cache

import loops
import numpy as np
import packing_oracle
import pytest
from test_packed import run_alone

import shapejit as sj
from shapejit.__main__ import main
from shapejit.packings import repacking

SHAPE = 64, 96  # (out, in) that every format can hold
# The dtypes of each width.
KINDS = {
    1: ["uint1"],
    2: ["uint2", "int2"],
    3: ["uint3"],
    4: ["uint4", "int4", "float4_e2m1fn"],
    6: ["uint6"],
    8: ["uint8", "int8"],
}
FORMATS = tuple(sj.formats)


def holds(name, kind):
    row = sj.formats[name]
    return not row.bits or sj.dtype(kind).bits in row.bits


def shape_of(name, shape=SHAPE):
    """The logical shape of a tensor (out, in)."""
    return shape[::-1] if sj.formats[name].inputs_first else shape


def settings(*names):
    return {"block_size": packing_oracle.BLOCK} if "onnx:matmulnbits" in names else {}


@cache
def codes_of(kind, shape=SHAPE, most=0):
    """Random codes, as all integers that the format may hold."""
    bits = most or sj.dtype(kind).bits
    codes = np.random.default_rng(bits).integers(0, 1 << bits, shape)
    signed = sj.dtype(kind).signed and sj.dtype(kind).kind == "integer"
    return codes - (1 << (bits - 1)) if signed else codes


@cache
def stored(name, kind, shape=SHAPE, most=0):
    """The array that the oracle makes of random codes."""
    row, dtype = sj.formats[name], sj.dtype(kind)
    how = row.stored(shape_of(name, shape), kind, **settings(name))
    signed = dtype.signed and dtype.kind == "integer"
    codes = codes_of(kind, shape, most)
    bits = 5 if name in ("gguf:q5_0", "gguf:q5_1") else None
    made = packing_oracle.stored(name, codes, dtype.bits, signed, how.nbytes, bits)
    return made.view(how.unit).reshape(how.shape)


def repacked(name, to, kind, shape=SHAPE, most=0, **more):
    given = settings(name, to) | {"dtype": kind, "source": name, "target": to} | more
    return sj.repack(stored(name, kind, shape, most), shape=shape_of(name, shape), **given)


def same(found, wanted):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("kind", [kind for kinds in KINDS.values() for kind in kinds])
def test_every_pair(kind):
    """Random codes from every format to every other one that holds them."""
    names = [name for name in FORMATS if holds(name, kind)]
    most = 5 if sj.dtype(kind).bits == 8 else 0  # as many bits as each of them has
    for name in names:
        for to in names:
            same(repacked(name, to, kind, most=most), stored(to, kind, most=most))


def test_pairs_of_odd_shapes():
    """Rows and columns that end within bytes, units, blocks and tiles."""
    for kind, shape in (
        ("uint4", (5, 7)),
        ("int4", (3, 40)),
        ("uint3", (5, 33)),
        ("uint8", (150, 7)),
    ):
        names = [name for name in FORMATS if holds(name, kind) and fits(name, kind, shape)]
        assert len(names) > 5
        for name in names:
            for to in names:
                same(repacked(name, to, kind, shape), stored(to, kind, shape))


def fits(name, kind, shape):
    try:
        sj.formats[name].stored(shape_of(name, shape), kind, **settings(name))
    except sj.FormatError:
        return False
    return True


def test_one_dim_and_many():
    """Formats of rows keep the dims before the last ones, flat formats have one."""
    codes = np.arange(2 * 3 * 64, dtype=np.uint8).reshape(2, 3, 64) % 16
    given = {"dtype": "uint4", "source": "padded"}
    made = sj.repack(codes, shape=codes.shape, target="gpt-oss:blocks", **given)
    assert made.shape == (2, 3, 2, 16)
    again = {"shape": codes.shape, "dtype": "uint4", "source": "gpt-oss:blocks"}
    turned = sj.repack(made, target="gptq:qweight", **again)
    assert turned.shape == (2, 8, 3)
    for expert in range(2):
        one = sj.repack(codes[expert], shape=(3, 64), target="gptq:qweight", **given)
        same(turned[expert], one)
    flat = sj.repack(made, target="lsb", **again)
    assert flat.shape == (2 * 3 * 32,)
    none = sj.repack(np.zeros((0, 64), np.uint8), shape=(0, 64), target="gptq:qweight", **given)
    assert none.shape == (8, 0)


PAIRS = [
    ("lsb", "msb"), ("msb", "padded"), ("lsb", "gguf:q4_0"), ("gguf:q4_0", "msb"),
    ("awq:gemm", "gptq:qweight"), ("gptq:qweight", "awq:gemm"), ("gptq:qweight", "msb"),
    ("gptq:qweight", "gguf:q4_0"), ("gguf:mxfp4", "gptq:qweight"), ("awq:gemm", "gguf:q4_0"),
    ("awq:gemm", "onnx:matmulnbits"), ("compressed-tensors", "awq:gemm"),
    ("gguf:q4_0", "awq:gemm"),
]  # fmt: skip


@pytest.mark.parametrize("loop", ["shuffles", "shuffles streamed"])
@pytest.mark.parametrize("kind", ["uint4", "int4"])
def test_pairs_in_registers(loop, kind):
    """The same where blocks are permuted in registers, with a bias and without."""
    shape = 256, 320
    with loops.used(loop):
        for name, to in PAIRS if loop == "shuffles" else PAIRS[::4]:
            same(repacked(name, to, kind, shape), stored(to, kind, shape))


@pytest.mark.parametrize("shape", [(1152, 64), (256, 320)])
def test_runs_of_blocks(shape):
    """Blocks that are adjacent in the target alone write runs of lines, wherever these begin."""
    pairs = [("gguf:q4_0", "awq:gemm"), ("gguf:q4_0", "gptq:qweight"),
             ("gptq:qweight", "bitsandbytes"), ("gptq:qweight", "awq:gemm")]  # fmt: skip
    with loops.used("shuffles streamed"):
        for name, to in pairs:
            wanted = stored(to, "uint4", shape)
            memory = np.zeros(wanted.nbytes + 64, np.uint8)
            for first in (0, 4, 36):
                out = memory[first:][: wanted.nbytes].view(wanted.dtype).reshape(wanted.shape)
                given = {"shape": shape_of(name, shape), "dtype": "uint4"}
                sj.repack(stored(name, "uint4", shape), source=name, target=to, out=out, **given)
                same(out, wanted)
                memory[:] = 0


@pytest.mark.parametrize("kind", ["uint1", "uint2", "int2"])
def test_narrow_codes_in_registers(kind):
    names = [name for name in ("lsb", "msb", "gptq:qweight", "mlx") if holds(name, kind)]
    with loops.used("shuffles"):
        for name in names:
            for to in names:
                same(repacked(name, to, kind, (64, 512)), stored(to, kind, (64, 512)))


def check_guarded(memory):
    """Sources and targets that lie in `memory`, of small and of wide blocks."""
    for name, to in PAIRS:
        for shape in (SHAPE, (128, 256)):
            given, wanted = (stored(form, "int4", shape) for form in (name, to))
            places = []
            for array in (given, wanted):
                place, _ = memory(array.nbytes)
                place[...] = array.view(np.uint8).reshape(-1) if array is given else 0
                places.append(place.view(array.dtype).reshape(array.shape))
            more = settings(name, to) | {"shape": shape_of(name, shape), "dtype": "int4"}
            sj.repack(places[0], source=name, target=to, out=places[1], **more)
            same(places[1], wanted)


def test_nothing_beside_the_memory_is_touched():
    run_alone("""
from test_repacking import check_guarded
for kind in ("serial", "shuffles") if COMPILED else ("shuffles",):
    loops.use(kind)
    for at_end in (True, False):
        check_guarded(Guarded(at_end))
""")


def test_out():
    """Scales and the memory beside stay as they are, padding becomes zero."""
    for to in ("gguf:q4_0", "compressed-tensors", "openvino@2023"):
        kind, shape = "int4", (3, 32) if to.startswith("gguf") else (3, 5)
        wanted = stored(to, kind, shape)
        memory = np.full(wanted.nbytes + 128, 0xA5, np.uint8)
        out = memory[64:-64].view(wanted.dtype).reshape(wanted.shape)
        found = repacked("lsb", to, kind, shape, out=out)
        assert found is out
        assert (memory[:64] == 0xA5).all()
        assert (memory[-64:] == 0xA5).all()
        if to.startswith("gguf"):
            blocks = out.reshape(-1, 18)
            assert (blocks[:, :2] == 0xA5).all()
            blocks[:, :2] = 0
        same(out, wanted)


@pytest.mark.parametrize("kind", [str(kind) for kind in sj.dtypes.all() if kind.bits > 8])
def test_elements_wider_than_units(kind):
    """An element takes several bytes of a stream, in the order of memory."""
    names = [name for name in FORMATS if holds(name, kind)]
    assert {"lsb", "dlpack", "padded"} <= {*names}
    for shape in ((), (7,), (0, 4), (33, 1), (64, 128)):
        size = math.prod(shape) * sj.dtype(kind).bits // 8
        given = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        for source in names:
            how = sj.formats[source].stored(shape, kind)
            assert how.nbytes == size
            buffer = given.view(how.unit).reshape(how.shape)
            for target in names:
                how = sj.formats[target].stored(shape, kind)
                memory = np.full(size + 128, 0xA5, np.uint8)
                out = memory[64:-64].view(how.unit).reshape(how.shape)
                again = {"shape": shape, "dtype": kind, "source": source, "target": target}
                sj.repack(buffer, out=out, **again)
                assert out.tobytes() == given.tobytes() == sj.repack(buffer, **again).tobytes()
                assert {*memory[:64], *memory[-64:]} == {0xA5}


def test_buffers():
    """Any contiguous buffer of bytes, and arrays of the other integers of that width."""
    array = stored("gptq:qweight", "uint4")
    wanted = stored("lsb", "uint4")
    given = {"shape": shape_of("gptq:qweight"), "dtype": "uint4"}
    for buffer in (array, array.view(np.uint32), array.tobytes(), bytearray(array), array.data):
        found = sj.repack(buffer, source="gptq:qweight", target="lsb", **given)
        same(found, wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_dims_exchanged(name):
    """As many bytes do not make another shape the format's: the codes would be wrong ones."""
    kind = next(k for kinds in KINDS.values() for k in kinds if holds(name, k))
    array = stored(name, kind)
    given = {"dtype": kind, "source": name, "target": "padded"} | settings(name)
    if sj.formats[name].flat:
        array = array.reshape(SHAPE[0], -1)
    wanted = sj.repack(array, shape=shape_of(name), **given)
    same(sj.repack(array.reshape(-1), shape=shape_of(name), **given), wanted)
    same(sj.repack(array.reshape(-1, 1), shape=shape_of(name), **given), wanted)
    assert array.shape[0] != array.shape[1]
    turned = array.reshape(array.shape[1], array.shape[0], *array.shape[2:])
    for buffer in (turned, sj.asarray(turned), array[None]):
        words = f"{name} of a tensor {shape_of(name)} is .*not an array of shape {buffer.shape}"
        with pytest.raises(sj.FormatError, match=words.translate({40: "[(]", 41: "[)]"})):
            sj.repack(buffer, shape=shape_of(name), **given)


def test_tensors():
    """Of the format's dtype and shape, or the elements themselves where these are packed."""
    for name in ("gptq:qweight", "padded", "lsb", "gguf:q4_0"):
        array = stored(name, "uint4")
        given = {"shape": shape_of(name), "dtype": "uint4", "source": name, "target": "mlx"}
        same(sj.repack(sj.asarray(array), **given), stored("mlx", "uint4"))
    t = sj.pack(codes_of("uint4").astype(np.uint8), "uint4")
    given = {"shape": SHAPE, "dtype": "uint4", "target": "mlx"}
    for name in ("lsb", "onnx", "torch:x2"):
        same(sj.repack(t, source=name, **given), stored("mlx", "uint4"))
        same(sj.repack(t.reshape(-1), source=name, **given), stored("mlx", "uint4"))
    whole = sj.pack(np.zeros((2, *SHAPE), np.uint8), "uint4")
    whole.buffer[-t.nbytes :] = t.buffer
    same(sj.repack(whole[1], source="lsb", **given), stored("mlx", "uint4"))
    for wrong, words in (
        (t.reshape(SHAPE[::-1]), "not an array of shape"),
        (t.reshape(SHAPE[::-1]).T, "must be contiguous"),
        (t[1:], "3072 bytes here, .* the buffer 3024"),
        (sj.cast(t, "float32"), "an array of uint8, the buffer of float32"),
    ):
        with pytest.raises(sj.FormatError, match=words):
            sj.repack(wrong, source="lsb", **given)


GOOD = {"shape": (64, 8), "dtype": "uint4", "source": "gptq:qweight", "target": "lsb"}
BUFFER = np.zeros((8, 8), np.int32)
BAD = {
    "unknown source": ({"source": "gptq:weight"}, "'gptq:weight'; did you mean 'gptq:qweight'"),
    "first part": ({"source": "AWQ"}, "'AWQ'; did you mean 'awq:gemm'"),
    "unknown target": ({"target": "awq-gemm"}, "'awq-gemm'; did you mean 'awq:gemm'"),
    "no name": ({"target": 4}, "unknown packing format int"),
    "far name": ({"target": "zzzz"}, "unknown packing format 'zzzz'$"),
    "larger": ({"shape": (64, 16)}, r"gptq:qweight has 512 bytes.*\(8, 16\).*the buffer 256"),
    "one dim": ({"shape": (64,)}, "gptq:qweight has 2 dims"),
    "negative": ({"shape": (-64, 8)}, "invalid shape"),
    "too many": ({"shape": (2**62, 2**62)}, "invalid shape"),
    "half a word": ({"shape": (36, 8)}, r"gptq:qweight needs a multiple of 8: \(8, 36\) has 36"),
    "three words": ({"shape": (40, 8), "dtype": "uint3"}, "gptq:qweight needs a multiple of 32"),
    "odd": ({"shape": (64, 4), "target": "awq:gemm", "dtype": "uint8"}, "holds elements of 4"),
    "ragged row": ({"shape": (3, 5), "source": "mlx"}, "mlx needs rows of a multiple of 8"),
    "width": ({"dtype": "uint6"}, "gptq:qweight holds elements of 2, 3, 4, 8 bits, uint6 has 6"),
    "no block_size": ({"target": "onnx:matmulnbits"}, "onnx:matmulnbits needs block_size"),
    "stray block_size": ({"block_size": 32}, "has blocks"),
    "block_size 20": ({"target": "onnx:matmulnbits", "block_size": 20}, "power of two"),
    "block_size 8": ({"target": "onnx:matmulnbits", "block_size": 8}, "power of two"),
    "huge block_size": ({"target": "onnx:matmulnbits", "block_size": 2**40}, "power of two"),
}


@pytest.mark.parametrize("bad", BAD)
def test_refused(bad):
    changed, words = BAD[bad]
    with pytest.raises(sj.FormatError, match=words):
        sj.repack(BUFFER, **GOOD | changed)


@pytest.mark.parametrize(
    "buffer",
    [np.zeros((8, 8), np.float32), np.zeros(32, np.int64), np.zeros(256, np.uint8), bytes(255),
     np.zeros((8, 16), np.int32)[:, ::2], np.zeros((8, 8), object), "text", None],
)  # fmt: skip
def test_buffers_refused(buffer):
    with pytest.raises(sj.FormatError):
        sj.repack(buffer, **GOOD)


def test_values_out_of_range():
    """A target with fewer bits than its elements, and bytes that hold more than a code."""
    out = np.full((22,), 0xA5, np.uint8)
    codes = np.full(32, 32, np.uint8)
    with pytest.raises(sj.FormatError, match="gguf:q5_0 holds codes of 5 bits"):
        sj.repack(codes, shape=(32,), dtype="uint8", source="lsb", target="gguf:q5_0", out=out)
    assert (out == 0xA5).all()
    for kind in ("uint4", "int4"):
        with pytest.raises(sj.FormatError, match=r"padded holds u?int4 here, not 16"):
            sj.repack(codes // 2, shape=(32,), dtype=kind, source="padded", target="lsb")


def test_out_refused():
    shape = (64, 8)
    wrong = [
        np.zeros(256, np.int8), np.zeros(255, np.uint8), np.zeros((4, 64), np.uint8),
        np.zeros(512, np.uint8)[::2], bytearray(256), BUFFER.reshape(-1).view(np.uint8),
    ]  # fmt: skip
    for out in wrong:
        with pytest.raises((sj.ReshapeError, sj.DTypeError)):
            sj.repack(
                BUFFER, shape=shape, dtype="uint4", source=GOOD["source"], target="lsb", out=out
            )
    assert not BUFFER.any()


def test_unknown_names():
    """One sentence for both tables, with a name that is near whatever its case."""
    for table, word, near in (
        (sj.formats, "awq", "awq:gemm"), (sj.formats, "GPTQ", "gptq:qweight"),
        (sj.formats, "Onnx", "onnx"), (sj.formats, "q4_0", "gguf:q4_0"),
        (sj.schemes, "AWQ", "awq"), (sj.schemes, "NF4", "bnb:nf4"), (sj.schemes, "gptqq", "gptq"),
        (sj.schemes, "fp8", "fp8:block"), (sj.schemes, "int4", "int4:compressed-tensors"),
    ):  # fmt: skip
        with pytest.raises(sj.UnknownNameError) as fault:
            table[word]
        kind = "scheme" if table is sj.schemes else "packing format"
        assert str(fault.value) == f"unknown {kind} {word!r}; did you mean {near!r}?"
        assert word not in table
        assert table.get(word) is None
    for unknown in (4, None, ["awq"]):
        with pytest.raises(sj.UnknownNameError, match="unknown scheme"):
            sj.schemes[unknown]


def test_formats_are_read_only():
    with pytest.raises(TypeError):
        sj.formats["mine"] = sj.formats["lsb"]
    with pytest.raises(AttributeError):
        sj.formats["lsb"].unit = "uint16"


def test_views():
    """The codes where they lie, (out, in) last, and formats that have no such view."""
    for name in FORMATS:
        kind = "uint4" if holds(name, "uint4") else "uint8"
        if name in ("gguf:q5_0", "gguf:q5_1", "nvfp4:scale-swizzle") or not holds(name, kind):
            continue
        view = sj.formats[name].view(stored(name, kind), shape_of(name), kind, **settings(name))
        codes = np.asarray(view).astype(np.uint8).reshape(SHAPE)
        bias = -1 if name == "gptq:qzeros@v1" else 0
        np.testing.assert_array_equal(codes, (codes_of(kind) + bias) % (1 << sj.dtype(kind).bits))
    with pytest.raises(sj.FormatError, match="no view"):
        sj.formats["gguf:q5_0"].view(bytes(22), (32,), "uint8")


# shapejit formats


def test_command(capsys):
    assert main(["formats", "--verify"]) == 0
    out, _ = capsys.readouterr()
    assert len(out.splitlines()) == len(sj.formats) + 1
    assert out.count(" yes ") == len(sj.formats)
    assert main(["formats", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(sj.formats)
    assert all(row["source"] and row["check"]["stored"] and "proved" not in row for row in rows)
    assert main(["formats"]) == 0
    assert "n (w e) -> w n [e]" in capsys.readouterr().out


def test_a_wrong_row_is_found(capsys, monkeypatch):
    wrong = replace(sj.formats["torch:x2"], planes=sj.formats["msb"].planes)
    known = {**sj.formats, "torch:x2": wrong}
    monkeypatch.setattr(repacking, "formats", known)
    assert main(["formats", "--verify"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if " NO " in line] == ["torch:x2"]


@pytest.mark.parametrize("target", ["int4:compressed-tensors", "gptq"])
@pytest.mark.parametrize("source", ["int8:compressed-tensors", "gguf:q8_0"])
@pytest.mark.parametrize("shape", [(64, 256), (256, 512)])
def test_codes_of_eight_bits_get_the_bias_of_their_target(source, target, shape):
    """Codes with a sign become codes with an offset, in blocks of any size."""
    weight = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    source, target = sj.schemes[source], sj.schemes[target]
    parts = source.encode(weight)
    made = target.decode(source.convert(parts, target.name), dtype="float32").numpy()
    assert np.array_equal(made, source.decode(parts, dtype="float32").numpy())
