"""`shapejit.files.convert`: a whole conversion in one call."""

from __future__ import annotations

from collections.abc import Sequence

from ..files import file_formats
from ..files.paths import Path
from ..files.writing import Progress
from .planning import Report, plan
from .proof import prove
from .rules import Given, rules_of
from .runs import Settings
from .shards import MAX_SHARD, nbytes_of
from .specifications import dialect

__all__ = ["convert"]


def convert(
    src: Path,
    dst: Path,
    rules: Sequence[Given] = (),
    *,
    spec: str = "array",
    special_zero: bool = False,
    allowzero: bool = False,
    saturate: bool = True,
    max_shard_size: int | str = MAX_SHARD,
    chunk: int | str | None = None,
    proof: bool = True,
    resume: bool = False,
    progress: Progress | None = None,
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
    `spec` and its flags say what a reshape means, `saturate` what casts to float8 do. Raises
    ReshapeError, DTypeError or FormatError for rules that do not fit, FileFormatError for
    files, OSError where the disk refuses; `dst` is left as it was.

    >>> import numpy as np, shapejit as sj, tempfile
    >>> parts = sj.schemes["fp8:channel"].encode(np.eye(2, dtype=np.float32))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     src, dst = f"{folder}/a.safetensors", f"{folder}/b.safetensors"
    ...     sj.save_file({f"fc.{k}": t for k, t in parts.items()}, src)
    ...     report = sj.files.convert(src, dst, [("to", "bf16")])
    ...     sj.load_file(dst)["fc.weight"]
    Tensor([1, 0, 0, 1], shape=(2, 2), dtype=bfloat16, 16 bits each)
    """
    reshape = dialect(spec, special_zero=special_zero, allowzero=allowzero)
    most = None if chunk is None else nbytes_of(chunk)
    found = plan(file_formats.read(src), rules_of(rules), reshape, saturate, most)
    if proof:
        prove(found.changes, found.most)
    return found.write(dst, progress, Settings(nbytes_of(max_shard_size), resume))
