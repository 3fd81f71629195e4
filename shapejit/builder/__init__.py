"""The builder: kernels become object code, in a process of its own.

Only it imports numba, and the modules in `kernels/` that need it. A process is started when a
kernel is asked for (`runtime/building.py`); `python -m shapejit.builder` is what it runs.
"""
