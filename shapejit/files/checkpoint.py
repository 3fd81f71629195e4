"""What a reader returns, whatever the file format: tensors by name, none of them loaded yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..errors import FileFormatError, shape_text, shown
from ..quantization.parts import WeightNode
from ..shapes.arithmetic import MAX_SIZE
from .stored import Stored

__all__ = ["MAX_RANK", "Checkpoint", "FileType", "Typed", "is_text", "size_in_bits"]

MAX_RANK = 64  # NumPy's limit


class _Mapped(Mapping[str, Tensor]):
    """The tensors of the members, each made when it is asked for: a file may have a million.

    `weight_nodes` are those of the Checkpoint, for `schemes.detect`.
    """

    def __init__(
        self, path: str, members: Mapping[str, Stored], weight_nodes: Sequence[WeightNode]
    ) -> None:
        self._path = path
        self._members = members
        self.weight_nodes = weight_nodes

    def __repr__(self) -> str:
        return f"<{len(self)} tensors of {shown(self._path)}>"

    def __getitem__(self, name: str) -> Tensor:
        return self._members[name].mapped()

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __len__(self) -> int:
        return len(self._members)


class FileType(NamedTuple):
    """A file's own name of an element type."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """A tensor that is not mapped yet, and the type that the file gives it, if it names any.

    It has the attributes of a tensor of `gguf.GGUFReader` that `schemes.detect` reads.
    """

    stored: Stored
    tensor_type: FileType | None

    @property
    def dtype(self) -> DType:
        """What the elements are."""
        return self.stored.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.stored.layout.size

    @property
    def data(self) -> Tensor:
        """The tensor, mapped."""
        return self.stored.mapped()


class _Typed(Mapping[str, Typed]):
    """The tensors of a checkpoint with their types, and what takes its quantised weights."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.weight_nodes = checkpoint.weight_nodes

    def __getitem__(self, name: str) -> Typed:
        kind = self._checkpoint.types.get(name)
        return Typed(self._checkpoint.members[name], None if kind is None else FileType(kind))

    def __iter__(self) -> Iterator[str]:
        return iter(self._checkpoint.members)

    def __contains__(self, name: object) -> bool:
        return name in self._checkpoint.members

    def __len__(self) -> int:
        return len(self._checkpoint.members)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What a file, or a folder of shards, holds; `members` are in the order of the file.

    `format` is the name of the file format and `metadata` what the file says of
    itself (None where it says nothing). `nbytes` are the bytes of all tensors together;
    `start` is the byte of the file that its own offsets count from. `types` has the
    file's own name of an element type where that says more than the dtype, `weight_nodes`
    the nodes of its graph that take quantised weights.
    """

    path: str
    format: str
    members: Mapping[str, Stored]
    metadata: Mapping[str, Any] | None
    nbytes: int
    start: int = 0
    types: Mapping[str, str] = field(default_factory=dict)
    weight_nodes: Sequence[WeightNode] = ()

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Read-only Tensors over the file's memory map, which they keep alive."""
        return _Mapped(self.path, self.members, self.weight_nodes)

    @property
    def typed(self) -> Mapping[str, Typed]:
        """The tensors as `schemes.detect` takes them: those of no scheme are never mapped."""
        return _Typed(self)

    def stored(self, name: str) -> Stored:
        """A tensor to be read from the file, which raises an error if it has been truncated."""
        return self.members[name]


def size_in_bits(path: str, name: str, shape: Sequence[int], bits: int) -> int:
    """The bits of elements of `bits` each in this shape, of sizes that are not negative.

    Raises FileFormatError for more than 64 dims and for what int64 cannot count,
    whether or not another size is 0.
    """
    if len(shape) > MAX_RANK:
        raise FileFormatError(path, name, f"its shape has {len(shape)} dims, more than {MAX_RANK}")
    if prod(size for size in shape if size > 0) * bits > MAX_SIZE:
        reason = f"the non-zero sizes of its shape {shape_text(shape)} overflow int64 (in bits)"
        raise FileFormatError(path, name, reason)
    return prod(shape) * bits


def is_text(value: object) -> bool:
    """A str that UTF-8 can write: without lone surrogates.

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
