"""A single file as the destination: what its format cannot say, and how it is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from ..errors import FormatError, quoted, shown
from ..files import file_formats
from ..files.checkpoint import Checkpoint
from ..files.configuration import CONFIG
from ..files.paths import Path, file_name
from ..files.places import places
from ..files.writing import Progress
from .blocks import file_types
from .changes import announced
from .configs import facts_after, rewritten, told, told_by_config
from .remaining import uses
from .streaming import check_written
from .tensors import Tensors

__all__ = ["check", "untold", "write"]

_ARCHITECTURE = "general.architecture"  # without which llama.cpp loads no GGUF file


def check(path: str, tensors: Tensors) -> None:
    """FormatError for tensors that a file of this name could not tell how to read."""
    row, source = file_formats.writer(path), tensors.checkpoint
    for node in tensors.weight_nodes if row.name != source.format else ():
        if not node.fault and node.codes not in tensors.kept:
            raise FormatError(
                f"{tensors.path}: tensor {quoted(node.codes)} is codes of "
                f"{node.operator}, whose sizes its node tells and {row.name} cannot: --to f32 "
                f"decodes them, --keep says that they are right"
            )
    if "types" in row.more:
        return
    found = uses(tensors)
    for name, kind in source.types.items():
        if name in found and source.members[name].dtype.name == "uint8":
            raise FormatError(
                f"{tensors.path}: tensor {quoted(name)} is rows of blocks ({kind}), of "
                f"which {row.name} has no name: --to f32 decodes them"
            )


def untold(path: str, tensors: Tensors) -> Iterator[str]:
    """Warnings of what the file does not say, which a folder, or other metadata, would."""
    source = tensors.checkpoint
    metadata = source.metadata if source.format == "gguf" else None
    if file_formats.writer(path).name == "gguf" and _ARCHITECTURE not in (metadata or {}):
        yield (
            f"{shown(path)}: no {_ARCHITECTURE} says of which kind the model is, so that "
            f"llama.cpp cannot load it: in Python sj.save_file(..., metadata=) writes one"
        )
    schemes = list[str]()
    content = tensors.config.content
    with suppress(FormatError):  # of what no config.json can tell
        content = rewritten(tensors.config, tensors)
        schemes = told_by_config(facts_after(content, tensors), tensors)
    beside = content == tensors.config.content and _folder_of(path) == _folder_of(source.path)
    if schemes and not beside:
        yield (
            f"{shown(path)}: nothing beside it tells of its quantised weights "
            f"({', '.join(schemes)}), as {CONFIG} does in a folder: convert to a folder, or "
            f"decode them (--to bf16)"
        )


def _folder_of(path: str) -> str:
    """The folder of a file, or a folder itself."""
    place = places(path)
    return place.real(path if place.is_folder(path) else place.parent(path) or os.curdir)


def write(path: Path, tensors: Tensors, progress: Progress | None, most: int, verify: bool) -> None:
    """Write the tensors in the format of the suffix, with metadata where the format stays."""
    row, metadata, kept = file_formats.writer(path), None, None
    changes = [*tensors.changes.values()]
    if row.name == tensors.checkpoint.format:
        kept = replace(tensors.checkpoint, types={})  # of blocks that rules may have changed
        metadata = kept.metadata and told(kept.metadata, tensors)
    types = file_types(tensors) if "types" in row.more else None

    def look(found: Checkpoint) -> None:
        check_written(changes, found, file_name(path), most)

    file_formats.write(path, announced(changes, most), metadata, progress, source=kept,
                       types=types, check=look if verify else None)  # fmt: skip
