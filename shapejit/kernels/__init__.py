"""Every compiled loop. Kernels know addresses, widths and strides, but no dtypes.

Kernels neither validate nor allocate, except those that read ndarrays (`array_structs`,
`small_joins`, `maps`): they look up Routes, check arrays and make results. All modules import
numba, except `constants`, `numbers`, `numerics`, `encodings`, `networks`, `planes`,
`plain_conversions`, `small_plans` and `object_layouts`.

One name has one meaning here. *run*: contiguous bytes or elements that are moved together; *piece*:
16 bytes, one lane of a vector; *block*: what is permuted in registers at once; *tile*: rows by
columns of a transposition; *box*: a part of a copy that passes through a cache; *line*: a cache
line of 64 bytes; *stage*: a thread's scratch memory, which stays in a cache; *code*: the bits of an
element narrower than a byte, in a byte of its own; *unit* (`planes`): elements whose bits repeat at
even distances. To *stream* is to store whole lines past the caches, by nontemporal stores. A
*line_offset* is where in a line a target begins, *staged_bytes* are the end of what is staged.
"""
