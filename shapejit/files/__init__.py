"""Bytes on disk <-> Tensors: one module or package per file format."""
