"""Checkpoints converted: rules for their tensors, planned and checked, then written."""

from .changes import Change
from .planning import Conversion, Report, plan
from .rules import RULES, read_rules, rule, rules_of
from .specifications import SPECS, Dialect, Spec, dialect
from .tensors import Rule

__all__ = [
    "RULES",
    "SPECS",
    "Change",
    "Conversion",
    "Dialect",
    "Report",
    "Rule",
    "Spec",
    "dialect",
    "plan",
    "read_rules",
    "rule",
    "rules_of",
]
