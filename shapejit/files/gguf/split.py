"""Models that llama.cpp has split: each shard is a GGUF file, and says which one it is."""

from __future__ import annotations

import re
from dataclasses import replace

from ...errors import FileFormatError, quoted
from ..paths import Path, file_name
from ..places import places
from . import reader
from .reader import Checkpoint

__all__ = ["read"]

# llama.cpp, llama_split_path; the keys of gguf-py, constants.py, Keys.Split.
_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


def read(path: Path) -> Checkpoint:
    """What a GGUF file holds, or all shards of which it is one, with the metadata of the first.

    Raises FileFormatError as `reader.read`, and for shards that are missing, say another number
    than their names, or together hold other tensors than the first one says.
    """
    name = file_name(path)
    base = places(name).base(name)
    named = _NAME.fullmatch(base)
    if named is None or int(named[3]) < 2:
        return reader.read(name)
    stem, count = named[1], int(named[3])
    shards = [
        _shard(name, f"{stem}-{k + 1:05d}-of-{named[3]}.gguf", k, count) for k in range(count)
    ]
    first, *others = shards
    members, types = dict(first.members), dict(first.types)
    for shard in others:
        for twice in members.keys() & shard.members.keys():
            raise FileFormatError(shard.path, twice, "another shard has a tensor of this name")
        members |= shard.members
        types |= shard.types
    said = first.metadata.get(_TENSORS, len(members))
    if said != len(members):
        reason = f"its shards hold {len(members)} tensors, not {said}, as the first one says"
        raise FileFormatError(name, None, reason)
    told = {key: value for key, value in first.metadata.items() if not key.startswith("split.")}
    nbytes = sum(shard.nbytes for shard in shards)
    return replace(first, path=name, members=members, types=types, metadata=told, nbytes=nbytes)


def _shard(path: str, base: str, number: int, count: int) -> Checkpoint:
    """A shard beside `path`."""
    place = places(path)
    name = place.join(place.parent(path), base) if place.parent(path) else base
    try:
        found = reader.read(name)
    except FileNotFoundError:
        raise FileFormatError(path, None, f"its shard {quoted(base)} does not exist") from None
    said = found.metadata.get(_NUMBER, number), found.metadata.get(_COUNT, count)
    if said != (number, count):
        reason = f"it says that it is shard {said[0]} of {said[1]} (from 0 on), not {number}"
        raise FileFormatError(name, None, reason)
    return found
