"""Checkpoints converted: rules for their tensors, planned and checked, then written."""

from .changes import Change
from .described import Report
from .folders import nbytes_of
from .planning import Conversion, plan
from .proof import prove
from .rules import RULES, read_rules, rule, rules_of
from .runs import Settings
from .tensors import SPECS, Dialect, Rule, Spec, dialect

__all__ = [
    "RULES",
    "SPECS",
    "Change",
    "Conversion",
    "Dialect",
    "Report",
    "Rule",
    "Settings",
    "Spec",
    "dialect",
    "nbytes_of",
    "plan",
    "prove",
    "read_rules",
    "rule",
    "rules_of",
]
