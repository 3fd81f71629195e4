"""The finished files of a conversion that may be interrupted, and whether they are still whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from ..errors import FileFormatError
from ..files.paths import Path, open_regular

__all__ = ["Finished"]

_RECEIPT = ".shapejit-receipt.json"
_PIECE = 1 << 22  # bytes


class Finished:
    """The files of `folder` that a conversion has finished, in a receipt beside them.

    `identity` says what makes it the same conversion: each fact by its name. The receipt
    has them, and the size and the CRC-32 of each file, which a thread computes. With `resume`
    the files of an interrupted conversion are kept, without it the folder is emptied.
    Raises FileFormatError where the facts of the interrupted one are others.
    """

    def __init__(self, folder: str, identity: Mapping[str, str], resume: bool, path: Path) -> None:
        self._folder = folder
        self._identity = {k: hashlib.sha256(v.encode()).hexdigest() for k, v in identity.items()}
        self._files: dict[str, list[int]] = {}
        self._thread: Thread | None = None
        if resume and (found := self._read()):
            for name, own in self._identity.items():
                if found.get(name) != own:
                    reason = f"the interrupted conversion had another {name}: it cannot be resumed"
                    raise FileFormatError(path, None, f"{reason} (without --resume it is removed)")
            self._files = found["files"]
        for name in os.listdir(folder):
            if name not in self._files and (name != _RECEIPT or not self._files):
                _remove(os.path.join(folder, name))

    def has(self, name: str) -> bool:
        """Whether a file is finished, and as large and of the same CRC-32 as it was."""
        return name in self._files and self._files[name] == self._measured(name)

    def add(self, name: str) -> None:
        """A file has been finished, and synced."""
        self._wait()
        self._thread = Thread(target=self._add, args=(name,), daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """Remove the receipt: all files are finished."""
        self._wait()
        _remove(os.path.join(self._folder, _RECEIPT))

    def __enter__(self) -> Finished:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _add(self, name: str) -> None:
        """Put a file on the receipt; one that is lost, or not written, costs time only."""
        self._files[name] = self._measured(name)
        path = os.path.join(self._folder, _RECEIPT)
        with suppress(OSError):
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump({**self._identity, "files": self._files}, file)
            os.replace(f"{path}.new", path)

    def _read(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder, _RECEIPT), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError, RecursionError):
            return {}
        whole = isinstance(found, dict) and isinstance(found.get("files"), dict)
        return found if whole else {}

    def _measured(self, name: str) -> list[int]:
        """The size and the CRC-32 of a file."""
        path = os.path.join(self._folder, name)
        size = crc = 0
        try:
            with open(open_regular(path, path), "rb", buffering=0) as file:
                while piece := file.read(_PIECE):
                    crc = zlib.crc32(piece, crc)
                    size += len(piece)
        except OSError:
            return []
        return [size, crc]


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
