"""Adapters for onnx, einops, dask and torch's DataLoader, one module each. Nothing imports them.

Arrays of other libraries, which the core takes, are in `arrays/`.
"""
