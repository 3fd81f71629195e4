"""The tensors of a destination while rules change them; the reshapes that `--spec` selects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

from ..arrays.tensor import Tensor
from ..errors import DTypeError, FormatError, ReshapeError, asked_by_line, quoted, shown
from ..files.checkpoint import Checkpoint
from ..files.config_files import Config
from ..files.stored import Stored
from ..operations.casts import cast as cast_to
from ..quantization.detection import Detected, detected
from ..quantization.parts import Found, WeightNode
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.request import Ints
from .changes import Change


@dataclass(frozen=True)
class Rule:
    """One rule: its option (a row of `RULES`), the regular expression of whole names, its values.

    `text` is the rule as it was written.
    """

    option: str
    pattern: re.Pattern[str]
    values: tuple[Any, ...] = field(hash=False)  # it may hold slices, which have no hash
    text: str

    def __str__(self) -> str:
        return f"--{self.option} {self.text}"


class Tensors:
    """A conversion: the tensors of a destination, `changes` by name, in order, after the rules.

    `config` has the source's facts about weights, `dialect` is the reshape of `--spec`, `saturate`
    that of all casts. `became` are the weights that were decoded or converted, `left_out` those
    that were skipped, with the reasons. `kept` are the tensors of the source that `--keep` accepts
    as they are, `exceptions` the regular expressions of names that rules for all tensors skip.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: Config,
        reshape: Dialect,
        rules: Sequence[Rule] = (),
        saturate: bool = True,
    ) -> None:
        self.checkpoint, self.config, self.saturate = checkpoint, config, saturate
        self.dialect, self.rules = reshape, rules
        self.became: list[Found] = []
        self.left_out: dict[str, str] = {}
        self.exceptions = [r.pattern for r in rules if r.option == "keep"]
        self.kept = set[str]()
        self.changes = {
            name: Change.of(name, stored) for name, stored in checkpoint.members.items()
        }

    @cached_property
    def detected(self) -> Detected:
        """The result of `schemes.detect` for the whole source with its config."""
        return detected(self.checkpoint.typed, self.config.declared)

    @property
    def unchanged(self) -> dict[str, Change]:
        """The tensors that no rule has changed except in name, by their names in the source."""
        return {c.stored.name: c for c in self.changes.values() if c.stored is not None}

    @property
    def weight_nodes(self) -> list[WeightNode]:
        """The nodes of the source whose tensors no rule has changed except in name."""
        now = self.unchanged
        return [
            node._replace(tensors={key: now[name].name for key, name in node.tensors.items()})
            for node in self.checkpoint.weight_nodes
            if now.keys() >= {*node.tensors.values()}
        ]

    @property
    def warnings(self) -> list[str]:
        """Contradictions and unclear tensors, if quantised weights are decoded or converted."""
        found = self.detected if self.became else None
        return [] if found is None else [*found.warnings, *map(str, found.unclear)]

    @property
    def path(self) -> str:
        """The source, as errors call it."""
        return shown(self.checkpoint.path)

    def path_of(self, name: str) -> str:
        """The file of a folder that has a tensor, or else the source, as errors call it."""
        change, source = self.changes.get(name), self.checkpoint
        leaves = change.leaves if change and source.format == "sharded" else ()
        files = {leaf.file.path for leaf in leaves if isinstance(leaf, Stored)}
        path = files.pop() if len(files) == 1 else ""
        # A path that a link leads to does not tell: it may end in a hash.
        return shown(path) if path and path.startswith(source.folder) else self.path

    def matching(self, r: Rule) -> list[tuple[str, re.Match[str]]]:
        """The names that a rule matches. Raises ReshapeError if there are none."""
        found = [(name, m) for name in self.changes if (m := r.pattern.fullmatch(name))]
        if not found:
            some = next(iter(self.changes), "")
            whole = f"; whole names are matched, such as {quoted(some)}" if some else ""
            raise ReshapeError(f"{self.path}: no tensor has a name that {r} matches{whole}")
        return found

    def rewrite(self, r: Rule, make: Callable[[Change, re.Match[str]], list[Change]]) -> None:
        """Replace each tensor that a rule matches by those that `make` returns."""
        made = {}
        for name, found in self.matching(r):
            with self.named(name, r):
                made[name] = make(self.changes[name], found)
        self.replace(r, made)

    def replace(self, r: Rule, made: Mapping[str, list[Change]]) -> None:
        """Replace tensors by others. Raises ReshapeError if two would have the same name."""
        changes = dict[str, Change]()
        for name, change in self.changes.items():
            for new in made.get(name, [change]):
                if new.name in changes:
                    raise ReshapeError(f"{self.path}: {r} makes two tensors {quoted(new.name)}")
                changes[new.name] = new
        self.changes = changes

    def reshape(self, t: Tensor, shape: Ints) -> Tensor:
        """A tensor in another shape, as the specification defines it."""
        made = self.dialect(t, shape)
        if made.ndim > MOST_DIMS:
            more = f"{made.ndim} dims are more than the {MOST_DIMS} of a file"
            raise ReshapeError("cannot reshape", t.shape, shape, (more,))
        return made

    def cast(self, t: Tensor, name: str) -> Tensor:
        """A tensor in another dtype."""
        made: Tensor = cast_to(t, name, saturate=self.saturate)
        return made

    @contextmanager
    def named(self, name: str, r: Rule, codes: str = "", stored: str = "") -> Iterator[None]:
        """A context that adds the file, the tensor and the rule to errors.

        `codes` is the name of the codes of a quantised weight, `stored` its own in the source.
        """
        where = f"{self.path_of(codes or name)}: tensor {quoted(name)}"
        try:
            yield
        except ReshapeError as fault:
            asked_by = ", ".join(filter(None, (fault.asked_by, str(r))))
            raise ReshapeError(
                f"{where}: {fault.reason}", fault.source, fault.target, fault.notes, asked_by
            ) from None
        except (DTypeError, FormatError) as fault:
            reason = str(fault).partition(f"weight {quoted(stored or name)}: ")[2] or str(fault)
            raise type(fault)(f"{where}: {reason}{asked_by_line(r)}") from None


def each(r: Rule, tensors: Tensors, step: Callable[..., Tensor], *arguments: object) -> None:
    """Add a step to each tensor that a rule matches (see `Change.then`)."""
    tensors.rewrite(r, lambda change, _: [change.then(step, *arguments)])


Dialect = Callable[[Tensor, Ints], Tensor]


class Spec(NamedTuple):
    """A specification that `--spec` can name: its reshape, by module and name, and its flag.

    Most conversions need none of the modules, and all of them take 30 ms to import.
    """

    module: str
    function: str
    flag: str | None


SPECS = {
    "array": Spec("..operations.views", "reshape", None),
    "onnx": Spec("..dialects.onnx", "reshape", "allowzero"),
    "openvino": Spec("..dialects.openvino", "reshape", "special_zero"),
    "onednn": Spec("..dialects.onednn", "static_reshape", "special_zero"),
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
    own = SPECS[spec]
    flags = {"special_zero": special_zero, "allowzero": int(allowzero)}
    for name, value in flags.items():
        if value and name != own.flag:
            option = name.replace("_", "-")
            raise ReshapeError(f"--{option} is not an attribute of --spec {spec}")
    given = {own.flag: flags[own.flag]} if own.flag else {}

    def reshape(t: Tensor, shape: Ints) -> Tensor:
        made: Tensor = getattr(import_module(own.module, __package__), own.function)(
            t, shape=shape, **given
        )
        return made

    return reshape
