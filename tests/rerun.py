"""Tests that run once more where something else is installed or started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["rerun"]

ROOT = Path(__file__).parents[1]


def rerun(file: str, *options: str, env: dict[str, str], timeout: float) -> str:
    """What pytest says of a file of tests, all of which pass, in a process with these variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    run = subprocess.run(
        [*command, str(ROOT / file), *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **env},
        timeout=timeout,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    return run.stdout
