"""The int64 words of a job, which a kernel and the threads that run it share.

Kernels compile these numbers: the module imports nothing of the package.
"""

from __future__ import annotations

# What `kernels.shares.take` reads and writes: of a job (`work`), of one of its threads (`span`),
# of all jobs of a process (`signal`).
NEXT, SHARES, DONE, TOTAL, UNITS, OPEN, SIGNAL, STREAMED = range(8)
WORK = 8  # ints of `work`: a cache line
TENSOR, LOW, HIGH, UNIT, END, UNDERWAY, OWNER = range(7)
SPAN = 16  # ints of `span` before the positions of the loops
