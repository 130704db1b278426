"""`python -m frames2py`, the same as the `frames2py` command."""

import sys

from ._cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
