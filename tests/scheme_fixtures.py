"""The fixtures of tests/fixtures: what other projects stored, and what they decode it to."""

import json
from collections import defaultdict
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).with_name("fixtures") / "schemes"
_DTYPES = {
    "U8": np.uint8, "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
    "F16": np.float16, "F32": np.float32, "F64": np.float64, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
Arrays = dict[str, NDArray[Any]]


class SchemeFixture(NamedTuple):
    """One weight of a checkpoint; tests/fixtures/README.md says what each field holds."""

    name: str
    scheme: str
    parts: Arrays
    config: dict[str, Any]
    expected: Arrays
    notes: str
    codes: NDArray[Any] | None
    source: NDArray[Any] | None
    converted: dict[str, Arrays]
    settings: dict[str, Any]
    prefix: str
    rounded_once: dict[str, bool]
    by: list[str]
    versions: dict[str, str]

    def checkpoint(self) -> Arrays:
        """The parts by the names that they have in a checkpoint."""
        return {f"{self.prefix}.{name}": part for name, part in self.parts.items()}


@cache
def by_scheme() -> dict[str, list[SchemeFixture]]:
    """All fixtures of each scheme; `look-alike:...` and `format:...` are none of the schemes."""
    made = defaultdict(list)
    for path in sorted(FOLDER.glob("*.safetensors")):
        fixture = load(path)
        made[fixture.scheme].append(fixture)
    return dict(made)


def named(name: str) -> SchemeFixture:
    """The fixture of that name."""
    return load(FOLDER / f"{name}.safetensors")


def load(path: Path) -> SchemeFixture:
    """One fixture; its arrays are read-only views of the file's bytes."""
    about, arrays = _read(path)
    folders: defaultdict[str, Arrays] = defaultdict(dict)
    for key, x in arrays.items():
        folder, _, name = key.rpartition("/")
        folders[folder][name] = x
    expected = folders["decoded"]
    for name, once in about["rounded_once"].items():
        if once:
            narrow = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
            with np.errstate(over="ignore"):
                expected[name] = expected["float32"].astype(narrow)
    return SchemeFixture(
        name=path.stem,
        parts=folders["parts"],
        expected=expected,
        codes=arrays.get("codes"),
        source=arrays.get("source"),
        converted={
            folder.removeprefix("converted/"): parts
            for folder, parts in folders.items()
            if folder.startswith("converted/")
        },
        **{key: about[key] for key in ("scheme", "config", "notes", "settings", "prefix",
                                       "rounded_once", "by", "versions")},
    )  # fmt: skip


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """What the header says, and the tensors of a safetensors file."""
    data = np.fromfile(path, np.uint8)
    data.flags.writeable = False
    start = 8 + int(data[:8].view(np.uint64)[0])
    header = json.loads(data[8:start].tobytes())
    about = json.loads(header.pop("__metadata__")["fixture"])
    arrays = {}
    for key, entry in header.items():
        first, last = entry["data_offsets"]
        kind = np.dtype(_DTYPES[entry["dtype"]])
        assert last - first == prod(entry["shape"]) * kind.itemsize, (path.name, key)
        arrays[key] = data[start + first : start + last].view(kind).reshape(entry["shape"])
    return about, arrays
