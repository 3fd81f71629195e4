"""Every compiled loop. Kernels see addresses, widths and strides, never a dtype.

Nothing here validates or allocates. Modules import numba, but for `constants`, `numbers`,
`networks`, `planes`, `plain_conversions`, `small_plans` and `object_layouts`.
"""
