"""The entry of `python -m shapejit` and of the script `shapejit`."""

import sys

from .cli.run import main as main

if __name__ == "__main__":
    sys.exit(main())
