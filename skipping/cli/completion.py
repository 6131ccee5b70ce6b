"""Print a completion script for a shell, made by shtab from the parser."""

from __future__ import annotations

import argparse

from skipping.cli.arguments import PACKAGE, create_parser
from skipping.cli.output import Output

_PATHS = ("table", "tables", "source", "target")


def print_completion(given: argparse.Namespace, output: Output) -> int:
    """Print the script; raise ImportError without shtab."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise ImportError(f"completion needs shtab: pip install '{PACKAGE}[completion]'") from None
    parser = create_parser("file-skipping")
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for command in commands.choices.values():
        for action in command._actions:
            if action.dest in _PATHS:
                action.complete = shtab.DIRECTORY
    print(shtab.complete(parser, given.shell))
    return 0
