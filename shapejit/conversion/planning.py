"""Rules for the tensors of a checkpoint: planned and checked for every tensor, then written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..errors import FormatError, quoted
from ..files import file_formats
from ..files.checkpoint import Checkpoint
from ..files.configuration import configuration
from ..files.paths import Path, file_name
from ..files.pieces import MOST
from ..files.places import places
from ..files.writing import Progress
from .blocks import file_types
from .changes import Change, Results, announced
from .configs import folder_of, rewritten, told
from .described import Described
from .folders import Folder, folder
from .quantizing import EncodingError
from .remaining import check, check_parts, uses
from .rules import RULES
from .runs import Settings, WriteShards, write_folder, write_here
from .shards import MAX_SHARD
from .sources import LATEST
from .specifications import Dialect
from .tensors import Rule, Tensors

__all__ = ["Conversion", "Report", "plan"]


@dataclass(frozen=True)
class Report:
    """The result of a conversion: numbers of tensors, bytes of their data, seconds it took.

    `warnings` are what is odd about the quantised weights that were decoded or converted,
    `left_out` the weights that a rule for all leaves as they are, and why; `rows` the tensors of a
    conversion that was not done, `errors` how far weights that are encoded are from their codes.
    """

    tensors: int
    changed: int
    moved: int
    bytes_read: int
    bytes_written: int
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    rows: tuple[Described, ...] = ()
    errors: tuple[EncodingError, ...] = ()

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes read and written per second, including the sync to disk."""
        return (self.bytes_read + self.bytes_written) / max(self.seconds, 1e-9) / 1e9


