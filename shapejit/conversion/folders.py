"""A folder as the destination: shards, index, config.json, and the other files of the source."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any

from .. import __version__
from ..errors import FileFormatError
from ..files import safetensors
from ..files.checkpoint import Checkpoint
from ..files.configuration import CONFIG
from ..files.paths import Path, file_name
from ..files.places import places
from ..files.sharded import PICKLES, SUFFIX, shards_named, stem_of
from ..quantization.configuration import BESIDE
from .configs import rewritten
from .shards import Shard, shards
from .tensors import Tensors

__all__ = ["Folder", "folder", "shards_of"]


@dataclass(frozen=True, eq=False)
class Folder:
    """All that a conversion writes to a folder.

    `shards` have the tensors; `texts` are the index and config.json, `copied` the paths of other
    files of the source, all by their names. `index` is the name that the index has, or would
    have, `gone` are files of an existing folder that do not stay in it. `plan` is JSON that
    says all that makes it this conversion: files written under another plan are not its own.
    """

    path: str
    shards: tuple[Shard, ...]
    texts: Mapping[str, str]
    copied: Mapping[str, str]
    index: str
    gone: frozenset[str]
    plan: str

    @cached_property
    def hash(self) -> str:
        """The hash of the plan."""
        return sha256(self.plan.encode()).hexdigest()[:16]

    @property
    def names(self) -> set[str]:
        """The files that are written."""
        return {*self.texts, *self.copied, *(shard.name for shard in self.shards)}

    @property
    def nbytes(self) -> int:
        """Bytes of the files that are copied."""
        return sum(places(found).size(found) for found in self.copied.values())

    def differs_in(self, plan: str) -> str:
        """What another plan says otherwise."""
        with suppress(ValueError, AttributeError):
            own, other = json.loads(self.plan), json.loads(plan)
            return next(str(name) for name, fact in own.items() if other.get(name) != fact)
        return "plan"


def folder(tensors: Tensors, source: str, path: Path, max_shard: int, rules: str) -> Folder:
    """The folder `path` as it is to be made of the folder `source`, which it may be.

    `rules` are what makes the tensors, as text. Raises FileFormatError for what files cannot hold.
    """
    name = file_name(path)
    target, home = places(name).real(name), places(source).real(source)
    _check_apart(home, target, path)
    checkpoint = tensors.checkpoint
    stem = stem_of(checkpoint.path)
    files = shards(name, [*tensors.changes.values()], max_shard, stem, _metadata(checkpoint))
    texts, index = _texts(tensors, files), f"{stem}{SUFFIX}"
    telling = {CONFIG, *(BESIDE if tensors.became else ())}  # config.json alone tells of them now
    own = {*texts, *(file.name for file in files), *telling}
    read = {name for name, _ in _sources(checkpoint, home)}
    others = {} if home == target else _others(home, own | read | shards_of(home, index))
    gone = telling if home == target else telling | {*BESIDE}
    plan = {
        "version of shapejit": __version__,
        "source": [*_sources(checkpoint, home), _hash(tensors.config.facts)],
        "list of rules": rules,
        "set of files": {f.name: [f.placed.size, _hash(f.placed.header)] for f in files},
    }
    text = json.dumps(plan, indent=1)
    return Folder(name, tuple(files), texts, others, index, frozenset(gone), text)


def _hash(fact: object) -> str:
    return sha256(repr(fact).encode()).hexdigest()


def shards_of(folder: str, index: str) -> set[str]:
    """The files of the checkpoint of this index in a folder: the index, and those with tensors."""
    made = {index, index.removesuffix(SUFFIX) + ".safetensors"}
    with suppress(FileFormatError, OSError):
        made |= set(shards_named(places(folder).join(folder, index)))
    return made


def _check_apart(home: str, target: str, path: Path) -> None:
    """FileFormatError where one of two folders lies in the other."""
    inner, outer = (os.path.join(each, "") for each in (target, home))
    if home != target and (inner.startswith(outer) or outer.startswith(inner)):
        which = "in the source" if inner.startswith(outer) else "around the source"
        raise FileFormatError(path, None, f"the destination must not be a folder {which}")


def _metadata(checkpoint: Checkpoint) -> dict[str, str] | None:
    """What the files of the source say of themselves: the first one, for all."""
    for member in checkpoint.members.values():
        with suppress(FileFormatError):  # of PyTorch, as what is made of it says
            return safetensors.read(member.file.path).metadata
        return {"format": "pt"}
    return None


def _texts(tensors: Tensors, files: Sequence[Shard]) -> dict[str, str]:
    """The index, if there are several files, and the config, if there is one."""
    made, config = dict[str, str](), tensors.config
    if config.content is not None:
        try:
            made[CONFIG] = config.written(rewritten(config, tensors))
        except RecursionError:
            raise FileFormatError(CONFIG, None, "it is nested too deeply") from None
    if len(files) > 1:
        places = {change.name: file.name for file in files for change in file.changes}
        total = sum(change.nbytes for change in tensors.changes.values())
        told = {**_index_metadata(tensors.checkpoint), "total_size": total}
        if tensors.became and "total_parameters" in told:
            told["total_parameters"] = sum(prod(c.shape) for c in tensors.changes.values())
        index = {"metadata": told, "weight_map": dict(sorted(places.items()))}
        stem = stem_of(tensors.checkpoint.path)
        made[f"{stem}{SUFFIX}"] = json.dumps(index, indent=2) + "\n"
    return made


def _index_metadata(checkpoint: Checkpoint) -> Mapping[str, Any]:
    return checkpoint.metadata or {}


def _sources(checkpoint: Checkpoint, home: str) -> list[list[str]]:
    """The files that are read, by their places in the source, and their versions."""
    files = {member.file.path: member.file for member in checkpoint.members.values()}
    place = places(home)
    return sorted([place.relative(path, home), file.version] for path, file in files.items())


def _others(folder: str, known: set[str]) -> dict[str, str]:
    """The files of a folder beside those `known`, by their names in it.

    Hidden folders belong to the tools that made them: they are not copied. A link must not
    lead out of the folder.
    """
    found = places(folder).files(folder)
    known = {*known, *(name for name in found if name.endswith(PICKLES))}
    return {name: path for name, path in found.items() if name not in known}
