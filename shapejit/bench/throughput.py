"""Many tensors at once: programs and batches beside loops of NumPy, memcpy and onnx."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .. import engine
from ..dialects import onnx
from ..programs.batch import reshape_batch
from ..programs.planned import plan
from ..programs.target_shapes import resolve_batch
from ..shapes.resolver import resolve
from .cases import pattern
from .comparison import one_thread
from .machine import thread_count
from .measure import clock, turns
from .peers import Peer

Way = Callable[[], object]

PEERS_TIME = 4.0  # times ours
SERIAL = "one thread of its own"  # ours with numba held to one thread
# Seconds of a turn beside other programs: several slices of the scheduler's, of 3 ms each, so
# that they take their part of every turn, and not the whole of one and nothing of the next.
SHARED_TURN = 0.05


class Goal(NamedTuple):
    """What one way is measured for.

    "at least": so many times the time of ours; "at most": our time over its
    own; "beyond": our seconds beyond its own.
    """

    way: str
    kind: str
    limit: float


class Work(NamedTuple):
    """The ways of one case, ours first, whether ours was proved, and the goals.

    `serial`: ours is measured on one thread, too. `job` is what peers are asked to do, of
    which some have a way; ours should take at most a part of their time.
    """

    ways: dict[str, Way]
    same: bool
    goals: tuple[Goal, ...]
    serial: bool = False
    job: dict[str, Any] | None = None


@dataclass(frozen=True)
class Figure:
    """One case: median seconds by each way, and whether our results had every bit right."""

    suite: str
    name: str
    seconds: dict[str, float]
    same: bool
    goals: tuple[Goal, ...]

    def ratio(self, goal: Goal) -> float:
        """What the goal's limit is about.

        >>> one = Figure("batch", "x", {"shapejit": 2.0, "numpy": 8.0}, True, ())
        >>> one.ratio(Goal("numpy", "at least", 5)), one.ratio(Goal("numpy", "at most", 1))
        (4.0, 0.25)
        """
        ours, theirs = self.seconds["shapejit"], self.seconds[goal.way]
        if goal.kind == "beyond":
            return ours - theirs
        return theirs / ours if goal.kind == "at least" else ours / theirs

    def as_json(self) -> dict[str, Any]:
        """As JSON has it."""
        goals = [{**goal._asdict(), "ratio": self.ratio(goal)} for goal in self.goals]
        return {
            "suite": self.suite,
            "name": self.name,
            "seconds": self.seconds,
            "same": self.same,
            "goals": goals,
        }


def measured(
    suite: str,
    cases: Mapping[str, Callable[[float], Work]],
    rounds: int,
    size: float,
    tell: Callable[[str], object],
    others: Sequence[Peer] = (),
) -> Iterator[Figure]:
    """One Figure per case, of `size` times as much."""
    for name, make in cases.items():
        tell(f"{suite}/{name}")
        work = make(size)
        clocks = {way: clock(run) for way, run in work.ways.items()}
        if work.serial:
            clocks[SERIAL] = one_thread(clocks["shapejit"])
        able = [x for x in others if work.job is not None and x.give(work.job) is not None]
        clocks |= {peer.name: peer.run for peer in able}
        goals = (*work.goals, *(Goal(peer.name, "at least", PEERS_TIME) for peer in able))
        taken = turns(clocks, rounds, SHARED_TURN) if work.serial else turns(clocks, rounds)
        yield Figure(suite, name, taken, work.same, goals)
        for peer in able:
            peer.drop()


def _memory(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array whose pages are there."""
    made = np.empty(shape, dtype)
    made.reshape(-1).view(np.uint8).fill(0)
    return made


