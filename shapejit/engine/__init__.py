"""From a call to a kernel: where arrays lie, where results go, and what NumPy does instead."""
