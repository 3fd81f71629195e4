"""safetensors (huggingface.co/docs/safetensors): eight bytes of header size, JSON, packed data.

`read` checks the whole header before anything else is used; after `write` the path has either the
whole new file or the old content.
"""

from ..paths import Path
from ..writing import New
from .reader import read
from .writer import placed, write

__all__ = ["New", "Path", "placed", "read", "write"]
