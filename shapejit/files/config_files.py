"""config.json and the configs of quantisers beside it, parsed to a Config and formatted as text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import FileFormatError
from ..quantization.configuration import (
    COMFY,
    CONFIG,
    QUANTIZER_CONFIG_FILES,
    Declared,
    Facts,
    declared,
)
from .checkpoint import Checkpoint
from .places import file_system, small_file

# An entry for each of 70 000 experts takes about 10 MB; a parsed file up to fifty times its bytes.
_MAX_BYTES = 16_000_000


@dataclass(frozen=True, eq=False)
class Config:
    """A config: `facts` about weights are as `schemes.detect` takes them.

    `content` is that of the config, `text` the same as it is written in a folder of shards (empty:
    there is none), `beside` are the files of quantisers beside it.
    """

    facts: Facts
    content: Facts
    text: str = ""
    beside: tuple[str, ...] = ()

    @cached_property
    def declared(self) -> Declared:
        """The declarations about weights."""
        return declared(self.facts)

    def text_of(self, content: Facts) -> str:
        """The text of the config with this content; the original text if that is the same."""
        return self.text if content == self.content else json.dumps(content, indent=2) + "\n"


def configuration(checkpoint: Checkpoint) -> Config:
    """The config of a checkpoint: that of its folder, and the file's metadata.

    The content of quantisers' files next to it is included under their names. Raises
    FileFormatError if a file is not a JSON object, has more than 16 MB, or is a link out of the
    folder.
    """
    metadata, facts = checkpoint.metadata or {}, dict[str, Any]()
    system, folder = file_system(checkpoint.path), checkpoint.folder
    found = {
        name: _read(system.inside(folder, name, None))
        for name in (CONFIG, *QUANTIZER_CONFIG_FILES)
        if system.exists(system.join(folder, name))
    }
    if COMFY in metadata:
        facts[COMFY] = metadata[COMFY]
    for name, (_, content) in found.items():
        facts |= content if name == CONFIG else {name: content}
    text, own = found.pop(CONFIG, ("", {}))
    sharded = checkpoint.format == "sharded"
    return Config(facts, own, text, tuple(found)) if sharded else Config(facts, own)


def _read(path: str) -> tuple[str, dict[str, Any]]:
    """The text of a JSON file, and the object in it."""
    data = small_file(path, _MAX_BYTES)
    try:
        text = data.decode(json.detect_encoding(data))
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise FileFormatError(path, None, f"it is not JSON: {fault}") from None
    if not isinstance(value, dict):
        raise FileFormatError(path, None, "it is not a JSON object")
    return text, value
