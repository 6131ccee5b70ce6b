"""Keep a folder store small: checkpoints, merged segments, and objects that are no longer used."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa

from providers.errors import Damaged, StoreError, first_line
from skipping.stores import IDENTITY
from skipping.stores.entries import ORDINALS, PORTION, check_entries
from skipping.stores.folder import log
from skipping.stores.folder.log import Checkpoint, Manifest, Segment
from skipping.stores.folder.objects import Listed, Objects, get_all
from skipping.stores.folder.replica import Replica, within
from skipping.stores.folder.segments import read_part
from skipping.stores.memory.entries import fill_sketches, place_entries

CHECKPOINT = 64
"""Number of commits after which a writer writes a checkpoint."""

RETENTION = timedelta(days=1)
"""Age of objects before they are deleted, by the clock of the storage.

It is longer than any write between its first object and its commit.
"""

_FOLDERS = ("log/", "data/", "probe/", "drafts/")
_MANY = 8  # segments before they are merged
_FEW_ROWS = 1_000
_MOST_MERGED = 64 << 20  # bytes


def require_conditional_writes(objects: Objects) -> None:
    """Raise StoreError if the storage lets two writers create one object: commits would be lost."""
    name = f"probe/{secrets.token_hex(16)}"
    try:
        is_created = objects.create(name, b"1")
    except StoreError as error:
        raise StoreError(
            f"{first_line(error)}: set spark.skipping.store to a folder that this user can write"
        ) from error
    if not is_created:
        raise StoreError(f"{objects.location} refuses new objects: choose other storage")
    try:
        if objects.create(name, b"2"):
            raise StoreError(
                f"{objects.location} does not support conditional writes (If-None-Match), so "
                "commits of two drivers could be lost: set spark.skipping.store to other storage"
            )
    finally:
        objects.delete([name])


def checkpoint(objects: Objects, replica: Replica) -> Checkpoint | None:
    """Write a checkpoint of what a replica has; return it."""
    made = replica.checkpoint()
    if made is not None:
        # Checkpoints of one version are equal. `create` may leave none (see `_upload`).
        objects.replace(made.name, log.require_size(made.to_bytes()))
        objects.replace(log.HINT, log.hint_of(made))
    return made


def segments_to_merge(manifest: Manifest) -> tuple[Segment, ...]:
    """Return the segments to merge into one: none if there are few, all if most rows are removed.

    No chosen segment has more rows than all newer ones together, so a row is merged a logarithmic
    number of times.
    """
    segments = manifest.segments
    rows = sum(each.rows for each in segments)
    removed = sum(last - first + 1 for first, last in manifest.removed)
    if 2 * removed > rows and _fit(segments):
        return segments
    chosen: tuple[Segment, ...] = ()
    for each in reversed(segments):
        if chosen and each.rows > max(sum(s.rows for s in chosen), _FEW_ROWS):
            break
        if not _fit((each, *chosen)):
            break
        chosen = (each, *chosen)
    return chosen if len(chosen) >= _MANY else ()


def _fit(segments: tuple[Segment, ...]) -> bool:
    return sum(each.bytes for each in segments) <= _MOST_MERGED


def merge(objects: Objects, manifest: Manifest, chosen: Sequence[Segment]) -> pa.Table:
    """Return the entries of some segments without the removed ones; raise Damaged."""
    wanted = {part.name: part.bytes for each in chosen for part in each.parts}
    found = get_all(objects, wanted)
    merged = IDENTITY.empty_table()
    for segment in chosen:
        whole: pa.Table | None = None
        for part in segment.parts:
            data = found[part.name]
            if data is None:
                raise Damaged(f"{part.name} is missing")
            table = read_part(part, data, segment.rows)
            if whole is None:
                whole = table
                continue
            if not whole["ordinal"].equals(table["ordinal"]):
                raise Damaged(f"{part.name} has other rows than its segment")
            for name in table.schema.names[1:]:
                whole = whole.append_column(name, table[name])
        assert whole is not None
        if merged.nbytes + whole.nbytes > PORTION:
            raise Damaged(f"{segment.id} unpacks to more bytes than are merged")
        gone = within(whole["ordinal"].to_numpy(), manifest.removed)
        new = check_entries(whole.filter(pa.array(~gone)))
        old = len(merged)
        merged, at, rows = place_entries(merged, new, end=ORDINALS, removed=())
        merged, _ = fill_sketches(merged, new, at, rows, old=old)
    return merged.combine_chunks()


def collect(objects: Objects, made: Checkpoint) -> int:
    """Delete unused objects older than RETENTION; return their number.

    Nothing is deleted if this process was suspended since it made the checkpoint: what is live now
    may not be in it. Only names that a release writes are deleted, because the folder may be the
    root of a bucket with other data.
    """
    live = frozenset[str]().union(*(manifest.names for _, manifest in made.indexes.values()))
    last = log.commit_name(made.version)
    listed = [each for folder in _FOLDERS for each in objects.list(folder) if log.is_own(each.name)]
    # The present by the clock of the storage: the checkpoint was written just now.
    now = next((each.modified for each in listed if each.name == made.name), None)
    if now is None or _is_overtaken(objects, made, listed, now):
        return 0
    # Sorted: if this ends halfway, a commit is followed by all later ones, or it is deleted, too.
    gone = sorted(
        each.name
        for each in listed
        if now - each.modified > RETENTION
        if each.name not in live and each.name != log.HINT
        if not (each.name.startswith("log/") and each.name >= last)
    )
    if gone:
        objects.delete(gone)
    return len(gone)


def _is_overtaken(
    objects: Objects, made: Checkpoint, listed: Sequence[Listed], now: datetime
) -> bool:
    """Return whether others went on for long since a checkpoint; name the newest one again."""
    numbered = [(found, each) for each in listed if (found := log.version_of(each.name))]
    newest = max(version for (version, is_checkpoint), _ in numbered if is_checkpoint)
    if newest > made.version:
        objects.replace(log.HINT, log.hint_of(replace(made, version=newest)))
    was_collected = (made.version, False) not in [found for found, _ in numbered]
    return (
        was_collected
        or newest > made.version
        or any(
            version > made.version and now - each.modified > RETENTION / 2
            for (version, _), each in numbered
        )
    )
