"""Shapes: the shape requested, the shape it resolves to, and where elements are in memory.

Dialects define what 0 and -1 mean; `arithmetic` computes the result, for Python and compiled code,
and `resolver` raises errors for its error codes. `layout` decides whether a view exists. Nothing
here holds memory.
"""
