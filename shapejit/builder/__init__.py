"""The builder: compiles kernels to object code, in a process of its own.

Only this process imports numba, and the modules in `kernels/` that need it. `runtime/building.py`
starts it as `python -m shapejit.builder` when a kernel is requested.
"""
