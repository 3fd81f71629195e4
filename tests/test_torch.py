"""torch tensors as arguments and results (the extra `torch`)."""

import re
from itertools import product
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from test_foreign import CALLS, check_call

import shapejit as sj

torch = pytest.importorskip("torch")

README = Path(__file__).parent.parent / "README.md"
NAMES = [d.name for d in sj.dtypes.all() if d.bits >= 8 and d.dlpack and hasattr(torch, d.name)]
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


def to_torch(x):
    """An ndarray, ml_dtypes' too, as a torch tensor over the same memory."""
    x = np.asarray(x)
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


@pytest.mark.parametrize("name", CALLS)
def test_torch_in_torch_out(name):
    check_call(CALLS[name], to_torch, torch.Tensor, lambda x: x)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_comes_back(name):
    x = torch.from_dlpack(tensor(name, (4, 6)))
    assert sj.dtype(x.dtype).name == sj.dtype(str(x.dtype)).name == name
    made = sj.reshape(x.T, (-1,))
    assert made.dtype is x.dtype
    assert bytes_of(made) == bytes_of(x.T)
    out = torch.empty_like(made)
    assert sj.reshape(x.T, (-1,), out=out) is out
    assert bytes_of(out) == bytes_of(made)


def test_a_view_is_a_view_of_the_tensor_that_came_in():
    x = torch.arange(48.0)[::2].reshape(2, 3, 4)
    view = sj.permute_dims(sj.reshape(x, (6, 4)), (1, 0))
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert (view.stride(), view.storage_offset()) == ((2, 8), 0)
    x[0, 0, 1] = -1
    assert view[1, 0] == -1
    whole = x.contiguous()
    assert sj.ascontiguous(whole) is whole
    assert sj.broadcast_to(x, (5, 2, 3, 4)).stride() == (0, 24, 8, 2)
    rows = torch.arange(3)
    assert sj.broadcast_arrays(x[0, :, :1], rows)[1].data_ptr() == rows.data_ptr()
    # torch has no negative strides: a copy
    assert torch.equal(sj.flip(x, axis=1), torch.flip(x, (1,)))


def test_kinds_of_torch_mix():
    frozen = torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)
    assert type(sj.concat([frozen, torch.ones(2, 3)])) is torch.Tensor
    assert sj.reshape(frozen.T, (-1,), out=(out := torch.empty(6))) is out


def test_a_state_dict():
    layers = torch.nn.Linear(3, 4).bfloat16().state_dict()
    made = sj.reshape_batch(layers, (-1,))
    assert list(made) == ["weight", "bias"]
    assert {(type(x), x.dtype) for x in made.values()} == {(torch.Tensor, torch.bfloat16)}
    mixed = {"torch": torch.ones(2, 3).T, "numpy": np.ones((2, 3)), "tensor": tensor("int4", (2,))}
    kinds = [type(x) for x in sj.reshape_batch(mixed, (-1,)).values()]
    assert kinds == [torch.Tensor, np.ndarray, sj.Tensor]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested:UserWarning")
@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: sj.reshape(x, (1, 3)), sj.asarray, sj.pack,
        lambda x: sj.concat([torch.ones(3), x]), lambda x: sj.array_equal(x, x),
        lambda x: sj.reshape_batch({"w": x}, (-1,)),
        lambda x: sj.take(torch.ones(3), x),
        lambda x: sj.save_file({"w": x}, "never-written.safetensors"),
        lambda x: sj.reshape(torch.ones(3), (3,), out=x),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("x", "match"),
    [
        (lambda: torch.ones(3, device="meta"), "the device meta: it has a shape, but no elements$"),
        (lambda: torch.ones(3, requires_grad=True), "detach"),
        (lambda: torch.ones(3, dtype=torch.bfloat16, requires_grad=True), "detach"),
        (lambda: torch.nn.Parameter(torch.ones(3)), "detach"),
        (lambda: torch.ones(3).to_sparse(), "Sparse"),
        (lambda: torch.ones(3).to_mkldnn(), "Mkldnn"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), "conjugate"),
        (lambda: torch._conj(torch.ones(3, dtype=torch.complex32)), "conjugate"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj().imag, "negative"),
        (lambda: torch._neg_view(torch.ones(3, dtype=torch.bfloat16)), "negative"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), "nested"),
    ],
)
def test_what_cannot_be_read_in_place(x, match, call):
    with pytest.raises(sj.FormatError, match=match):
        call(x())


