"""Conversions: rules applied to the tensors of a checkpoint, checked, and then written.

`convert` is the entry point. Workers plan the same conversion again from a `ConversionJob`, and
write shards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from socket import gethostname
from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError, FormatError
from ..files import file_formats
from ..files.checkpoint import Checkpoint
from ..files.config_files import configuration
from ..files.paths import Path, absolute, file_name
from ..files.places import file_system
from ..files.writing import Progress
from . import single_files
from .described import Report, described
from .destination_config import facts_after, rewritten, undescribed
from .destinations import destination
from .folders import MAX_SHARD, Folder, nbytes_of, planned_folder
from .proof import prove
from .remaining import check, check_parts, still_quantised
from .rules import RULES, Given, rules_of
from .runs import Settings, WriteShards, write_folder, write_here, written_by
from .tensors import Dialect, Rule, Tensors, dialect
from .weights import LAST_RESULT

if TYPE_CHECKING:
    from concurrent.futures import Executor


def plan(
    checkpoint: Checkpoint,
    rules: Sequence[Rule],
    reshape: Dialect,
    saturate: bool = True,
) -> Tensors:
    """Plan a conversion: apply `rules` in order to the tensors of a checkpoint.

    Only data that describe quantised weights are read; `--to` a scheme converts one weight of each
    kind. `saturate` is that of all casts. Raises ReshapeError, DTypeError or FormatError, with the
    file, the tensor and the rule, for a rule that does not fit or matches no tensor.
    """
    tensors = Tensors(checkpoint, configuration(checkpoint), reshape, rules, saturate)
    for r in rules:
        RULES[r.option].apply(r, tensors)
    check(tensors)
    return tensors


def folder_of(tensors: Tensors, path: Path, settings: Settings) -> Folder | None:
    """What is written to a folder `path`; None if a file is written.

    A folder becomes a file if `path` has the suffix of one. Raises FormatError if a destination at
    `path` could not describe its weights: parts of quantised weights that rules have separated,
    blocks of GGUF in a format without GGUF types, and codes whose sizes only an ONNX node states.
    """
    name, source = file_name(path), tensors.checkpoint
    system = file_system(name)
    system.fresh(name)
    suffix = file_formats.has_suffix(name)
    if source.format != "sharded" or (suffix and not system.is_folder(name)):
        single_files.check(name, tensors)
        check_parts(tensors, tensors.config.facts, single_files.results(tensors))
        return None
    content = rewritten(tensors)
    check_parts(tensors, facts_after(content, tensors), single_files.results(tensors))
    home = source.folder or os.curdir
    return planned_folder(tensors, home, name, content, settings.max_shard)


def _report(tensors: Tensors, path: Path, folder: Folder | None, settings: Settings) -> Report:
    """The Report of everything that will be written, or of a part of a folder."""
    changes = [*tensors.changes.values()]
    total = sum(change.nbytes for change in changes)
    warnings = [*tensors.checkpoint.warnings, *tensors.warnings, *still_quantised(tensors)]
    if folder is None:
        warnings += single_files.metadata_warnings(file_name(path), tensors)
    else:
        changes = [c for shard in settings.own(folder) for c in shard.changes]
        warnings += undescribed(folder.path, tensors)
    written = sum(c.nbytes for c in changes) if settings.commit is None else 0
    return Report(
        tensors=len(changes),
        changed=sum(not c.same for c in changes),
        moved=sum(c.moves for c in changes),
        bytes_read=tensors.checkpoint.nbytes * written // max(1, total),
        bytes_written=written,
        warnings=tuple(warnings),
        left_out=tuple(tensors.left_out.items()),
    )


@dataclass(frozen=True)
class ConversionJob:
    """A conversion as a value that pickles, for workers; `wanted` is the hash of its plan."""

    source: Path
    destination: Path
    rules: tuple[Rule, ...]
    spec: tuple[str, bool, bool]
    saturate: bool
    settings: Settings
    wanted: str = ""

    def planned(self) -> tuple[Tensors, Folder | None]:
        """Plan it in this process."""
        spec, special_zero, allowzero = self.spec
        reshape = dialect(spec, special_zero=special_zero, allowzero=allowzero)
        source = file_formats.read(self.source)
        tensors = plan(source, self.rules, reshape, self.saturate)
        return tensors, folder_of(tensors, self.destination, self.settings)

    def write(self, name: str) -> None:
        """Write the shard of this name, in any process that can access source and destination.

        Raises FileFormatError if this process plans the conversion differently.
        """
        made = _wanted(self)
        shards = [shard for shard in made.shards if shard.name == name]
        try:
            write_here(destination(made).folder, shards, lambda _: None)
        finally:
            LAST_RESULT.clear()


@lru_cache(maxsize=1)
def _wanted(job: ConversionJob) -> Folder:
    """The planned folder. Raises FileFormatError unless its plan has the hash `wanted`."""
    _, made = job.planned()
    if made is None or made.hash != job.wanted:
        reason = (
            f"the plan of a worker on {gethostname()} differs: it needs the same source, unchanged"
        )
        raise FileFormatError(job.source, None, f"{reason}, and the same version of shapejit")
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

    `rules` are pairs of an option of `shapejit convert` and its value, in the order in which they
    apply: `("to", "bf16")`, `("rename", "s/a/b/")`; or mappings, as in TOML. A folder becomes a
    folder with index, config and its other files, in shards of at most `max_shard_size` bytes (or
    "5GB"), unless `dst` has the suffix of a file format. `dst` appears as a whole or not at all; an
    existing one is replaced (in a folder, unrelated files are kept), and may be `src`.

    `spec` and its flags define 0 and -1 in reshapes, `saturate` applies to casts to float8. With
    `proof` a sample of each kind of tensor is converted and compared with NumPy first; `verify`
    converts all tensors again, and compares them with the written ones before `dst` appears;
    `resume` continues from the finished shards of a killed run. `planned` is called with a Report
    of what will be done, `progress` with numbers of bytes; `dry_run` writes nothing. The report's
    `warnings` list contradictions and unclear tensors; with `strict` they raise.

    Several processes may share the shards of a folder: `part=(i, n)` writes every n-th shard, from
    the i-th on, counted from 1; `commit=n` checks the shards of n parts and makes `dst` appear.
    `executor` writes the shards: a `concurrent.futures.Executor`, a client of dask, or a name as
    for `--executor`.

    `src` and `dst` may be URLs, such as `s3://bucket/model/`. At a URL each file appears when it is
    complete, and the index last (a checkpoint of a single file has none, and can be read before the
    commit); an existing checkpoint is not replaced.

    Raises ReshapeError, DTypeError or FormatError for rules that do not fit, FileFormatError for
    bad files, and for incomplete parts, OSError for errors of the disk; `dst` is unchanged then.

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
    job = ConversionJob(src, dst, given, (spec, special_zero, allowzero), saturate, settings)
    tensors, folder = job.planned()
    if folder is None and (part or commit or executor is not None):
        reason = "parts and executors need folders as source and destination"
        raise FileFormatError(dst, None, reason)
    if commit is not None and executor is not None:
        raise FormatError("a commit has no executor: it writes no tensors")
    report = _report(tensors, dst, folder, settings)
    if strict and report.warnings:
        raise FormatError(f"{tensors.path}: {'; '.join(report.warnings)} (--strict)")
    if planned is not None:
        planned(report)
    if dry_run:
        return replace(report, rows=tuple(described(tensors)))
    if proof and commit is None:
        prove(tensors.changes.values())
    start, tell = time.perf_counter(), progress or (lambda _: None)
    try:
        if folder is None:
            single_files.write(dst, tensors, tell, verify)
        else:
            write: WriteShards = write_here
            if executor is not None:
                there = replace(
                    job, source=absolute(src), destination=absolute(dst), wanted=folder.hash
                )
                write = partial(written_by, executor, there.write)
            written = write_folder(folder, settings, tell, write)
            read = report.bytes_read * written // max(1, report.bytes_written)
            report = replace(report, bytes_read=read, bytes_written=written)
    finally:
        LAST_RESULT.clear()
    return replace(report, seconds=time.perf_counter() - start)
