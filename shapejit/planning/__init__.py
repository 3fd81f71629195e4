"""Which loop moves the bytes of a copy, and in which order: Layout -> Plan.

Every threshold and every choice between strategies belongs here; the loops are in `kernels/`, and
whether a kernel or NumPy does the work is decided in the call path. Nothing here imports numba.
"""
