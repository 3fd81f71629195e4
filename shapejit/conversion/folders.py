"""The plan of a destination folder: shards, index, config, and the other files of the source."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod

from .. import __version__
from ..errors import FileFormatError, FormatError, quoted
from ..files.checkpoint import Checkpoint
from ..files.places import file_system, opened
from ..files.safetensors import placed
from ..files.sharded import PICKLES, SUFFIX, shards_named
from ..files.writing import NewFile
from ..quantization.configuration import CONFIG, QUANTIZER_CONFIG_FILES, Facts
from .changes import Change, to_write
from .destination_config import metadata_after
from .remaining import encoded
from .tensors import Tensors

MAX_SHARD = 5 * 10**9  # bytes, the default of transformers
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Shard:
    """A safetensors file of a folder, the unit of work: one process writes it as a whole."""

    name: str
    changes: tuple[Change, ...]
    file: NewFile

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(change.nbytes for change in self.changes)

    def is_written(self, folder: str) -> bool:
        """Whether a folder contains it, with this name, size and header."""
        system, header = file_system(folder), self.file.head
        with suppress(OSError, FileFormatError):
            found = system.open(system.inside(folder, self.name, None))
            same = found.size == self.file.size
            return same and found.bytes(0, len(header)) == header
        return False


@dataclass(frozen=True, eq=False)
class Folder:
    """All that a conversion writes to a folder.

    `shards` have the tensors; `texts` are the index and the config, `copied` the paths of other
    files of the source, all by name. `index` is the name of the index, even if there is none,
    `gone` are files of an existing folder that are removed. `plan` is JSON that identifies the
    conversion: files written under another plan belong to another one.
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

    def begun_otherwise(self, other: str, alone: bool, where: str) -> FileFormatError:
        """The error for an interrupted conversion, or a part, at `where` with another plan."""
        reason = f"the interrupted conversion had another {self._differs_in(other)}"
        hint = "it cannot be resumed (without --resume it is removed)"
        if not alone:
            hint = f"to start again, remove {where}"
        return FileFormatError(self.path, None, f"{reason}: {hint}")

    @property
    def names(self) -> set[str]:
        """The files that are written."""
        return {*self.texts, *self.copied, *(shard.name for shard in self.shards)}

    @property
    def nbytes(self) -> int:
        """Bytes of the files that are copied."""
        return sum(opened(found).size for found in self.copied.values())

    def _differs_in(self, plan: str) -> str:
        """The first fact in which another plan differs."""
        with suppress(ValueError, AttributeError):
            own, other = json.loads(self.plan), json.loads(plan)
            return next(str(name) for name, fact in own.items() if other.get(name) != fact)
        return "plan"


def planned_folder(
    tensors: Tensors, source: str, path: str, config: Facts, max_shard: int
) -> Folder:
    """The planned folder `path`, made from the folder `source`, which may be the same.

    `config` is the content of the config after the rules. Raises FileFormatError for tensors that
    files cannot hold.
    """
    target, home = file_system(path).real(path), file_system(source).real(source)
    _check_apart(home, target, path)
    checkpoint = tensors.checkpoint
    stem = checkpoint.stem
    changes = [*tensors.changes.values()]
    metadata = checkpoint.of_files and metadata_after(checkpoint.of_files, tensors)
    files = _shards(path, changes, max_shard, stem, metadata)
    texts, index = _texts(tensors, files, config, stem), f"{stem}{SUFFIX}"
    telling = {
        CONFIG,
        *(QUANTIZER_CONFIG_FILES if tensors.became or encoded(tensors) else ()),
    }  # the config alone tells of them now
    own = {*texts, *(file.name for file in files), *telling}
    sources = _sources(checkpoint, home)
    read = {name for name, _ in sources}
    others = {} if home == target else _others(home, own | read | shards_of(home, index))
    gone = telling if home == target else telling | {*QUANTIZER_CONFIG_FILES}
    plan = {
        "version of shapejit": __version__,
        "source": [*sources, _hash(tensors.config.facts)],
        "list of rules": [*map(str, tensors.rules), f"saturate {tensors.saturate}"],
        "set of files": {f.name: [f.file.size, _hash(f.file.head)] for f in files},
    }
    text = json.dumps(plan, indent=1)
    return Folder(path, tuple(files), texts, others, index, frozenset(gone), text)


