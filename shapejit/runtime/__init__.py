"""Infrastructure: loading of kernels, threads, launches, memory of results, the system.

It knows nothing of tensors. `kernels/` has what a kernel does, `engine/` decides whether it runs;
here kernels are requested from builders, found on disk, loaded, and run on threads.
"""
