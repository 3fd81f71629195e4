"""safetensors (huggingface.co/docs/safetensors): eight bytes of header size, JSON, packed data.

`read` checks the whole header before anything else is used.
"""

from .reader import read
from .writer import placed

__all__ = ["placed", "read"]
