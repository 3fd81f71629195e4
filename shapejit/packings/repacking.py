"""repack: convert any packing format to any other, by one copy between two views of the codes.

Both formats define where each code is. If both are Layouts of the same dims, one copy by the
planner's kernels moves the codes, and adds the difference of biases. Other formats (planes,
padding within factors) are converted through codes of one byte each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Bytes
from ..arrays.foreign import sees_native_arrays
from ..arrays.tensor import Tensor
from ..dtypes.table import DType, dtype as dtype_named, fixed_width
from ..engine import outputs, routes
from ..engine.routes import ENTRY, Route
from ..errors import FormatError, quoted, shape_text
from ..kernels.numbers import Conversion, Number
from ..operations import views
from ..runtime.launches import address_of
from ..shapes.dims import common
from ..shapes.layout import Layout, checked_shape, in_target_order
from ..shapes.request import Ints
from .orders import BY_BIT, PlaneLayout
from .packing import Packing, StoredLayout
from .rows import formats


@sees_native_arrays
def repack(
    buffer: Any,
    *,
    shape: Sequence[int],
    dtype: object,
    source: str,
    target: str,
    block_size: int | None = None,
    layout: str | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Convert packed codes from the format `source` to the format `target`.

    `buffer` holds the stored array (see `Packing.stored`): an ndarray or a Tensor of its dtype
    and shape, a Tensor of packed elements, or any contiguous buffer of its bytes. `shape`
    (elements) is that of the tensor in the source: (in, out) for GPTQ, AWQ and MatMulNBits, as
    stored for the others; the last two dims are exchanged between these two kinds. Formats
    without an orientation of their own (lsb, onnx, safetensors, padded and other flat ones; see
    `Packing.layout`) hold a weight as (out, in), or, with `layout="in,out"`, as (in, out): codes of
    AWQ and GPTQ are not transposed then. `dtype` is that of its elements. MatMulNBits needs its
    `block_size` (elements). The result is an array of the target's dtype and shape, or `out`;
    padding, and bytes for scales in new arrays, are zero; bytes of `out` for scales are left
    alone. Facts and their sources: `shapejit.formats`. Raises
    FormatError, DTypeError, ReshapeError; nothing is written then.

    >>> repack(bytes([0x21, 0x43]), shape=(4,), dtype="uint4", source="lsb", target="msb").tobytes()
    b'\\x124'
    """
    given, wanted, kind = formats[source], formats[target], fixed_width(dtype)
    if block_size is not None and not (given.blocks or wanted.blocks):
        raise FormatError(f"neither {source} nor {target} has blocks: leave out block_size")
    sizes = checked_shape(shape, "shape", source)
    turns = _turns(given, wanted, layout, sizes)
    rows = _swapped(sizes) if turns[0] else given.rows_of(sizes)
    src, dst, route, first, nbytes = _decided(given, wanted, turns, rows, kind, block_size)
    memory = given.memory(buffer, src, sizes)
    if src.pitch > src.bits:
        _check_codes(memory, given, kind)
    if out is None and dst.gaps:
        made = np.zeros(dst.shape, dst.unit)
    else:
        made, _ = outputs.target(out, dst.unit, dst.shape, (memory,))
    if made.size:
        into, codes = made.reshape(-1).view(np.uint8), None
        if route is None:
            codes = _fitting(codes_of(memory, src, rows), src, dst, kind, target)
        if out is not None and wanted.pads and dst.gaps:
            into.fill(0)
        if first is not None:
            between = np.empty(nbytes, np.uint8)
            _run(first, memory, between)
            memory = between
        if codes is not None:
            store_codes(codes, into, dst)
        elif route is not None:
            _run(route, memory, into)
    return made if out is None else out


class _Copy(NamedTuple):
    """How a tensor is stored in two formats, and the Route of a copy between views of its codes.

    The Route is None if there are no such views. It may read packed elements in order, of `nbytes`
    bytes, to which the Route `first` copies the source.
    """

    src: StoredLayout
    dst: StoredLayout
    route: Route | None
    first: Route | None = None
    nbytes: int = 0

    @property
    def weight(self) -> int:
        """A bound on the bytes of the Routes."""
        return ENTRY + sum(route.weight for route in (self.route, self.first) if route)


