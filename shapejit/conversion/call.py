"""`shapejit.files.convert`: a whole conversion in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError, FormatError, shown
from ..files import file_formats
from ..files.paths import Path, absolute, file_name
from ..files.writing import Progress
from .described import described
from .jobs import Job
from .planning import Conversion, Report
from .proof import prove
from .quantizing import encoding_errors
from .rules import Given, rules_of
from .runs import Settings
from .shards import MAX_SHARD, nbytes_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["convert"]

_ARCHITECTURE = "general.architecture"  # without which llama.cpp loads no GGUF file


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
    of a file of rules. A folder becomes a folder, with index, config.json and its other files,
    of shards of at most `max_shard_size` bytes (also `"5GB"`), unless `dst` has the suffix
    of a file format. `dst` appears as a whole or not at all, and may be `src`. With `proof` a
    sample of each kind of tensor is converted and compared with NumPy first; `verify`
    compares the folder that was written with what was planned before it appears; `resume`
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
    Tensor([1, 0, 0, 1], shape=(2, 2), dtype=bfloat16, 16 bits each)
    """
    given = tuple((r.option, r.text) for r in rules_of(rules))
    settings = Settings(nbytes_of(max_shard_size), resume, part, commit, verify)
    most = None if chunk is None else nbytes_of(chunk)
    named = file_name if executor is None else absolute
    job = Job(named(src), named(dst), given, spec, special_zero, allowzero, saturate, most, strict,
              settings.max_shard)  # fmt: skip
    found = job.plan()
    folder = found.folder(dst, settings.max_shard)
    if folder is None and (part or commit or executor is not None):
        reason = "parts and executors are for folders of shards, on both sides"
        raise FileFormatError(dst, None, reason)
    if verify and folder is None:
        reason = "only folders are verified before they appear: `shapejit verify` compares files"
        raise FileFormatError(dst, None, reason)
    if commit is not None and executor is not None:
        raise FormatError("a commit has no executor: it writes no tensors")
    report = found.report(folder, settings)
    if folder is None:
        report = replace(report, warnings=(*report.warnings, *_untold(found, dst)))
    if planned is not None:
        planned(report)
    if dry_run:
        errors = tuple(encoding_errors(found.tensors))
        return replace(report, rows=tuple(described(found.tensors)), errors=errors)
    if proof and commit is None:
        prove(found.changes, found.most)
    if executor is None or folder is None:
        made = found.write_as(dst, folder, settings, progress)
        return replace(made, warnings=report.warnings)
    from .executors import write_shards  # which takes a while: most conversions need none

    write = partial(write_shards, executor, job, folder)
    return found.write_as(dst, folder, settings, progress, write)


def _untold(found: Conversion, path: Path) -> list[str]:
    """A warning where a GGUF file would not say of which architecture the model is."""
    metadata = found.checkpoint.metadata if found.checkpoint.format == "gguf" else None
    if file_formats.writer(path).name != "gguf" or _ARCHITECTURE in (metadata or {}):
        return []
    return [
        f"{shown(file_name(path))}: no {_ARCHITECTURE} says of which kind the model is, so that "
        f"llama.cpp cannot load it: save_file(..., metadata=) writes one"
    ]
