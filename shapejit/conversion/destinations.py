"""Where a conversion of a folder writes to, as each kind of place has to offer it."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager
from typing import Protocol

from ..errors import FileFormatError
from ..files.places import places, replacing, send
from ..files.urls import is_url
from ..files.writing import write_all
from .folders import Folder

__all__ = ["Destination", "begun_otherwise", "copy", "put"]


class Destination(Protocol):
    """A folder that is written by any number of processes, and seen by nobody until it is whole.

    Every process has an object of its own for the same place. Errors carry `path`, what the
    user calls it. Files are written to `folder` until they are published.
    """

    path: str
    folder: str

    @property
    def begun(self) -> bool:
        """Whether something was written for this plan."""

    def taken(self, alone: bool, keep: bool, needed: int) -> AbstractContextManager[None]:
        """Begin to write, or go on where files of the same plan are there and are to be kept.

        Others may take part at the same time unless this process is `alone`; FileFormatError
        where that cannot be. `needed` bytes must be free. Without a call of `publish` the old
        folder stays as it is; what has been written is removed at the end unless it is to
        be kept. Workers write for the process that has taken it.
        """

    def tidy(self) -> None:
        """Remove what is no shard of the plan from what is not published yet."""

    def publish(self) -> None:
        """Let what has been written take the place of the old folder.

        What that has beside it stays, but the shards that its index names, and what the plan
        says is gone.
        """


def put(folder: str, name: str, text: str) -> None:
    """Write a small file as a whole: who reads it finds the old one or the new one."""
    data = text.encode()
    with replacing(places(folder).join(folder, name), len(data)) as descriptor:
        write_all(descriptor, memoryview(data))


def copy(found: str, folder: str, name: str) -> None:
    """Copy a file of the source to a folder that does not have it."""
    path = places(folder).join(folder, name)
    if not is_url(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    if is_url(path) or is_url(found):
        with replacing(path, places(found).size(found)) as descriptor:
            send(found, descriptor)
    else:
        shutil.copy2(found, path)


def begun_otherwise(plan: Folder, other: str, alone: bool, where: str) -> FileFormatError:
    """What to say where an interrupted conversion, or a part, was `where` planned otherwise."""
    reason = f"the interrupted conversion had another {plan.differs_in(other)}"
    hint = "it cannot be resumed (without --resume it is removed)"
    if not alone:
        hint = f"if that is to be done anew, remove {where}"
    return FileFormatError(plan.path, None, f"{reason}: {hint}")