@routes.found_once
def _decided(
    given: Packing, wanted: Packing, turns: tuple[bool, bool], rows: Ints, kind: DType,
    block_size: int | None,
) -> _Copy:  # fmt: skip
    """The copy of a tensor from one format to another."""
    src, dst = (
        replace(row.stored_rows(_swapped(rows), kind, block_size), turned=_swapped(rows))
        if turned
        else row.stored_rows(rows, kind, block_size)
        for row, turned in zip((given, wanted), turns, strict=True)
    )
    route = _between(src, dst, kind)
    if route and src.pitch != dst.pitch and not (_in_order(src) and _in_order(dst)):
        # Packed elements are reordered faster than unpacked bytes.
        lsb = formats["lsb"].stored_rows(rows, kind, None)
        first, second = _between(src, lsb, kind), _between(lsb, dst, kind)
        if first and second:
            return _Copy(src, dst, second, first, lsb.nbytes)
    return _Copy(src, dst, route)


def _between(src: StoredLayout, dst: StoredLayout, kind: DType) -> Route | None:
    """The Route of a copy between views of all codes, if there are such views."""
    seen, into = src.layout, dst.layout
    layouts = None if seen is None or into is None else _alike(seen, into)
    return layouts and _route(*layouts, dst.pitch, (dst.bias - src.bias) % (1 << kind.bits))


def _turns(given: Packing, wanted: Packing, layout: str | None, shape: Ints) -> tuple[bool, bool]:
    """Whether each of two formats holds (in, out) because of `layout`."""
    if layout is None:
        return False, False
    if layout not in ("in,out", "out,in"):
        raise FormatError(f'layout must be "in,out" or "out,in", not {quoted(str(layout))}')
    if (not given.layout) == (not wanted.layout):
        names = given.name, wanted.name
        fault = "{} and {} both define" if given.layout else "neither {} nor {} defines"
        raise FormatError(f"{fault.format(*names)} the orientation of weights: leave out layout")
    if len(shape) < 2:
        raise FormatError(f"layout is for weights of 2 dims or more, not {shape_text(shape)}")
    first = layout == "in,out"
    return first and not given.layout, first and not wanted.layout


def _swapped(shape: Ints) -> Ints:
    return (*shape[:-2], shape[-1], shape[-2])


def _fitting(
    codes: NDArray[np.uint8], src: StoredLayout, dst: StoredLayout, kind: DType, target: str
) -> NDArray[np.uint8]:
    """Codes with the bias of the target. Raises FormatError for one that it cannot hold."""
    codes = codes + np.uint8((dst.bias - src.bias) % (1 << kind.bits))
    codes &= np.uint8((1 << kind.bits) - 1)
    most = int(codes.max())
    if most >> dst.bits:
        raise FormatError(f"{target} holds codes of {dst.bits} bits, not {most}")
    return codes


def _check_codes(memory: Bytes, row: Packing, kind: DType) -> None:
    """Raise FormatError for a byte that is no code; signed codes may be sign-extended."""
    signed = kind.kind == "integer" and kind.signed
    values = memory.view(np.int8) if signed else memory
    least, most = -(1 << (kind.bits - 1)) if signed else 0, (1 << kind.bits) - 1
    for value in (values.max(initial=0), values.min(initial=0) if signed else 0):
        if not least <= value <= most:
            raise FormatError(f"{row.name} holds {kind} here, not {value}")


def _in_order(stored: StoredLayout) -> bool:
    """Whether elements are evenly spaced and in order."""
    if stored.layout is None or stored.turned:
        return False
    runs = stored.layout.runs()
    return len(runs) < 2 and all(stride > 0 for _, stride in runs)


def _alike(seen: Layout, into: Layout) -> tuple[Layout, Layout] | None:
    """Two Layouts with the same dims, in the target's order; None if they have no common ones."""
    shape = common(seen.shape, into.shape) if seen.bits == into.bits and seen.size else None
    if shape is None:
        return None
    source, target = seen.reshape(shape), into.reshape(shape)
    assert source is not None
    assert target is not None
    return in_target_order(source, target)


def copy_codes(memory: Bytes, into: Bytes, source: Layout, target: Layout, bias: int) -> bool:
    """Copy codes of Layout `source`, plus `bias`, to Layout `target`; False if dims do not fit."""
    layouts = _alike(source, target)
    if layouts is not None:
        _run(_route(*layouts, target.bits, bias % (1 << target.bits)), memory, into)
    return layouts is not None or not source.size


