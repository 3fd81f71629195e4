"""Numbers and settings that schemes compute from several parts, or read from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..errors import FormatError
from ..runtime.ndarrays import is_mapping

if TYPE_CHECKING:
    from .groups import Group

Known = dict[str, Any]
Array = NDArray[Any]


def json_of(t: Tensor, name: str) -> Mapping[str, Any]:
    """The JSON object in a tensor of bytes. Raises FormatError for anything else."""
    try:
        made = json.loads(t.tobytes())
    except (ValueError, RecursionError):
        raise FormatError(f"{name} holds no JSON") from None
    if not is_mapping(made):
        raise FormatError(f"{name} holds no JSON object")
    return made


def weight_shape(tensors: Mapping[str, Tensor]) -> Known:
    """The sizes in compressed-tensors' `weight_shape`, and the elements per group."""
    groups = group_index(tensors)
    if "weight_shape" not in tensors:
        return groups
    sizes = tensors["weight_shape"].numpy().reshape(-1).tolist()
    return {**dict(zip("NK", sizes[-2:], strict=False)), **groups}


def group_index(tensors: Mapping[str, Tensor]) -> Known:
    """The elements per group, from the group of each input; only the last group may be smaller."""
    if "g_idx" not in tensors:
        return {}
    own = tensors["g_idx"].numpy()
    groups = own.reshape(-1)[: prod(own.shape[-1:])]  # of the first of stacked experts
    if not groups.size or groups.min() < 0 or groups.max() >= groups.size:
        raise FormatError(f"g_idx holds no groups of {groups.size} inputs")
    size = int(np.bincount(groups).max())
    if own.ndim > 1 and (own != np.arange(groups.size) // size).any():
        raise FormatError("has one g_idx for all stacked experts, unless it is in order")
    return {"g": size}


def quant_state(tensors: Mapping[str, Tensor]) -> Known:
    """Block sizes and the shape from the JSON that bitsandbytes adds to a weight."""
    name, made = _quant_state(tensors)
    sizes = {"blocksize": "g", "nested_blocksize": "h", "shape": "shape"}
    if "weight.nested_absmax" not in tensors:
        del sizes["nested_blocksize"]
    missing = [key for key in sizes if key not in made]
    if missing:
        raise FormatError(f"{name} lacks {missing[0]!r}")
    return {sizes[key]: made[key] for key in sizes}


def _quant_state(tensors: Mapping[str, Tensor]) -> tuple[str, Mapping[str, Any]]:
    """The name and the content of bitsandbytes' JSON."""
    (name,) = (name for name in tensors if ".quant_state." in name)
    return name, json_of(tensors[name], name)


def nested_absmax(group: Group) -> Array:
    """The scales of bitsandbytes' double quantisation: rounded after the product, then the sum."""
    codes, values, scales = (
        group.tensors[name].numpy().reshape(-1)
        for name in ("weight.absmax", "weight.nested_quant_map", "weight.nested_absmax")
    )
    offset = _quant_state(group.tensors)[1].get("nested_offset", 0.0)
    if not isinstance(offset, int | float):
        raise FormatError(f"nested_offset is a number, not {offset!r}")
    made = values[codes]
    whole = np.zeros(scales.size * group.known["h"], np.float32)
    whole[: made.size] = made
    with np.errstate(all="ignore"):
        made = whole.reshape(scales.size, -1) * scales[:, None] + np.float32(offset)
    return np.asarray(made.reshape(-1)[: codes.size])


def read_by_gguf(name: str, group: Group) -> Array:
    """The numbers of a GGUF type, decoded by the gguf package to float32."""
    try:
        gguf = import_module("gguf")
    except ImportError:
        raise FormatError(f"{group.scheme} is decoded by the package gguf: install it") from None
    kind = gguf.GGMLQuantizationType[name]
    with np.errstate(all="ignore"):
        made = gguf.quants.dequantize(group.tensors["weight"].numpy(), kind)
    return np.ascontiguousarray(made, np.float32)


def times_row_scale(group: Group) -> Array:
    """bitsandbytes' int8: codes times the largest magnitude of their row, rounded once."""
    codes, most = (group.tensors[name].numpy() for name in ("weight", "SCB"))
    with np.errstate(all="ignore"):
        made: Array = codes.astype(np.float32) * most[..., None]
    return made


def one_127th(group: Group) -> Array:
    """bitsandbytes' factor in place of a division by 127."""
    return one(group) * np.float32(7.874015718698502e-3)


def from_the_middle(group: Group) -> Array:
    """compressed-tensors' zero point, stored relative to the middle of unsigned codes."""
    name, half = "weight_zero_point", 1 << (group.bits(group.form.codes) - 1)
    zero = group.tensors[name].numpy().reshape(1, 1).astype(np.int16) + half
    if not 0 <= zero.item() < 2 * half:
        raise FormatError(f"{name} is {zero.item() - half}: not from {-half} to {half - 1}")
    return zero.astype(np.uint8)


def one(group: Group) -> Array:
    """A scale of 1 for all."""
    return np.ones((*group.batch, 1, 1), np.float32)


def comfy_format(name: str, tensors: Mapping[str, Tensor]) -> Known:
    """Nothing. Raises FormatError if ComfyUI's `comfy_quant` names another format."""
    if "comfy_quant" in tensors:
        given = json_of(tensors["comfy_quant"], "comfy_quant").get("format")
        if given != name:
            raise FormatError(f"comfy_quant says {given!r}, not {name!r}")
    return {}


def comfy_quant(name: str, _: Group) -> Known:
    """ComfyUI's `comfy_quant`."""
    return {"comfy_quant": _bytes({"format": name})}


def sizes_of_weight(group: Group) -> Known:
    """A writer of compressed-tensors' `weight_shape`."""
    return {"weight_shape": np.array(group.stored_shape[-2:], np.int64)}


def groups_of_inputs(group: Group) -> Known:
    """A writer of GPTQ's `g_idx`, with groups in the order of the inputs."""
    return {"g_idx": (np.arange(group.known["K"]) // group.known["g"]).astype(np.int32)}


def quant_parts(name: str, group: Group) -> Known:
    """bitsandbytes' table and JSON."""
    state = {"quant_type": name, "blocksize": group.known["g"], "dtype": "float32"}
    return {
        "weight.quant_map": np.array(group.values, np.float32),
        f"weight.quant_state.bitsandbytes__{name}": _bytes({**state, "shape": group.shape}),
    }


def _bytes(made: Mapping[str, Any]) -> Any:
    return np.frombuffer(json.dumps(made).encode(), np.uint8)
