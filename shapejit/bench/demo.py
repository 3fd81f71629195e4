"""A demonstration without input: convert a small checkpoint, check every bit, measure the speed.

Attention weights are split into heads and transposed, caches of heads are
merged, in four dtypes, by the code that `shapejit convert` runs. NumPy and
ml_dtypes do the same, to compare the results and the times.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import conversion, patience
from ..arrays.tensor import Bytes, Tensor
from ..conversion import Change, Report
from ..dtypes.table import DType, dtype
from ..files import safetensors
from ..files.safetensors import Checkpoint, New
from ..runtime import building
from ..runtime.system import usable_cores
from .measure import clock, samples

_HEADS, _HEAD = 16, 64
BYTES = 4 * 1024 * 1024  # of each tensor
ROUNDS = 7
_DISTURBED = 1.5  # times the fastest round; without other programs it is well below
_DTYPES = ("float32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn")


class _Job(NamedTuple):
    """What is done to the tensors whose names begin with `name`.

    `rules` say it to `shapejit convert`; `by_numpy` does the same to an ndarray.
    `source` and `target` give the shapes before and after for a number of
    elements.
    """

    name: str
    rules: tuple[tuple[str, str], ...]
    by_numpy: Callable[[NDArray[Any]], NDArray[Any]]
    source: Callable[[int], tuple[int, ...]]
    target: Callable[[int], tuple[int, ...]]


JOBS = (
    _Job(
        "split",
        (("reshape", rf"split\..*={_HEADS},{_HEAD},-1"), ("permute", r"split\..*=0,2,1")),
        lambda x: x.reshape(_HEADS, _HEAD, -1).transpose(0, 2, 1),
        lambda count: (_HEADS * _HEAD, count // (_HEADS * _HEAD)),
        lambda count: (_HEADS, count // (_HEADS * _HEAD), _HEAD),
    ),
    _Job(
        "merge",
        (("permute", r"merge\..*=1,0,2"), ("reshape", r"merge\..*=0,-1")),
        lambda x: x.transpose(1, 0, 2),
        lambda count: (_HEADS, count // (_HEADS * _HEAD), _HEAD),
        lambda count: (count // (_HEADS * _HEAD), _HEADS * _HEAD),
    ),
)


@dataclass(frozen=True)
class Row:
    """One tensor: its shapes, whether every bit is right, and both speeds.

    Speeds are 10^9 bytes read and written per second, from memory to memory: the
    median of the faster half of several rounds, in which shapejit and NumPy take turns.
    `disturbed` says that the times differ much even within this half, as when
    other programs use the cores for long.
    """

    name: str
    dtype: str
    source_shape: tuple[int, ...]
    shape: tuple[int, ...]
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
    """The result: one row per tensor, and the conversion of the file.

    `command` are the words of a command line that does the same. `first_seconds` is the time of
    the first conversion, which includes the
    compilation of kernels that are not on disk; `report` is of the second.
    """

    rows: tuple[Row, ...]
    rules: tuple[str, ...]
    command: tuple[str, ...]
    first_seconds: float
    report: Report

    @property
    def same(self) -> bool:
        """Whether every tensor equals NumPy's, bit for bit."""
        return all(row.same for row in self.rows)


@patience.force_kernels()  # it shows what kernels do
def run(progress: Callable[[str], object] | None = None, keep: str | None = None) -> Demo:
    """Make a checkpoint in a temporary folder, convert it, check the result and time it.

    `progress` is called with a description of each step. `keep` is a new folder for the
    files, which stay there. Raises FileExistsError.
    """
    tell = progress or (lambda _: None)
    with _folder(keep) as folder:
        source, target = (os.path.join(folder, f"{n}.safetensors") for n in ("source", "target"))
        tell("making a checkpoint")
        written = _checkpoint()
        safetensors.write(source, [New.of(*item) for item in written.items()], {"made": "demo"})
        plan = _plan(source)
        tell("converting, compiling on the first run")
        start = perf_counter()
        with building.at_most(len(usable_cores())):
            plan.write(target)
        first = perf_counter() - start
        report = plan.write(target)
        result = safetensors.read(target)
        rows = []
        for change in plan.changes:
            tell(f"checking and timing {change.name}")
            rows.append(_row(change, written[change.name], result))
        words = ["--spec", "onnx"]
        for job in JOBS:
            for option, text in job.rules:
                words += [f"--{option}", text]
        paths = (source, target) if keep else ("SRC", "DST")
        command = ("shapejit", "convert", *paths, *words)
        return Demo(tuple(rows), ("--spec onnx", *map(str, plan.rules)), command, first, report)


