"""The tensors of one weight as they are given and found: by the last components of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Parts(dict[str, Any]):
    """The tensors of one weight by the last components of their names, and its settings.

    `settings` are facts of a checkpoint's configuration: bits, group_size.
    """

    def __init__(self, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        super().__init__(parts)
        self.settings = dict(settings)


class Found(NamedTuple):
    """The tensors of one weight: `prefix` and a key of `parts` make the name of each."""

    prefix: str
    scheme: str
    parts: Parts
