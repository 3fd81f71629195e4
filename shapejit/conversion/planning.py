"""A conversion: rules for the tensors of a checkpoint are planned and proved, then written.

`convert` is the one way in. Others plan the same conversion again, of a `Job`, and write shards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from socket import gethostname
from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError, FormatError, quoted
from ..files import file_formats
from ..files.checkpoint import Checkpoint, FileType, TensorMapping
from ..files.configuration import configuration
from ..files.paths import Path, absolute, file_name
from ..files.pieces import MOST
from ..files.places import places
from ..files.writing import Progress
from . import single_files
from .changes import Change, Memory
from .configs import facts_after, rewritten
from .described import Report, described
from .folders import MAX_SHARD, Folder, Shard, folder, nbytes_of
from .proof import prove
from .quantizing import encoding_errors
from .remaining import check, check_parts, still_quantised
from .rules import RULES, Given, rules_of
from .runs import Settings, WriteShards, destination, write_folder, write_shard
from .single_files import file_types
from .tensors import Dialect, Rule, Tensors, dialect
from .weights import LATEST

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Conversion", "Report", "convert", "plan"]


@dataclass(frozen=True, eq=False)
class Conversion:
    """A checkpoint and what becomes of it; nothing is written yet.

    `most` are the bytes of a tensor that should be in memory at a time.
    """

    tensors: Tensors
    rules: tuple[Rule, ...]
    most: int = MOST

    @property
    def checkpoint(self) -> Checkpoint:
        """The source."""
        return self.tensors.checkpoint

    @property
    def changes(self) -> tuple[Change, ...]:
        """The tensors of the destination."""
        return tuple(self.tensors.changes.values())

    @property
    def results(self) -> Mapping[str, Change]:
        """The tensors of the destination as `schemes.detect` takes them, without writing them."""
        tensors, types = self.tensors, file_types(self.tensors)

        def typed(name: str, change: Change) -> Change:
            kind = types.get(name)
            return change if kind is None else replace(change, tensor_type=FileType(kind))

        return TensorMapping(tensors.path, tensors.changes, tensors.weight_nodes, typed)

    @cached_property
    def _content(self) -> dict[str, Any]:
        """The config as it is to be."""
        return rewritten(self.tensors.config, self.tensors)

    @property
    def config(self) -> dict[str, Any]:
        """What tells of the weights of the destination, as `schemes.detect` takes it."""
        return facts_after(self._content, self.tensors)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about quantised weights, where some of them are decoded or converted."""
        if not self.tensors.became:
            return ()
        found = self.tensors.detected
        return (*found.warnings, *map(str, found.unclear))

    def write(self, path: Path, progress: Progress | None = None) -> Report:
        """Write the converted checkpoint: a folder as a folder, a file in the format of `path`.

        A folder becomes a file where `path` has the suffix of one. Metadata go along where
        the format stays the same. Raises FileFormatError for what the format cannot hold,
        OSError where the disk refuses.
        """
        made, settings = self.folder(path, MAX_SHARD), Settings()
        return self.write_as(path, made, settings, self.report(made, settings), progress)

    def write_as(
        self, path: Path, made: Folder | None, settings: Settings, report: Report,
        progress: Progress | None = None, write: WriteShards | None = None,
    ) -> Report:  # fmt: skip
        """The same, as a `made` folder or as a file; `write` has others write the shards."""
        start = time.perf_counter()
        try:
            if made is None:
                single_files.write(path, self.tensors, progress, self.most, settings.verify)
            else:
                write_folder(made, settings, progress, self.most, write)
        finally:
            LATEST.clear()
        return replace(report, seconds=time.perf_counter() - start)

    def report(self, made: Folder | None, settings: Settings) -> Report:
        """What is to be done: all of it, or a part of a folder."""
        changes, total = self.changes, sum(change.nbytes for change in self.changes)
        if made is not None:
            changes = tuple(c for shard in settings.own(made) for c in shard.changes)
        written = sum(change.nbytes for change in changes)
        if settings.commit is not None:
            written = 0
        return Report(
            tensors=len(changes),
            changed=sum(c.rules > 0 for c in changes),
            moved=sum(c.moves for c in changes),
            bytes_read=self.checkpoint.nbytes * written // max(1, total),
            bytes_written=written,
            warnings=(*self.warnings, *still_quantised(self.tensors, self.rules)),
            left_out=tuple(self.tensors.untold.items()),
        )

    def folder(self, path: Path, max_shard: int) -> Folder | None:
        """The folder that is made of a folder; None for a file, or where the suffix says so.

        FormatError for what a destination at `path` could not tell any more: parts of
        quantised weights which rules have taken apart, blocks of GGUF in a file that names no
        types, and codes whose sizes a node of ONNX told.
        """
        name, source = file_name(path), self.checkpoint.path
        place, home = places(name), places(source)
        place.fresh(name)
        suffix = file_formats.has_suffix(name)
        if self.checkpoint.format != "sharded" or (suffix and not place.is_folder(name)):
            single_files.check(name, self.tensors)
            check_parts(self.tensors, self.tensors.config.facts, self.results)
            return None
        check_parts(self.tensors, self.config, self.results)
        rules = "\n".join([*map(str, self.rules), f"saturate {self.tensors.saturate}"])
        source = source if home.is_folder(source) else home.parent(source) or os.curdir
        return folder(self.tensors, source, name, self._content, max_shard, rules)


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
    return Conversion(tensors, tuple(rules), chunk or MOST)


