"""Checkpoints on disk: files of many tensors read, a transposed tensor written."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from . import ratios
from .memcpy import memcpy_of
from .ratios import OURS, OverMemcpy, OverNumpy, Ratios, installed
from .tables import cases

TENSORS = 1000  # of 64 bytes, in the file that is read


def folder(kept):
    """A temporary folder in memory, where the system has one: a disk's own time is not ours."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return kept.enter_context(tempfile.TemporaryDirectory(prefix="shapejit-", dir=memory))


def header(path):
    """What every reader has to do: map the file, read the JSON, an array for each tensor."""
    memory = np.memmap(path, np.uint8, "r")
    start = 8 + int.from_bytes(memory[:8].tobytes(), "little")
    return [
        np.ndarray(e["shape"], np.uint8, memory, start + e["data_offsets"][0])
        for name, e in json.loads(memory[8:start].tobytes()).items()
    ]


class Read(OverNumpy):
    """A file of 1000 tensors read, beside json and numpy.memmap"""

    params = ["safetensors"]
    param_names = ("format",)
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        files = installed("files.safetensors.read", "files.safetensors.write").files.safetensors
        sj = installed("asarray")
        path = Path(folder(self.kept), "many")
        row = sj.asarray(np.zeros(64, np.uint8))
        files.write(path, [files.New.of(f"layers.{i}.weight", row) for i in range(TENSORS)])
        return {OURS: lambda: files.read(path), "numpy": lambda: header(path)}


class Write(OverMemcpy, OverNumpy):
    """A transposed matrix written, beside numpy.tofile"""

    params = ["safetensors"]
    param_names = ("format",)
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        files = installed("files.safetensors.write").files.safetensors
        sj = installed("asarray")
        place = folder(self.kept)
        ours, theirs = Path(place, "ours"), Path(place, "theirs")
        rows = ratios.NBYTES // 4 // 1024
        x = cases.pattern(4 * 1024 * rows).view(np.float32).reshape(rows, 1024).T
        tensor = sj.asarray(x)

        def tofile():
            with open(theirs, "wb") as file:
                np.ascontiguousarray(x).tofile(file)
                os.fsync(file.fileno())

        return {
            OURS: lambda: files.write(ours, [files.New.of("weight", tensor)]),
            "memcpy": memcpy_of(x.nbytes),
            "numpy": tofile,
        }


class Load(OverNumpy):
    """A file of 1000 arrays loaded, beside numpy.load"""

    params = ["npz"]
    param_names = ("format",)
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("load_file", "save_file")
        path = Path(folder(self.kept), f"many.{case}")
        row = np.zeros(64, np.uint8)
        sj.save_file({f"layers.{i}.weight": row for i in range(TENSORS)}, path)

        def numpys():
            with np.load(path) as found:
                return [x.shape for x in found.values()]

        return {OURS: lambda: [t.shape for t in sj.load_file(path).values()], "numpy": numpys}


class Save(OverMemcpy, OverNumpy):
    """A transposed matrix saved, beside numpy.save"""

    params = ["npy"]
    param_names = ("format",)
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("save_file")
        place = folder(self.kept)
        rows = ratios.NBYTES // 4 // 1024
        x = cases.pattern(4 * 1024 * rows).view(np.float32).reshape(rows, 1024).T

        def numpys():
            with open(Path(place, f"theirs.{case}"), "wb") as file:
                np.save(file, np.ascontiguousarray(x))
                os.fsync(file.fileno())

        return {
            OURS: lambda: sj.save_file({"weight": x}, Path(place, f"ours.{case}")),
            "memcpy": memcpy_of(x.nbytes),
            "numpy": numpys,
        }


class Convert(Ratios):
    """A folder converted, beside cp of the larger side"""

    params = ["rename", "permute", "cast", "to bf16"]
    param_names = ("rule",)
    version = "1"
    baseline = "cp"

    def setup_cache(self):
        return self.measured()

    def track_over_cp(self, found, case):
        return self.over(found, case, "cp")

    track_over_cp.unit = "time / cp's"

    def ways(self, case):
        convert = installed("files.convert").files.convert
        sj, place = installed("save_file", "cast"), folder(self.kept)
        source, made, copy = (str(Path(place, name)) for name in ("in", "made", "copy"))
        rows = max(1, ratios.NBYTES // 4 // 1024 // 128) * 128
        x = cases.pattern(1024 * rows).reshape(rows, 1024)
        tensors = {"w.weight": x.astype(np.float32)}
        if case == "to bf16":
            tensors["w.weight"] = sj.cast(tensors["w.weight"], "float8_e4m3fn")
            tensors["w.weight_scale"] = np.ones((rows, 1), np.float32)
        Path(source).mkdir()
        sj.save_file(tensors, Path(source, "model.safetensors"))
        rules = {
            "rename": ("rename", r"s/w\.(.*)/v.\1/"),
            "permute": ("permute", ".*=1,0"),
            "cast": ("cast", ".*=BF16"),
            "to bf16": ("to", "bf16"),
        }
        report = convert(source, made, [rules[case]])
        larger = str(Path(place, "larger"))
        shutil.copytree(made if report.bytes_written > report.bytes_read else source, larger)
        return {
            OURS: lambda: convert(source, made, [rules[case]], proof=False),
            "cp": lambda: subprocess.run(["cp", "-rT", larger, copy], check=True),
        }


class WriteMemory:
    """Peak memory while a matrix is written, a piece at a time"""

    version = "1"
    timeout = 120

    def setup(self):
        self.write = Write()
        self.way = self.write.ways("safetensors")[OURS]

    def teardown(self):
        self.write.kept.close()

    def peakmem_write(self):
        self.way()
