"""Dtypes: the table, one row per dtype, and the names that each system has for them."""

from .table import DType, all, dtype

__all__ = ["DType", "all", "dtype"]
