"""asv's benchmarks: classes made from the cases of `shapejit/bench/`.

asv runs this folder against the shapejit of any commit. The cases, the clocks and the baselines are
those of this checkout (`tables`); the measured package is imported where it is used, and what a
commit lacks is "n/a" there. No module here may import shapejit at its top: asv forks its
benchmarks, and shapejit uses one thread in a forked child.
"""
