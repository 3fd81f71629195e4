"""torch by DLPack, where it is installed: no test needs it."""

import re
from pathlib import Path

import numpy as np
import pytest

import shapejit as sj

torch = pytest.importorskip("torch")

README = (Path(__file__).parent.parent / "README.md").read_text()
NAMES = [d.name for d in sj.dtypes.all() if d.bits >= 8 and hasattr(torch, d.name)]
BEYOND_NUMPY = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}


def tensor(dtype, shape):
    nbytes = sj.dtype(dtype).nbytes(int(np.prod(shape)))
    memory = np.random.default_rng(3).integers(0, 2, nbytes, np.uint8)
    return sj.Tensor.frombuffer(memory, dtype, shape)


def bytes_of(x):
    return x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_what_torch_lacks_in_numpy_is_among_the_dtypes():
    assert set(NAMES) >= BEYOND_NUMPY


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", NAMES)
def test_torch_takes_it(name):
    t = tensor(name, (4, 6))
    x = torch.from_dlpack(t[1:, 2:].T)
    assert (x.dtype, tuple(x.shape), x.stride()) == (getattr(torch, name), (4, 3), (1, 6))
    assert bytes_of(x) == t[1:, 2:].T.tobytes()
    t.buffer[...] = 1
    assert bytes_of(x) == bytes([1] * 12 * x.element_size())
    assert torch.from_dlpack(t, copy=True).data_ptr() != t.buffer.ctypes.data


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", NAMES)
def test_torch_gives_it(name):
    x = torch.from_dlpack(tensor(name, (4, 6)).reshape((4, 6), copy=True))
    for view in (x, x[1:, ::2].T, x[:0], x[0, 0]):
        t = sj.asarray(view)
        assert (t.dtype.name, t.shape) == (name, tuple(view.shape))
        assert t.tobytes() == bytes_of(view)
        assert t.buffer.flags.writeable or not view.numel()
        if view.numel():
            assert t.buffer.ctypes.data == view.data_ptr()


def test_memory_outlives_its_owner():
    t = sj.asarray(torch.full((1000,), 3.0, dtype=torch.bfloat16))
    junk = [torch.zeros(1000, dtype=torch.bfloat16) for _ in range(50)]
    assert set(t.tobytes()) == {0x40}
    x = torch.from_dlpack(tensor("bfloat16", (1000,)))
    expected = tensor("bfloat16", (1000,)).tobytes()
    junk += [np.zeros(2000, np.uint8) for _ in range(50)]
    assert bytes_of(x) == expected


@pytest.mark.parametrize("name", ["int4", "uint2", "float4_e2m1fn", "float6_e2m3fn"])
def test_torch_refuses_packed_elements(name):
    with pytest.raises(BufferError):
        torch.from_dlpack(tensor(name, (4, 8)))


def test_asarray_refuses():
    with pytest.raises(RuntimeError, match="requires grad"):
        sj.asarray(torch.zeros(3, dtype=torch.bfloat16, requires_grad=True))
    with pytest.raises(ValueError, match="meta"):
        sj.asarray(torch.zeros(3, device="meta"))


def test_pairs_of_float4():
    pairs = torch.arange(256, dtype=torch.uint8).view(16, 16).view(torch.float4_e2m1fn_x2)
    t = sj.asarray(pairs)
    assert (t.dtype.name, t.shape, t.contiguous) == ("float4_e2m1fn", (16, 32), True)
    assert t.buffer.ctypes.data == pairs.data_ptr()
    assert t.tobytes() == bytes(range(256))
    assert t.unpack().view(np.uint8)[1, :4].tolist() == [0, 1, 1, 1]  # 0x10, 0x11
    assert sj.asarray(pairs[2:, 4:]).tobytes() == t[2:, 8:].tobytes()
    with pytest.raises(sj.FormatError, match="side by side"):
        sj.asarray(pairs.T)
    back = torch.from_dlpack(t.buffer).view(16, 16).view(torch.float4_e2m1fn_x2)
    assert back.data_ptr() == pairs.data_ptr()


def test_the_readme_runs():
    (snippet,) = (s for s in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "torch" in s)
    names = {}
    exec(snippet, names)
    t, turned, again = names["t"], names["turned"], names["again"]
    assert (turned.shape, again.dtype) == (t.shape[::-1], torch.float4_e2m1fn_x2)
    assert np.array_equal(sj.asarray(again).unpack().view(np.uint8), t.unpack().view(np.uint8).T)
