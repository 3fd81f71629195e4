"""ONNX operators that move elements into new memory, such as Concat and Pad.

All of them take ndarrays or Tensors of a dtype that the version lists, and return the same
kind; `copy` and `out` are those of `shapejit.reshape`. Each is one copy of every element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.foreign import accepts_any_array, joins_any_arrays
from ...arrays.tensor import Array, Tensor, is_array
from ...dtypes.table import STRING, DType
from ...errors import DTypeError, ReshapeError, about, shape_text
from ...operations import joining, manipulation, padding, views
from ...operations.gathering import positions, take_for
from ...operations.views import checked, dtype_of
from ...runtime.ndarrays import is_a
from ...shapes.request import Ints, integer
from ..arguments import check_alike
from .arguments import axes_of, axis_of, entered, ints, one_of
from .versions import NEGATIVE_INDICES, PAD_MODES, Version, version
from .views import whole_numbers

# The dims of (b, blocks…, c, h, w) or (b, c, blocks…, h, w) in the order of the result.
_DEPTH_ORDERS = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
_SPACE_ORDERS = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}


@joins_any_arrays
def concat(
    inputs: Sequence[Array], *, axis: int | None = None, opset: int = 25, out: Array | None = None
) -> Array:
    """ONNX Concat (1, 4, 11, 13): the arrays one after the other along `axis`, in a new array.

    `axis` is 1 in Concat-1 if it is left out, required later, and may be negative from
    opset 11 on. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> concat([np.zeros((2, 3), np.float32)] * 2, axis=-1).shape
    (2, 6)
    """
    row = version("Concat", opset)
    inputs = list(inputs)
    kind, parts = _kind_of_all(row, inputs), [checked(x) for x in inputs]
    if kind is STRING:
        parts = [_of_objects(x) for x in parts]
    if axis is None and row.since >= 4:
        raise ReshapeError("axis must be given", asked_by=row)
    if parts:
        axis = axis_of(row, 1 if axis is None else integer(axis, "axis", row), parts[0].ndim)
    with about(row):
        joined: Array = joining.concat(parts, axis=axis or 0, out=out)
    return joined


def _kind_of_all(row: Version, inputs: Sequence[Any]) -> DType | None:
    """The dtype of all inputs; None if there are none."""
    plain = {type(x) is np.ndarray and not x.dtype.hasobject and x.dtype for x in inputs}
    if len(plain) == 1 and False not in plain:
        with about("input 0"):
            return row.check(inputs[0])
    kinds: list[DType] = []
    for i, x in enumerate(inputs):
        with about(f"input {i}"):
            kinds.append(row.check(x))
    check_alike(kinds, row)
    return kinds[0] if kinds else None


def _of_objects(x: Any) -> Any:
    """NumPy's fixed-width strings as an array of str."""
    return x.astype(object) if x.dtype.kind in "SUT" else x


