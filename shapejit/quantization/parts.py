"""Parts: the tensors of one quantised weight, by the last components of their names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .naming import weight_name
from .rows import BY_NAME

if TYPE_CHECKING:
    from .groups import Group


class Parts(dict[str, Any]):
    """The tensors of one weight by the last components of their names, and its settings.

    `settings` come from a checkpoint's configuration: bits, group_size. For tensors of a
    checkpoint, `weight` is the name of the weight in the unquantised model, and `group` the Group
    that they were matched as; `names` are their whole names by the keys of the parts, and `sources`
    what was given as tensors by the keys of its form, both with the codes first.
    """

    def __init__(
        self,
        parts: Mapping[str, Any],
        settings: Mapping[str, Any],
        weight: str = "",
        group: Group | None = None,
        names: Mapping[str, str] = MappingProxyType({}),
        sources: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(parts)
        self.settings, self.weight, self.group = dict(settings), weight, group
        self.names, self.sources = dict(names), sources

    def __reduce__(self) -> tuple[Any, ...]:
        return Parts, (dict(self), self.settings, self.weight, None, self.names)


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
    """The tensors of one weight, as `schemes.detect` lists them."""

    prefix: str
    scheme: str
    parts: Parts

    @property
    def group(self) -> Group:
        """The tensors, matched with a form."""
        assert self.parts.group is not None
        return self.parts.group

    @property
    def named(self) -> Mapping[str, str]:
        """The names of the tensors by the keys of the form, codes first."""
        return dict(zip(self.parts.sources, self.parts.names.values(), strict=True))

    @property
    def codes(self) -> str:
        """The name of its codes."""
        return self.named[self.group.form.codes.part]

    def renamed(self, codes: str) -> str:
        """The weight's name in the unquantised model if its codes have this name."""
        return weight_name(BY_NAME[self.scheme], codes)
