"""The quantised weights of a checkpoint, and their parts as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..arrays.tensor import Tensor
from ..files.checkpoint import Checkpoint
from ..files.pieces import Scratch
from ..files.stored import Stored
from ..quantization.bands import Slice
from ..quantization.configuration import Declared
from ..quantization.detection import Unclear, detected
from ..quantization.groups import Group
from ..quantization.naming import weight_name
from ..quantization.parts import Found, Parts
from ..quantization.rows import BY_NAME

__all__ = ["Weight", "Weights", "weights"]


@dataclass(frozen=True, eq=False)
class Weight:
    """A quantised weight: its scheme, its parts by their keys, their names by the same keys."""

    scheme: str
    group: Group
    stored: Mapping[str, Stored]
    keys: Mapping[str, str]
    settings: Mapping[str, Any]
    codes: str

    @property
    def names(self) -> list[str]:
        """The names of its tensors in the source."""
        return [part.name for part in self.stored.values()]

    @property
    def name(self) -> str:
        """The name of the weight in the unquantised model."""
        return self.renamed(self.codes)

    def renamed(self, codes: str) -> str:
        """The same if its codes have this name."""
        return weight_name(BY_NAME[self.scheme], codes)

    def nbytes(self, slices: Mapping[str, Slice]) -> int:
        """The bytes of the parts, or of those slices of them."""
        made = 0
        for key, part in self.stored.items():
            size = part.layout.shape[slices[key].axis] if key in slices else 1
            made += part.nbytes * (slices[key].size if key in slices else 1) // max(1, size)
        return made

    def read(self, slices: Mapping[str, Slice], scratch: Scratch) -> dict[str, Tensor]:
        """The parts, by the keys of the form, or those slices of them, read from the file."""
        made = dict[str, Tensor]()
        for key, part in self.stored.items():
            if key in slices:
                axis, begin, size = slices[key]
                part = part.with_layout(part.layout.narrow(axis, begin, size, 1))
            made[key] = part.tensor(scratch)
        return made

    def parts(self) -> Parts:
        """The parts as `Scheme.decode` takes them, read from the file."""
        return Parts(
            {self.keys[key]: t for key, t in self.read({}, Scratch()).items()}, self.settings
        )


@dataclass(frozen=True, eq=False)
class Weights:
    """The quantised weights of a checkpoint, what looks like some but is unclear, and warnings."""

    found: tuple[Weight, ...]
    unclear: tuple[Unclear, ...]
    warnings: tuple[str, ...]


def weights(checkpoint: Checkpoint, said: Declared) -> Weights:
    """The quantised weights, found in the whole checkpoint with what its config says."""
    found = detected(checkpoint.typed, said)
    made = tuple(_weight(checkpoint, each) for each in found)
    return Weights(made, tuple(found.unclear), tuple(found.warnings))


def _weight(checkpoint: Checkpoint, found: Found) -> Weight:
    group, names = found.parts.group, found.parts.names
    assert group is not None
    stored = {part: checkpoint.stored(names[key]) for part, key in group.keys.items()}
    codes = names[group.keys[group.form.codes.part]]
    return Weight(found.scheme, group, stored, group.keys, found.parts.settings, codes)
