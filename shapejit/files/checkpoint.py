"""Checkpoint: what every reader returns, tensors by name, none of them loaded yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from ..arrays.tensor import Tensor
from ..errors import FileFormatError, FormatError, number_of, quoted, shape_text, shown
from ..quantization.parts import WeightNode
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.arithmetic import MAX_SIZE
from .places import file_system
from .stored import Stored

S = TypeVar("S")
T = TypeVar("T")


class LazyMapping(Mapping[str, T]):
    """A mapping whose values, perhaps a million, are made from `known` on access.

    It is printed as the tensors of a `path`; `weight_nodes` are for `schemes.detect`.
    """

    def __init__(
        self,
        known: Mapping[str, S],
        make: Callable[[str, S], T],
        path: str = "",
        weight_nodes: Sequence[WeightNode] = (),
    ) -> None:
        self._known: Mapping[str, Any] = known
        self._make: Callable[[str, Any], T] = make
        self._path, self.weight_nodes = path, weight_nodes

    def __getitem__(self, name: str) -> T:
        return self._make(name, self._known[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<{number_of(len(self), 'tensor')} of {shown(self._path)}>"


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The content of a file or a folder of shards; `members` are in the order of the file.

    `format` is the name of the file format, `metadata` the file's own (None if there is none).
    `start` is the byte from which the file's offsets count. `types` has the file's names of element
    types that say more than the dtype, `weight_nodes` the nodes of its graph with quantised
    weights. `of_files` are the metadata of a folder's first shard, or those that files of
    safetensors get instead of the format's own; `stem` is the prefix of the names of its files.
    `own` has whatever else the writer of the format needs. `warnings` name what was not read.
    """

    path: str
    format: str
    members: Mapping[str, Stored]
    metadata: Mapping[str, Any] | None
    start: int = 0
    types: Mapping[str, str] = field(default_factory=dict)
    weight_nodes: Sequence[WeightNode] = ()
    of_files: Mapping[str, str] | None = None
    stem: str = "model"
    own: Any = None
    warnings: Sequence[str] = ()

    @property
    def folder(self) -> str:
        """The folder itself, or that of the file; empty for the current one."""
        system = file_system(self.path)
        return self.path if system.is_folder(self.path) else system.parent(self.path)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(stored.nbytes for stored in self.members.values())

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Read-only Tensors over the file's memory map, which they keep alive."""
        return self._mapping(lambda _, stored: stored.mapped())

    @property
    def typed(self) -> Mapping[str, Stored]:
        """The tensors as `schemes.detect` takes them; only those that it reads are mapped."""
        return self._mapping(lambda _, stored: stored)

    def _mapping(self, make: Callable[[str, Stored], T]) -> Mapping[str, T]:
        return LazyMapping(self.members, make, self.path, self.weight_nodes)


def size_in_bits(shape: Sequence[int], bits: int) -> int:
    """The bits of elements of `bits` each in this shape, of sizes that are not negative.

    Raises FormatError for more than 64 dims and for what int64 cannot count,
    whether or not another size is 0.
    """
    if len(shape) > MOST_DIMS:
        raise FormatError(f"its shape has {len(shape)} dims, more than {MOST_DIMS}")
    if prod(size for size in shape if size > 0) * bits > MAX_SIZE:
        reason = f"the non-zero sizes of its shape {shape_text(shape)} overflow int64 (in bits)"
        raise FormatError(reason)
    return prod(shape) * bits


def check_apart(spans: Iterable[tuple[str, int, int]], gaps: bool = True) -> None:
    """Raise FileFormatError (see `in_file`) where the bytes [begin, end) of two tensors overlap.

    Also for bytes between them that belong to no tensor, unless `gaps` are allowed.
    """
    at, before = 0, ""
    for name, begin, end in sorted(spans, key=lambda span: span[1:]):
        if begin < at:
            reason = f"its data overlap those of tensor {quoted(before)}"
            raise FileFormatError(None, name, reason)
        if begin > at and not gaps:
            reason = f"{begin - at} bytes before its data belong to no tensor"
            raise FileFormatError(None, name, reason)
        at, before = end, name


def together(files: Iterable[Checkpoint]) -> LazyMapping[Stored]:
    """The tensors of several files. Raises FileFormatError if two have the same name."""
    where = dict[str, Checkpoint]()
    for file in files:
        for name in file.members.keys() & where.keys():
            reason = f"it is in {quoted(where[name].path)}, too, and nothing says which is meant"
            raise FileFormatError(file.path, name, reason)
        where |= dict.fromkeys(file.members, file)
    return LazyMapping(where, lambda name, file: file.members[name])


def is_text(value: object) -> bool:
    """Whether a value is a str without lone surrogates, which UTF-8 cannot encode.

    >>> is_text("é"), is_text("\\ud800"), is_text(1)
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
