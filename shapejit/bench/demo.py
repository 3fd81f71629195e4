"""The work of `shapejit demo`: convert a generated FP8 checkpoint, and time copies against NumPy.

The checkpoint has DeepSeek's layout and random codes. It is converted as by `shapejit convert`, and
compared as by `shapejit verify`. The steps of the conversion are timed as small cases of `shapejit
bench`, compared with NumPy and ml_dtypes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import isqrt
from time import perf_counter

import numpy as np

from .. import files
from ..arrays.tensor import Tensor, asarray
from ..conversion import Report
from ..conversion.comparing import Weights, differences
from ..dtypes.table import dtype
from ..engine import patience
from ..operations.casts import cast
from ..quantization.configuration import CONFIG
from ..quantization.declaring import declaration
from ..quantization.scheme import schemes
from ..runtime import building
from ..runtime.system import usable_cores
from ..runtime.workers import threads
from .cases import OURS, Case, Copy, Ints
from .casts import Cast
from .comparison import measure
from .packed import Packed
from .schemes import DecodedWeight

BYTES = 256 * 1024 * 1024  # of the codes of all weights
COPIED_BYTES = 4 * 1024 * 1024  # bytes of each tensor that is copied beside NumPy
ROUNDS = 7
_LAYERS, _BLOCK = 16, 128
_SCHEME = schemes["fp8:block"]
_CONFIG = declaration(_SCHEME.name, {"weight_block_size": (_BLOCK, _BLOCK)}, {"dtype": "float32"})
_BFLOAT16, _FLOAT8 = map(dtype, ("bfloat16", "float8_e4m3fn"))


@dataclass(frozen=True)
class CopySpeed:
    """One copy: the shape of its result, whether every bit is right, and both speeds.

    Speeds are 10^9 bytes read and written per second, from memory to memory: medians of several
    rounds, with shapejit and NumPy interleaved. `disturbed` as in `comparison`.
    """

    name: str
    shape: Ints
    nbytes: int
    same: bool
    gb_per_s: float
    numpy_gb_per_s: float
    disturbed: bool

    @property
    def ratio(self) -> float:
        """How many times as fast as NumPy."""
        return self.gb_per_s / self.numpy_gb_per_s


@dataclass(frozen=True)
class Demo:
    """The result: the conversion, the outcome of its verification, and one row per copy.

    `commands` are equivalent command lines. `compile_seconds` is the time of the first call of each
    copy, which compiles kernels that are not on disk.
    """

    report: Report
    differences: tuple[str, ...]
    rows: tuple[CopySpeed, ...]
    commands: tuple[tuple[str, ...], ...]
    compile_seconds: float

    @property
    def same(self) -> bool:
        """Whether every weight has the expected values, and every copy equals NumPy's."""
        return not self.differences and all(row.same for row in self.rows)


def run(progress: Callable[[str], object] | None = None, keep: str | None = None) -> Demo:
    """Write a checkpoint in a temporary folder, convert it, check the result, and time copies.

    `progress` is called with a description of each step. `keep` is a new folder for the
    checkpoints, which stay there. Raises FileExistsError.
    """
    tell, sj = progress or (lambda _: None), import_module("shapejit")
    with _folder(keep) as folder:
        source, target = (os.path.join(folder, name) for name in ("fp8", "bf16"))
        tell("writing an FP8 checkpoint")
        weights = checkpoint(source, _LAYERS, (isqrt(BYTES // _LAYERS),) * 2)
        cases = _cases()
        calls = [case.ways(sj)[OURS] for case in cases.values()]
        tell("compiling kernels that are not on disk")
        start = perf_counter()
        with _kernels_only(), ThreadPoolExecutor(threads()) as pool:
            shapes = [*pool.map(lambda call: call().shape, calls)]
        compiled = perf_counter() - start
        tell("converting the checkpoint to bfloat16")
        report = files.convert(source, target, [("to", "bf16")])
        tell("verifying the conversion")
        found = tuple(map(str, differences(Weights(weights, _CONFIG), files.load_file(target))))
        rows = []
        for (name, case), shape in zip(cases.items(), shapes, strict=True):
            tell(f"checking and timing: {name}")
            with _kernels_only():
                rows.append(_row(name, case, shape))
        paths = (source, target) if keep else ("SRC", "DST")
        commands = ("shapejit", "convert", *paths, "--to", "bf16"), ("shapejit", "verify", *paths)
        return Demo(report, found, tuple(rows), commands, compiled)


@contextmanager
def _kernels_only() -> Iterator[None]:
    """A context in which rows show what kernels do; builders use all cores."""
    with patience.force_kernels(), building.at_most(len(usable_cores())):
        yield


@contextmanager
def _folder(keep: str | None) -> Iterator[str]:
    """A new folder, which is deleted at the end if it has no name."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="shapejit-") as folder:
            yield folder
    else:
        os.mkdir(keep)
        yield keep


def checkpoint(folder: str, layers: int, shape: tuple[int, int]) -> dict[str, Tensor]:
    """A new folder of weights of random codes, all but NaN, and a norm that is not quantised."""
    random = np.random.default_rng(5)
    codes = random.integers(0, 254, shape, np.uint8)
    codes += codes > 126  # 127 and 255 are NaN
    weight = Tensor.frombuffer(codes, _FLOAT8, shape)  # the same in all layers
    made = {"model.norm.weight": cast(asarray(np.ones(shape[1], np.float32)), _BFLOAT16)}
    for layer in range(layers):
        scale = random.uniform(0.001, 0.01, [size // _BLOCK for size in shape]).astype(np.float32)
        name = f"model.layers.{layer}.mlp.up_proj.weight"
        made |= {name: weight, f"{name}_scale_inv": asarray(scale)}
    os.mkdir(folder)
    files.save_file(made, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, CONFIG), "w") as file:
        json.dump(_CONFIG, file)
    return made


def _cases() -> dict[str, Case]:
    """The cases compared with NumPy; the first has the rows and columns of the checkpoint."""
    columns = isqrt(BYTES // _LAYERS)
    rows = max(1, COPIED_BYTES // columns // _BLOCK) * _BLOCK
    bf16, fp4, fp8 = "bfloat16", "float4_e2m1fn", "float8_e4m3fn"
    return {
        "decode FP8 with block scales to bfloat16": DecodedWeight(
            "demo", _SCHEME.name, (rows, columns)
        ),
        f"transpose {bf16}": Copy("demo", bf16, bf16, (COPIED_BYTES // 2048, 1024), (1, 0)),
        f"transpose {fp4}, packed": Packed("demo", fp4, fp4, (COPIED_BYTES // 512, 1024), (1, 0)),
        f"cast float32 to {fp8}": Cast(
            "demo", fp8, "float32", (COPIED_BYTES // 4096, 1024), (0, 1), target=fp8
        ),
    }


def _row(name: str, case: Case, shape: Ints) -> CopySpeed:
    """Compare a copy with NumPy's, and time both in memory."""
    found = measure(import_module("shapejit"), case, rounds=ROUNDS)
    nbytes = 2 * case.moved
    ours, numpys, *_ = (nbytes / 1e9 / seconds for seconds in found.seconds.values())
    return CopySpeed(name, shape, nbytes, not found.differing, ours, numpys, found.disturbed)
