"""Experts: stacked, or one by one; gate and up projections interleaved by rows, or separate."""

from __future__ import annotations

from collections.abc import Sequence

from ..arrays.tensor import Tensor
from ..errors import FormatError
from ..operations import joining
from ..operations.equality import array_equal
from .groups import Group, fault
from .parts import Parts


def stacked(groups: Sequence[Group]) -> Parts:
    """The parts of several weights stacked along a new first dim."""
    first = _alike(groups)
    parts = {key: joining.stack([g.tensors[key] for g in groups]) for key in first.tensors}
    return Parts(parts, first.settings)


def one_by_one(group: Group) -> list[Parts]:
    """The parts of each stacked weight, as views."""
    if not group.batch:
        raise fault(group.scheme, "has no dim of experts to take apart")
    for part in group.form.parts:
        if part.key in group.tensors and group.tensors[part.key].shape[:1] != group.batch[:1]:
            raise fault(group.scheme, f"{part.key} is not stacked: it has shape "
                                      f"{group.tensors[part.key].shape}")  # fmt: skip
    return [
        Parts({k: t[e] for k, t in group.tensors.items()}, group.settings)
        for e in range(group.batch[0])
    ]


def interleaved(gate: Group, up: Group) -> Parts:
    """Interleave the rows of gate and up, gate first; parts without rows must be equal."""
    _alike([gate, up])
    made = dict[str, Tensor]()
    for key, first in gate.tensors.items():
        second, axis = up.tensors[key], _rows(gate, key)
        if axis is None:
            if not array_equal(first, second):
                raise fault(gate.scheme, f"gate and up have different {key}, of which one is left")
            made[key] = first
        else:
            shape = (*first.shape[:axis], 2 * first.shape[axis], *first.shape[axis + 1 :])
            made[key] = joining.stack([first, second], axis=axis + 1).reshape(shape)
    return Parts(made, gate.settings)


def apart(group: Group) -> tuple[Parts, Parts]:
    """The even rows (gate) and the odd rows (up), as views."""
    if group.known.get("N", 1) % 2:
        raise fault(group.scheme, f"gate and up in {group.known.get('N')} rows are not as long")
    pair = dict[str, Tensor](), dict[str, Tensor]()
    for key, t in group.tensors.items():
        axis = _rows(group, key)
        for first, made in enumerate(pair):
            rows = (*(slice(None),) * (axis or 0), slice(first, None, 2))
            made[key] = t if axis is None else t[rows]
    return Parts(pair[0], group.settings), Parts(pair[1], group.settings)


def _alike(groups: Sequence[Group]) -> Group:
    """The first Group; raises FormatError unless all have the same form, parts and sizes."""
    if not groups:
        raise FormatError("there are no weights to put together")
    first = groups[0]
    for other in groups[1:]:
        if other.form is not first.form or other.tensors.keys() != first.tensors.keys():
            raise fault(first.scheme, "weights that are stored together have the same parts")
        for key, t in first.tensors.items():
            if (other.tensors[key].shape, other.tensors[key].dtype) != (t.shape, t.dtype):
                raise fault(first.scheme, f"{key} differs in shape or dtype: {t.shape}, {t.dtype} "
                                          f"and {other.tensors[key].shape}, "
                                          f"{other.tensors[key].dtype}")  # fmt: skip
    return first


def _rows(group: Group, key: str) -> int | None:
    """The dim of a part along the rows of the weight; None if it has none."""
    dims = group.form.part(key).dims.split()
    if not any(size.startswith("N") for size in dims):
        return None
    if "N" not in dims:
        raise fault(group.scheme, f"several rows share what {key} stores: decode it first")
    return len(group.batch) + dims.index("N")
