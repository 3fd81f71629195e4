"""Checkpoints shaped like published ones, of any size, their bytes as if they were random.

`python -m benchmarks.tools.checkpoints KIND FOLDER` writes one, of 4 GiB if no `--size` is given.
With `--sparse` the data are a hole in the file. How much memory a conversion takes, say of
weights of 512 MiB:

    python -m benchmarks.tools.checkpoints large in --size 8GiB --sparse
    /usr/bin/time -v shapejit convert in out --to bf16
"""

import json
import os
from argparse import ArgumentParser
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

import shapejit as sj
from shapejit.bench.cases import pattern
from shapejit.conversion import nbytes_of
from shapejit.files.safetensors import header
from shapejit.quantization.configuration import CONFIG

Parts = dict[str, Any]


class Kind(NamedTuple):
    """A model: how weights are called (by layer and expert), their parts, and the config."""

    name: str
    parts: Callable[[], Parts]
    config: dict[str, Any]
    experts: int = 1


def _fp8() -> Parts:
    scale = np.ldexp(1.0, pattern(16 * 56).astype(np.int32) % 8 - 12).astype(np.float32)
    return {".weight": _float8(2048, 7168), ".weight_scale_inv": scale.reshape(16, 56)}


def _large() -> Parts:
    codes = np.zeros(1 << 29, np.uint8)
    weight = sj.Tensor.frombuffer(codes, "float8_e4m3fn", (1 << 16, 1 << 13))
    return {".weight": weight, ".weight_scale_inv": np.zeros((512, 64), np.float32)}


def _float8(*shape: int) -> sj.Tensor:
    """Small numbers, no NaNs."""
    return sj.Tensor.frombuffer(pattern(prod(shape)) & 0x77, "float8_e4m3fn", shape)


_NAME = "model.layers.{}.mlp.experts.{}.up_proj"

_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}

KINDS = {
    "deepseek-v3": Kind(_NAME, _fp8, {"quantization_config": _BLOCKS}, 256),
    "large": Kind(_NAME, _large, {"quantization_config": _BLOCKS}),
}


def make(kind: str, folder: str, nbytes: int, sparse: bool = False) -> int:
    """Write a folder of about `nbytes` bytes, at least of one weight; return their number.

    The data of a `sparse` one are a hole in its file: zeros that take no space on disk.
    """
    row = KINDS[kind]
    parts, tensors, size = row.parts(), {}, 0
    one = sum(_nbytes(x) for x in parts.values())
    while size < nbytes - one // 2 or not tensors:
        count = len(tensors) // len(parts)
        name = row.name.format(*divmod(count, row.experts))
        tensors |= {f"{name}{key}": x for key, x in parts.items()}
        size += one
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.safetensors")
    metadata = {"format": "pt"}
    if sparse:
        named = [(name, sj.dtype(x.dtype), x.shape) for name, x in tensors.items()]
        first = header.encode(path, named, metadata)
        with open(path, "wb") as file:
            file.write(first)
            file.truncate(len(first) + size)
    else:
        sj.save_file(tensors, path, metadata=metadata)
    with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as file:
        json.dump({"torch_dtype": "bfloat16", **row.config}, file)
    return size


def _nbytes(x: Any) -> int:
    return sj.dtype(x.dtype).nbytes(prod(x.shape))


def main() -> None:
    """Write a checkpoint as the arguments say."""
    parser = ArgumentParser(description="Write a checkpoint shaped like a published one.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder")
    parser.add_argument("--size", default="4GiB", help="of its tensors; 4GiB if not given")
    parser.add_argument(
        "--sparse", action="store_true", help="with zeros that take no space on disk"
    )
    args = parser.parse_args()
    size = make(args.kind, args.folder, nbytes_of(args.size), args.sparse)
    print(f"{args.folder}: {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
