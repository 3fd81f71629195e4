"""safetensors (huggingface.co/docs/safetensors): eight bytes of header size, JSON, packed data.

`read` checks the whole header before anything else is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from ...errors import FormatError, in_file
from ..checkpoint import Checkpoint, LazyMapping
from ..paths import Path, file_name
from ..places import opened
from ..stored import Stored
from ..writing import New, NewFile
from . import header
from .header import TensorEntry

__all__ = ["placed", "read"]


def read(path: Path) -> Checkpoint:
    """The tensors and the metadata of a safetensors file, without copying the data.

    Raises OSError where the file cannot be opened, FileFormatError (with the
    file and the tensor) where it is not exactly what the format says. The file
    must not be overwritten or truncated in place while its mapped tensors are in
    use; `write` renames, so that it may replace a file that is being read.
    """
    name = file_name(path)
    file = opened(name)
    with in_file(name):
        if file.size < header.LENGTH:
            raise FormatError(f"it ends after {file.size} bytes, within the header's length")
        start = header.data_start(file.bytes(0, header.LENGTH), file.size)
        metadata, entries = header.decode(file.bytes(header.LENGTH, start - header.LENGTH))
        header.check_cover(entries, file.size - start)

    def stored(name: str, entry: TensorEntry) -> Stored:
        return Stored.row_major(file, name, start + entry.begin, entry.dtype, entry.shape)

    return Checkpoint(
        path=name,
        format="safetensors",
        members=LazyMapping(entries, stored),
        metadata=metadata,
        start=start,
    )


def placed(path: str, tensors: Iterable[New], metadata: Mapping[str, str] | None = None) -> NewFile:
    """The file with these tensors.

    Raises FileFormatError (with the tensor) for tensors that the format cannot hold.

    Data start at a multiple of eight bytes, and those of the widest elements come first, otherwise
    in the given order: this aligns every tensor to its elements, as the reference's order (by
    dtype, then name) does. Files of the reference keep their order, so that a conversion without
    rules produces the same bytes.
    """
    given = list(tensors)
    ordered = sorted(given, key=lambda t: -max(t.dtype.bits // 8, 1))
    with in_file(path):
        first = header.encode(ordered, metadata)
    ends = [*accumulate((t.nbytes for t in ordered), initial=len(first))]
    starts = {t.name: at for t, at in zip(ordered, ends, strict=False)}
    # In the given order: tensors that share a source are computed once.
    return NewFile(first, [(t, starts[t.name]) for t in given], ends[-1])
