"""A folder of safetensors shards, as published: `model.safetensors.index.json` names them.

The index is a JSON object: `weight_map` maps each tensor to the shard that holds it,
`metadata` is arbitrary. Shards are in the folder of the index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import FileFormatError, in_file, quoted
from . import pytorch, safetensors
from .checkpoint import Checkpoint, LazyMapping, together
from .paths import Path, file_name
from .places import file_system, opened, small_file
from .safetensors.header import json_object, parsed
from .urls import is_url

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"  # all tensors of a folder without an index
SUFFIX = ".safetensors.index.json"

_WEIGHT_SUFFIXES = (
    SUFFIX,
    ".safetensors",
    ".gguf",
    ".onnx",
    ".npz",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
)
PICKLES = (".bin.index.json", ".pt.index.json", ".pth.index.json")
# Checkpoints of PyTorch; training scripts leave other pickles (optimizer.pt, training_args.bin).
_PICKLE = re.compile(
    r"(pytorch_model|diffusion_pytorch_model|adapter_model|consolidated|model)[^/]*\.(bin|pth?)"
)
_NUMBERED = re.compile(r"-[0-9]{5}-of-[0-9]{5}\.[a-z]+$")
_MAX_INDEX = 100_000_000  # bytes, as of a safetensors header


def read(path: Path) -> Checkpoint:
    """The tensors of all shards of a folder with `model.safetensors.index.json`.

    `path` is the folder, or an index of another name. A folder without an index may have all
    tensors in `model.safetensors`. Otherwise it has one index of another name, or files of
    safetensors (diffusion_pytorch_model, adapter_model, consolidated) or of PyTorch, whose tensors
    have different names. Numbered shards without an index are refused: some may be missing.

    Each shard must contain exactly the tensors that the index lists. Raises FileFormatError (with
    the file and the tensor) if it does not, and for shards that are missing or outside the folder
    (including a link out of it).
    """
    name = file_name(path)
    system = file_system(name)
    index, files = _chosen(name) if system.is_folder(name) else (name, [])
    if not index:
        read = [_file(system.inside(name, file, None)) for file in files]
        stem = files[0].removesuffix(".safetensors")
        stem = stem if len(files) == 1 and stem != files[0] else "model"
        of_files = _file_metadata(read[0])
        warnings = [text for file in read for text in file.warnings]
        return Checkpoint(name, "sharded", together(read), None, of_files=of_files, stem=stem,
                          warnings=warnings)  # fmt: skip
    metadata, located = _index(index)
    own: dict[str, list[str]] = {}
    for tensor, location in located.items():
        own.setdefault(location, []).append(tensor)
    files_of, known = dict[str, str](), dict[str, str]()
    for location, tensors in own.items():
        found = system.inside(system.parent(index), location, tensors[0])
        first = known.setdefault(system.real(found), location)
        if first != location:
            reason = f"its shard {quoted(location)} is the same file as {quoted(first)}"
            raise FileFormatError(index, tensors[0], reason)
        files_of[location] = found
    shards = {place: _shard(index, place, file, own[place]) for place, file in files_of.items()}
    members = LazyMapping(located, lambda tensor, shard: shards[shard].members[tensor])
    of_files, stem = (
        next(map(_file_metadata, shards.values()), None),
        system.base(index).removesuffix(SUFFIX),
    )
    stem = "model" if stem.endswith(PICKLES) else stem
    warnings = [text for shard in shards.values() for text in shard.warnings]
    return Checkpoint(name, "sharded", members, metadata, of_files=of_files, stem=stem,
                      warnings=warnings)  # fmt: skip


def _chosen(folder: str) -> tuple[str, list[str]]:
    """The index of a folder, or else the names of the files with its tensors."""
    system = file_system(folder)
    if system.exists(system.join(folder, INDEX)):
        return system.join(folder, INDEX), []
    if system.exists(system.join(folder, SINGLE)):
        return "", [SINGLE]
    try:
        listed = sorted(system.listed(folder))
    except OSError:  # web servers list nothing
        if not is_url(folder):
            raise
        listed = []
    names = [name for name in listed if not name.startswith(".")]
    for suffix, files in (
        (SUFFIX, [name for name in names if name.endswith(".safetensors")]),
        (PICKLES, [name for name in names if _PICKLE.fullmatch(name)]),
    ):
        indices = [name for name in names if name.endswith(suffix)]
        if len(indices) > 1:
            both = " and ".join(map(quoted, indices[:2]))
            raise FileFormatError(folder, None, f"it holds {both}: give the path of one of them")
        if indices:
            return system.join(folder, indices[0]), []
        if shards := [name for name in files if _NUMBERED.search(name)]:
            reason = f"it has the shard {quoted(shards[0])}, but no index: it is not complete"
            raise FileFormatError(folder, None, reason)
        if files:
            return "", files
    reason = f"it is not a regular file, nor a folder with {SINGLE} or {INDEX}"
    others = [name for name in listed if name.endswith(_WEIGHT_SUFFIXES)]
    reason += f"; it holds {quoted(others[0])}" if others else ""
    raise FileFormatError(folder, None, reason)


def _file(path: str) -> Checkpoint:
    """A file with tensors, of safetensors or of PyTorch."""
    by_torch = pytorch.begins(bytes(opened(path).head))
    return pytorch.read(path) if by_torch else safetensors.read(path)


def _file_metadata(file: Checkpoint) -> Mapping[str, str] | None:
    """The metadata of a file of safetensors, or of one that is written of it."""
    return file.metadata or file.of_files


def shards_named(index: str) -> list[str]:
    """The shards that an index names."""
    return list(dict.fromkeys(_index(index)[1].values()))


def _shard(index: str, location: str, found: str, tensors: list[str]) -> Checkpoint:
    """A shard, checked to have exactly the tensors that the index lists."""
    try:
        shard = _file(found)
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
    # Objects stay tuples of pairs, so that duplicate keys are found.
    with in_file(path):
        value = parsed(small_file(path, _MAX_INDEX), "it", object_pairs_hook=tuple)
        fields = json_object(value, "the index")
        shards = json_object(fields.get("weight_map"), "its weight_map")
        for tensor, location in shards.items():
            if not isinstance(location, str):
                raise FileFormatError(path, tensor, "its shard is not the name of a file")
        metadata = fields.get("metadata")
        return None if metadata is None else json_object(metadata, "its metadata"), shards
