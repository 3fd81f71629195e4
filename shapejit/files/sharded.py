"""A folder of safetensors shards, as published: `model.safetensors.index.json` names them.

The index is a JSON object: `weight_map` maps each tensor to the shard that holds it,
`metadata` is free. Shards lie in the folder of the index.
"""

from __future__ import annotations

from typing import Any

from ..errors import FileFormatError, quoted
from . import safetensors
from .checkpoint import Checkpoint, LazyMapping
from .paths import Path, file_name
from .places import opened, places
from .safetensors.header import json_object, parsed

__all__ = ["INDEX", "SINGLE", "SUFFIX", "read", "shards_named"]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"  # all tensors of a folder without an index
SUFFIX = ".safetensors.index.json"

_WEIGHTS = (SUFFIX, ".safetensors", ".gguf", ".onnx", ".npz", ".bin", ".pt", ".pth", ".ckpt")
_MAX_INDEX = 100_000_000  # bytes, as of a safetensors header


def read(path: Path) -> Checkpoint:
    """The tensors of all shards of a folder with `model.safetensors.index.json`.

    `path` is the folder, or an index of another name. A folder without an index may have
    all tensors in `model.safetensors`. Each shard's header is checked,
    and that it holds the tensors that the index says, neither more nor fewer.
    Raises FileFormatError (with the file and the tensor) where that is not so, and for
    shards that are missing or lie outside the folder (a link out of it included).
    """
    name = file_name(path)
    place = places(name)
    index = place.join(name, INDEX) if place.is_folder(name) else name
    if not place.exists(index):
        if not place.exists(place.join(name, SINGLE)):
            raise FileFormatError(name, None, _without(name))
        file = safetensors.read(place.inside(name, SINGLE, None))
        return Checkpoint(name, "sharded", file.members, None, file.nbytes, of_files=file.metadata)
    metadata, located = _index(index)
    own: dict[str, list[str]] = {}
    for tensor, location in located.items():
        own.setdefault(location, []).append(tensor)
    known: dict[str, str] = {}
    for location, tensors in own.items():
        found = place.inside(place.parent(index), location, tensors[0])
        if found in known:
            reason = f"its shard {quoted(location)} is the same file as {quoted(known[found])}"
            raise FileFormatError(index, tensors[0], reason)
        known[found] = location
    shards = {place: _shard(index, place, found, own[place]) for found, place in known.items()}
    nbytes = sum(shard.nbytes for shard in shards.values())
    members = LazyMapping(located, lambda tensor, shard: shards[shard].members[tensor])
    of_files = next((shard.metadata for shard in shards.values()), None)
    return Checkpoint(name, "sharded", members, metadata, nbytes, of_files=of_files)


def _without(path: str) -> str:
    """Why there is no checkpoint at a path, and what may be meant."""
    reason = f"it is not a regular file, nor a folder with {SINGLE} or {INDEX}"
    place = places(path)
    if place.is_folder(path):
        others = [name for name in sorted(place.names(path)) if name.endswith(_WEIGHTS)]
        reason += f"; it holds {quoted(others[0])}" if others else ""
    return reason


def shards_named(index: str) -> list[str]:
    """The shards that an index names."""
    return list(dict.fromkeys(_index(index)[1].values()))


def _shard(index: str, location: str, found: str, tensors: list[str]) -> Checkpoint:
    """A shard, which holds exactly the tensors that the index says."""
    try:
        shard = safetensors.read(found)
    except FileNotFoundError:
        reason = f"its shard {quoted(location)} does not exist"
        raise FileFormatError(index, tensors[0], reason) from None
    for tensor in tensors:
        if tensor not in shard.members:
            reason = f"it is not in its shard {quoted(location)}"
            raise FileFormatError(index, tensor, reason)
    if len(shard.members) > len(tensors):
        tensor = next(iter(shard.members.keys() - set(tensors)))
        reason = f"it is in the shard {quoted(location)}, but the index does not say so"
        raise FileFormatError(index, tensor, reason)
    return shard


def _index(path: str) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The metadata, and the shard of each tensor."""
    file = opened(path)
    if file.size > _MAX_INDEX:
        raise FileFormatError(path, None, f"it has {file.size} bytes, more than {_MAX_INDEX}")
    # Objects stay tuples of pairs, so that a key that stands twice is seen.
    value = parsed(path, file.bytes(0, file.size), "it", object_pairs_hook=tuple)
    fields = json_object(path, None, value, "the index")
    places = json_object(path, None, fields.get("weight_map"), "its weight_map")
    for tensor, location in places.items():
        if not isinstance(location, str):
            raise FileFormatError(path, tensor, "its shard is not the name of a file")
    metadata = fields.get("metadata")
    return None if metadata is None else json_object(path, None, metadata, "its metadata"), places
