"""The table of file formats, a row each; reading and writing of files in any of them.

The module of a format, which is imported when it is first needed, has the functions `read` and, if
it is written, `placed` (what a file with some tensors will hold) or `write`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, overload

from ..arrays.tensor import Tensor, asarray
from ..errors import DTypeError, FileFormatError, FormatError, about, quoted, shown, type_name
from .checkpoint import Checkpoint
from .in_memory import SupportsWrite, of_bytes, of_file_object
from .open_files import File
from .paths import Path, file_name
from .places import file_system, writing
from .pytorch import begins as pytorch_begins
from .writing import New, NewFile, Progress


class FileFormat(NamedTuple):
    """A file format: its suffixes, the first bytes of its files, and whether it is written.

    `name` is also that of its module; of files of other programs, it says what they are, for
    errors. `more` are additional arguments of its `write`: `source`, a Checkpoint whose content
    other than tensors is kept, and `types`, the format's own names of element types. `test` tells
    its files if not by how they begin.
    """

    name: str
    suffixes: tuple[str, ...]
    heads: tuple[bytes, ...] = ()
    writes: bool = False
    more: tuple[str, ...] = ()
    test: Callable[[bytes], bool] = lambda _: False

    def begins(self, head: bytes) -> bool:
        """Whether a file with these first bytes is one."""
        return head.startswith(self.heads) or self.test(head)

    @property
    def module(self) -> Any:
        """The module that reads and writes it."""
        return import_module(f".{self.name}", __package__)


# fmt: off
FORMATS = (
    FileFormat("sharded", (".safetensors.index.json",)),
    # The size of a header of at most 100 MB, then a JSON object.
    FileFormat("safetensors", (".safetensors",), writes=True,
               test=lambda head: head[4:9] == b"\0\0\0\0{"),
    FileFormat("npy", (".npy",), (b"\x93NUMPY",), writes=True),
    FileFormat("pytorch", (".bin", ".pt", ".pth", ".ckpt"), test=pytorch_begins),
    FileFormat("npz", (".npz",), (b"PK\x03\x04", b"PK\x05\x06"), writes=True),
    FileFormat("gguf", (".gguf",), (b"GGUF",), writes=True, more=("source", "types")),
    FileFormat("onnx", (".onnx",), writes=True, more=("source",)),
)
# fmt: on
_SAFETENSORS = FORMATS[1]

_PICKLES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_UNSUPPORTED = (
    FileFormat("a pickle (of PyTorch before 1.6? torch.save writes it anew)", (".pkl",), _PICKLES),
    FileFormat("HDF5 (Keras?)", (".h5", ".hdf5"), (b"\x89HDF\r\n\x1a\n",)),
    FileFormat("gzip", (".gz",), (b"\x1f\x8b",)),
    FileFormat("Zstandard", (".zst",), (b"\x28\xb5\x2f\xfd",)),
    FileFormat("xz", (".xz",), (b"\xfd7zXZ\x00",)),
    FileFormat("bzip2", (".bz2",), (b"BZh",)),
    FileFormat("a tar archive", (".tar",)),
    FileFormat("GGML, from before GGUF", (".ggml",), (b"lmgg", b"fmgg", b"tjgg", b"algg")),
    FileFormat("Parquet", (".parquet",), (b"PAR1",)),
    FileFormat("XML (an OpenVINO IR?)", (".xml",), (b"<?xml",)),
    FileFormat("TensorFlow Lite", (".tflite",)),
    FileFormat("a graph of TensorFlow", (".pb",)),
    FileFormat("MessagePack (Flax?)", (".msgpack",)),
    FileFormat("JSON (the name of an index ends in .safetensors.index.json)", (".json",)),
    FileFormat("a pointer of Git LFS (`git lfs pull` gets the file)", (), (b"version https://",)),
    FileFormat("an HTML page", (), (b"<!DOCTYPE", b"<!doctype", b"<html")),
)


def read(path: Path) -> Checkpoint:
    """The content of the file or folder of shards at `path`, without reading data.

    The format is recognised by the first bytes, or else by the suffix. Raises OSError if the file
    cannot be opened, FileFormatError if it does not conform to its format; the error names other
    known formats.
    """
    name = file_name(path)
    file_system(name).fresh(name)
    row, _file = _recognised(name)  # kept open, since its first bytes are cached
    found: Checkpoint = row.module.read(name)
    return found


def load_file(path: Path | Any, *, file_format: str | None = None) -> Mapping[str, Tensor]:
    """Load the tensors of a file: a mapping of names to read-only, memory-mapped Tensors.

    `path` is a safetensors, NPY, NPZ, GGUF or ONNX file; or a folder with `model.safetensors`, or
    with shards and their `model.safetensors.index.json`, also under the names of diffusers, PEFT
    and Mistral. The format is recognised by the first bytes, ONNX by the suffix. Tensors are made
    on access. PyTorch checkpoints (.bin, .pt) are loaded by `torch.load(weights_only=True,
    mmap=True)` of torch 2.6 or later, without entries that are no tensors; other pickles are never
    loaded. An NPY file has one tensor, `arr_0`; an ONNX model the initialisers and the values of
    Constant nodes, also of subgraphs; quantised tensors of GGUF are uint8 arrays, rows of raw
    blocks. Compressed members of an NPZ file are decompressed on access. The file must not be
    overwritten in place while its Tensors are in use.

    `path` may be a URL, such as `s3://bucket/model/`: then headers are read, and each tensor on
    access, to memory of its own (by fsspec, with the package of the protocol, such as s3fs).
    Instead of a path, bytes or any other buffer can be passed: Tensors are views of it, and
    `file_format` (such as "onnx") is needed if the bytes do not identify the format.

    Raises OSError if it cannot be opened, FileFormatError (with the file and the tensor) if it does
    not conform to its format, ImportError for GGUF, ONNX and URLs without their packages.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_file({"w": Tensor.frombuffer(bytes(6), "int4", (4, 3))}, f"{folder}/w.npz")
    ...     load_file(f"{folder}/w.npz")["w"].shape
    (4, 3)
    """
    return read(_name_of(path, file_format, of_bytes)).tensors


@overload
def save_file(
    tensors: Mapping[str, Any],
    path: Path | SupportsWrite,
    *,
    metadata: Mapping[str, Any] | None = None,
    source: Path | None = None,
    types: Mapping[str, str] | None = None,
    file_format: str | None = None,
) -> None: ...
@overload
def save_file(
    tensors: Mapping[str, Any],
    path: None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    source: Path | None = None,
    types: Mapping[str, str] | None = None,
    file_format: str | None = None,
) -> bytes: ...
def save_file(
    tensors: Mapping[str, Any],
    path: Path | SupportsWrite | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    source: Path | None = None,
    types: Mapping[str, str] | None = None,
    file_format: str | None = None,
) -> bytes | None:
    """Write tensors to a file, which appears complete or not at all; its suffix selects the format.

    `tensors` maps names to Tensors, ndarrays or anything that `asarray` takes. `.npz` and `.npy`
    are NumPy's formats (uncompressed; NPY takes one tensor and drops its name), `.gguf` and `.onnx`
    are GGUF and ONNX, every other suffix means safetensors. In NumPy's formats, dtypes that NumPy
    lacks become structured dtypes with one field, which is named after the dtype and holds the
    codes. An ONNX model is written with the graph of `source`, the path of a model with tensors of
    these names; dtypes and shapes may differ if onnx's shape inference accepts them. A GGUF file
    gets the metadata of `source`, unless others are given; `types` has the type of each quantised
    tensor (uint8, rows of blocks) by name (`{"w": "Q4_0"}`), unless `source` has it.

    The data go to a temporary file next to `path`, which is synced and renamed, so `path` may be
    the file that the tensors are mapped from. To a URL they are sent in blocks, and the file
    appears at the end. Instead of a path, a binary file object can be passed, which is written in
    order; without either, the bytes of the file are returned. There `file_format` selects the
    format (safetensors, npy, npz, gguf or onnx; the first by default).

    Raises FileFormatError (with the tensor) for tensors that the format cannot hold, DTypeError for
    strings, both before anything is written; OSError for errors of the disk.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_file({"w": np.eye(2)}, f"{folder}/w.safetensors", metadata={"by": "me"})
    ...     load_file(f"{folder}/w.safetensors")["w"]
    Tensor([[1., 0.],
            [0., 1.]], shape=(2, 2), dtype=float64, 64 bits each)
    >>> load_file(save_file({"w": np.eye(2)}, file_format="npz"))["w"].shape
    (2, 2)
    """
    file = io.BytesIO()
    name, new = _name_of(file if path is None else path, file_format, of_file_object), []
    try:
        named = dict(tensors)
    except (TypeError, ValueError):
        given = type_name(tensors)
        raise DTypeError(f"save_file takes a mapping of names to arrays, not {given}") from None
    for key, given in named.items():
        if not isinstance(key, str):
            raise FileFormatError(name, None, f"a name must be a str, not {quoted(repr(key))}")
        with about(f"tensor {quoted(key)}"):
            new.append(New.of(key, asarray(given)))
    kept = None if source is None else read(source)
    write(name, new, None if metadata is None else dict(metadata), source=kept, types=types)
    return file.getvalue() if path is None else None


def _name_of(given: Any, file_format: str | None, of: Callable[[Any, str], Path]) -> Path:
    """A path, or the name that `of` gives to memory or a file object, with its format's suffix."""
    if isinstance(given, str | os.PathLike):
        if file_format is not None:
            raise FileFormatError(
                given, None, "the suffix of a path selects the format, not file_format="
            )
        return given
    known = {row.name: row.suffixes[0] for row in FORMATS if row.writes}
    if file_format is not None and file_format not in known:
        raise FormatError(
            f"unknown format {quoted(str(file_format))}; known are {', '.join(known)}"
        )
    return of(given, "" if file_format is None else known[file_format])


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    *,
    source: Checkpoint | None = None,
    types: Mapping[str, str] | None = None,
    check: Callable[[Checkpoint], None] | None = None,
) -> int:
    """Write a file in the format of its suffix; return its size in bytes.

    `source` provides the graph of ONNX, or the metadata and types of GGUF; other formats ignore it.
    `types` names the types of GGUF's quantised tensors. `check` is called with the written file
    before it replaces an old one.

    Everything is checked first, including the free space of the disk. On any error `path` is
    unchanged. `progress` is called with the number of bytes after each piece.

    Raises FileFormatError (with the tensor) for tensors that the format cannot hold, OSError (with
    `path`) for errors of the disk.
    """
    row = writer(path)
    if types and "types" not in row.more:
        raise FileFormatError(path, None, f"{row.name} has no types=")
    given = {"source": source, "types": types}
    more, module, name = {key: given[key] for key in row.more}, row.module, file_name(path)
    look = None if check is None else lambda written: check(module.read(written))
    if hasattr(module, "write"):
        size: int = module.write(name, tensors, metadata, progress, look, **more)
        return size
    file: NewFile = module.placed(name, tensors, metadata, **more)
    with writing(name, file, progress, look):
        return file.size


