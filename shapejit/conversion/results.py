"""The tensors of a destination as `schemes.detect` takes them, without writing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..files.checkpoint import FileType
from ..files.stored import LOOKED_AT, blank
from ..quantization.parts import WeightNode
from .changes import Change

__all__ = ["Result", "Results"]


class Result(NamedTuple):
    """A tensor of the destination, made when its data are asked for.

    It has the attributes that `schemes.detect` reads; `tensor_type` is the type that a GGUF
    file gives it, if it is rows of blocks.
    """

    change: Change
    tensor_type: FileType | None

    @property
    def dtype(self) -> DType:
        """What the elements are."""
        return self.change.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.change.shape)

    @property
    def outline(self) -> Tensor:
        """The tensor, as far as `schemes.detect` looks at it; only small ones are made."""
        change = self.change
        small = change.nbytes <= LOOKED_AT
        return change.tensor() if small else blank(change.dtype, change.shape)


class Results(Mapping[str, Result]):
    """The tensors of a destination, and the types of those that are rows of blocks, by name.

    `weight_nodes` are those of a graph that take quantised weights among them.
    """

    def __init__(
        self,
        changes: Mapping[str, Change],
        types: Mapping[str, str],
        weight_nodes: Sequence[WeightNode],
    ) -> None:
        self._changes, self._types = changes, types
        self.weight_nodes = weight_nodes

    def __getitem__(self, name: str) -> Result:
        kind = self._types.get(name)
        return Result(self._changes[name], None if kind is None else FileType(kind))

    def __iter__(self) -> Iterator[str]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)
