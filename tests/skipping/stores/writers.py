"""Write many commits to a folder store, in a process of its own.

Each line of standard output is a list in JSON of what succeeded: `["reserve", ordinal]`,
`["write", ordinal]`, or of what failed: `["failed", message]`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from providers.errors import StoreError
from skipping.stores import IndexStore
from skipping.stores.folder import log
from skipping.stores.folder.objects import Objects, ObstoreObjects
from skipping.stores.folder.store import FolderStore
from tests.skipping.stores.samples import bounds, entries

__all__ = ["Report", "check", "commits", "main", "write"]

Report = Callable[[str, object], None]


def write(store: IndexStore, name: str, count: int, report: Report) -> None:
    """Reserve an ordinal and write an entry in turn, until `count` changes have succeeded."""
    done = 0
    while done < count:
        try:
            (ordinal,) = store.reserve("i", 1)
            report("reserve", ordinal)
            done += 1
            if done == count:
                break
            path = [f"{name}-{ordinal}"]
            store.write("i", entries([ordinal], bounds([ordinal]), path=path), revision=1)
            report("write", ordinal)
            done += 1
        except StoreError as error:
            report("failed", str(error))


def commits(objects: Objects) -> list[log.Commit]:
    """Return all commits of a log that is still complete; their numbers have no gaps."""
    found: list[log.Commit] = []
    while data := objects.get(log.commit_name(len(found) + 1), most=log.MOST_COMMIT):
        found.append(log.Commit.parse(data, len(found) + 1))
    names = [each.name for each in objects.list("log/") if "check" not in each.name]
    assert len(names) == len(found), "no commit after a gap"
    return found


def check(reader: FolderStore, objects: Objects, reports: Mapping[str, list[list[object]]]) -> int:
    """Check that each change is in the log once, and that a reader sees it; return the changes.

    `reports` has the lines of each writer. A change that failed may be in the log, at most once.
    """
    told = [(name, *line) for name, lines in reports.items() for line in lines]
    reserved = [what for _, kind, what in told if kind == "reserve"]
    written = {what: name for name, kind, what in told if kind == "write"}
    failed = sum(kind == "failed" for _, kind, _ in told)
    assert len(set(reserved)) == len(reserved), "no ordinal was given twice"
    log_ = [each for each in commits(objects) if not each.merged and "definition" not in each.set]
    assert len({each.id for each in log_}) == len(log_)
    given = [each for each in log_ if "next" in each.set]
    assert sorted(each.set["next"] for each in given) == list(range(1, len(given) + 1))
    assert len(reserved) <= len(given) <= len(reserved) + failed
    assert set(reserved) <= set(range(len(given)))
    added = [each for each in log_ if each.add]
    assert len(written) <= len(added) <= len(written) + failed
    assert len(log_) == len(given) + len(added)
    seen = reader.catalogue("i").files
    paths = dict(zip(seen["ordinal"].to_pylist(), seen["path"].to_pylist(), strict=True))
    assert len(paths) == len(seen) == len(added)
    for ordinal, name in written.items():
        assert paths[ordinal] == f"{name}-{ordinal}"
    return len(reserved) + len(written)


def main(url: str, replica: str, name: str, count: str, options: str = "{}") -> None:
    """Write to the store at `url`."""
    store = FolderStore(ObstoreObjects(url, json.loads(options)), Path(replica))
    write(store, name, int(count), lambda *line: print(json.dumps(line), flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
