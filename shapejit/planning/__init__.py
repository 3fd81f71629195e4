"""Which loop moves the bytes of a copy, and in which order: Layout -> Plan.

Every threshold and every choice between strategies belongs here; the loops are in `kernels/`.
Whether NumPy does the work is decided by `engine.copying`, with these thresholds, and, until
kernels are ready, by `engine.patience`. Nothing here imports numba.
"""
