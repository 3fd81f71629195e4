"""An out= that shares memory with any operand is refused, whatever the call."""

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj

AT = 2048  # where an output begins
RNG = np.random.default_rng(0)


def numbers(count, kind="float32"):
    return RNG.integers(1, 8, count).astype(sj.dtype(kind).numpy)


# A call of its operands and `out`, and the operands.
CALLS = {
    "reshape": (lambda x, out: sj.reshape(x, (2, 4), out=out), [numbers((4, 2))]),
    "ascontiguous": (lambda x, out: sj.ascontiguous(x, out=out), [numbers(8)]),
    "roll": (lambda x, out: sj.roll(x, 3, out=out), [numbers(8)]),
    "tile": (lambda x, out: sj.tile(x, 2, out=out), [numbers(8)]),
    "repeat": (lambda x, out: sj.repeat(x, [2, 1, 3], out=out), [numbers(3)]),
    "cast": (lambda x, out: sj.cast(x, "bfloat16", out=out), [numbers(8)]),
    "dequantize": (
        lambda x, s, z, out: sj.dequantize(x, s, zero_point=z, out=out),
        [numbers(7, "int8"), numbers(7), numbers(7, "int8")],
    ),
    "dequantize by bfloat16": (
        lambda x, s, z, out: sj.dequantize(x, s, zero_point=z, out=out),
        [numbers((4, 6), "uint8"), numbers((4, 1), "bfloat16"), numbers((4, 1), "float16")],
    ),
    "dequantize by one scale": (
        lambda x, s, z, out: sj.dequantize(x, s, zero_point=z, out=out),
        [numbers(7, "int8"), numbers(()), numbers((), "int8")],
    ),
    "quantize": (
        lambda x, s, z, out: sj.quantize(x, s, dtype="int8", zero_point=z, out=out),
        [numbers(7), numbers(7, "float64"), numbers(7, "int8")],
    ),
    "take": (
        lambda x, i, out: sj.take(x, i, out=out),
        [np.arange(100), numbers(8, "int64")],
    ),
    "take by int32": (
        lambda x, i, out: sj.take(x, i, axis=1, out=out),
        [numbers((3, 50)), numbers((2, 2), "int32")],
    ),
    "onnx.gather": (
        lambda x, i, out: sj.onnx.gather(x, i, out=out),
        [numbers((9, 3)), numbers(8, "int64")],
    ),
    "onnx.pad": (lambda x, c, out: sj.onnx.pad(x, [1, 2], c, out=out), [numbers(3), numbers(1)]),
    "onnx.transpose": (lambda x, out: sj.onnx.transpose(x, out=out), [numbers((2, 3))]),
    "openvino.concat": (
        lambda x, y, out: sj.openvino.concat([x, y], 0, out=out),
        [numbers((2, 3)), numbers((1, 3))],
    ),
    "concat": (lambda x, y, z, out: sj.concat([x, y, z], out=out), [numbers(4) for _ in range(3)]),
    "concat of dtypes": (
        lambda x, y, out: sj.concat([x, y], out=out),
        [numbers(3), numbers(5, "float64")],
    ),
    "stack": (lambda x, y, out: sj.stack([x, y], 1, out=out), [numbers((2, 3)), numbers((2, 3))]),
    "a program": (sj.plan((8,), "float32", lambda t: t.flip().cast("int8")), [numbers(8)]),
    "a program's map": (
        lambda x, y, out: sj.plan((3,), "float32", lambda t: t.flip()).map([x, y], out),
        [numbers(3), numbers(3)],
    ),
}  # fmt: skip


def to_torch(x):
    torch = pytest.importorskip("torch")
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


KINDS = {"ndarrays": np.asarray, "Tensors": sj.asarray, "torch tensors": to_torch}


def laid(memory, at, x):
    """The elements of an array in the memory from byte `at` on."""
    made = np.ndarray(x.shape, x.dtype, memory, at)
    made[...] = x
    return made


def raw(x):
    """The bytes of a result."""
    return (x if isinstance(x, np.ndarray) else sj.asarray(x)).tobytes()


def places(nbytes, other, memory):
    """Where an operand of so many bytes shares some with an output of `other` bytes."""
    assert AT + other + nbytes <= len(memory)
    return {AT + (other - 1) // 8 * 8, AT - (nbytes - 1) // 8 * 8, AT}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_every_operand_lies_apart_from_out(name, kind):
    call, operands = CALLS[name]
    own = KINDS[kind]
    made = call(*map(sj.asarray, operands), None)
    if isinstance(made, list):
        made = sj.stack(made)
    wanted, result = made.tobytes(), made.numpy()
    for k, x in enumerate(operands):
        memory = np.zeros(3 * AT, np.uint8)
        out = laid(memory, AT, np.zeros_like(result))
        for at in (AT - x.nbytes, AT + -(-out.nbytes // 8) * 8):
            given = [*operands[:k], laid(memory, at // 8 * 8, x), *operands[k + 1 :]]
            assert raw(call(*map(own, given), own(out))) == wanted
        for at in places(x.nbytes, out.nbytes, memory):
            given = [*operands[:k], laid(memory, at, x), *operands[k + 1 :]]
            before = memory.tobytes()
            with pytest.raises(sj.ReshapeError, match="overlap"):
                call(*map(own, given), own(out))
            assert memory.tobytes() == before


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("fp8:block", {}),
        ("awq", {"symmetric": False}),
        ("gptq", {"symmetric": False}),
        ("mlx", {}),
        ("nvfp4:modelopt", {}),
        ("int4:compressed-tensors", {}),
    ],
)
def test_every_part_of_a_weight_lies_apart_from_out(scheme, settings):
    row = sj.schemes[scheme]
    x = RNG.standard_normal((128, 128)).astype(np.float32)
    parts = row.encode(x, **settings)
    wanted = row.decode(parts, dtype="float32")
    for name, part in parts.items():
        memory = np.zeros(wanted.nbytes + part.nbytes, np.uint8)
        for at, refused in ((0, True), (wanted.nbytes, False)):
            over = sj.Tensor.frombuffer(memory[at : at + part.nbytes], part.dtype, part.shape)
            part.ascontiguous(out=over)
            out = sj.Tensor.frombuffer(memory[: wanted.nbytes], "float32", wanted.shape)
            given = {**parts, name: over}
            if refused:
                with pytest.raises(sj.ReshapeError, match="overlaps"):
                    row.decode(given, dtype="float32", out=out)
                assert over.tobytes() == part.tobytes()
            else:
                assert row.decode(given, dtype="float32", out=out).tobytes() == wanted.tobytes()


def test_packed_and_repacked_codes_lie_apart_from_out():
    memory = np.zeros(64, np.uint8)
    facts = {"shape": (32,), "dtype": "uint4", "source": "lsb", "target": "msb"}
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        sj.repack(memory[:16], **facts, out=memory[15:31])
    packed = sj.Tensor.frombuffer(memory[15:23], "uint4", (16,))
    for codes in (memory[:16], memory[:32].view(np.int16)):  # wide integers are copied first
        with pytest.raises(sj.ReshapeError, match="overlaps"):
            sj.pack(codes, "uint4", out=packed)
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        packed.unpack(memory[:16].view(ml_dtypes.uint4))
    assert not memory.any()
