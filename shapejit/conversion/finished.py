"""The finished files of a conversion that may be interrupted, and whether they are still whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from typing import Any

from ..files.paths import open_regular

__all__ = ["Finished"]

_RECEIPT = ".shapejit-receipt.json"
_PIECE = 1 << 22  # bytes


class Finished:
    """The files of `folder` that a conversion has finished; `told` says which conversion.

    A receipt in the folder has the size and the CRC-32 of each. A folder of another
    conversion, or without a receipt, is emptied; so is any if `told` is "".
    """

    def __init__(self, folder: str, told: str) -> None:
        self._folder = folder
        self._told = hashlib.sha256(told.encode()).hexdigest() if told else ""
        self._files: dict[str, list[int]] = {}
        found = self._read() if told else {}
        if found.get("conversion") == self._told and isinstance(found.get("files"), dict):
            self._files = found["files"]
        for name in os.listdir(folder):
            if name not in self._files and name != _RECEIPT:
                _remove(os.path.join(folder, name))

    def has(self, name: str) -> bool:
        """Whether a file is finished, and as large and of the same CRC-32 as it was."""
        return name in self._files and self._files[name] == self._measured(name)

    def add(self, name: str) -> None:
        """A file has been finished, and synced."""
        if not self._told:
            return
        self._files[name] = self._measured(name)
        path = os.path.join(self._folder, _RECEIPT)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"conversion": self._told, "files": self._files}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)

    def forget(self) -> None:
        """Remove the receipt: all files are finished."""
        if self._told:
            _remove(os.path.join(self._folder, _RECEIPT))

    def _read(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder, _RECEIPT), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

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
