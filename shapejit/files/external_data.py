"""ONNX external data (onnx/docs/ExternalData.md): bytes in a file beside the model, mapped.

What an untrusted model says of a file is checked before any of it is mapped, and
its paths cannot lead out of the model's own folder.
"""

from __future__ import annotations

import mmap
import os
from weakref import WeakValueDictionary

import numpy as np

from ..arrays.tensor import Bytes
from ..errors import FileFormatError
from .paths import Path, inside, open_regular

__all__ = ["read"]

# One map per file, however many tensors lie in it: each map holds a file descriptor.
# The key distinguishes a file that was changed from the one that was mapped.
_maps: WeakValueDictionary[tuple[int, int, int, int], mmap.mmap] = WeakValueDictionary()


def read(folder: Path, location: str, offset: int, length: int, tensor: str) -> Bytes:
    """`length` read-only bytes from `offset` of the file `location` in `folder`, not copied.

    `folder` is the model's (empty: the current one), `location` relative to it;
    symbolic links may not lead out of it. `tensor` names what the bytes are for
    in errors. Raises OSError where the file cannot be opened, FileFormatError
    where the path leaves the folder or the file ends too soon. The file must
    not be overwritten in place while the bytes are in use.
    """
    path = os.path.join(os.fspath(folder), location)
    found = inside(os.fspath(folder), location, tensor)
    descriptor = open_regular(found, path, tensor, follow=False)
    try:
        status = os.fstat(descriptor)
        if offset + length > status.st_size:
            reason = (
                f"its {length} bytes from byte {offset} on end beyond the file's {status.st_size}"
            )
            raise FileFormatError(path, tensor, reason)
        if length == 0:
            return np.frombuffer(b"", np.uint8)
        return np.frombuffer(_map(descriptor, status), np.uint8)[offset : offset + length]
    finally:
        os.close(descriptor)


def _map(descriptor: int, status: os.stat_result) -> mmap.mmap:
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    known = _maps.get(key)
    if known is None:
        known = _maps[key] = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    return known
