"""`shapejit.files.convert`: a whole conversion in one call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import FormatError
from ..files.checksums import best
from ..files.paths import Path, absolute
from ..files.writing import Progress
from .items import ITEM
from .jobs import Job, Work, forget, keep
from .planning import Conversion, Report
from .proof import prove
from .rules import Given, rules_of
from .runs import Settings
from .shards import MAX_SHARD, nbytes_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["convert", "workers_of", "written"]


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
    resume: bool = False,
    progress: Progress | None = None,
    part: tuple[int, int] | None = None,
    commit: int | None = None,
    executor: str | Executor | Any = None,
    item_size: int | str | None = None,
) -> Report:
    """Apply rules to the tensors of a file, or a folder of shards, and write the result.

    `rules` are pairs of a kind and its text, as `shapejit convert` takes them, in the order
    in which they apply: `("to", "bf16")`, `("rename", "s/a/b/")`; or mappings, as the tables
    of a file of rules. A folder becomes a folder, with index, config.json and its other files,
    of shards of at most `max_shard_size` bytes (also `"5GB"`), unless `dst` has the suffix
    of a file format. `dst` appears as a whole or not at all, and may be `src`. With `proof` a
    sample of each kind of tensor is converted and compared with NumPy first; `resume`
    continues the folder of a run that was killed; `progress` is called with
    numbers of bytes. With `chunk` at most so many bytes of a tensor are in memory at a time,
    however large it is: FormatError, before anything is written, where a rule needs more.
    `spec` and its flags say what a reshape means, `saturate` what casts to float8 do. What is
    odd about quantised weights is in the report's `warnings`; with `strict` it is refused.

    A folder can be shared out, in items of about `item_size` bytes (64 MiB): `part=(i, n)`
    writes the i-th of n parts, from 1 on, and leaves a receipt; `commit=n` checks what n
    parts have written, and makes `dst` appear. `executor` has items done by others: a
    `concurrent.futures.Executor`, a client of dask's, or a name, as `--executor` takes it.

    `src` and `dst` may be URLs, as `s3://bucket/model/`. There files appear one by one, each
    as a whole, and the index last (a checkpoint of a single file has none: it can be read
    before the commit); a checkpoint that is there is not replaced.

    Raises ReshapeError, DTypeError or FormatError for rules that do not fit, FileFormatError
    for files and receipts, OSError where the disk refuses; `dst` is left as it was.

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
    most = None if chunk is None else nbytes_of(chunk)
    names = os.fspath(src), os.fspath(dst)
    job = Job(*names, given, spec, special_zero, allowzero, saturate, most, strict)
    item = None if item_size is None else nbytes_of(item_size)
    settings = Settings(nbytes_of(max_shard_size), resume, part, commit, item)
    found = job.plan()
    if proof and commit is None:
        prove(found.changes, found.most)
    return written(job, found, settings, executor, progress)


def written(
    job: Job,
    found: Conversion,
    settings: Settings,
    executor: str | Executor | Any,
    progress: Progress | None,
) -> Report:
    """Write what a job has planned, by the workers of an executor if there is one."""
    if executor is None:
        return found.write(job.destination, progress, settings)
    if settings.part is not None or settings.commit is not None:
        raise FormatError("a part, or a commit, has no executor: other processes do other parts")
    with workers_of(job, found, settings, executor) as ready:
        return found.write(job.destination, progress, ready)


@contextmanager
def workers_of(
    job: Job, found: Conversion, settings: Settings, executor: str | Executor | Any
) -> Iterator[Settings]:
    """Settings with which workers of an executor write what a job has planned."""
    from .executors import opened, run  # which takes a while: most conversions need none

    settings = replace(settings, item=settings.item or ITEM)
    paths = absolute(job.source), absolute(job.destination)
    here = replace(job, source=paths[0], destination=paths[1])
    plain = Settings(settings.max_shard, item=settings.item)
    folder = found.folder(here.destination, plain)
    work = Work(here, plain, tuple(folder.facts.items()), best())
    keep(work, folder, found.most)
    try:
        with opened(executor) as pool:
            yield replace(settings, submit=partial(run, pool, work))
    finally:
        forget(work)
