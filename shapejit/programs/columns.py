"""Batches as dicts of columns: the convention of Ray Data, and of tables in general."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes.table import DType
from ..errors import DTypeError, ReshapeError, UnknownNameError, about, did_you_mean
from ..runtime.ndarrays import is_a, is_mapping, is_sequence, plain


class MapsBatches:
    """What runs a program on the columns of batches; `fitted` gives the Program for a shape."""

    dtype: DType

    def fitted(self, shape: tuple[int, ...]) -> Any:
        """The Program for arrays of `shape`, if there is one.

        >>> import shapejit as sj
        >>> rows = sj.plan((None, 2), "uint8", lambda t: t.T)
        >>> rows.fitted((5, 2)).shape, rows.fitted((5, 3))
        ((2, 5), None)
        """
        raise NotImplementedError

    def map(self, tensors: Any, out: Any = None) -> Any:
        """The program of many arrays: a list of results."""
        raise NotImplementedError

    def map_batches(
        self, batch: Mapping[str, Any], columns: str | Sequence[str] | None = None
    ) -> dict[str, Any]:
        """A batch with this program done to each row of some of its columns, one launch a column.

        `batch` is a dict of ndarrays whose dim 0 counts the rows, as Ray Data's
        `Dataset.map_batches` hands it over; where rows differ in shape, an object array of
        ndarrays. `columns` names what is transformed; if not given, that is every column
        whose rows have the program's shape and dtype; an object array without rows has none.
        The others pass through as they are, and the batch is not changed. A new column is an
        ndarray of shape (rows, *shape), an object array where results differ in shape.
        Raises ReshapeError, DTypeError, UnknownNameError, which name the column.

        >>> import shapejit as sj
        >>> load = sj.plan((2, 2, 3), "uint8", lambda t: t.permute_dims((2, 0, 1)).cast("float32"))
        >>> batch = {"image": np.ones((5, 2, 2, 3), np.uint8), "label": np.arange(5)}
        >>> {name: (x.shape, str(x.dtype)) for name, x in load.map_batches(batch).items()}
        {'image': ((5, 3, 2, 2), 'float32'), 'label': ((5,), 'int64')}
        """
        if not is_mapping(batch):
            raise DTypeError(f"a batch is a dict of ndarrays, not {type(batch).__name__}")
        made = dict(batch)
        for name in self._chosen(batch, columns):
            with about(f"column {name!r}"):
                made[name] = self._column(made[name])
        return made

    def _chosen(self, batch: Mapping[str, Any], columns: Any) -> list[str]:
        """The names of the columns that are transformed."""
        if columns is None:
            names = [name for name, column in batch.items() if self._fits(column)]
            if not names and not any(map(_is_empty, batch.values())):
                raise ReshapeError(f"no column has rows for this program: {', '.join(batch)}")
            return names
        names = [columns] if isinstance(columns, str) else list(columns)
        for name in names:
            if name not in batch:
                near = did_you_mean(str(name), map(str, batch))
                raise UnknownNameError(f"the batch has no column {name!r}{near}")
        return names

    def _fits(self, column: Any) -> bool:
        """Whether a column has rows for this program, as far as its first one tells."""
        if not _has_rows(column):
            return False
        if column.dtype != object:
            row, kind = column.shape[1:], column.dtype
        elif len(column) and is_a(column[0], np.ndarray):
            row, kind = column[0].shape, column[0].dtype
        else:
            return False
        return kind == self.dtype.numpy and self.fitted(row) is not None

    def _column(self, column: Any) -> Any:
        """What becomes of a column."""
        if not _has_rows(column) and not is_sequence(column):
            raise DTypeError(f"a column is an ndarray, not {type(column).__name__}")
        if _has_rows(column) and column.dtype != object:
            stack = plain(column)
            program = self.fitted(stack.shape[1:])
            if program is None:
                raise ReshapeError(f"rows of shape {stack.shape[1:]} are not for this program")
            return program.map(stack)
        rows = list(column)
        shapes = {np.shape(row) for row in rows}
        program = self.fitted(*shapes) if len(shapes) == 1 else None
        if program is not None:
            slab = np.empty((len(rows), *program.shape), program.result_dtype.numpy)
            return program.map(rows, out=slab)
        made = np.empty(len(rows), object)
        made[:] = self.map(rows)
        return made


def _has_rows(column: Any) -> bool:
    """Whether this is an ndarray with a dim of rows."""
    return is_a(column, np.ndarray) and column.ndim > 0


def _is_empty(column: Any) -> bool:
    """Whether this is an object array without rows, of which nobody knows what they would be."""
    return _has_rows(column) and column.dtype == object and not len(column)
