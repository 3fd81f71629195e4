"""Arrays of other libraries, simulated: they exchange memory by DLPack."""

import inspect
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj
from shapejit.arrays import dlpack


class Lender:
    """A library of its own: an array that only DLPack reads."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = np.asarray(array), device

    def __dlpack__(self, **named):
        return sj.asarray(self.array).__dlpack__(**named)

    def __dlpack_device__(self):
        return self.device

    @property
    def dtype(self):
        return self.array.dtype

    def __array_namespace__(self):
        return SimpleNamespace(from_dlpack=taken, asarray=lambda x: refused())


def taken(x):
    t = sj.Tensor(*dlpack.borrow(x))
    if any(stride < 0 for stride in t.strides):
        raise ValueError("no negative strides here")
    return Lender(t.numpy())


def refused():
    raise TypeError("not of ndarrays")


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
B = X.astype(ml_dtypes.bfloat16)
CODES = X.astype(np.int8)
SCALE = np.float32(2)
TURN = sj.plan((2, 3, 4), "float32", lambda t: t.permute_dims((2, 0, 1)).reshape((8, 3)))
ANY = sj.plan((None, 3, 4), "float32", lambda t: t.permute_dims((2, 0, 1)))

IMAGES = np.arange(64, dtype=np.int8).reshape(1, 4, 4, 4)
AXES = np.array([0])

# Every function of arrays, called with `to`, which makes arrays of one library.
CALLS = {
    "reshape": lambda to: sj.reshape(to(X), (6, -1)),
    "reshape by a copy": lambda to: sj.reshape(to(X.T), (6, -1)),
    "reshape of bfloat16": lambda to: sj.reshape(to(B.T), (6, -1)),
    "permute_dims": lambda to: sj.permute_dims(to(B), (2, 0, 1)),
    "by names": lambda to: sj.permute_dims(x=to(B), axes=(2, 0, 1)),
    "flip": lambda to: sj.flip(to(X), axis=1),
    "rot90": lambda to: sj.rot90(to(B), 3, (1, 2)),
    "diagonal": lambda to: sj.diagonal(to(X), 1, -1, 0),
    "take_along_axis": lambda to: sj.take_along_axis(to(X), to(IMAGES[0, :1] % 3), axis=1),
    "broadcast_to": lambda to: sj.broadcast_to(to(X), (5, 2, 3, 4)),
    "expand_dims": lambda to: sj.expand_dims(to(X), axis=1),
    "squeeze": lambda to: sj.squeeze(to(X[:1]), axis=0),
    "matrix_transpose": lambda to: sj.matrix_transpose(to(B)),
    "ascontiguous": lambda to: sj.ascontiguous(to(X.T)),
    "concat": lambda to: sj.concat([to(X), to(X)], axis=1),
    "stack": lambda to: sj.stack((to(B), to(B))),
    "cast": lambda to: sj.cast(to(X), "float8_e4m3fn"),
    "dequantize": lambda to: sj.dequantize(to(CODES), to(SCALE), dtype="bfloat16"),
    "quantize": lambda to: sj.quantize(to(X), to(SCALE), dtype="uint8"),
    "program": lambda to: TURN(to(X)),
    "map": lambda to: TURN.map([to(X), to(X + 1)]),
    "map of a stack": lambda to: TURN.map(to(np.stack([X, X + 1]))),
    "imap": lambda to: list(TURN.imap(iter([to(X), to(X + 1)]))),
    "any length": lambda to: ANY(to(X)),
    "reshape_batch": lambda to: sj.reshape_batch([to(X.T), to(B)], (-1,)),
    "a dict of them": lambda to: list(sj.reshape_batch({"a": to(X.T)}, (-1,)).values()),
    "onnx.reshape": lambda to: sj.onnx.reshape(to(X), to(np.array([0, -1]))),
    "onnx.shape": lambda to: sj.onnx.shape(to(X)),
    "onnx.cast": lambda to: sj.onnx.cast(to(X), to=16),
    "onnx.dequantize_linear": lambda to: sj.onnx.dequantize_linear(to(CODES), to(SCALE)),
    "onnx.quantize_linear": lambda to: sj.onnx.quantize_linear(to(X), to(SCALE)),
    "openvino.reshape": lambda to: sj.openvino.reshape(to(X), [0, -1], special_zero=True),
    "onednn.static_reshape": lambda to: sj.onednn.static_reshape(
        to(B), shape=[6, 4], special_zero=False
    ),
    "onednn.dynamic_reshape": lambda to: sj.onednn.dynamic_reshape(
        to(B), [6, 4], special_zero=False
    ),
    "openvino.transpose": lambda to: sj.openvino.transpose(to(B), [2, 0, 1]),
    "openvino.squeeze": lambda to: sj.openvino.squeeze(to(X[:1]), to(AXES)),
    "openvino.unsqueeze": lambda to: sj.openvino.unsqueeze(to(X), to(AXES)),
    "openvino.broadcast": lambda to: sj.openvino.broadcast(to(X[:1]), to(np.array([2, 3, 4]))),
    "openvino.concat": lambda to: sj.openvino.concat([to(X), to(X)], 1),
    "openvino.split": lambda to: sj.openvino.split(to(X), 0, 2),
    "broadcast_arrays": lambda to: sj.broadcast_arrays(to(X), to(X[:1])),
    "moveaxis": lambda to: sj.moveaxis(to(X), 0, 2),
    "repeat": lambda to: sj.repeat(to(X), 2, axis=1),
    "roll": lambda to: sj.roll(to(X), 1, axis=2),
    "split": lambda to: sj.split(to(X), 2, axis=2),
    "take": lambda to: sj.take(to(X), to(np.array([1, 0])), axis=0),
    "tile": lambda to: sj.tile(to(X), (1, 2, 1)),
    "transpose": lambda to: sj.transpose(to(B)),
    "unstack": lambda to: sj.unstack(to(X)),
    "onnx.cast_like": lambda to: sj.onnx.cast_like(to(X), to(B)),
    "onnx.center_crop_pad": lambda to: sj.onnx.center_crop_pad(to(X), to(np.array([1, 5, 4]))),
    "onnx.concat": lambda to: sj.onnx.concat([to(X), to(X)], axis=1),
    "onnx.depth_to_space": lambda to: sj.onnx.depth_to_space(to(IMAGES), blocksize=2),
    "onnx.expand": lambda to: sj.onnx.expand(to(X[:1]), to(np.array([2, 3, 4]))),
    "onnx.flatten": lambda to: sj.onnx.flatten(to(X)),
    "onnx.gather": lambda to: sj.onnx.gather(to(X), to(np.array([1, 0]))),
    "onnx.identity": lambda to: sj.onnx.identity(to(B)),
    "onnx.pad": lambda to: sj.onnx.pad(to(X), to(np.array([0, 0, 1, 0, 0, 1]))),
    "onnx.size": lambda to: sj.onnx.size(to(X)),
    "onnx.slice": lambda to: sj.onnx.slice(to(X), to(AXES), to(AXES + 1)),
    "onnx.space_to_depth": lambda to: sj.onnx.space_to_depth(to(IMAGES), blocksize=2),
    "onnx.split": lambda to: sj.onnx.split(to(X), num_outputs=2),
    "onnx.squeeze": lambda to: sj.onnx.squeeze(to(X[:1]), to(AXES)),
    "onnx.tile": lambda to: sj.onnx.tile(to(X), to(np.array([1, 2, 1]))),
    "onnx.transpose": lambda to: sj.onnx.transpose(to(B)),
    "onnx.unsqueeze": lambda to: sj.onnx.unsqueeze(to(X), to(AXES)),
    "repack": lambda to: sj.repack(
        to(np.arange(8, dtype=np.uint8)), shape=(16,), dtype="uint4", source="lsb", target="msb"
    ),
}


def check_call(call, to, kind, back):
    """Results of foreign arrays are foreign, and equal those of ndarrays."""
    results, expected = call(to), call(lambda x: x)
    assert type(results) is (type(expected) if isinstance(expected, list | tuple) else kind)
    if results is not expected and not isinstance(results, list | tuple):
        results, expected = [results], [expected]
    for made, wanted in zip(results, expected, strict=True):
        assert type(made) is kind
        assert sj.array_equal(back(made), wanted)


# Functions whose result is not an array of the caller's, or that take none.
OTHERS = {
    *("array_equal", "asarray", "pack", "unpack", "save_file", "load_file", "set_result_cache"),
    *("broadcast_shapes", "dtype", "plan", "resolve", "resolve_batch", "warmup"),
    "kernel_status",
    *("onnx.request", "onnx.shape_of", "onnx.version", "openvino.request", "onednn.request"),
}


def test_every_function_is_among_the_calls():
    for prefix, module in (
        ("", sj), ("onnx.", sj.onnx), ("openvino.", sj.openvino), ("onednn.", sj.onednn),
    ):  # fmt: skip
        names = getattr(module, "__all__", vars(module))
        functions = [n for n in names if inspect.isroutine(getattr(module, n)) and n[0] != "_"]
        own = [n for n in functions if getattr(module, n).__module__.startswith(own_name(module))]
        assert {prefix + name for name in own} - OTHERS <= set(CALLS)


def own_name(module):
    """Where the functions of a namespace are defined; others are only imported there."""
    return "shapejit" if hasattr(module, "__all__") else module.__name__


@pytest.mark.parametrize("name", CALLS)
def test_what_came_in_goes_out(name):
    check_call(CALLS[name], Lender, Lender, lambda x: x.array)


def test_views_are_views():
    x = X.copy()
    for made in (sj.reshape(Lender(x), (6, 4)), sj.permute_dims(Lender(x), (1, 0, 2))):
        assert np.shares_memory(made.array, x)
    assert sj.reshape(a := Lender(x), (6, 4)) is not a
    assert sj.ascontiguous(a) is a


def test_out():
    out = Lender(np.empty(24, np.float32))
    assert sj.reshape(Lender(X.T), (-1,), out=out) is out
    assert np.array_equal(out.array, X.T.reshape(-1))
    slab = Lender(np.empty((2, 8, 3), np.float32))
    assert TURN.map([Lender(X), Lender(X + 1)], out=slab) is slab
    assert np.array_equal(slab.array[1], TURN(X + 1))
    outs = [Lender(np.empty((8, 3), np.float32)) for _ in range(2)]
    assert TURN.map([Lender(X), Lender(X + 1)], out=outs) is outs
    made = TURN.map([Lender(X), Lender(X + 1)], out=lambda i: outs[i])
    assert made[0] is outs[0]
    assert np.array_equal(outs[1].array, TURN(X + 1))
    batch = {"a": Lender(np.empty(24, np.float32))}
    assert sj.reshape_batch({"a": Lender(X.T)}, (-1,), out=batch) is batch
    assert np.array_equal(batch["a"].array, X.T.reshape(-1))


def test_an_out_that_waits_is_not_given_again():
    ring = [Lender(np.empty((8, 3), np.float32)) for _ in range(2)]
    made = TURN.imap((Lender(X + i) for i in range(5)), lambda i: ring[i % 2])
    assert all(sj.array_equal(y.array, TURN(X + i)) for i, y in enumerate(made))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: sj.reshape(Lender(X.T), (-1,), out=np.empty(24, np.float32)), "of type .*Lender"),
        (lambda: sj.reshape(X.T, (-1,), out=Lender(X)), r"a numpy\.ndarray like the source"),
        (lambda: sj.concat([Lender(X), X]), "array 1 is of type numpy.ndarray"),
        (lambda: sj.concat([X, Lender(X)]), "expected a numpy.ndarray, a shapejit"),
    ],
)
def test_kinds_do_not_mix(call, match):
    with pytest.raises(sj.DTypeError, match=match):
        call()


@pytest.mark.parametrize(
    ("device", "name"),
    [((2, 1), "CUDA device 1, DLPack device .2, 1."), ((12, 0), "DLPack device .12, 0.")],
)
def test_other_devices_are_named(device, name):
    for call in (lambda x: sj.reshape(x, (-1,)), sj.asarray, lambda x: TURN.map([x])):
        with pytest.raises(sj.FormatError, match=f"is on {name}, not on the CPU"):
            call(Lender(X, device))
    with pytest.raises(sj.FormatError, match=r"tensor 'w'.*CUDA"):
        sj.reshape_batch({"w": Lender(X, (2, 0))}, (-1,))


def test_a_library_without_from_dlpack_is_named():
    class Mute(Lender):
        __array_namespace__ = property()

    with pytest.raises(sj.DTypeError, match="no from_dlpack is known for Mute"):
        sj.reshape(Mute(X), (-1,))
    assert sj.asarray(Mute(X)).shape == X.shape


def test_jax():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    kind = type(jnp.zeros(1))
    with jax.enable_x64(True):  # int64, for shapes and indices
        for call in CALLS.values():
            check_call(call, lambda x: jnp.asarray(x), kind, np.asarray)
    assert sj.dtype(jnp.bfloat16).name == "bfloat16"
    four = jnp.ones((2, 4), jnp.int4)
    assert sj.reshape(four, (8,)).dtype == jnp.int4
    with pytest.raises(sj.ReshapeError, match="writable"):
        sj.reshape(four, (8,), out=jnp.ones(8, jnp.int4))
    with pytest.raises(sj.DTypeError, match="cannot hold int64"):
        sj.cast(four, "int64")