@pytest.mark.parametrize("item", [torch.bfloat16, torch.Size([2]), torch.nn.Linear(2, 3), 3, None])
def test_what_is_no_tensor_among_tensors(item):
    with pytest.raises(sj.DTypeError, match=f"array 1 is of type .*{type(item).__name__}, array 0"):
        sj.concat([torch.ones(2), item])
    with pytest.raises(sj.DTypeError, match=r"out= must be of type torch\.Tensor"):
        sj.concat([torch.ones(2)], out=item or 3)


def test_messages_name_the_library():
    with pytest.raises(sj.DTypeError, match=r"takes a shapejit\.Tensor, not torch\.Tensor"):
        sj.unpack(torch.ones(3))
    parts = sj.schemes["fp8:channel"].encode(torch.ones(2, 4))
    out = torch.empty(2, 4, dtype=torch.bfloat16)
    with pytest.raises(sj.DTypeError, match=r"a shapejit\.Tensor like the source, not torch\.T"):
        sj.schemes["fp8:channel"].decode(parts, out=out)


def test_dtypes_that_differ_are_promoted():
    kinds = torch.float32, torch.bfloat16, torch.float16, torch.float64
    for a, b in product(kinds, repeat=2):
        x, y = torch.ones(2, dtype=a), torch.full((2,), 0.5, dtype=b)
        made = sj.concat([x, y])
        assert made.dtype is torch.promote_types(a, b)
        assert torch.equal(made, torch.cat([x, y]))
        assert torch.equal(sj.stack([x, y]), made.reshape(2, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 3), (3, 1), (2, 1, 3), (0,), (1, 0), (0, 3)])
def test_flipped_dims_of_size_1(shape, dtype):
    """Their strides mean nothing: what torch has as a view stays one."""
    x = torch.arange(prod(shape)).reshape(shape).to(dtype)
    for axis in (None, *range(len(shape))):
        made = sj.flip(x, axis=axis)
        axes = range(len(shape)) if axis is None else (axis,)
        assert torch.equal(made, torch.flip(x, tuple(axes)))
        moved = any(shape[axis] > 1 for axis in axes)
        assert not x.numel() or (made.data_ptr() == x.data_ptr()) != moved
        assert torch.equal(sj.reshape(made, (-1,)), torch.flip(x, tuple(axes)).reshape(-1))
    assert sj.onnx.slice(torch.arange(4.0), [3], [2], [0], [-1]).tolist() == [3.0]
    t = sj.flip(sj.asarray(x))
    assert torch.equal(torch.from_dlpack(sj.ascontiguous(t)), torch.flip(x, tuple(range(x.ndim))))


def test_indices_of_torch_for_other_arrays():
    indices = torch.tensor([1, -1], dtype=torch.int32)
    for x in (np.arange(3), sj.asarray(np.arange(3)), torch.arange(3)):
        assert sj.take(x, indices).tolist() == [1, 2]


def test_dtypes_that_torch_lacks():
    with pytest.raises(sj.DTypeError, match=r"torch has no int4: pass shapejit\.asarray"):
        sj.cast(torch.ones(2, 4), "int4")
    pairs = sj.cast(torch.ones(2, 4), torch.float4_e2m1fn_x2)
    assert (pairs.dtype, tuple(pairs.shape)) == (torch.float4_e2m1fn_x2, (2, 2))
    assert sj.cast(pairs, "float32").tolist() == [[1.0] * 4] * 2
    assert sj.reshape(pairs, (8,)).data_ptr() == pairs.data_ptr()
    with pytest.raises(sj.DTypeError, match="not even"):
        sj.cast(torch.ones(2, 3), "float4_e2m1fn")


