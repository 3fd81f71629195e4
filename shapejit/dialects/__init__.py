"""One module per specification, which translates its arguments into a Request.

The meaning of a specification's arguments, the dtypes that it lists and its names belong here; the
operations themselves are in `shapes/` and `operations/`.
"""