def _route(source: Layout, target: Layout, pitch: int, bias: int) -> Route:
    """The Route of codes of one Layout to another, with a spacing of `pitch` bits, plus `bias`."""
    dense = Layout.row_major(target.shape, pitch)
    given = None if (target.offset, target.strides) == (0, dense.strides) else target
    route = routes.biased(source, target, bias) if bias and pitch == source.bits else None
    if route is None and bias:
        number = Number("uint", source.bits)
        made = Conversion(number, number, 0, bias=bias)
        route = routes.casts(source, pitch, given, None, 1, made, False)
    return route or routes.compiled(source, pitch, given)


def _run(route: Route, memory: Bytes, into: Bytes) -> None:
    """Copy codes in memory to other memory."""
    routes.run(route, [8 * address_of(memory)], [8 * address_of(into)])


def codes_of(memory: Bytes, src: StoredLayout, rows: Ints) -> NDArray[np.uint8]:
    """The codes of a stored tensor, a byte each, in the shape of its elements."""
    if src.words:
        units = memory.view(src.unit).reshape(src.words.shape).transpose(src.words.axes)
        memory = views.ascontiguous(units).reshape(-1).view(np.uint8)
    codes: Any = None
    for part in src.parts:
        sizes = [prod(n for n, _ in dim) for dim in part.dims]
        if part.bits in BY_BIT:
            whole = np.zeros(sizes, np.uint8)
            places = in_target_order(_in_bits(part.padded), _in_bits(_in_items(part, 8)))
            _run(_route(*places, 1, 0), memory, whole.reshape(-1))
        else:
            plane = Tensor.unchecked(memory, dtype_named(f"uint{part.bits}"), part.padded)
            whole = plane.ascontiguous().unpack().view(np.uint8).reshape(sizes)
        some = whole[tuple(slice(size) for size in src.logical)]
        some <<= np.uint8(part.low)
        codes = some if codes is None else np.bitwise_or(codes, some, out=codes)
    if src.turned:
        codes = codes.reshape(src.turned).swapaxes(-1, -2)
    made: NDArray[np.uint8] = codes.reshape(rows)
    return made


def store_codes(codes: NDArray[Any], into: Bytes, dst: StoredLayout) -> None:
    """Store codes, each an unsigned integer, in the planes."""
    memory = np.zeros_like(into) if dst.words else into
    if dst.turned:
        codes = codes.reshape(_swapped(dst.turned)).swapaxes(-1, -2)
    codes, each = codes.reshape(dst.logical), 8 * codes.itemsize
    for part in dst.parts:
        plane = np.zeros([prod(n for n, _ in dim) for dim in part.dims], codes.dtype)
        plane[tuple(slice(size) for size in dst.logical)] = codes >> part.low
        layouts = in_target_order(_in_bits(_in_items(part, each)), _in_bits(part.padded))
        pitch = each if dst.pitch > dst.bits else layouts[1].bits
        _run(_route(*layouts, pitch, 0), plane.reshape(-1).view(np.uint8), memory)
    if dst.words:
        units = into.view(dst.unit).reshape(dst.words.shape).transpose(dst.words.axes)
        units[...] = memory.view(dst.unit).reshape(units.shape)


def _in_items(part: PlaneLayout, pitch: int) -> Layout:
    """Codes in the low bits of items of `pitch` bits, row-major."""
    dense = Layout.row_major(part.padded.shape, pitch)
    return Layout.of(dense.shape, dense.strides, 0, part.bits)


def _in_bits(layout: Layout) -> Layout:
    """Elements of a width that no kernel copies, as bits."""
    if layout.bits not in BY_BIT:
        return layout
    return Layout.of((*layout.shape, layout.bits), (*layout.strides, 1), layout.offset, 1)


def proved(row: Packing) -> bool:
    """Whether a format stores its test vector's codes in the right bytes, and reads them back.

    >>> from shapejit import formats
    >>> proved(formats["awq:gemm"])
    True
    """
    check = row.check
    kind = fixed_width(check.dtype)
    codes = np.array(check.codes, np.int64).astype(np.uint8) & np.uint8((1 << kind.bits) - 1)
    rows = row.rows_of(check.shape)
    codes = codes.reshape(check.shape)
    codes = np.ascontiguousarray(codes if rows == check.shape else codes.swapaxes(-1, -2))
    settings: dict[str, Any] = {"dtype": kind, "block_size": check.block_size}
    stored = bytes.fromhex(check.stored.replace(".", "0"))
    made = repack(codes, shape=rows, source="padded", target=row.name, **settings)
    back = repack(stored, shape=check.shape, source=row.name, target="padded", **settings)
    return made.tobytes() == stored and back.tobytes() == codes.tobytes()
