"""Rules for the tensors of a checkpoint: planned and checked for every tensor, then written."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

from .casts import cast
from .dialects import onednn, onnx, openvino
from .dtypes import DType, dtype
from .errors import DTypeError, FormatError, ReshapeError, quoted, shown
from .files import file_formats
from .files.checkpoint import MAX_RANK, Checkpoint
from .files.paths import Path
from .files.pieces import Scratch, pieces, whole_elements
from .files.stored import Stored
from .files.writing import New, Progress
from .layout import Layout
from .operations import reshape
from .programs.fuse import route
from .programs.trace import traced
from .tensor import Bytes, Tensor

__all__ = [
    "OPTIONS",
    "SPECS",
    "Change",
    "Conversion",
    "Dialect",
    "Report",
    "Rule",
    "Spec",
    "dialect",
    "plan",
    "rule",
]

Dialect = Callable[[Tensor, tuple[int, ...]], Tensor]


class Spec(NamedTuple):
    """A specification that `--spec` can name: its flag, and its reshape under that flag."""

    flag: str | None
    reshape: Callable[[Tensor, tuple[int, ...], bool], Tensor]


SPECS = {
    "array": Spec(None, lambda t, shape, _: reshape(t, shape)),
    "onnx": Spec("allowzero", lambda t, shape, flag: onnx.reshape(t, shape, allowzero=int(flag))),
    "openvino": Spec(
        "special_zero", lambda t, shape, flag: openvino.reshape(t, shape, special_zero=flag)
    ),
    "onednn": Spec(
        "special_zero",
        lambda t, shape, flag: onednn.static_reshape(t, shape=shape, special_zero=flag),
    ),
}


def dialect(spec: str = "array", *, special_zero: bool = False, allowzero: bool = False) -> Dialect:
    """A specification's reshape, as a function of a Tensor and a shape.

    `spec` is one of `SPECS`. Raises ReshapeError for an unknown one, and for a
    flag that is not an attribute of it.

    >>> t = Tensor.frombuffer(bytes(24), "uint8", (2, 3, 4))
    >>> dialect("onnx")(t, (0, -1)).shape
    (2, 12)
    """
    if spec not in SPECS:
        raise ReshapeError(f"unknown specification {quoted(spec)}; known are {', '.join(SPECS)}")
    own, function = SPECS[spec]
    flags = {"special_zero": special_zero, "allowzero": allowzero}
    for name, value in flags.items():
        if value and name != own:
            option = name.replace("_", "-")
            raise ReshapeError(f"--{option} is not an attribute of --spec {spec}")
    flag = own is not None and flags[own]
    return lambda tensor, shape: function(tensor, shape, flag)


@dataclass(frozen=True)
class Rule:
    """One step for every tensor whose whole name `pattern` matches.

    `option` is a row of `OPTIONS`: `"reshape"`, `"permute"` or `"cast"`; `values` the shape
    (with its 0 and -1), the axes, or the name of the dtype.
    """

    option: str
    pattern: re.Pattern[str]
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"--{self.option} {self.pattern.pattern}={','.join(map(str, self.values))}"


def _ints(given: str, text: str) -> tuple[int, ...]:
    """Integers between commas, or none."""
    ints = text.split(",") if text.strip() else []
    for token in ints:
        # No int64 has more digits, and int() may refuse to read them.
        if not re.fullmatch(r"\s*-?[0-9]{1,19}\s*", token):
            raise ReshapeError(f"{given}: {quoted(token)} is not an integer")
    return tuple(map(int, ints))


def _dtype(given: str, text: str) -> tuple[str]:
    """The name of a dtype that a safetensors file can have, in its words or in ours."""
    for vocabulary in (None, "safetensors"):
        with suppress(DTypeError):
            kind = dtype(text, vocabulary)
            if kind.safetensors is None:
                raise FormatError(f"{given}: a safetensors file cannot have {kind} elements")
            return (kind.name,)
    raise DTypeError(f"{given}: unknown dtype {quoted(text)}")


OPTIONS: dict[str, tuple[str, Callable[[str, str], tuple[Any, ...]]]] = {
    # what stands behind the '=', and how it is read
    "reshape": ("INTS", _ints),
    "permute": ("INTS", _ints),
    "cast": ("DTYPE", _dtype),
}


def rule(option: str, text: str) -> Rule:
    """The rule written as `REGEX=INTS` or `REGEX=DTYPE`; it is split at the last `=`.

    INTS may be empty.

    >>> rule("reshape", r".*\\.weight=12,64,-1").values
    (12, 64, -1)
    """
    given = f"--{option} {quoted(text)}"
    words, read = OPTIONS[option]
    pattern, split, values = text.rpartition("=")
    if not split:
        raise ReshapeError(f"{given} is not of the form REGEX={words}: it has no '='")
    found = read(given, values)
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as fault:
        reason = f"{given}: {quoted(pattern)} is not a regular expression: {fault}"
        raise ReshapeError(reason) from None
    return Rule(option, compiled, found)


@dataclass(frozen=True, eq=False)
class Change:
    """What happens to one tensor between the source and the destination.

    `stages` are Layouts that are applied in turn: the first to the source's
    bytes, each other one to a row-major copy of the stage before. The last
    stage is written in row-major order; a reshape at the end never copies,
    since it does not change that order. Then the elements are cast to each of `casts`.
    `rules` counts the rules that matched.
    """

    name: str
    source: Stored
    shape: tuple[int, ...]
    stages: tuple[Layout, ...]
    casts: tuple[DType, ...]
    saturate: bool
    rules: int

    @property
    def dtype(self) -> DType:
        """What the elements are in the destination."""
        return self.casts[-1] if self.casts else self.source.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements in the destination."""
        return self.dtype.nbytes(prod(self.shape))

    @property
    def moves(self) -> bool:
        """Whether elements change, or their order; otherwise only the header may change."""
        return bool(self.casts) or len(self.stages) > 1 or not self.stages[-1].contiguous

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The new packed bytes in order, read from the file into `source`."""
        first = self.source.with_layout(self.stages[0])
        if len(self.stages) == 1:
            found = first.pieces(source, result)
        else:
            found = pieces(self._later_stages(first.tensor()), result)
        return self._cast(found) if self.casts else found

    def _cast(self, found: Iterator[Bytes]) -> Iterator[Bytes]:
        """The pieces, cast."""
        kind = self.source.dtype
        for data, count in whole_elements(found, kind.bits, prod(self.shape)):
            yield self._converted(Tensor.frombuffer(data, kind, (count,))).buffer

    def _converted(self, tensor: Tensor) -> Tensor:
        for kind in self.casts:
            tensor = cast(tensor, kind, saturate=self.saturate)
        return tensor

    def result(self, tensor: Tensor) -> Tensor:
        """The Tensor whose elements, in row-major order, are the new ones of `tensor`."""
        return self._converted(self._later_stages(tensor.with_layout(self.stages[0])))

    def _later_stages(self, tensor: Tensor) -> Tensor:
        for layout in self.stages[1:]:
            tensor = tensor.ascontiguous().with_layout(layout)
        return tensor


@dataclass(frozen=True)
class Report:
    """The result of a conversion: numbers of tensors, bytes of their data, seconds it took."""

    tensors: int
    changed: int
    moved: int
    bytes_read: int
    bytes_written: int
    seconds: float

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes read and written per second, including the sync to disk."""
        return (self.bytes_read + self.bytes_written) / max(self.seconds, 1e-9) / 1e9


