"""From a call to a kernel: where arrays are, where results go, and what NumPy does instead."""
