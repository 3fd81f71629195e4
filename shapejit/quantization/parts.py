"""Parts: the tensors of one quantised weight, by the last components of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .naming import weight_name
from .rows import BY_NAME

if TYPE_CHECKING:
    from .groups import Group


class Parts(dict[str, Any]):
    """The tensors of one weight by the last components of their names, and its settings.

    `settings` come from a checkpoint's configuration: bits, group_size. For tensors of a
    checkpoint, `names` are their whole names by the keys of the parts, `weight` is the name of the
    weight in the unquantised model, `group` the Group that they were matched as, and `sources` what
    was given as tensors, by the keys of its form.
    """

    def __init__(
        self,
        parts: Mapping[str, Any],
        settings: Mapping[str, Any],
        names: Mapping[str, str] | None = None,
        weight: str = "",
        group: Group | None = None,
        sources: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(parts)
        self.settings = dict(settings)
        self.names = dict(names or {})
        self.weight, self.group = weight, group
        self.sources = dict(sources or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return Parts, (dict(self), self.settings, self.names, self.weight)


class WeightNode(NamedTuple):
    """A node of an ONNX graph with a quantised weight as input.

    `tensors` are the names of the weight's tensors by the operator's names of its inputs, the codes
    first; `settings` are the attributes that `Scheme.decode` takes. `fault` is the reason why the
    weight cannot be read, if there is one.
    """

    operator: str
    tensors: Mapping[str, str]
    settings: Mapping[str, int]
    fault: str = ""

    @property
    def codes(self) -> str:
        """The name of the tensor with the codes."""
        return next(iter(self.tensors.values()))


class Found(NamedTuple):
    """The tensors of one weight; `parts.names` has the name of each."""

    prefix: str
    scheme: str
    parts: Parts

    @property
    def group(self) -> Group:
        """The tensors, matched with a form."""
        assert self.parts.group is not None
        return self.parts.group

    @property
    def named(self) -> dict[str, str]:
        """The names of the tensors by the keys of the form."""
        return {part: self.parts.names[key] for part, key in self.group.keys.items()}

    @property
    def codes(self) -> str:
        """The name of its codes."""
        return self.parts.names[self.group.keys[self.group.form.codes.part]]

    def renamed(self, codes: str) -> str:
        """The weight's name in the unquantised model if its codes have this name."""
        return weight_name(BY_NAME[self.scheme], codes)
