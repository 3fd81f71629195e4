"""The tensors of a destination as `schemes.detect` takes them, without writing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..files.checkpoint import FileType
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
    def data(self) -> Tensor:
        """The tensor: mapped where a file has it, else in memory."""
        extent = self.change.extent
        if extent is None:
            return self.change.tensor()
        memory = extent.file.part(extent.begin, extent.begin + extent.nbytes, self.change.name)
        return Tensor.frombuffer(memory, self.change.dtype, self.change.shape)


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
