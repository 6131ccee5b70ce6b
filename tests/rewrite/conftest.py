"""What the tests of queries share."""

from __future__ import annotations

import sys
from pathlib import Path

# importlib mode does not know the folder above `tests`.
sys.path.insert(0, str(Path(__file__).parents[2]))
