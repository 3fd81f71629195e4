"""ndarrays whose subclass lies about their memory, and objects that pretend to be ndarrays."""

import numpy as np
import pytest

import shapejit as sj
from shapejit.adapters.onnx_tensors import to_tensorproto

LIES = {
    "shape": (10**9,),
    "strides": (2**40,),
    "size": 10**9,
    "ndim": 1,
    "nbytes": 10**9,
    "itemsize": 1,
    "dtype": np.dtype(np.uint8),
    "flags": np.zeros(1).flags,
    "base": None,
    "data": memoryview(b""),
    "ctypes": None,
    "T": None,
    "__class__": sj.Tensor,
    "__array_interface__": {"data": (8, False), "shape": (9,), "typestr": "|u1", "version": 3},
}


def raises(self, *args, **kwargs):
    raise AssertionError("a subclass's code ran")


LIAR = type(
    "Liar",
    (np.ndarray,),
    {
        **{name: property(lambda self, lie=lie: lie) for name, lie in LIES.items()},
        **dict.fromkeys(("view", "reshape", "tolist", "copy", "astype", "__getitem__"), raises),
        **dict.fromkeys(("__array__", "__len__", "__iter__", "transpose", "tobytes"), raises),
    },
)

TRUE = np.arange(24, dtype=np.float32).reshape(4, 6)


def lying(x):
    liar = np.ndarray.view(x, LIAR)
    assert liar.shape == LIES["shape"]
    return liar


@pytest.mark.parametrize(
    "f",
    [
        lambda x: sj.asarray(x).tobytes(),
        lambda x: sj.asarray(x).shape,
        lambda x: sj.reshape(x, (3, 8)),
        lambda x: sj.reshape(x, (3, 8), copy=True),
        lambda x: sj.ascontiguous(x),
        lambda x: sj.permute_dims(x, (1, 0)),
        lambda x: sj.flip(x),
        lambda x: sj.squeeze(sj.expand_dims(x, 0), 0),
        lambda x: sj.matrix_transpose(x),
        lambda x: sj.broadcast_to(x, (2, 4, 6)),
        lambda x: sj.concat([x, x], axis=1),
        lambda x: sj.stack([x, x]),
        lambda x: sj.onnx.reshape(x, [0, -1, 2]),
        lambda x: sj.onnx.shape(x),
        lambda x: sj.openvino.reshape(x, [0, -1, 2], special_zero=True),
        lambda x: sj.onednn.static_reshape(x, shape=[0, -1, 2], special_zero=True),
        lambda x: sj.plan((4, 6), "float32", lambda t: t.T.reshape((24,)))(x),
        lambda x: sj.array_equal(x, TRUE),
        lambda x: sj.array_equal(TRUE, x),
        lambda x: sj.Tensor.frombuffer(x, "float16", (48,)).tobytes(),
        lambda x: to_tensorproto(x, "x").SerializeToString(),
        lambda x: list(to_tensorproto(x, "x").dims),
        lambda x: sj.reshape_batch([x, x], (3, 8))[1],
        lambda x: sj.plan((4, 6), "float32", lambda t: t.T.reshape((24,))).map([x, x])[1],
        lambda x: sj.plan((6,), "float32", lambda t: t[::-1]).map(x),
    ],
)
def test_memory_is_read_from_numpys_own_structure(f):
    assert np.array_equal(f(lying(TRUE)), f(TRUE))


@pytest.mark.parametrize(
    "fill",
    [
        lambda out: sj.reshape(TRUE, (3, 8), out=out),
        lambda out: sj.ascontiguous(TRUE.reshape(8, 3).T, out=out),
        lambda out: sj.concat([TRUE.reshape(1, 4, 6).reshape(3, 8)], out=out),
        lambda out: sj.reshape_batch([TRUE], (3, 8), out=[out])[0],
        lambda out: sj.plan((4, 6), "float32", lambda t: t.reshape((3, 8)))(TRUE, out),
        lambda out: sj.plan((8,), "float32", lambda t: t).map(TRUE.reshape(3, 8), out),
        lambda out: sj.asarray(TRUE.reshape(3, 8)).unpack(out),
    ],
)
def test_memory_is_written_to_numpys_own_structure(fill):
    honest, out = np.zeros((3, 8), np.float32), lying(memory := np.zeros((3, 8), np.float32))
    assert fill(honest) is honest
    assert fill(out) is out
    assert np.array_equal(memory, honest)
    assert memory.any()


