"""The tests of kernels, casts, packings, schemes and programs on an emulated arm64 processor.

In the folder `tests`, as root on a Debian of any architecture:

    python -m arm64 build    # the environment, 700 MB in $SHAPEJIT_ARM64 (~/.cache/shapejit-arm64)
    python -m arm64 run      # every file of tests that has not passed since its sources changed
    python -m arm64 run test_casts.py --processor neoverse-v1

A run that was ended goes on with the next test. What came of the last one of each file is kept
in `results.json`.
"""
