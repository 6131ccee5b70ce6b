"""Print the packages as a graph of their imports: how many there are, levels, arrows and cycles.

A package is `providers`, or what stands directly below `skipping` or `rewrite`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

import grimp

ROOTS = ("providers", "skipping", "rewrite")


def package_of(module: str) -> str:
    """Return the package a module belongs to.

    >>> package_of("skipping.stores.sqlite.schema"), package_of("providers.keys")
    ('skipping.stores', 'providers')
    """
    return ".".join(module.split(".")[: 1 if module.startswith("providers") else 2])


def read_imports() -> dict[str, set[str]]:
    """Return, for each package, the packages it imports, also for types only."""
    graph = grimp.build_graph(*ROOTS, cache_dir=None)
    imports: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - set(ROOTS):
        importer = package_of(module)
        imports[importer] |= {
            package_of(m) for m in graph.find_modules_directly_imported_by(module)
        }
        imports[importer] -= {importer, *(set(ROOTS) - {"providers"})}
    return dict(imports)


def count_levels(imports: dict[str, set[str]]) -> int:
    """Return the length of the longest chain of imports; raises CycleError."""
    level: dict[str, int] = {}
    for package in TopologicalSorter(imports).static_order():
        level[package] = 1 + max((level[other] for other in imports.get(package, ())), default=0)
    return max(level.values())


def main() -> int:
    """Print the table; return 1 if there is a cycle."""
    imports = read_imports()
    for package in sorted(imports):
        print(f"{package:28} -> {', '.join(sorted(imports[package])) or '-'}")
    arrows = sum(map(len, imports.values()))
    try:
        print(f"{len(imports)} packages, {arrows} arrows, {count_levels(imports)} levels, no cycle")
    except CycleError as error:
        print(f"{len(imports)} packages, {arrows} arrows, a cycle: {' -> '.join(error.args[1])}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
