"""ONNX external data (onnx/docs/ExternalData.md): bytes in a file beside the model, mapped.

What an untrusted model says of a file is checked before any of it is mapped, and
its paths cannot lead out of the model's own folder.
"""

from __future__ import annotations

import os

from ..arrays.tensor import Bytes
from ..errors import FileFormatError
from .open_files import OpenFile
from .paths import Path, inside

__all__ = ["read"]


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
    file = OpenFile(found, path, tensor, follow=False)
    if offset + length > file.size:
        reason = f"its {length} bytes from byte {offset} on end beyond the file's {file.size}"
        raise FileFormatError(path, tensor, reason)
    return file.part(offset, offset + length, tensor)
