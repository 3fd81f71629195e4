"""GGUF models in shards, as gguf's own writer splits them."""

import os

import numpy as np
import pytest

import shapejit as sj

gguf = pytest.importorskip("gguf")


@pytest.fixture
def shards(tmp_path):
    """Five tensors in shards of two, one of them quantised."""
    rng = np.random.default_rng(0)
    given = {f"blk.{k}.w.weight": rng.standard_normal((4, 64)).astype(np.float32) for k in range(5)}
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    writer.add_block_count(5)
    for name, x in given.items():
        if name.startswith("blk.3"):
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(tmp_path.glob("m-*.gguf")), given


def test_any_shard_stands_for_all(shards):
    paths, given = shards
    assert len(paths) == 3
    for path in paths:
        found = sj.load_file(path)
        assert set(found) == set(given)
        for name, x in given.items():
            if not name.startswith("blk.3"):
                assert found[name].tobytes() == x.tobytes()


def test_shards_become_one_file(shards, tmp_path):
    paths, given = shards
    path = tmp_path / "whole.gguf"
    assert sj.files.convert(paths[0], path).warnings == ()
    whole = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in whole.tensors}
    assert tensors.keys() == given.keys()
    assert tensors["blk.3.w.weight"].tensor_type.name == "Q8_0"
    assert not [key for key in whole.fields if key.startswith("split.")]
    assert whole.fields["llama.block_count"].contents() == 5
    assert not list(sj.files.differences(sj.load_file(path), sj.load_file(paths[0])))
    sj.files.convert(paths[0], path, [("to", "f32")])
    assert sj.load_file(path)["blk.3.w.weight"].shape == (4, 64)


def test_what_is_refused(shards):
    paths, _ = shards
    os.rename(paths[1], paths[1].with_name("away.gguf"))
    with pytest.raises(sj.FileFormatError, match=r"'m-00002-of-00003\.gguf' does not exist"):
        sj.load_file(paths[0])
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(sj.FileFormatError, match="it says that it is shard 2 of 3"):
        sj.load_file(paths[0])


def test_a_tensor_in_two_shards_is_refused(shards):
    paths, given = shards
    names = [next(name for name in given if name in paths[k].read_bytes().decode("latin1"))
             for k in (0, 1)]  # fmt: skip
    paths[1].write_bytes(paths[1].read_bytes().replace(names[1].encode(), names[0].encode()))
    text = rf"tensor '{names[0]}': it is in '.*00001-of-00003\.gguf', too, and nothing says which"
    with pytest.raises(sj.FileFormatError, match=text):
        sj.load_file(paths[0])
