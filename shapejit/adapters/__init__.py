"""Other programs, a leaf module each: onnx, einops, dask, torch's loader. Nothing imports them."""
