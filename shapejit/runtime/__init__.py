"""What runs beneath everything else: kernels loaded, threads, launches, memory of results.

It knows nothing of tensors. What a kernel does stands in `kernels/`, whether it runs in `engine`;
here is how it is built, found on disk, loaded and given to threads.
"""