def test_files_take_it(tmp_path):
    path = tmp_path / "x.safetensors"
    weights = {"w": torch.ones(2, 3, dtype=torch.bfloat16).T, "n": torch.arange(3)}
    sj.save_file(weights, path)
    found = sj.load_file(path)
    assert {name: (str(x.dtype), x.shape) for name, x in found.items()} == {
        "w": ("bfloat16", (3, 2)),
        "n": ("int64", (3,)),
    }
    assert torch.equal(torch.from_dlpack(sj.reshape(found["n"], (3,), copy=True)), weights["n"])


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


def test_pairs_of_float4():
    pairs = torch.arange(256, dtype=torch.uint8).view(16, 16).view(torch.float4_e2m1fn_x2)
    t = sj.asarray(pairs)
    assert (t.dtype.name, t.shape, t.contiguous) == ("float4_e2m1fn", (16, 32), True)
    assert t.buffer.ctypes.data == pairs.data_ptr()
    assert t.tobytes() == bytes(range(256))
    assert t.unpack().view(np.uint8)[1, :4].tolist() == [0, 1, 1, 1]  # 0x10, 0x11
    assert sj.asarray(pairs[2:, 4:]).tobytes() == t[2:, 8:].tobytes()
    with pytest.raises(sj.FormatError, match="not contiguous"):
        sj.asarray(pairs.T)
    back = torch.from_dlpack(t.buffer).view(16, 16).view(torch.float4_e2m1fn_x2)
    assert back.data_ptr() == pairs.data_ptr()


def test_programs_make_pairs_of_float4():
    x = torch.arange(-6.0, 6.0)
    codes = x.numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    wanted = (codes[::2] | codes[1::2] << 4).tobytes()
    for shape in ((12,), (None,)):
        program = sj.plan(shape, "float32", lambda t: t.cast("float4_e2m1fn"))
        for made in (program(x), *program.map([x, x])):
            assert (made.dtype, tuple(made.shape)) == (torch.float4_e2m1fn_x2, (6,))
            assert bytes_of(made) == wanted
        pairs = torch.zeros(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        assert program(x, out=pairs) is pairs
        assert bytes_of(pairs) == wanted
        outs = [torch.zeros_like(pairs) for _ in range(2)]
        made = program.map([x, x], out=outs)
        assert all(a is b for a, b in zip(made, outs, strict=True))
        assert [*map(bytes_of, outs)] == [wanted] * 2
    assert bytes_of(sj.plan((12,), "float32", program).map(torch.stack([x, x]))) == 2 * wanted
    assert sj.cast(x, "float4_e2m1fn", out=torch.empty_like(pairs)).dtype == pairs.dtype
    back = torch.empty(12)
    assert sj.cast(pairs, "float32", out=back) is back
    assert back.tolist() == x.numpy().astype(ml_dtypes.float4_e2m1fn).astype("f4").tolist()


def test_the_snippets_of_the_readme_run(tmp_path, monkeypatch):
    """Those that are no doctests: they need torch."""
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    arrays, _, loader, pairs = (run(text) for text in found if ">>>" not in text)
    assert torch.equal(arrays["turned"], arrays["w"].T.contiguous())
    assert torch.equal(arrays["out"], arrays["turned"])
    assert arrays["heads"].data_ptr() == arrays["w"].data_ptr()
    assert arrays["small"].dtype is torch.float8_e4m3fn
    assert tuple(arrays["layers"]["weight"].shape) == (64,)
    saved = sj.load_file("model.safetensors")
    state = torch.load("model.pt", weights_only=True)
    assert {name: t.tobytes() for name, t in saved.items()} == {
        name: bytes_of(t) for name, t in state.items()
    }
    assert (tuple(loader["images"].shape), loader["labels"].tolist()) == (
        (4, 3, 224, 224),
        [0, 1, 2, 3],
    )
    assert pairs["t"].shape == (128, 64)
    again = pairs["again"]
    assert (again.dtype, tuple(again.shape)) == (torch.float4_e2m1fn_x2, (64, 64))
    assert pairs["backwards"].tolist() == [5, 4, 3, 2, 1, 0]


def run(snippet):
    """The names that a snippet leaves."""
    names = {}
    exec(snippet, names)
    return names
