"""Batches as dicts of columns, as in Ray Data and other table libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import (
    DTypeError,
    ReshapeError,
    ShapeJitError,
    UnknownNameError,
    about,
    did_you_mean,
    type_name,
)
from ..runtime.ndarrays import is_a, is_mapping, is_sequence
from .sources import check_source


def map_batches(program: Any, batch: Any, columns: Any) -> dict[str, Any]:
    """`Program.map_batches`."""
    if not is_mapping(batch):
        raise DTypeError(f"a batch is a dict of ndarrays, not {type(batch).__name__}")
    made = dict(batch)
    for name in _chosen(program, batch, columns):
        with about(f"column {name!r}"):
            made[name] = _column(program, made[name])
    return made


def _chosen(program: Any, batch: Mapping[str, Any], columns: Any) -> list[str]:
    """The names of the columns that are transformed."""
    if columns is None:
        misfits = {name: _misfit(program, column) for name, column in batch.items()}
        names = [name for name, why in misfits.items() if not why]
        if not names and not any(map(_is_empty, batch.values())):
            each = "; ".join(f"column {name!r}: {why}" for name, why in misfits.items())
            raise ReshapeError(
                f"no column has rows for this program: {each or 'the batch is empty'}"
            )
        return names
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in batch:
            near = did_you_mean(str(name), map(str, batch))
            raise UnknownNameError(f"the batch has no column {name!r}{near}")
    return names


def _misfit(program: Any, column: Any) -> str:
    """Why the first row of a column has not the program's shape and dtype; "" if it has."""
    if not _has_rows(column):
        return f"{type_name(column)} is no ndarray of rows"
    if column.dtype != object:  # a row that takes no memory, as there may be none
        row: Any = np.broadcast_to(np.empty((), column.dtype), column.shape[1:])
    else:
        row = column[0] if len(column) else None
    try:
        check_source(row, False, program.dtype, program.source_shape)
    except ShapeJitError as error:
        return str(error)
    return ""


def _column(program: Any, column: Any) -> Any:
    """The transformed column."""
    if _has_rows(column) and column.dtype != object:
        return program.map(column)
    if not is_sequence(column) and not _has_rows(column):
        raise DTypeError(f"a column is an ndarray, not {type(column).__name__}")
    rows = list(column)
    shapes = {np.shape(row) for row in rows}
    fitted = program.fitted(*shapes) if len(shapes) == 1 else None
    if fitted is None:
        made = np.empty(len(rows), object)
        made[:] = program.map(rows)
        return made
    slab = np.empty((len(rows), *fitted.shape), fitted.result_dtype.numpy)
    return fitted.map(rows, out=slab)


def _has_rows(column: Any) -> bool:
    """Whether this is an ndarray with a dim of rows."""
    return is_a(column, np.ndarray) and column.ndim > 0


def _is_empty(column: Any) -> bool:
    """Whether this is an object array without rows, so that their shape is unknown."""
    return _has_rows(column) and column.dtype == object and not len(column)
