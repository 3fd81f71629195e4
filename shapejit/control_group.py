"""Limits of the control groups that this process is in (Linux, cgroup v2)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def limits(name: str) -> list[list[str]]:
    """The words of the file `name` of this process's group and of each group around it.

    >>> limits("there is no such limit")
    []
    """
    found = []
    with suppress(OSError):
        path = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
        group = Path("/sys/fs/cgroup", path)
        files = [folder / name for folder in (group, *group.parents)]
        found = [file.read_text().split() for file in files if file.is_file()]
    return [words for words in found if words and words[0] != "max"]
