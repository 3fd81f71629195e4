"""Checkpoints converted: rules for their tensors, planned and checked, then written."""

from .changes import Change
from .described import Report
from .folders import nbytes_of
from .planning import plan
from .proof import prove
from .rules import RULES, read_rules, rule, rules_of
from .runs import Settings
from .tensors import SPECS, Dialect, Rule, Spec, Tensors, dialect

__all__ = [
    "RULES",
    "SPECS",
    "Change",
    "Dialect",
    "Report",
    "Rule",
    "Settings",
    "Spec",
    "Tensors",
    "dialect",
    "nbytes_of",
    "plan",
    "prove",
    "read_rules",
    "rule",
    "rules_of",
]
