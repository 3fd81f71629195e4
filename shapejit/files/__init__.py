"""One module a file format: bytes on disk <-> Tensor."""
