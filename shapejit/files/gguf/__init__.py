"""GGUF (github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little-endian."""

try:
    import gguf  # noqa: F401  # before the modules that need it
except ImportError as missing:
    raise ImportError(
        "GGUF files need gguf: pip install 'shapejit[gguf]'", name="gguf"
    ) from missing

from .reader import read
from .writer import placed

__all__ = ["placed", "read"]
