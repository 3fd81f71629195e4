"""Single-file destinations: whether the format can hold the tensors, and writing of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from ..errors import FormatError, quoted, shown
from ..files import file_formats
from ..files.checkpoint import Checkpoint, LazyMapping
from ..files.paths import Path, file_name
from ..files.places import file_system
from ..files.planned import Planned
from ..files.stored import FileType, Stored
from ..files.writing import Progress
from ..quantization import sizes
from ..quantization.configuration import CONFIG
from ..quantization.rows import BY_NAME, ROWS
from .changes import Change, check_written, to_write
from .destination_config import described_by_config, facts_after, metadata_after, rewritten
from .remaining import in_runs, uses
from .tensors import Tensors
from .weights import PartOf

_ARCHITECTURE = "general.architecture"  # without which llama.cpp loads no GGUF file


def check(path: str, tensors: Tensors) -> None:
    """Raise FormatError for weights that a file of this format cannot describe."""
    row, source = file_formats.writer(path), tensors.checkpoint
    for node in tensors.weight_nodes if row.name != source.format else ():
        if not node.fault and node.codes not in tensors.kept:
            raise FormatError(
                f"{tensors.path}: tensor {quoted(node.codes)} holds codes of "
                f"{node.operator}, whose sizes are attributes of its node, which {row.name} cannot "
                f"store: --to bf16 (or f32) decodes them, --keep copies them anyway"
            )
    if "types" in row.more:
        return
    found = uses(tensors)
    for name, kind in source.types.items():
        if name in found and source.members[name].dtype.name == "uint8":
            raise FormatError(
                f"{tensors.path}: tensor {quoted(name)} holds blocks of type {kind}, "
                f"which {row.name} lacks: --to bf16 (or f32) decodes them"
            )


def metadata_warnings(path: str, tensors: Tensors) -> Iterator[str]:
    """Warnings about facts that a folder or other metadata would contain, but not the file."""
    source = tensors.checkpoint
    metadata = source.metadata if source.format == "gguf" else None
    if file_formats.writer(path).name == "gguf" and _ARCHITECTURE not in (metadata or {}):
        yield (
            f"{shown(path)}: no {_ARCHITECTURE} states the model's architecture, so "
            f"llama.cpp cannot load it: in Python sj.save_file(..., metadata=) writes one"
        )
    schemes = list[str]()
    content = tensors.config.content
    with suppress(FormatError):  # of what no config can tell
        content = rewritten(tensors)
        schemes = described_by_config(facts_after(content, tensors), tensors)
    folders = (file_system(path).parent(path) or os.curdir, source.folder or os.curdir)
    beside = len({file_system(folder).real(folder) for folder in folders}) == 1
    if schemes and not (beside and content == tensors.config.content):
        yield (
            f"{shown(path)}: no config beside it describes its quantised weights "
            f"({', '.join(schemes)}), as {CONFIG} does in a folder: convert to a folder, or "
            f"decode them (--to bf16)"
        )


def write(path: Path, tensors: Tensors, progress: Progress, verify: bool) -> None:
    """Write the tensors in the format of the suffix; metadata are kept if the format is."""
    row, metadata, kept = file_formats.writer(path), None, None
    changes = [*tensors.changes.values()]
    if row.name == tensors.checkpoint.format:
        kept = replace(tensors.checkpoint, types={})  # of blocks that rules may have changed
        metadata = kept.metadata and metadata_after(kept.metadata, tensors)
    elif row.name == "safetensors" and tensors.checkpoint.of_files:
        metadata = metadata_after(tensors.checkpoint.of_files, tensors)
    types = file_types(tensors) if "types" in row.more else None

    def look(found: Checkpoint) -> None:
        check_written(changes, found, file_name(path))

    file_formats.write(path, to_write(changes), metadata, progress, source=kept,
                       types=types, check=look if verify else None)  # fmt: skip


def results(tensors: Tensors) -> Mapping[str, Planned]:
    """The tensors of the destination as `schemes.detect` takes them, before they are written."""
    types = file_types(tensors)

    def typed(name: str, change: Change) -> Planned:
        kind = types.get(name)
        changed = change if kind is None else replace(change, tensor_type=FileType(kind))
        return changed if change.stored is None else change.stored

    return LazyMapping(tensors.changes, typed, tensors.path, tensors.weight_nodes)


_TYPES = {row.file_type: row for row in ROWS if row.file_type is not None}


def file_types(tensors: Tensors) -> dict[str, str]:
    """The GGUF types of tensors of whole blocks, by their names in the destination."""
    known = tensors.checkpoint.types

    def type_of(leaf: Planned) -> str | None:
        if isinstance(leaf, PartOf):
            return BY_NAME[leaf.whole.scheme].file_type if leaf.dtype.name == "uint8" else None
        return known.get(leaf.name) if isinstance(leaf, Stored) else None

    made = dict[str, str]()
    for name, change in tensors.changes.items():
        kinds = {*map(type_of, change.leaves)}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind in _TYPES and in_runs(change, _nbytes(kind), type_of) is not None:
            made[name] = kind
    return made


def _nbytes(kind: str) -> int:
    """The bytes of a block."""
    (form,) = _TYPES[kind].forms
    (size,) = form.part(form.codes.part).dims.split()[1:]
    (elements,) = sizes.divisors(size)
    return sizes.value(size, {"K": int(elements)}) or 1
