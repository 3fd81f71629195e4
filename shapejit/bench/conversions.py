"""The suite of files: checkpoints converted, beside `cp` of the larger side and peers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import finalize

from ..conversion.call import convert
from ..files.file_formats import load_file
from ..operations.equality import array_equal
from ..quantization.table import schemes
from .checkpoints import KINDS, make
from .machine import thread_count
from .throughput import Goal, Work

_NBYTES = 1 << 28  # of the source
_MOVED, _COMPUTED = 1 / 0.8, 1 / 0.6  # times what cp takes, at most

Rules = tuple[tuple[str, str], ...]


class _Folder:
    """A folder in memory, where the system has one: a disk's own time is not ours."""

    def __init__(self) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.path = tempfile.mkdtemp(prefix="shapejit-", dir=memory)
        finalize(self, shutil.rmtree, self.path, True)


def _work(kind: str, rules: Rules, limit: float, size: float) -> Work:
    """A checkpoint converted, and the larger of it and the result copied."""
    folder = _Folder()
    source, made, copy = (os.path.join(folder.path, name) for name in ("in", "out", "copy"))
    make(kind, source, int(_NBYTES * size))
    report = convert(source, made, rules)
    larger = os.path.join(folder.path, "larger")
    shutil.copytree(made if report.bytes_written > report.bytes_read else source, larger)

    def ours(_: _Folder = folder) -> object:
        return convert(source, made, rules, proof=False)

    def cp() -> object:
        return subprocess.run(["cp", "-rT", larger, copy], check=True)

    ways: dict[str, Callable[[], object]] = {"shapejit": ours, "cp": cp}
    decoded = rules[0][0] == "to"
    same = _same(source, made, KINDS[kind].config if decoded else {})
    job = {"work": "convert", "kind": kind, "source": source, "threads": thread_count(),
           "target": os.path.join(folder.path, "peers")}  # fmt: skip
    goals = (Goal("cp", "at most", limit),)
    return Work(ways, same, goals, job=job if decoded else None)


def _same(source: str, made: str, config: dict[str, Any]) -> bool:
    """Whether a weight is what its scheme, by the config, decodes, or has as many bytes."""
    (name, *_), before = list(found := load_file(made)), load_file(source)
    if not config:
        return all(
            t.nbytes == x.nbytes for t, x in zip(found.values(), before.values(), strict=True)
        )
    for prefix, scheme, parts in schemes.detect(before, config):
        if name.startswith(prefix):
            return array_equal(found[name], schemes[scheme].decode(parts))
    return False


def _cases() -> dict[str, tuple[str, Rules, float]]:
    plain = "bfloat16"
    return {
        "rename": (plain, (("rename", r"s/model\.(.*)/\1/"),), _MOVED),
        "reshape": (plain, (("reshape", ".*=1024,2,7168"),), _MOVED),
        "permute": (plain, (("permute", ".*=1,0"),), _COMPUTED),
        "cast": (plain, (("cast", ".*=F16"),), _COMPUTED),
        "repack": ("kimi", (("repack", ".*weight_packed=compressed-tensors->mlx"),), _COMPUTED),
        **{f"{kind}-to-bf16": (kind, (("to", "bf16"),), _COMPUTED)
           for kind in ("deepseek-v3", "kimi", "gpt-oss")},
    }  # fmt: skip


CASES: dict[str, Callable[[float], Work]] = {
    name: partial(_work, *given) for name, given in _cases().items()
}
"""What `--suite files` measures, by name; each makes its Work for `size` times the bytes."""

QUICK = ("rename", "deepseek-v3-to-bf16")  # what --quick takes
