"""safetensors (huggingface.co/docs/safetensors): eight bytes of header size, JSON, packed data.

`read` checks the whole header before anything of the file is used; `write`
leaves either the whole new file or what stood there before.
"""

from ..paths import Path as Path
from .entry import MAX_RANK as MAX_RANK
from .reader import Checkpoint as Checkpoint
from .reader import read as read
from .writer import New as New
from .writer import write as write
