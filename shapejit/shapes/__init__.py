"""Shapes: what is asked for, what it resolves to, and where elements are.

Dialects define what 0 and -1 mean; `arithmetic` computes the result, for Python and compiled code,
and `resolver` turns its faults into messages. `layout` knows whether a view exists. Nothing here
has memory.
"""
