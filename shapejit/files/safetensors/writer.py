"""Where tensors are written in a safetensors file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from ..writing import New, NewFile
from . import header


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
    first = header.encode(path, ordered, metadata)
    ends = [*accumulate((t.nbytes for t in ordered), initial=len(first))]
    starts = {t.name: at for t, at in zip(ordered, ends, strict=False)}
    # In the given order: tensors that share a source are computed once.
    return NewFile(first, [(t, starts[t.name]) for t in given], ends[-1])
