"""Functions of a tensor, traced once and run on many; many different tensors in one launch.

`plan` calls the function with a Tensor without data (`trace`), which records Ops (`ops`). For each
Layout of a source, `fuse` turns them into as few copies as possible, and `specialization` runs
these. `reshape_batch` is independent of that: one launch for arrays of any shapes and dtypes.
"""