def has_suffix(path: Path) -> bool:
    """Whether a path has the suffix of a known format."""
    return _of_suffix(file_name(path)) is not None


def writer(path: Path) -> FileFormat:
    """The format in which a file of this name is written: that of its suffix, or safetensors.

    Raises FileFormatError for the suffix of a format that is not written.

    >>> writer("a.npz").name, writer("a").name
    ('npz', 'safetensors')
    """
    name = file_name(path)
    row = _of_suffix(name) or _SAFETENSORS
    if row.writes:
        return row
    known = ", ".join(suffix for row in FORMATS if row.writes for suffix in row.suffixes)
    reason = f"files of this suffix ({row.name}) cannot be written; these can: {known}"
    raise FileFormatError(name, None, reason)


def _of_suffix(name: str) -> FileFormat | None:
    """The format of files with this name."""
    base = file_system(name).base(name).lower()
    return next((row for row in (*FORMATS, *_UNSUPPORTED) if base.endswith(row.suffixes)), None)


def _recognised(name: str) -> tuple[FileFormat, File | None]:
    system = file_system(name)
    if system.is_folder(name):
        return FORMATS[0], None
    file = system.open(name)
    head = bytes(file.head)
    found = next((row for row in (*FORMATS, *_UNSUPPORTED) if row.begins(head)), _of_suffix(name))
    if found is None:
        reason = (
            f"neither its first bytes {shown(repr(head[:16]))} nor its suffix identify a format"
        )
    elif found in FORMATS:
        return found, file
    else:
        reason = f"it looks like {found.name}"
    raise FileFormatError(name, None, f"{reason}; {_known()}")


def _known() -> str:
    return f"{', '.join(row.name for row in FORMATS[1:])} and folders of shards are read"
