"""What a checkpoint's folder and its file say of how weights are stored."""

from __future__ import annotations

import json
from typing import Any

from ..errors import FileFormatError
from ..quantization.configuration import BESIDE
from .checkpoint import Checkpoint
from .places import opened, places

__all__ = ["configuration", "json_file"]

_COMFY = "_quantization_metadata"
# An entry for each of 70 000 experts takes about 10 MB; a parsed file up to fifty times its bytes.
_MAX_BYTES = 16_000_000


def configuration(checkpoint: Checkpoint) -> dict[str, Any]:
    """The config for `schemes.detect`: that of the folder, and what the file's metadata tell.

    What files of quantisers beside config.json say stands under the names of these files.
    Raises FileFormatError where a file is not a JSON object, has more than 16 MB, or is a
    link out of the folder.
    """
    path, metadata, found = checkpoint.path, checkpoint.metadata or {}, dict[str, Any]()
    place = places(path)
    folder = path if place.is_folder(path) else place.parent(path)
    if _COMFY in metadata:
        found[_COMFY] = metadata[_COMFY]
    for name in ("config.json", *BESIDE):
        if place.exists(place.join(folder, name)):
            told = json_file(place.inside(folder, name, None))
            found |= {name: told} if name in BESIDE else told
    return found


def json_file(path: str) -> dict[str, Any]:
    """The object in a JSON file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write('{"bits": 4}'), file.flush()
    ...     json_file(file.name)
    {'bits': 4}
    """
    file = opened(path)
    if file.size > _MAX_BYTES:
        raise FileFormatError(path, None, f"it has {file.size} bytes, more than {_MAX_BYTES}")
    try:
        value = json.loads(file.bytes(0, file.size))
    except (ValueError, RecursionError) as fault:
        raise FileFormatError(path, None, f"it is not JSON: {fault}") from None
    if not isinstance(value, dict):
        raise FileFormatError(path, None, "it is not a JSON object")
    return value