@dataclass(frozen=True, eq=False)
class Conversion:
    """A checkpoint and what becomes of it; nothing is written yet.

    `most` are the bytes of a tensor that should be in memory at a time.
    """

    checkpoint: Checkpoint
    tensors: Tensors
    rules: tuple[Rule, ...]
    most: int = MOST

    @property
    def changes(self) -> tuple[Change, ...]:
        """The tensors of the destination."""
        return tuple(self.tensors.changes.values())

    @property
    def results(self) -> Results:
        """The tensors of the destination, without writing them."""
        tensors = self.tensors
        return Results(tensors.changes, file_types(tensors), tensors.weight_nodes)

    @property
    def config(self) -> dict[str, Any]:
        """What tells of the weights of the destination, as `schemes.detect` takes it."""
        config = self.tensors.config
        return rewritten(replace(config, content=config.facts), self.tensors)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about quantised weights, where some of them are decoded or converted."""
        if not self.tensors.became:
            return ()
        weights = self.tensors.weights
        return (*weights.warnings, *map(str, weights.unclear))

    @property
    def nbytes(self) -> int:
        """Bytes of tensor data that will be written."""
        return sum(change.nbytes for change in self.changes)

    def folder(self, path: Path, max_shard: int = MAX_SHARD) -> Folder | None:
        """The folder that is made of a folder; None for a file, or where the suffix says so."""
        source = folder_of(self.checkpoint)
        if source is None or not _is_folder(path):
            return None
        rules = "\n".join([*map(str, self.rules), f"saturate {self.tensors.saturate}"])
        return folder(self.tensors, source, path, max_shard, rules)

    def report(self, folder: Folder | None = None, settings: Settings | None = None) -> Report:
        """What is to be done: all of it, or a part of a folder."""
        changes, settings = self.changes, settings or Settings()
        if folder is not None:
            changes = tuple(c for shard in settings.own(folder) for c in shard.changes)
        written = sum(change.nbytes for change in changes)
        if settings.commit is not None:
            written = 0
        return Report(
            tensors=len(changes),
            changed=sum(c.rules > 0 for c in changes),
            moved=sum(c.moves for c in changes),
            bytes_read=self.checkpoint.nbytes * written // max(1, self.nbytes),
            bytes_written=written,
            warnings=self.warnings,
            left_out=tuple(self.tensors.untold.items()),
        )

    def write(self, path: Path, progress: Progress | None = None) -> Report:
        """Write the converted checkpoint: a folder as a folder, a file in the format of `path`.

        A folder becomes a file where `path` has the suffix of one. Metadata go along where
        the format stays the same. Raises FileFormatError for what the format cannot hold,
        OSError where the disk refuses.
        """
        self.check(path)
        return self.write_as(path, self.folder(path), Settings(), progress)

    def write_as(
        self,
        path: Path,
        folder: Folder | None,
        settings: Settings,
        progress: Progress | None = None,
        write_shards: WriteShards | None = None,
    ) -> Report:
        """The same, as a `folder` of shards or as a file; `write_shards` has others write them."""
        start, write = time.perf_counter(), write_shards or partial(write_here, self.most)
        try:
            if folder is None:
                self._write_file(path, progress)
            else:
                write_folder(folder, settings, progress, write, self.most)
        finally:
            LATEST.clear()
        return replace(self.report(folder, settings), seconds=time.perf_counter() - start)

    def check(self, path: Path, strict: bool = False) -> None:
        """FormatError for what a destination at `path` could not tell any more.

        That are parts of quantised weights which rules have taken apart, in a folder whose
        config still tells of these, blocks of GGUF in a file that names no types, and codes
        whose sizes a node of ONNX told; with `strict` also whatever is warned of.
        """
        if strict and self.warnings:
            raise FormatError(f"{self.tensors.path}: {'; '.join(self.warnings)} (--strict)")
        if folder_of(self.checkpoint) is not None and not file_formats.has_suffix(path):
            check_parts(self.tensors, self.config)
            return
        row = file_formats.writer(path)
        for node in self.tensors.weight_nodes if row.name != self.checkpoint.format else ():
            if not node.fault and node.codes not in self.tensors.kept:
                raise FormatError(
                    f"{self.tensors.path}: tensor {quoted(node.codes)} is codes of "
                    f"{node.operator}, whose sizes its node tells and {row.name} cannot: --to f32 "
                    f"decodes them, --keep says that they are right"
                )
        if "types" in row.more:
            return
        found = uses(self.tensors)
        for name, kind in self.checkpoint.types.items():
            if name in found and self.checkpoint.members[name].dtype.name == "uint8":
                raise FormatError(
                    f"{self.tensors.path}: tensor {quoted(name)} is rows of blocks ({kind}), of "
                    f"which {row.name} has no name: --to f32 decodes them"
                )

    def _write_file(self, path: Path, progress: Progress | None) -> None:
        row, metadata, kept = file_formats.writer(path), None, None
        if row.name == self.checkpoint.format:
            kept = replace(self.checkpoint, types={})  # of blocks that rules may have changed
            metadata = kept.metadata and told(kept.metadata, self.tensors)
        types = file_types(self.tensors) if "types" in row.more else None
        given = announced(self.changes, self.most)
        file_formats.write(path, given, metadata, progress, source=kept, types=types)


def _is_folder(path: Path) -> bool:
    name = file_name(path)
    places(name).fresh(name)
    return places(name).is_folder(name) or not file_formats.has_suffix(name)


def plan(
    checkpoint: Checkpoint,
    rules: Sequence[Rule],
    reshape: Dialect,
    saturate: bool = True,
    chunk: int | None = None,
) -> Conversion:
    """The tensors that `rules`, applied in order, make of those of a checkpoint.

    No data are read but those that tell of quantised weights; `--to` a scheme converts one
    weight of each kind. `saturate` is that of all casts, `chunk` the bytes of a tensor that
    may be in memory at a time. Raises ReshapeError, DTypeError or FormatError, with the file,
    the tensor and the rule, for a rule that does not fit, for one that matches no tensor,
    and for a tensor that needs more than `chunk`.
    """
    tensors = Tensors(checkpoint, configuration(checkpoint), reshape, saturate)
    tensors.exceptions += [r.pattern for r in rules if r.option == "keep"]
    for r in rules:
        RULES[r.option].apply(r, tensors)
    check(tensors)
    if chunk is not None:
        _check_held(tensors, chunk)
    return Conversion(checkpoint, tensors, tuple(rules), chunk or MOST)


def _check_held(tensors: Tensors, chunk: int) -> None:
    for change in tensors.changes.values():
        held = change.held(chunk)
        if held > chunk:
            reason = f"what is done to it takes {held} bytes in memory at a time"
            where = f"{tensors.path}: tensor {quoted(change.name)}"
            raise FormatError(f"{where}: {reason}, more than the {chunk} of --chunk")
