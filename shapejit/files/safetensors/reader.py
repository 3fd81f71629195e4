"""Read a file as tensors: over its memory map, or from the file on access."""

from __future__ import annotations

from ...errors import FileFormatError
from ...shapes.layout import Layout
from ..checkpoint import Checkpoint, LazyMapping
from ..paths import Path, file_name
from ..places import opened
from ..stored import Stored
from . import header
from .header import Entry


def read(path: Path) -> Checkpoint:
    """The tensors and the metadata of a safetensors file, without copying the data.

    Raises OSError where the file cannot be opened, FileFormatError (with the
    file and the tensor) where it is not exactly what the format says. The file
    must not be overwritten or truncated in place while its mapped tensors are in
    use; `write` renames, so that it may replace a file that is being read.
    """
    name = file_name(path)
    file = opened(name)
    if file.size < header.LENGTH:
        reason = f"it ends after {file.size} bytes, within the header's length"
        raise FileFormatError(name, None, reason)
    start = header.data_start(name, file.bytes(0, header.LENGTH), file.size)
    metadata, entries = header.decode(name, file.bytes(header.LENGTH, start - header.LENGTH))
    header.check_cover(name, entries, file.size - start)

    def stored(name: str, entry: Entry) -> Stored:
        layout = Layout.row_major(entry.shape, entry.dtype.bits)
        return Stored(file, name, start + entry.begin, entry.dtype, layout)

    return Checkpoint(
        path=name,
        format="safetensors",
        members=LazyMapping(entries, stored),
        metadata=metadata,
        start=start,
    )
