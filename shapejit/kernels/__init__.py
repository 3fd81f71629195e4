"""Every compiled loop. Kernels see addresses, widths and strides, never a dtype.

Nothing here validates or allocates. Importing any of these modules but `constants`
imports numba.
"""
