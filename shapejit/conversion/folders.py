"""A folder as the destination: shards, index, config.json, and the other files of the source."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

from ..errors import FileFormatError
from ..files import safetensors, sharded
from ..files.checkpoint import Checkpoint
from ..files.configuration import BESIDE
from ..files.paths import Path, file_name, inside
from ..files.pieces import MOST
from ..files.safetensors import header
from ..files.sharded import SUFFIX
from ..files.writing import Progress
from .changes import announced
from .configs import CONFIG, config_of, rewritten
from .finished import Finished
from .replacing import replaced_folder
from .shards import MAX_SHARD, Shard, shards
from .tensors import Tensors

__all__ = ["Settings", "write_folder"]


@dataclass(frozen=True)
class Settings:
    """How a folder is written: at most `max_shard` bytes of tensors per file.

    `resume` continues an interrupted conversion from its finished files, and keeps
    those of this one if it is stopped by an error; `told` are the rules of this one.
    `most` are the bytes of a tensor that should be in memory at a time.
    """

    max_shard: int = MAX_SHARD
    resume: bool = False
    told: str = ""
    most: int = MOST


def write_folder(
    tensors: Tensors, source: str, path: Path, progress: Progress | None, settings: Settings
) -> None:
    """Write shards, index, config.json and the other files of `source` to the folder `path`.

    All are written to a hidden folder beside `path`, synced, and take its place in one
    step: killed at any moment, `path` is the old folder or the new one. `path` may be `source`.
    Files that an existing folder has beside its checkpoint stay in it.
    """
    target = os.path.realpath(file_name(path))
    home = os.path.realpath(source)
    _check_apart(home, target, path)
    checkpoint, metadata = tensors.checkpoint, _metadata(tensors.checkpoint)
    stem = _stem(checkpoint.path)
    files = shards(list(tensors.changes.values()), settings.max_shard, stem)
    headers = [_header(path, shard, metadata) for shard in files]
    texts = _texts(tensors, files)
    own = {*texts, *(shard.name for shard in files), CONFIG}
    if tensors.became:  # config.json alone tells how they are stored now
        own.update(BESIDE)
    others = {} if home == target else _others(home, own | _shards_of(home, stem))
    old = _shards_of(target, stem) | (set() if home == target else {*BESIDE})
    kept = _others(target, {*own, *others, *old}, links=True)
    needed = sum(shard.nbytes for shard in files) + sum(map(os.path.getsize, others.values()))
    identity = {
        "source": repr([config_of(checkpoint).facts, *_sources(checkpoint)]),
        "list of rules": settings.told,
        "set of files": repr(headers),
    }
    with (
        replaced_folder(target, path, needed, settings.resume) as work,
        Finished(work, identity, settings.resume, path) as done,
    ):
        for k, shard in enumerate(files, 1):
            if not done.has(shard.name):
                new = announced(shard.changes, settings.most)
                safetensors.write(os.path.join(work, shard.name), new, metadata, progress)
                if k < len(files):  # after the last one little is left to resume
                    done.add(shard.name)
            elif progress is not None:
                progress(shard.nbytes)
        for name, found in others.items():
            _place(found, os.path.join(work, name), shutil.copy2)
        for name, found in kept.items():
            _place(found, os.path.join(work, name), _link)
        for name, text in texts.items():
            with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                file.write(text)
        done.forget()


def _check_apart(home: str, target: str, path: Path) -> None:
    """FileFormatError where one of two folders lies in the other."""
    both = os.path.commonpath([home, target])
    if home != target and both in (home, target):
        which = "in the source" if both == home else "around the source"
        raise FileFormatError(path, None, f"the destination must not be a folder {which}")


def _stem(path: str) -> str:
    """What the names of shards begin with: `model`, or as the index is called."""
    return "model" if os.path.isdir(path) else os.path.basename(path).removesuffix(SUFFIX)


def _metadata(checkpoint: Checkpoint) -> dict[str, str] | None:
    """What the files of the source say of themselves: the first one, for all."""
    for member in checkpoint.members.values():
        return safetensors.read(member.file.path).metadata
    return None


def _header(path: Path, shard: Shard, metadata: Mapping[str, str] | None) -> bytes:
    """The header of a file; FileFormatError for what it cannot hold."""
    named = ((c.name, c.dtype, c.shape) for c in shard.changes)
    return header.encode(os.path.join(os.fspath(path), shard.name), named, metadata)


def _texts(tensors: Tensors, files: list[Shard]) -> dict[str, str]:
    """The index, if there are several files, and the config, if there is one."""
    made, config = dict[str, str](), config_of(tensors.checkpoint)
    if config.text is not None:
        try:
            new = rewritten(config, tensors)
            made[CONFIG] = config.raw if new == config.text else json.dumps(new, indent=2) + "\n"
        except RecursionError:
            raise FileFormatError(CONFIG, None, "it is nested too deeply") from None
    if len(files) > 1:
        places = {change.name: shard.name for shard in files for change in shard.changes}
        total = sum(shard.nbytes for shard in files)
        told = {**_index_metadata(tensors.checkpoint), "total_size": total}
        if tensors.became and "total_parameters" in told:
            told["total_parameters"] = sum(prod(c.shape) for c in tensors.changes.values())
        index = {"metadata": told, "weight_map": dict(sorted(places.items()))}
        stem = _stem(tensors.checkpoint.path)
        made[f"{stem}{SUFFIX}"] = json.dumps(index, indent=2) + "\n"
    return made


def _index_metadata(checkpoint: Checkpoint) -> Mapping[str, Any]:
    return checkpoint.metadata or {}


def _sources(checkpoint: Checkpoint) -> list[tuple[object, ...]]:
    """The files that are read: their names, sizes and times."""
    files = {member.file.path for member in checkpoint.members.values()}
    found = [(os.path.realpath(path), os.stat(path)) for path in sorted(files)]
    return [(path, status.st_size, status.st_mtime_ns) for path, status in found]


def _shards_of(folder: str, stem: str) -> set[str]:
    """The files of the checkpoint of this name in a folder: its index, and those with tensors."""
    index = os.path.join(folder, f"{stem}{SUFFIX}")
    made = {f"{stem}{SUFFIX}", f"{stem}.safetensors"}
    with suppress(FileFormatError, OSError):
        made |= set(sharded.shards_named(index))
    return made


def _others(folder: str, known: set[str], links: bool = False) -> dict[str, str]:
    """The files of a folder beside those `known`, by their names in it.

    Hidden folders belong to the tools that made them: they are not copied. With `links`
    all files count, links as they are; without, a link must not lead out of the folder.
    """
    made = {}
    for place, folders, files in os.walk(folder):
        if not links:
            folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for file in (*files, *linked):
            name = os.path.relpath(os.path.join(place, file), folder)
            if name not in known:
                made[name] = os.path.join(folder, name) if links else inside(folder, name, None)
    for name, found in made.items():
        if not links and not os.path.isfile(found):
            raise FileFormatError(os.path.join(folder, name), None, "it is not a regular file")
    return made


def _place(found: str, path: str, copy: Callable[[str, str], object]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    copy(found, path)


def _link(found: str, path: str) -> None:
    """The same file under another name, or a copy where there are no links."""
    try:
        os.link(found, path, follow_symlinks=False)
    except OSError:
        shutil.copy2(found, path, follow_symlinks=False)
