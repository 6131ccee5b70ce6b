"""Run the command `file-skipping` as `python -m skipping`."""

import sys

from skipping.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
