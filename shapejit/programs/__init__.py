"""Functions of a tensor traced once and run on many, and many unlike tensors in one launch.

`plan` calls the function with a Tensor without data (`trace`), which writes down Ops (`ops`). For
each Layout of a source, `fuse` makes of them the fewest copies, and `specialization` runs those.
`reshape_batch` is beside that: one launch for arrays that have nothing in common.
"""
