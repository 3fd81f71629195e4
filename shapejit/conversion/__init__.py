"""Conversion of checkpoints: rules for tensors are planned, checked and then carried out."""

from .described import Report
from .folders import nbytes_of
from .planning import plan
from .proof import prove
from .rules import RULES, read_rules, rule
from .tensors import SPECS, dialect

__all__ = [
    "RULES",
    "SPECS",
    "Report",
    "dialect",
    "nbytes_of",
    "plan",
    "prove",
    "read_rules",
    "rule",
]