def _check_held(tensors: Tensors, chunk: int) -> None:
    for change in tensors.changes.values():
        held = change.held(chunk)
        if held > chunk:
            reason = f"what is done to it takes {held} bytes in memory at a time"
            where = f"{tensors.path}: tensor {quoted(change.name)}"
            raise FormatError(f"{where}: {reason}, more than the {chunk} of --chunk")


@dataclass(frozen=True)
class Job:
    """What is converted to what, as a value that pickles; a worker wants the plan of this hash."""

    source: Path
    destination: Path
    rules: tuple[Rule, ...]
    spec: tuple[str, bool, bool]
    saturate: bool
    chunk: int | None
    max_shard: int
    wanted: str = ""

    def planned(self) -> tuple[Conversion, Folder | None]:
        """The conversion, and the folder that is made, as both are planned here and now."""
        spec, special_zero, allowzero = self.spec
        reshape = dialect(spec, special_zero=special_zero, allowzero=allowzero)
        source = file_formats.read(self.source)
        found = plan(source, self.rules, reshape, self.saturate, self.chunk)
        return found, found.folder(self.destination, self.max_shard)


def write_planned(job: Job, number: int) -> None:
    """Write a shard of a folder, in any process that sees the source and the destination.

    FileFormatError where the plan that is made here is another one.
    """
    made = _wanted(job)
    memory = Memory(job.chunk or MOST)
    write_shard(made.shards[number], destination(made).folder, memory, None)


@lru_cache(maxsize=1)
def _wanted(job: Job) -> Folder:
    """The folder as it is planned here; FileFormatError where that has not the hash `wanted`."""
    _, made = job.planned()
    if made is None or made.hash != job.wanted:
        reason = f"a worker on {gethostname()} plans otherwise: it needs the same source, as it is"
        raise FileFormatError(job.source, None, f"{reason} now, and the same version of shapejit")
    return made


