"""Shapes: what is asked for, what it resolves to, and where elements are.

Who decides what 0 and -1 mean is a dialect; what they do is here, once, in Python and in compiled
code. Whether a view exists is asked of `layout`. Nothing here has memory.
"""
