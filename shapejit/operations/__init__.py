"""Operations on arrays: views and copies, joining, taking, padding, casts, codes, equality.

A function here checks its arguments, makes a Layout or a result, and hands the copy to the call
path. A new one has its row in `arrays/operations.py`; one that a specification names otherwise is
called by its dialect.
"""