def convert(
    src: Path,
    dst: Path,
    rules: Sequence[Given] = (),
    *,
    spec: str = "array",
    special_zero: bool = False,
    allowzero: bool = False,
    saturate: bool = True,
    strict: bool = False,
    max_shard_size: int | str = MAX_SHARD,
    chunk: int | str | None = None,
    proof: bool = True,
    verify: bool = False,
    dry_run: bool = False,
    resume: bool = False,
    planned: Callable[[Report], object] | None = None,
    progress: Progress | None = None,
    part: tuple[int, int] | None = None,
    commit: int | None = None,
    executor: str | Executor | Any = None,
) -> Report:
    """Apply rules to the tensors of a file, or a folder of shards, and write the result.

    `rules` are pairs of a kind and its text, as `shapejit convert` takes them, in the order
    in which they apply: `("to", "bf16")`, `("rename", "s/a/b/")`; or mappings, as the tables
    of a file of rules. A folder becomes a folder, with index, config and its other files,
    of shards of at most `max_shard_size` bytes (also `"5GB"`), unless `dst` has the suffix
    of a file format. `dst` appears as a whole or not at all, and may be `src`. With `proof` a
    sample of each kind of tensor is converted and compared with NumPy first; `verify`
    makes all bytes once more, and compares them with those written before `dst` appears; `resume`
    continues from the finished shards of a run that was killed; `planned` is called with a
    Report of what will be done, with `dry_run` nothing else is; `progress` with
    numbers of bytes. With `chunk` at most so many bytes of a tensor are in memory at a time,
    however large it is: FormatError, before anything is written, where a rule needs more.
    `spec` and its flags say what a reshape means, `saturate` what casts to float8 do. What is
    odd about quantised weights is in the report's `warnings`; with `strict` it is refused.

    A folder can be shared out, shard by shard: `part=(i, n)` writes every n-th shard from the
    i-th on, 1 being the first; `commit=n` checks that the shards of n parts are there, and makes
    `dst` appear. `executor` has shards written by others: a `concurrent.futures.Executor`, a
    client of dask's, or a name, as `--executor` takes it.

    `src` and `dst` may be URLs, as `s3://bucket/model/`. There files appear one by one, each
    as a whole, and the index last (a checkpoint of a single file has none: it can be read
    before the commit); a checkpoint that is there is not replaced.

    Raises ReshapeError, DTypeError or FormatError for rules that do not fit, FileFormatError
    for files and for what parts have left, OSError where the disk refuses; `dst` is left as it was.

    >>> import numpy as np, shapejit as sj, tempfile
    >>> parts = sj.schemes["fp8:channel"].encode(np.eye(2, dtype=np.float32))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     src, dst = f"{folder}/a.safetensors", f"{folder}/b.safetensors"
    ...     sj.save_file({f"fc.{k}": t for k, t in parts.items()}, src)
    ...     report = sj.files.convert(src, dst, [("to", "bf16")])
    ...     sj.load_file(dst)["fc.weight"]
    Tensor([[1, 0],
            [0, 1]], shape=(2, 2), dtype=bfloat16, 16 bits each)
    """
    given = tuple(rules_of(rules))
    settings = Settings(nbytes_of(max_shard_size), resume, part, commit, verify)
    most = None if chunk is None else nbytes_of(chunk)
    job = Job(src, dst, given, (spec, special_zero, allowzero), saturate, most, settings.max_shard)
    found, made = job.planned()
    if made is None and (part or commit or executor is not None):
        reason = "parts and executors are for folders of shards, on both sides"
        raise FileFormatError(dst, None, reason)
    if commit is not None and executor is not None:
        raise FormatError("a commit has no executor: it writes no tensors")
    report = found.report(made, settings)
    if made is None:
        untold = single_files.untold(file_name(dst), found.tensors)
        report = replace(report, warnings=(*report.warnings, *untold))
    if strict and report.warnings:
        raise FormatError(f"{found.tensors.path}: {'; '.join(report.warnings)} (--strict)")
    if planned is not None:
        planned(report)
    if dry_run:
        errors = tuple(encoding_errors(found.tensors))
        return replace(report, rows=tuple(described(found.tensors)), errors=errors)
    if proof and commit is None:
        prove(found.changes, found.most)
    write = None
    if executor is not None and made is not None:
        job = replace(job, source=absolute(src), destination=absolute(dst), wanted=made.hash)
        write = partial(_written_by, executor, job, made)
    return found.write_as(dst, made, settings, report, progress, write)


def _written_by(
    executor: Any, job: Job, made: Folder, folder: str, shards: Sequence[Shard],
    progress: Progress | None,
) -> None:  # fmt: skip
    """Have shards written to `folder` by an executor."""
    from .executors import written_by  # which takes a while: most conversions need none

    memory = Memory(job.chunk or MOST)

    def here(shard: Shard, tell: Progress) -> None:
        write_shard(shard, folder, memory, tell)

    def there(shard: Shard) -> Callable[[], None]:
        return partial(write_planned, job, made.shards.index(shard))

    written_by(executor, here, there, shards, progress or (lambda _: None))
