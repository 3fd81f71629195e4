"""Which loop moves the bytes of a copy, and in which order: Layout -> Plan.

Nothing here imports numba.
"""
