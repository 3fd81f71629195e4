"""Limits of the control groups of this process (Linux, cgroup v2).

Read without pathlib, which takes 5 ms to import.
"""

from __future__ import annotations

from contextlib import suppress


def limits(name: str) -> list[list[str]]:
    """The words in the file `name` of this process's control group and of each group above it.

    >>> limits("there is no such limit")
    []
    """
    found: list[list[str]] = []
    with suppress(OSError), open("/proc/self/cgroup") as file:
        group = file.read().rpartition("::")[2].strip().rstrip("/")
        for end in [i for i, sign in enumerate(f"{group}/") if sign == "/"]:
            with suppress(OSError), open(f"/sys/fs/cgroup{group[:end]}/{name}") as file:
                found.append(file.read().split())
    return [words for words in found if words and words[0] != "max"]
