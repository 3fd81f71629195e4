"""load_file of bytes, save_file to file objects and to bytes: the same bytes as files have."""

import io
import mmap

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj

FORMATS = ("safetensors", "npz", "npy", "gguf", "onnx")


def tensors(file_format):
    """Tensors that the format holds, and the other arguments that it needs."""
    given = {"arr_0": np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::-1]}
    if file_format in ("safetensors", "npz"):
        given["bf16"] = np.ones(3, ml_dtypes.bfloat16)
    if file_format == "gguf":
        pytest.importorskip("gguf")
        return given, {"metadata": {"general.architecture": "none"}}
    return given, {}


def model(path):
    """An ONNX model with one tensor."""
    onnx = pytest.importorskip("onnx")
    text = "g (float[4, 6] x) => (float[4, 6] y) <float[4, 6] arr_0> { y = Add(x, arr_0) }"
    graph = onnx.parser.parse_graph(text.replace("<float[4, 6] arr_0>", ""))
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((4, 6), np.float32), "arr_0"))
    onnx.save_model(onnx.helper.make_model(graph), path)


@pytest.mark.parametrize("file_format", FORMATS)
def test_bytes_are_those_of_the_file_and_are_read_as_it_is(file_format, tmp_path):
    given, more = tensors(file_format)
    if file_format == "onnx":
        model(tmp_path / "graph.onnx")
        more["source"] = tmp_path / "graph.onnx"
    path = tmp_path / f"w.{file_format}"
    sj.save_file(given, path, **more)
    made = sj.save_file(given, file_format=file_format, **more)
    assert isinstance(made, bytes)
    if file_format != "npz":  # whose sizes stand behind the data where nobody can go back
        assert made == path.read_bytes()
    stated = {"file_format": "onnx"} if file_format == "onnx" else {}
    for data in (made, bytearray(made), memoryview(made), np.frombuffer(made, np.uint8)):
        found = sj.load_file(data, **stated)
        assert list(found) == list(given)
        for name, x in given.items():
            assert found[name].tobytes() == x.tobytes()
            assert not found[name].buffer.flags.writeable


def test_tensors_are_views_of_the_bytes():
    data = bytearray(sj.save_file({"w": np.zeros(8, np.uint8)}))
    w = sj.load_file(data)["w"]
    data[-1] = 7
    assert w.tobytes() == bytes(7) + b"\7"


def test_a_map_of_a_file_and_a_safetensors_that_torch_made(tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    x = np.arange(6, dtype=np.int16)
    assert sj.load_file(reference.save({"x": x}))["x"].tobytes() == x.tobytes()
    (tmp_path / "w").write_bytes(sj.save_file({"x": x}))
    with open(tmp_path / "w", "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert sj.load_file(data)["x"].numpy().tolist() == x.tolist()
    assert reference.load(sj.save_file({"x": x}))["x"].tolist() == x.tolist()


def test_bytes_read_no_files_of_the_current_folder(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    model(tmp_path / "m.onnx")
    loaded = onnx.load(tmp_path / "m.onnx")
    onnx.save(loaded, tmp_path / "m.onnx", save_as_external_data=True, location="secret.bin",
              size_threshold=0)  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert sj.load_file("m.onnx")["arr_0"].tobytes() == bytes(96)
    with pytest.raises(sj.FileFormatError, match="another file, which bytes in memory cannot name"):
        sj.load_file((tmp_path / "m.onnx").read_bytes(), file_format="onnx")


class Slow:
    """A file object that takes a few bytes at a time, or says nothing of how many it takes."""

    def __init__(self, most):
        self.most, self.data = most, b""

    def write(self, data):
        taken = bytes(data[: self.most])
        self.data += taken
        return None if self.most is None else len(taken)


@pytest.mark.parametrize("most", [None, 7])
@pytest.mark.parametrize("file_format", ["safetensors", "npy"])
def test_file_objects_get_the_file_in_order(most, file_format):
    given, _ = tensors("npy")
    file = Slow(most)
    assert sj.save_file(given, file, file_format=file_format) is None
    assert file.data == sj.save_file(given, file_format=file_format)


def test_a_file_object_is_written_from_where_it_stands():
    file = io.BytesIO(b"head")
    file.seek(4)
    sj.save_file({"w": np.eye(2)}, file, metadata={"by": "me"})
    assert sj.load_file(file.getvalue()[4:])["w"].numpy().tolist() == [[1, 0], [0, 1]]


def test_what_is_refused(tmp_path):
    made = sj.save_file({"w": np.eye(2)})
    with pytest.raises(sj.FileFormatError, match="<bytes>: tensor 'w': its data end at byte"):
        sj.load_file(made[:-1])
    with pytest.raises(sj.FileFormatError, match="nor its suffix identify a format"):
        sj.load_file(b"nothing")
    with pytest.raises(sj.FormatError, match=r"unknown format 'bin'; known are safetensors, npy"):
        sj.save_file({"w": np.eye(2)}, file_format="bin")
    with pytest.raises(sj.FileFormatError, match="the suffix of a path selects the format"):
        sj.save_file({"w": np.eye(2)}, tmp_path / "w.npz", file_format="npz")
    with pytest.raises(TypeError, match="a path or a binary file object, not int"):
        sj.save_file({"w": np.eye(2)}, 5)
    file = io.BytesIO()
    with pytest.raises(sj.FileFormatError, match="tensor 'w'"):
        sj.save_file({"w": np.zeros(2, np.complex128)}, file)
    assert file.getvalue() == b""
