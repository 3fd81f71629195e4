"""NPZ (numpy.savez): a ZIP whose members are NPY arrays, each named as its tensor.

Stored members are memory-mapped, and their checksums are not verified. Deflated members are
decompressed on each access. Sizes in the archive are checked against the arrays' own headers before
memory is allocated.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import ReferenceType, ref
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from ..arrays.tensor import Bytes
from ..errors import FileFormatError, in_file, quoted
from . import npy
from .checkpoint import Checkpoint, check_apart, is_text
from .open_files import File, stream
from .paths import Path, file_name
from .places import opened, replacing
from .stored import Stored
from .temporary import Check
from .writing import New, Progress, names_of

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # of a ZIP with members, and of an empty one
MAX_DECOMPRESSED = 1 << 30  # bytes of all members; or 100 times the file, if that is more

_RATIO = 100
_STEP_BYTES = 1 << 20  # bytes that are decompressed at a time
_DEFLATE = 1032  # bytes that one compressed byte can become at most
_HEADERS = 1 << 12  # bytes that are read at a time: those of the ZIP's and the array's header
_ENCRYPTED = 1
_NO_DATA = "its data cannot be decompressed"
_FAULTS = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


class _Inflated(File):
    """A compressed member; `size` is that of its decompressed data."""

    compressed = True

    def __init__(self, archive: ZipFile, info: ZipInfo, path: str, name: str) -> None:
        self.path, self.size = path, info.file_size
        self._archive, self._info, self._name = archive, info, name
        self._known: ReferenceType[Bytes] | None = None

    def part(self, begin: int, end: int, tensor: str | None) -> Bytes:
        known = None if self._known is None else self._known()
        if known is None:
            known, at = np.empty(self.size, np.uint8), 0
            reading = _reading(self.path, self._name, _NO_DATA)
            with reading, self._archive.open(self._info) as stream:
                while found := stream.read(_STEP_BYTES):  # the last one verifies the checksum
                    known[at : at + len(found)] = np.frombuffer(found, np.uint8)
                    at += len(found)
                if at < self.size:
                    raise EOFError("they end too soon")
            known.flags.writeable = False
            self._known = ref(known)
        return known[begin:end]


@contextmanager
def _reading(path: str, tensor: str | None, what: str) -> Iterator[None]:
    """A context that turns errors of archives into FileFormatErrors."""
    try:
        yield
    except FileFormatError:
        raise
    except _FAULTS as fault:
        raise FileFormatError(path, tensor, f"{what}: {fault}") from None


def read(path: Path) -> Checkpoint:
    """The tensors of an NPZ file, in the order of the archive.

    Raises OSError if the file cannot be opened, FileFormatError (with the file and the tensor) for
    other archives, for members that are encrypted, overlap, or are compressed otherwise than by
    deflate, for pickles, and for archives that would decompress to more than 1 GiB and 100 times
    their size.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez_compressed(f"{folder}/a.npz", w=np.ones((2, 3), np.float16))
    ...     read(f"{folder}/a.npz").tensors["w"].shape
    (2, 3)
    """
    path = file_name(path)
    file = opened(path)
    source, members, spans = (
        stream(file, _HEADERS),
        dict[str, Stored](),
        list[tuple[str, int, int]](),
    )
    try:
        archive = ZipFile(source)
        infos = archive.infolist()
    except (*_FAULTS, struct.error, OverflowError) as fault:
        raise FileFormatError(path, None, f"it is not a complete ZIP: {fault}") from None
    _check_bomb(file, infos)
    for info in infos:
        name = _tensor_name(path, info)
        if name in members:
            raise FileFormatError(path, name, "two members of the archive have its name")
        what = "it cannot be read" if info.compress_type == ZIP_STORED else _NO_DATA
        with _reading(path, name, what), archive.open(info) as head:
            begin = source.tell()  # of the data, since the header before them has been read
            spans.append((name, info.header_offset, begin + info.compress_size))
            if spans[-1][2] > file.size:
                raise FileFormatError(path, name, "its data end beyond the file")
            if info.compress_type == ZIP_STORED:
                members[name] = npy.member(file, name, begin, info.file_size, source)
            else:
                inflated = _Inflated(archive, info, path, name)
                members[name] = npy.member(inflated, name, 0, info.file_size, head)
    with in_file(path):
        check_apart(spans)
    return Checkpoint(path, "npz", members, None)


def _tensor_name(path: str, info: ZipInfo) -> str:
    """The name of a member's tensor; FileFormatError for members that hold none."""
    if not info.filename.endswith(".npy"):
        reason = f"it looks like a ZIP (PyTorch?): its member {quoted(info.filename)} is not NPY"
        raise FileFormatError(path, None, reason)
    name = info.filename.removesuffix(".npy")
    if info.flag_bits & _ENCRYPTED:
        raise FileFormatError(path, name, "it is encrypted")
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        reason = f"it is compressed by method {info.compress_type}, not by deflate"
        raise FileFormatError(path, name, reason)
    if info.file_size > _DEFLATE * (info.compress_size + 1):
        reason = f"its {info.compress_size} bytes cannot become {info.file_size}"
        raise FileFormatError(path, name, reason)
    if info.compress_type == ZIP_STORED and info.compress_size != info.file_size:
        reason = f"it is stored, but has {info.compress_size} bytes for {info.file_size}"
        raise FileFormatError(path, name, reason)
    return name


def _check_bomb(file: File, infos: list[ZipInfo]) -> None:
    total = sum(info.file_size for info in infos)
    limit = max(MAX_DECOMPRESSED, _RATIO * file.size)
    if total > limit:
        reason = f"its {file.size} bytes would decompress to {total}, more than {limit}"
        raise FileFormatError(file.path, None, reason)


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    check: Check | None = None,
) -> int:
    """Write an NPZ file (not compressed) as `files.safetensors.write` does; return its size.

    Raises FileFormatError, before anything is written, for names that a ZIP cannot
    hold, and for metadata, of which NPZ has none.
    """
    name, given = file_name(path), list(tensors)
    if metadata:
        raise FileFormatError(name, None, "an NPZ file has no metadata")
    with in_file(name):
        names_of(given, _fits, "cannot be a name in a ZIP")
    least = sum(map(npy.nbytes, given))
    with replacing(name, least, check) as target, ExitStack() as stack:
        file: Any = target
        if isinstance(target, int):
            file = stack.enter_context(open(target, "wb", closefd=False))
        with ZipFile(file, "w") as archive:
            for tensor in given:
                _add(archive, name, tensor, progress)
        size: int = file.tell()
    return size


def _add(archive: ZipFile, path: str, tensor: New, progress: Progress | None) -> None:
    first, info = npy.header(tensor), ZipInfo(f"{tensor.name}.npy")
    info.file_size = len(first) + npy.nbytes(tensor)
    with archive.open(info, "w") as sink:
        sink.write(first)
        for piece in npy.encoded(path, tensor):
            sink.write(piece.data)
            if progress is not None:
                progress(piece.size)


def _fits(name: str) -> bool:
    """Whether a ZIP can have a member of this name, with its suffix."""
    return is_text(name) and "\0" not in name and len(name.encode()) <= 65531
