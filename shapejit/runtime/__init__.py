"""What runs beneath everything else: kernels loaded, threads, launches, memory of results."""
