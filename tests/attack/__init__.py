"""Random tests of the whole package, for any length of time: see `__main__`."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))  # `views` and `loops` are modules of this folder
