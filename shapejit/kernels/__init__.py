"""Every compiled loop. Kernels see addresses, widths and strides, never a dtype.

Nothing here validates or allocates; importing any of these modules imports numba.
"""

# What becomes of a tensor of a batch, see `shapes.settle`; here, because this module imports none.
VIEW, COPY, EMPTY, REFUSED, APART = 0, 1, 2, 3, 4

MAX_RANK = 64  # dims of an ndarray
