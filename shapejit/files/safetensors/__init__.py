"""safetensors (huggingface.co/docs/safetensors): eight bytes of header size, JSON, packed data.

`read` checks the whole header before anything of the file is used; `write`
leaves either the whole new file or what stood there before.
"""

from ..paths import Path
from ..writing import New
from .reader import Checkpoint, read
from .writer import placed, write

__all__ = ["Checkpoint", "New", "Path", "placed", "read", "write"]
