"""Every compiled loop. Kernels see addresses, widths and strides, never a dtype.

Nothing here validates or allocates; importing any of these modules imports numba.
"""