@accepts_any_array
def tile(
    data: Array,
    repeats: Any,
    axis: Any = None,
    *,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Tile (1, 6, 13): `data` repeated `repeats[i]` times along dim i.

    In Tile-1 `repeats` is a scalar, the input `tiles`, and `axis` says along which dim.
    A view where nothing repeats, else one copy. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> tile(np.arange(3, dtype=np.float32).reshape(1, 3), [2, 2]).tolist()
    [[0.0, 1.0, 2.0, 0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]]
    """
    row, x = entered("Tile", opset, data)
    if row.since == 1:
        counts = list((1,) * x.ndim)
        at = axis_of(row, _scalar(row, axis, "axis"), x.ndim)
        counts[at] = _scalar(row, repeats, "tiles")
    else:
        if axis is not None:
            raise ReshapeError(f"{row} has no input axis")
        counts = list(ints(repeats, "repeats", row))
    if len(counts) != x.ndim or min(counts, default=0) < 0:
        raise ReshapeError(
            f"repeats {counts} must be {x.ndim} sizes, one for each dim of {shape_text(x.shape)}",
            asked_by=row,
        )
    return manipulation.tile(x, counts, copy=copy, out=out)


def _scalar(row: Version, value: Any, name: str) -> int:
    """The int of a tensor of one float, as Tile-1 has it."""
    if not is_array(value):
        return integer(value, name, row)
    values = whole_numbers(row, value, name)
    if len(values) != 1:
        raise ReshapeError(f"{name} must be one number, not {len(values)}", asked_by=row)
    return values[0]


@accepts_any_array
def depth_to_space(
    data: Array,
    *,
    blocksize: int,
    mode: str = "DCR",
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX DepthToSpace (1, 11, 13, 28): channels of (b, c, h, w) as blocks of rows and columns.

    The result has shape (b, c / blocksize², h * blocksize, w * blocksize). `mode`, from
    opset 11 on, is "DCR" (depth, column, row) or "CRD". One copy. Raises DTypeError,
    ReshapeError.

    >>> import numpy as np
    >>> depth_to_space(np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1), blocksize=2).tolist()
    [[[[0.0, 1.0], [2.0, 3.0]]]]
    """
    row, x = entered("DepthToSpace", opset, data)
    block, order = _blocks(row, x, blocksize, mode, _DEPTH_ORDERS)
    b, c, h, w = x.shape
    depth, rest = divmod(c, block * block)
    if rest:
        raise ReshapeError(
            f"{c} channels cannot be blocks of {block} * {block}", x.shape, asked_by=row
        )
    inner: Ints = (block, block, depth) if mode == "DCR" else (depth, block, block)
    shape = b, depth, h * block, w * block
    return _rearranged(x, (b, *inner, h, w), order, shape, copy=copy, out=out)


@accepts_any_array
def space_to_depth(
    data: Array,
    *,
    blocksize: int,
    mode: str = "DCR",
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX SpaceToDepth (1, 13, 28): blocks of rows and columns of (b, c, h, w) as channels.

    The result has shape (b, c * blocksize², h / blocksize, w / blocksize). `mode`, from
    opset 28 on, is as in `depth_to_space`. One copy. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    >>> space_to_depth(x, blocksize=2).reshape(-1).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    row, x = entered("SpaceToDepth", opset, data)
    block, order = _blocks(row, x, blocksize, mode, _SPACE_ORDERS)
    b, c, h, w = x.shape
    if h % block or w % block:
        raise ReshapeError(
            f"{h} rows and {w} columns cannot be blocks of {block} * {block}",
            x.shape,
            asked_by=row,
        )
    split = b, c, h // block, block, w // block, block
    shape = b, c * block * block, h // block, w // block
    return _rearranged(x, split, order, shape, copy=copy, out=out)


def _rearranged(x: Array, split: Ints, order: Ints, shape: Ints, **how: Any) -> Array:
    """An array whose dims are split and permuted, in a shape."""
    blocks = views.permute_dims(views.reshape(x, split), order)
    made: Array = views.reshape(blocks, shape, **how)
    return made


def _blocks(
    row: Version, x: Array, blocksize: int, mode: str, orders: Mapping[str, Ints]
) -> tuple[int, Ints]:
    """The side of a block, and the order of a mode, of an array of 4 dims."""
    block = integer(blocksize, "blocksize", row)
    row.check_attributes(mode=(mode, "DCR"))
    order = orders[one_of(row, mode, "mode", tuple(orders))]
    if x.ndim != 4:
        raise ReshapeError(f"data must have 4 dims, not {x.ndim}", x.shape, asked_by=row)
    if block < 1:
        raise ReshapeError(f"blocksize must be at least 1, not {block}", asked_by=row)
    return block, order


@accepts_any_array
def gather(
    data: Array,
    indices: Any,
    *,
    axis: int = 0,
    opset: int = 25,
    out: Array | None = None,
) -> Array:
    """ONNX Gather (1, 11, 13): the elements at `indices` of `axis`, in a new array.

    The dims of `indices`, an int32 or int64 array or a sequence of ints, take the place of
    `axis` in the result. From opset 11 on they may be negative. Raises OutOfBoundsError,
    ReshapeError, DTypeError.

    >>> import numpy as np
    >>> gather(np.arange(6, dtype=np.float32).reshape(2, 3), np.array([[0, -1]]), axis=1).shape
    (2, 1, 2)
    """
    row, x = entered("Gather", opset, data, "data")
    if is_array(indices):
        row.check(indices, "indices")
    found = positions(indices, row)
    at = axis_of(row, integer(axis, "axis", row), x.ndim)
    if row.since < NEGATIVE_INDICES and found.size and found.min() < 0:
        raise ReshapeError(
            f"indices must not be negative (from opset {NEGATIVE_INDICES} on they may be)",
            asked_by=row,
        )
    return take_for(x, found, at, out, row)


@accepts_any_array
def pad(
    data: Array,
    pads: Any,
    constant_value: Any = None,
    axes: Any = None,
    *,
    mode: str = "constant",
    opset: int = 25,
    out: Array | None = None,
) -> Array:
    """ONNX Pad (1, 2, 11, 13, 18, 19, 21, 23, 24, 25): elements added around `data`, or removed.

    `pads` (elements; in Pad-1 the attribute `paddings`) has what comes before each of
    `axes` (from opset 18; all, if left out), then what comes behind; negative ones remove
    elements. `mode` is "constant", "edge", "reflect", or from opset 19 on "wrap";
    `constant_value`, a number or an array of one element (before opset 11 the attribute
    `value`), has the dtype of `data`. In a new array. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> pad(np.array([[1, 2, 3]], np.float32), [0, 2, 0, -1], mode="edge")
    array([[1., 1., 1., 2.]], dtype=float32)
    """
    row = version("Pad", opset)
    kind = row.check(data, "data")
    x = _of_objects(checked(data)) if kind is STRING else checked(data)
    known = [name for name, since in PAD_MODES.items() if row.since >= since]
    mode = one_of(row, mode, "mode", known)
    if axes is not None and row.since < 18:
        raise ReshapeError(f"{row} has no input axes (opset 18 does)")
    given = range(x.ndim) if axes is None else ints(axes, "axes", row, types=row.operands["axes"])
    along, each = axes_of(row, given, x.ndim), ints(pads, "pads", row)
    if len(each) != 2 * len(along):
        raise ReshapeError(
            f"pads {list(each)} must be 2 * {len(along)} numbers", x.shape, asked_by=row
        )
    widths = [(0, 0)] * x.ndim
    for axis, *width in zip(along, each[: len(along)], each[len(along) :], strict=True):
        widths[axis] = width[0], width[1]
    value = None
    if constant_value is not None and mode == "constant":
        value = _value(row, x, kind, constant_value)
    made: Array = padding.pad(x, widths, mode=mode, value=value, out=out, asked_by=row)
    return made


def _value(row: Version, x: Array, kind: DType, value: Any) -> Any:
    """The constant as an array without dims, of the kind and dtype of the data."""
    made: Any = value
    if is_array(value):
        if row.check(value, "data") is not kind:
            raise DTypeError(f"constant_value of {row} must be {kind}, not {dtype_of(value)}")
    elif kind.numpy is None:
        raise DTypeError(f"constant_value of {row} must be a Tensor of {kind}")
    if not is_array(value) or is_a(value, Tensor) != is_a(x, Tensor):
        try:
            made = padding.scalar(x, value)
        except (TypeError, ValueError, OverflowError):
            raise DTypeError(f"constant_value of {row} must be of {kind}, not {value!r}") from None
    if made.size != 1:
        fault = f"constant_value must be one element, not {made.size}"
        raise ReshapeError(fault, asked_by=row)
    return views.reshape(made, ())


@accepts_any_array
def center_crop_pad(
    data: Array,
    shape: Any,
    *,
    axes: Any = None,
    opset: int = 25,
    out: Array | None = None,
) -> Array:
    """ONNX CenterCropPad (18): the middle of `axes` (all, if left out), in `shape` (elements).

    If a dim is smaller than that, zeros are added on both sides. Of an odd number of elements, the
    larger half is removed or added at the end. In a new array. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> center_crop_pad(np.array([[1, 2, 3, 4]], np.float32), [2, 3]).tolist()
    [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]
    """
    row, x = entered("CenterCropPad", opset, data, "input_data")
    sizes = ints(shape, "the shape", row, types=row.operands["shape"])
    along = axes_of(row, range(x.ndim) if axes is None else ints(axes, "axes", row), x.ndim)
    if len(sizes) != len(along) or min(sizes, default=0) < 0:
        fault = f"the shape {list(sizes)} must be {len(along)} sizes"
        raise ReshapeError(fault, x.shape, asked_by=row)
    widths = [(0, 0)] * x.ndim
    for axis, size in zip(along, sizes, strict=True):
        more = size - x.shape[axis]
        before = more // 2 if more >= 0 else -(-more // 2)
        widths[axis] = before, more - before
    return padding.pad(x, widths, out=out, asked_by=row)