def _values(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> NDArray[Any]:
    kind = np.dtype(dtype)
    raw = pattern(int(np.prod(shape)) * kind.itemsize)
    made: NDArray[Any] = (raw + np.uint8(seed & 255)).view(kind).reshape(shape)
    return made


def _permuted(size: float) -> Work:
    """10 000 bfloat16 tensors of 4 KiB, permuted into a slab."""
    count, shape, axes = max(2, int(10_000 * size)), (4, 64, 8), (1, 0, 2)
    tensors = [_values(shape, ml_dtypes.bfloat16, i) for i in range(count)]
    program = plan(shape, "bfloat16", lambda t: t.permute_dims(axes))
    slab = _memory((count, *program.shape), ml_dtypes.bfloat16)
    program.map(tensors, out=slab)
    same = all(slab[i].tobytes() == x.transpose(axes).tobytes() for i, x in enumerate(tensors))
    source, target = _values((slab.nbytes,), np.uint8), slab.reshape(-1).view(np.uint8)
    threads = thread_count()

    def loop() -> None:
        for i, x in enumerate(tensors):
            np.copyto(slab[i], x.transpose(axes))

    ways: dict[str, Way] = {
        "shapejit": lambda: program.map(tensors, out=slab),
        "loop of numpy.copyto": loop,
        "memcpy": lambda: engine.memcpy(source, target, threads),
    }
    goals = Goal("loop of numpy.copyto", "at least", 5), Goal("memcpy", "at most", 1.7)
    return Work(ways, same, goals)


def _unlike(size: float) -> Work:
    """20 000 transposed float32 tensors of 64 B to 16 KiB, log-uniform, to 1-D."""
    count, rng, tensors = max(2, int(20_000 * size)), np.random.default_rng(0), []
    for i in range(count):
        elements = 2.0 ** rng.uniform(4, 12)
        rows = 2.0 ** rng.uniform(1, np.log2(elements) - 1)
        shape = round(rows), round(elements / rows)
        tensors.append(_values(shape, np.float32, i).T)
    made = reshape_batch(tensors, (-1,))
    same = all(a.tobytes() == x.tobytes() for a, x in zip(made, tensors, strict=True))
    ways: dict[str, Way] = {
        "shapejit": lambda: reshape_batch(tensors, (-1,)),
        "loop of numpy.reshape": lambda: [np.reshape(x, -1) for x in tensors],
    }
    return Work(ways, same, (Goal("loop of numpy.reshape", "at least", 2.5),))


def _resolved(size: float) -> Work:
    """10 000 shapes of rank 2 to 4, resolved as ONNX says."""
    count, rng = max(2, int(10_000 * size)), np.random.default_rng(0)
    shapes = [tuple(rng.integers(1, 200, rng.integers(2, 5)).tolist()) for _ in range(count)]
    request = onnx.request([0, -1, 1])
    want = [(s[0], int(np.prod(s[1:])), 1) for s in shapes]
    same = [tuple(row) for row in resolve_batch(shapes, request).tolist()] == want
    ways: dict[str, Way] = {
        "shapejit": lambda: resolve_batch(shapes, request),
        "loop of shapejit.resolve": lambda: [resolve(shape, request) for shape in shapes],
    }
    goals = [Goal("loop of shapejit.resolve", "at least", 10)]
    infer = _onnx_inference(shapes, [0, -1, 1])
    if infer is not None:
        ways["loop of onnx inference"] = infer
        goals.append(Goal("loop of onnx inference", "at least", 50))
    return Work(ways, same, tuple(goals))


def _onnx_inference(shapes: Sequence[tuple[int, ...]], target: list[int]) -> Way | None:
    """A loop over onnx's own shape inference, its models made beforehand; None without onnx."""
    try:
        theirs = import_module("onnx")
        inference = import_module("onnx.shape_inference")
    except ImportError:
        return None
    helper = theirs.helper
    value, floats = helper.make_tensor_value_info, theirs.TensorProto.FLOAT
    initial = theirs.numpy_helper.from_array(np.array(target, np.int64), "s")
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    opset = helper.make_opsetid("", 21)
    models = []
    for shape in shapes:
        ends = [value("x", floats, shape)], [value("y", floats, None)]
        graph = helper.make_graph([node], "g", *ends, [initial])
        models.append(helper.make_model(graph, opset_imports=[opset]).SerializeToString())
    return lambda: [inference.infer_shapes(model) for model in models]


def _call(shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any) -> Work:
    x = _values(shape, dtype)
    view = x.transpose(axes)
    out, theirs = _memory(view.shape, dtype), _memory(view.shape, dtype)
    program = plan(shape, dtype, lambda t: t.permute_dims(axes))
    for _ in range(10):
        program(x, out=out)
    ways: dict[str, Way] = {
        "shapejit": lambda: program(x, out=out),
        "numpy.copyto": lambda: np.copyto(theirs, view),
    }
    same = out.tobytes() == view.tobytes()
    return Work(ways, same, (Goal("numpy.copyto", "beyond", 1e-6),))


def _large(size: float) -> Work:
    """64 bfloat16 tensors of 16 MiB, heads before positions."""
    count, shape, axes = 64, (2048, 32, 128), (1, 0, 2)
    if size < 1:
        shape = max(1, int(2048 * size)), 32, 128
    tensors = [_values(shape, ml_dtypes.bfloat16, i) for i in range(count)]
    program = plan(shape, "bfloat16", lambda t: t.permute_dims(axes))
    slab = _memory((count, *program.shape), ml_dtypes.bfloat16)
    program.map(tensors, out=slab)
    few = (0, count // 2, count - 1)
    same = all(slab[i].tobytes() == tensors[i].transpose(axes).tobytes() for i in few)
    raw, threads = slab.reshape(-1).view(np.uint8), thread_count()
    half = raw.size // 2

    def memcpy() -> None:
        # Twice half of the slab: a third array of all the bytes might not fit.
        engine.memcpy(raw[:half], raw[half:], threads)
        engine.memcpy(raw[half:], raw[:half], threads)

    ways: dict[str, Way] = {
        "shapejit": lambda: program.map(tensors, out=slab),
        "memcpy": memcpy,
    }
    return Work(ways, same, (Goal("memcpy", "at most", 1.3),))


CASES: dict[str, Callable[[float], Work]] = {
    "map-10000x4KiB": _permuted,
    "reshape-20000-unlike": _unlike,
    "resolve-10000": _resolved,
    "call-64B": lambda size: _call((4, 4), (1, 0), np.float32),
    "call-4KiB": lambda size: _call((4, 64, 8), (1, 0, 2), ml_dtypes.bfloat16),
    "map-64x16MiB": _large,
}
"""What `--suite batch` measures, by name; each makes its Work for `size` times the tensors."""

QUICK = ("map-10000x4KiB", "call-4KiB")  # what --quick takes
