"""Folders whose files have other names, and checkpoints of PyTorch."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import shapejit as sj
from shapejit.__main__ import main
from shapejit.files import safetensors

X = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    "names",
    [
        ["diffusion_pytorch_model.safetensors"],
        ["adapter_model.safetensors"],
        ["consolidated.safetensors"],
        ["a-1.safetensors", "a-2.safetensors"],
    ],
)
def test_files_of_other_names(names, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for k, name in enumerate(names):
        sj.save_file({f"x{k}.weight": X + k}, folder / name)
    (folder / "config.json").write_text("{}")
    found = sj.load_file(folder)
    assert {name: t.numpy().tolist() for name, t in found.items()} == {
        f"x{k}.weight": (X + k).tolist() for k in range(len(names))
    }
    sj.files.convert(folder, tmp_path / "to", [("dtype", "f16")])
    wanted = {"config.json", *names} if len(names) == 1 else {"config.json", "model.safetensors"}
    assert set(os.listdir(tmp_path / "to")) == wanted
    assert {t.dtype.name for t in sj.load_file(tmp_path / "to").values()} == {"float16"}


def test_an_index_of_another_name(tmp_path):
    name = "diffusion_pytorch_model"
    sj.save_file({"a": X}, tmp_path / f"{name}-00001-of-00002.safetensors")
    sj.save_file({"b": X + 1}, tmp_path / f"{name}-00002-of-00002.safetensors")
    places = {"a": f"{name}-00001-of-00002.safetensors", "b": f"{name}-00002-of-00002.safetensors"}
    index = tmp_path / f"{name}.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert set(sj.load_file(tmp_path)) == {"a", "b"}
    index.with_name("other.safetensors.index.json").write_text(index.read_text())
    with pytest.raises(sj.FileFormatError, match=r"it holds .* give the path of one of them"):
        sj.load_file(tmp_path)


@pytest.mark.parametrize("count", [1, 2])
def test_shards_without_their_index_are_not_complete(count, tmp_path):
    """Nobody can tell how many tensors, or which config, are still to come."""
    for k in range(count):
        sj.save_file({f"x{k}": X}, tmp_path / f"model-0000{k + 1}-of-00002.safetensors")
    with pytest.raises(sj.FileFormatError, match=r"has the shard 'model-00001-of.*, but no index"):
        sj.load_file(tmp_path)


def test_two_files_with_one_tensor_are_refused(tmp_path):
    for name in ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.fp16.safetensors"):
        sj.save_file({"a": X}, tmp_path / name)
    with pytest.raises(
        sj.FileFormatError, match=r"tensor 'a': it is in .* nothing says which is meant"
    ):
        sj.load_file(tmp_path)


# PyTorch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_state_dicts_are_read_and_become_safetensors(torch, tmp_path):
    given = {"w": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T, "b": torch.ones(2)}
    given["tied"] = given["w"]
    for k, saved in enumerate((given, {"state_dict": given, "epoch": 3}, {"model": given})):
        path = tmp_path / f"{k}.pt"
        torch.save(saved, path)
        found = sj.load_file(path)
        assert set(found) == set(given)
        for name, t in given.items():
            assert (str(found[name].dtype), found[name].shape) == (str(t.dtype)[6:], tuple(t.shape))
            assert torch.equal(torch.from_dlpack(sj.ascontiguous(found[name])), t)
    sj.files.convert(path, tmp_path / "x.safetensors")
    reference = pytest.importorskip("safetensors.torch").load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(reference[name], t) for name, t in given.items())


def test_a_state_dict_is_read_if_it_is_the_only_one(torch, tmp_path):
    """No weights are left out silently: which of several is meant, no reader can know."""
    given, other, path = {"w": torch.ones(2)}, {"w": torch.zeros(3)}, tmp_path / "a.pt"
    for saved in (
        {"state_dict": given, "global_step": torch.tensor(5)},
        {"rng": torch.get_rng_state(), "model": given, "optimizer": {"state": {0: other}}},
        {"params": given, "epoch": 1},
    ):
        torch.save(saved, path)
        assert {name: t.shape for name, t in sj.load_file(path).items()} == {"w": (2,)}
    for saved, names in (
        ({"model": given, "ema": other}, "'model', 'ema'"),
        ({"generator": given, "discriminator": other}, "'generator', 'discriminator'"),
        ({**given, "extra": other}, "the outermost, 'extra'"),
    ):
        torch.save(saved, path)
        with pytest.raises(sj.FileFormatError, match=rf"a\.pt: .*several .*\({names}\): save one"):
            sj.load_file(path)
    torch.save({}, path)
    assert not sj.load_file(path)


def test_what_is_no_tensor_is_left_out_with_a_warning(torch, tmp_path, capsys):
    path, made = tmp_path / "a.pt", tmp_path / "a.safetensors"
    torch.save({"w": torch.ones(2), "": torch.zeros(3), "step": 5, "lr": 0.1}, path)
    assert {name: t.shape for name, t in sj.load_file(path).items()} == {"w": (2,), "": (3,)}
    (warning,) = sj.files.convert(path, made).warnings
    assert warning.endswith("a.pt': no tensors, not read: 'step' (int), 'lr' (float)")
    assert set(sj.load_file(made)) == {"w", ""}
    assert main(["inspect", str(path)]) == 0
    assert f"warning: {warning}\n" in capsys.readouterr().out
    folder = tmp_path / "in"
    folder.mkdir()
    torch.save({"w": torch.ones(2), "_extra_state": None}, folder / "pytorch_model.bin")
    (warning,) = sj.files.convert(folder, tmp_path / "out").warnings
    assert warning.endswith("'_extra_state' (NoneType)")


def test_a_folder_of_pytorch_becomes_one_of_safetensors(torch, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    places = {}
    for k in range(2):
        name = f"pytorch_model-{k + 1:05d}-of-00002.bin"
        torch.save({f"x{k}.weight": torch.full((4, 4), float(k))}, folder / name)
        places[f"x{k}.weight"] = name
    torch.save({"lr": 0.1}, folder / "training_args.bin")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "config.json").write_text("{}")
    sj.files.convert(folder, tmp_path / "to", [("dtype", "bf16")])
    found = sj.load_file(tmp_path / "to")
    assert {name: float(t.numpy()[0, 0]) for name, t in found.items()} == {
        "x0.weight": 0, "x1.weight": 1,
    }  # fmt: skip
    left = set(os.listdir(tmp_path / "to"))
    assert left == {"config.json", "training_args.bin", "model.safetensors"}


@pytest.mark.parametrize("count", [1000, 10_000])  # torch says EINVAL of the larger file
def test_files_of_torch_that_are_cut(torch, count, tmp_path):
    torch.save({"w": torch.ones(count)}, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    for size, reason in ((0, "it is empty"), (len(whole) // 2, "[^.]*it is not a complete ZIP")):
        (tmp_path / "a.pt").write_bytes(whole[:size])
        with pytest.raises(sj.FileFormatError, match=rf"a\.pt: {reason}$"):
            sj.load_file(tmp_path / "a.pt")


def test_safetensors_made_of_a_file_of_torch_say_so(torch, tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "a.pt")
    sj.files.convert(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert safetensors.read(tmp_path / "b.safetensors").metadata == {"format": "pt"}
    sj.files.convert(tmp_path / "a.pt", tmp_path / "b.npz")


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("hostile-was-here",)


def test_a_checkpoint_of_torch_named_safetensors_says_so(torch, tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "a.pt")
    os.rename(tmp_path / "a.pt", tmp_path / "a.safetensors")
    with pytest.raises(sj.FileFormatError, match=r"a\.safetensors.* rename it to \.pt"):
        sj.load_file(tmp_path / "a.safetensors")


def test_code_of_pickles_is_not_run(torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.ones(2), "x": Hostile()}, tmp_path / "a.bin")
    with pytest.raises(sj.FileFormatError, match=r"a\.bin: torch does not load it"):
        sj.load_file(tmp_path / "a.bin")
    (tmp_path / "old.pt").write_bytes(pickle.dumps(Hostile(), 2))
    with pytest.raises(sj.FileFormatError, match="a pickle"):
        sj.load_file(tmp_path / "old.pt")
    assert not (tmp_path / "hostile-was-here").exists()
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(sj.FileFormatError, match="no mapping of names to tensors"):
        sj.load_file(tmp_path / "list.pt")


@pytest.mark.parametrize("version", [None, "2.5.1+cpu"])
def test_without_a_safe_torch_it_is_refused_by_name(torch, version, tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "a.bin")
    fake = "None" if version is None else f"type('torch', (), {{'__version__': {version!r}}})"
    code = (
        f"import sys; sys.modules['torch'] = {fake}\n"
        f"import shapejit as sj\n"
        f"try: sj.load_file({str(tmp_path / 'a.bin')!r})\n"
        f"except sj.FileFormatError as fault: print(fault)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert "it is a pickle of PyTorch, which torch 2.6 and later read" in done.stdout, done.stderr