def test_a_lying_view():
    view = TRUE[:, ::-2].T
    assert sj.asarray(lying(view)).tobytes() == view.tobytes()
    assert np.array_equal(sj.ascontiguous(lying(view)), view)


def test_a_lying_shape_tensor():
    tokens = lying(np.array([3, -1]))
    assert sj.reshape(TRUE, tokens).shape == (3, 8)
    assert sj.onnx.reshape(TRUE, tokens).shape == (3, 8)
    assert sj.resolve((4, 6), sj.openvino.request(tokens, special_zero=True)) == (3, 8)


class Pretender:
    __class__ = property(lambda self: self.claims)
    claims = np.ndarray
    shape, strides, dtype, size, ndim, itemsize = (3,), (4,), np.dtype("f4"), 3, 1, 4
    flags = np.zeros(1).flags
    base = None


@pytest.mark.parametrize(
    "f",
    [
        sj.asarray,
        sj.ascontiguous,
        sj.flip,
        sj.onnx.shape,
        lambda x: sj.reshape(x, (3,)),
        lambda x: sj.reshape(TRUE, x),
        lambda x: sj.onnx.reshape(x, (3,)),
        lambda x: sj.array_equal(x, x),
        lambda x: sj.Tensor.frombuffer(x, "int8", (3,)),
        lambda x: sj.plan((3,), "float32", lambda t: t)(x),
        lambda x: sj.plan((3,), "float32", lambda t: t)(TRUE[0, :3], x),
        lambda x: sj.plan((3,), "float32", lambda t: t).map([x]),
        lambda x: sj.plan((3,), "float32", lambda t: x),
        lambda x: sj.reshape_batch([x], -1),
        lambda x: sj.reshape_batch([TRUE], x),
        lambda x: sj.concat([x, x]),
        lambda x: sj.reshape(TRUE, -1, out=x),
        lambda x: sj.resolve((3,), x),
        lambda x: sj.Tensor(np.zeros(3, np.uint8), "int8", x),
        lambda x: sj.asarray(TRUE)[x],
        to_tensorproto,
    ],
)
@pytest.mark.parametrize("claims", [np.ndarray, sj.Tensor, np.dtype, sj.DType, list, dict, tuple])
def test_what_only_says_of_what_class_it_is(f, claims):
    x = Pretender()
    x.claims = claims
    assert isinstance(x, claims)
    with pytest.raises((sj.ShapeJitError, TypeError), match=r"Pretender|fixed width"):
        f(x)


class LyingList(list):
    def __len__(self):
        return 40


class LyingDict(dict):
    def values(self):
        return [TRUE.T] * 40

    def __len__(self):
        return 40


def test_lengths_are_counted():
    few, request = LyingList([(24,)] * 3), sj.onnx.request([-1])
    for call in (
        lambda: sj.reshape_batch([TRUE.T] * 40, few),
        lambda: sj.reshape_batch([TRUE.T] * 40, -1, out=LyingList([np.zeros(24, np.float32)])),
        lambda: sj.reshape_batch([TRUE.T] * 40, -1, out=range(10**30)),
    ):
        with pytest.raises(sj.ReshapeError, match="entries for 40 tensors"):
            call()
    assert sj.resolve_batch(few, request).tolist() == [[24]] * 3
    out = {"a": np.zeros(24, np.float32)}
    assert len(sj.reshape_batch(LyingDict(a=TRUE.T), -1, out=out)) == 1
    assert len(sj.reshape_batch(LyingList([TRUE.T] * 3), -1)) == 3
