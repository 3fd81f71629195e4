"""Other programs, a leaf module each: onnx, einops, dask, torch's loader. Nothing imports them.

Arrays of other libraries, which the core takes, are in `arrays/`.
"""
