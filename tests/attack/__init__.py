"""Random attacks on the whole package, for as long as one likes: see `__main__`.

An attack is a row of `table.ATTACKS`: a function that makes up one case from a random
generator, carries it out and raises where the package does not do what it promises. Cases
depend on nothing but the name of the attack, the seed and their number. They run in
processes of their own (`chunk`), so that a crash is one more failure (`runner`).
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))  # `views` and `loops` are modules of this folder