@dataclass(frozen=True, eq=False)
class Conversion:
    """A checkpoint and the change of each tensor; nothing is written yet."""

    checkpoint: Checkpoint
    changes: tuple[Change, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of tensor data that will be written."""
        return sum(change.nbytes for change in self.changes)

    def write(self, path: Path, progress: Progress | None = None) -> Report:
        """Write the converted checkpoint in the format of `path`, as `load_file`'s inverse.

        Metadata go along where the format stays the same. Raises FileFormatError for
        what the format cannot hold, OSError where the disk refuses.
        """
        start = time.perf_counter()
        memory = Scratch(), Scratch()
        new = [New(c.name, c.dtype, c.shape, partial(c.pieces, *memory)) for c in self.changes]
        same = file_formats.writer(path).name == self.checkpoint.format
        metadata = self.checkpoint.metadata if same else None
        file_formats.write(path, new, metadata, progress)
        return Report(
            tensors=len(self.changes),
            changed=sum(c.rules > 0 for c in self.changes),
            moved=sum(c.moves for c in self.changes),
            bytes_read=self.checkpoint.nbytes,
            bytes_written=self.nbytes,
            seconds=time.perf_counter() - start,
        )


def plan(
    checkpoint: Checkpoint, rules: Sequence[Rule], reshape: Dialect, saturate: bool = True
) -> Conversion:
    """The changes that `rules`, applied in order, make to each tensor; reads no data.

    `saturate` is that of all casts.

    Raises ReshapeError or DTypeError, with the file, the tensor and the rule,
    for a rule that does not fit, and for one that matches no tensor.
    """
    for r in rules:
        if not any(map(r.pattern.fullmatch, checkpoint.tensors)):
            raise ReshapeError(f"{shown(checkpoint.path)}: no tensor has a name that {r} matches")
    changes = []
    known: dict[tuple[object, ...], _Steps] = {}
    for name in checkpoint.tensors:
        tensor = checkpoint.stored(name)
        own = [r for r in rules if r.pattern.fullmatch(name)]
        key = tensor.dtype, tensor.layout.shape, *map(id, own)
        if key not in known:
            where = f"{shown(checkpoint.path)}: tensor {quoted(name)}"
            known[key] = _stages(tensor, own, reshape, where)
        changes.append(Change(name, tensor, *known[key], saturate, len(own)))
    return Conversion(checkpoint, tuple(changes))


# The final shape, the `stages` and the `casts` of a Change.
_Steps = tuple[tuple[int, ...], tuple[Layout, ...], tuple[DType, ...]]


def _stages(tensor: Stored, rules: Sequence[Rule], reshape: Dialect, where: str) -> _Steps:

    def apply(t: Tensor) -> Tensor:
        for r in rules:
            with _named(where, r):
                if r.option == "cast":
                    made = cast(t, *r.values)
                elif r.option == "permute":
                    made = t.permute_dims(r.values)
                else:
                    made = reshape(t, r.values)
                if made.ndim > MAX_RANK:
                    more = f"{made.ndim} dims are more than the {MAX_RANK} of a file"
                    raise ReshapeError("cannot reshape", t.shape, r.values, (more,))
                t = made
        return t

    layout = tensor.layout
    ops = traced(apply, layout.shape, tensor.dtype)
    # Elements are cast in the order of the destination: moves and casts may change places.
    casts = tuple(dtype(given[0]) for name, given in ops if name == "cast")
    made = route([op for op in ops if op[0] != "cast"], layout, tensor.dtype)
    return made.result.shape, tuple(step.layout for step in made.fills), casts


@contextmanager
def _named(where: str, r: Rule) -> Iterator[None]:
    """Add the tensor and the rule to errors."""
    try:
        yield
    except ReshapeError as fault:
        asked_by = ", ".join(filter(None, (fault.asked_by, str(r))))
        raise ReshapeError(
            f"{where}: {fault.reason}", fault.source, fault.target, fault.notes, asked_by
        ) from None
    except DTypeError as fault:
        raise DTypeError(f"{where}: {fault} ({r})") from None
