"""Operations on arrays: views and copies, joining, taking, padding, casts, codes, equality.

A function here checks its arguments, makes a view or allocates a result, and leaves the copy to
`engine`. A new one gets a row in `arrays/operations.py`. If a specification has another name or
other arguments for it, a module of `dialects` calls it.
"""
