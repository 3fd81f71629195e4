"""Benchmarks of files read, written and converted, and of the start of new processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .cases import MIB, OURS, CallCase, Look, Make, Read, Ways, filled, rows
from .plain_schemes import DECODED


def _folder(ways: Callable[[Any, int, Path], Ways], sj: Any, nbytes: int) -> Ways:
    """Ways that have a folder, in memory if possible, to exclude the time of a disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="shapejit-", dir=memory))
    made = ways(sj, nbytes, folder)
    # The folder stays as long as our function does.
    weakref.finalize(made[OURS], shutil.rmtree, folder, ignore_errors=True)
    return made


def _load(sj: Any, nbytes: int, folder: Path) -> Ways:
    """The load of a file of a thousand arrays."""
    x = filled((1000, 64), np.uint8)
    sj.save_file({f"layers.{i}.weight": row for i, row in enumerate(x)}, folder / "many.npz")

    def by_numpy() -> Any:
        with np.load(folder / "many.npz") as found:
            return dict(found)

    return {OURS: partial(sj.load_file, folder / "many.npz"), "numpy": by_numpy}


def _arrays(sj: Any, made: Any) -> list[Any]:
    return [*made, *made.values()]


def _save(suffix: str, sj: Any, nbytes: int, folder: Path) -> Ways:
    """A transposed matrix saved, compared with NumPy."""
    x = filled((max(1, nbytes // 4096), 1024), np.float32).T
    path = folder / f"ours{suffix}"

    def ours() -> Path:
        sj.save_file({"weight": x}, path)
        return path

    return {OURS: ours, "numpy": lambda: _saved(folder, np.ascontiguousarray(x))}


def _saved(folder: Path, x: Any) -> Path:
    """A file written by NumPy, synced to disk as ours is."""
    path = folder / "theirs.npy"
    with open(path, "wb") as file:
        np.save(file, x)
        os.fsync(file.fileno())
    return path


def _data(sj: Any, path: Path) -> bytes:
    """The data of an .npy or a .safetensors file after the header."""
    raw = path.read_bytes()
    at, width = (8, 2) if path.suffix == ".npy" else (0, 8)
    return raw[at + width + int.from_bytes(raw[at : at + width], "little") :]


# What the command is asked for, and NumPy, of the array or of its stored parts.
_CONVERSIONS: dict[str, tuple[tuple[str, str], Look]] = {
    "rename": (("rename", r"s/w\.(.*)/v.\1/"), lambda x: x),
    "permute": (("permute", ".*=1,0"), lambda x: np.ascontiguousarray(x.T)),
    "cast": (("cast", ".*=F16"), lambda x: x.astype(np.float16)),
    "to-bf16": (("to", "bf16"), lambda p: DECODED["fp8:channel"](p, 0, 0).astype("bfloat16")),
}


def _convert(rule: str, sj: Any, nbytes: int, folder: Path) -> Ways:
    """The conversion of a folder with one file."""
    x = filled((max(1, nbytes // (128 * 4096)) * 128, 1024), np.int16).astype(np.float32)
    words, by_numpy = _CONVERSIONS[rule]
    stored: Any = x
    parts = {"w.weight": x}
    if rule == "to-bf16":
        stored = {key: t.numpy() for key, t in sj.schemes["fp8:channel"].encode(x).items()}
        parts = {f"w.{key}": part for key, part in stored.items()}
    (folder / "in").mkdir()
    sj.save_file(parts, folder / "in" / "model.safetensors")
    convert = partial(sj.files.convert, str(folder / "in"), str(folder / "out"), [words])
    convert()

    def ours() -> Path:
        convert(proof=False)
        return folder / "out" / "model.safetensors"

    return {OURS: ours, "numpy": lambda: _saved(folder, by_numpy(stored))}


def files() -> tuple[CallCase, ...]:
    """Cases that read, write and convert files."""
    table: dict[str, Callable[[Any, int, Path], Ways]] = {
        "load/npz": _load,
        "save/npy": partial(_save, ".npy"),
        "save/safetensors": partial(_save, ".safetensors"),
        **{f"convert/{rule}": partial(_convert, rule) for rule in _CONVERSIONS},
    }
    made: dict[str, Make] = {name: partial(_folder, ways) for name, ways in table.items()}
    reads: dict[str, Read] = dict.fromkeys(made, _data) | {"load/npz": _arrays}
    return tuple(rows("files", made, 64 * MIB, reads))


_IMPORT = "import numpy, shapejit as sj; "
STATEMENTS = {
    "import": "",
    "view": "sj.reshape(numpy.zeros((2, 3)), (3, 2))",
    "copy": "sj.ascontiguous(numpy.ones((1024, 1024)).T)",
    "flip": "sj.ascontiguous(numpy.ones((1024, 1024))[:, ::-1])",
    "pack": "sj.pack(numpy.ones((4, 4), numpy.uint8), 'int4')",
    "cast": "sj.cast(numpy.ones((64, 64), numpy.float32), 'bfloat16')",
    "map": "sj.plan((8, 9), 'float32', lambda t: t.T).map([numpy.ones((8, 9), 'float32')] * 100)",
}


def _run(command: list[str], **more: str) -> None:
    # Small work of new processes is NumPy's, as it is for everybody.
    patient = {k: v for k, v in os.environ.items() if k != "SHAPEJIT_PATIENCE"} | more
    subprocess.run(command, env=patient, check=True)


def _process(statement: str, sj: Any, nbytes: int) -> Ways:
    """A new process, with cached kernels or ("cold") none, compared with importing NumPy."""
    # The package that is measured, wherever it was imported from.
    path = f"import sys; sys.path.insert(0, {str(Path(sj.__file__).parents[1])!r}); "
    command = [sys.executable, "-c", path + _IMPORT + statement]

    def cold() -> None:
        with tempfile.TemporaryDirectory(prefix="shapejit-") as cache:
            _run(command, NUMBA_CACHE_DIR=cache)

    theirs = partial(_run, [sys.executable, "-c", "import numpy"])
    return {OURS: partial(_run, command), "import numpy": theirs, "cold": cold}


def processes() -> tuple[CallCase, ...]:
    """Cases that start new processes."""
    table: dict[str, Make] = {name: partial(_process, code) for name, code in STATEMENTS.items()}
    return tuple(rows("first-call", table))
