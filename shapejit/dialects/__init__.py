"""One module per specification, which translates its arguments into a Request.

What a specification means by its arguments, which dtypes it lists and what it calls things belongs
here; what is then done is in `shapes/` and `operations/`.
"""