def _hash(fact: object) -> str:
    return sha256(repr(fact).encode()).hexdigest()


def shards_of(folder: str, index: str) -> set[str]:
    """The files of a checkpoint in a folder: the index, and files with tensors."""
    made = {index, index.removesuffix(SUFFIX) + ".safetensors"}
    with suppress(FileFormatError, OSError):
        made |= set(shards_named(file_system(folder).join(folder, index)))
    return made


def _check_apart(home: str, target: str, path: str) -> None:
    """Raise FileFormatError if one of two folders is within the other."""
    inner, outer = (os.path.join(each, "") for each in (target, home))
    if home != target and (inner.startswith(outer) or outer.startswith(inner)):
        which = "in the source" if inner.startswith(outer) else "around the source"
        raise FileFormatError(path, None, f"the destination must not be a folder {which}")


def _texts(tensors: Tensors, files: Sequence[Shard], config: Facts, stem: str) -> dict[str, str]:
    """The index, if there are several files, and the config, if there is one."""
    made = dict[str, str]()
    if tensors.config.text:
        try:
            made[CONFIG] = tensors.config.text_of(config)
        except RecursionError:
            raise FileFormatError(CONFIG, None, "it is nested too deeply") from None
    if len(files) > 1:
        weight_map = {change.name: file.name for file in files for change in file.changes}
        total = sum(change.nbytes for change in tensors.changes.values())
        metadata = {**(tensors.checkpoint.metadata or {}), "total_size": total}
        if tensors.became and "total_parameters" in metadata:
            metadata["total_parameters"] = sum(prod(c.shape) for c in tensors.changes.values())
        index = {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))}
        made[f"{stem}{SUFFIX}"] = json.dumps(index, indent=2) + "\n"
    return made


def _sources(checkpoint: Checkpoint, home: str) -> list[list[str]]:
    """The files that are read, by their paths in the source, and their versions."""
    files = {member.file.path: member.file for member in checkpoint.members.values()}
    system = file_system(home)
    return sorted([system.relative(path, home), file.version] for path, file in files.items())


def _others(folder: str, known: set[str]) -> dict[str, str]:
    """The files of a folder beside those `known`, by their names in it.

    Hidden folders belong to the tools that made them: they are not copied. A link must not
    lead out of the folder.
    """
    found = file_system(folder).files(folder)
    known = {*known, *(name for name in found if name.endswith(PICKLES))}
    return {name: path for name, path in found.items() if name not in known}


def nbytes_of(given: int | str) -> int:
    """A number of bytes, also with a unit. Raises FormatError for other text.

    >>> nbytes_of("5GB"), nbytes_of("512 MiB")
    (5000000000, 536870912)
    """
    text = str(given)
    found = re.fullmatch(r"\s*([0-9]{1,15})\s*([A-Za-z]{0,3})\s*", text)
    if found is None or found[2].upper() not in _UNITS or int(found[1]) == 0:
        raise FormatError(f"{quoted(text)} is not a number of bytes, such as 5GB or 500MB")
    return int(found[1]) * _UNITS[found[2].upper()]


def _shards(
    folder: str, changes: Sequence[Change], max_shard: int, stem: str,
    metadata: Mapping[str, str] | None,
) -> list[Shard]:  # fmt: skip
    """The tensors in order, in files of at most `max_shard` bytes; a larger one has its own file.

    Raises FileFormatError for tensors that a file cannot hold.
    """
    groups, left, system = [list[Change]()], max_shard, file_system(folder)
    for change in changes:
        if groups[-1] and change.nbytes > left:
            groups.append([])
            left = max_shard
        groups[-1].append(change)
        left -= change.nbytes
    count, made = len(groups), list[Shard]()
    for k, group in enumerate(groups, 1):
        numbers = f"-{k:05d}-of-{count:05d}" if count > 1 else ""
        name = f"{stem}{numbers}.safetensors"
        file = placed(system.join(folder, name), to_write(group), metadata)
        made.append(Shard(name, tuple(group), file))
    return made