def _plan(source: str) -> conversion.Conversion:
    """What becomes of the checkpoint."""
    rules = [conversion.rule(*words) for job in JOBS for words in job.rules]
    return conversion.plan(safetensors.read(source), rules, conversion.dialect("onnx"))


@contextmanager
def _folder(keep: str | None) -> Iterator[str]:
    """A new folder, which is deleted in the end if it has no name."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="shapejit-") as folder:
            yield folder
    else:
        os.mkdir(keep)
        yield keep


def _checkpoint() -> dict[str, Tensor]:
    """Tensors of random bits, so that every code of every dtype occurs, NaN included."""
    random = np.random.default_rng(5)
    tensors = {}
    for job in JOBS:
        for kind in map(dtype, _DTYPES):
            shape = job.source(8 * BYTES // kind.bits)
            data = random.integers(0, 256, BYTES, np.uint8)
            tensors[f"{job.name}.{kind}"] = Tensor.frombuffer(data, kind, shape)
    return tensors


def _row(change: Change, written: Tensor, result: Checkpoint) -> Row:
    """Compare one tensor of the file with NumPy's result, and time both in memory."""
    job = next(j for j in JOBS if change.name.startswith(j.name))
    kind, got = change.source.dtype, result.tensors[change.name]
    wanted, mine = np.empty(written.nbytes, np.uint8), np.empty(written.nbytes, np.uint8)
    seen = change.result(written)
    out = Tensor.frombuffer(mine, kind, seen.shape)

    def by_shapejit() -> None:
        seen.ascontiguous(out=out)

    def by_numpy() -> None:
        _by_numpy(job, kind, written.buffer, written.shape, wanted)

    times = interleaved(by_shapejit, by_numpy)
    same = (
        (got.dtype, got.shape) == (kind, job.target(written.size))
        and np.array_equal(got.buffer, wanted)
        and np.array_equal(mine, wanted)
    )
    mine_s, numpy_s = map(typical, times)
    moved = 2 * written.nbytes / 1e9
    return Row(
        change.name,
        kind.name,
        written.shape,
        got.shape,
        written.nbytes,
        same,
        gb_per_s=moved / mine_s,
        numpy_gb_per_s=moved / numpy_s,
        disturbed=any(typical(own) > _DISTURBED * min(own) for own in times),
    )


def _by_numpy(job: _Job, kind: DType, raw: Bytes, shape: tuple[int, ...], out: Bytes) -> None:
    """The same with NumPy: packed elements are unpacked, moved, and packed again."""
    assert kind.numpy is not None
    if not kind.packed:
        moved = job.by_numpy(raw.view(kind.numpy).reshape(shape))
        np.copyto(out.view(kind.numpy).reshape(moved.shape), moved)
        return
    codes = np.empty((raw.size, 2), np.uint8)
    np.bitwise_and(raw, 15, out=codes[:, 0])
    np.right_shift(raw, 4, out=codes[:, 1])
    values = codes.view(kind.numpy).reshape(shape)
    pairs = np.ascontiguousarray(job.by_numpy(values)).view(np.uint8).reshape(-1, 2)
    np.bitwise_or(pairs[:, 0], pairs[:, 1] << 4, out=out)


def interleaved(*functions: Callable[[], None]) -> list[list[float]]:
    """Seconds of each round of each, taking turns."""
    clocks = {str(k): clock(function) for k, function in enumerate(functions)}
    return list(samples(clocks, ROUNDS, seconds=0).values())


def typical(seconds: list[float]) -> float:
    """The median of the faster half.

    While another program uses a core, a parallel loop waits for its thread there:
    with one of two cores busy, such a call took 7 ms instead of 0.3. Such rounds
    say nothing about the speed of the loop.
    """
    return median(sorted(seconds)[: (len(seconds) + 1) // 2])
