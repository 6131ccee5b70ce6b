"""Three ways to lay an index down in OpenSearch: `python -m tests.benchmarks.layouts [files]`.

denormalised   a document a file, with the values of its partition
nested         a document a partition, with a nested document a file
normalised     documents of partitions and documents of files, which who asks brings together

The files are those of `synthetic`, a hundred to a partition (a day). Each answer is the files that
a question prunes, as a bitmap that a script makes in the cluster; all three have to agree.
OpenSearch is a node on this machine ($OPENSEARCH, if it is set).
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import numpy as np
from pyroaring import BitMap

from skipping.stores.opensearch.client import Body, Client
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.scripts import bitmap, bitmap_words
from tests.benchmarks.report import heading, spread, table
from tests.benchmarks.synthetic import (
    KEYS,
    administer,
    bytes_on_disk,
    cluster,
    distinct,
    entries,
    server,
)

__all__ = ["main"]

A_DAY = 100  # files of a partition
NEW = 10  # files of a refresh
WARM = 9
FILE: dict[str, Body] = {
    "ordinal": {"type": "integer"},
    "path": {"type": "keyword", "index": False, "doc_values": False},
    "size": {"type": "long", "index": False, "doc_values": False},
    "low": {"type": "long"},
    "high": {"type": "long"},
    "values": {"type": "long"},
}
DAY: dict[str, Body] = {"day": {"type": "integer"}}
Query = tuple[range | None, Body]
"""Days (None: any), and what a file must satisfy, with the names of its fields as in FILE."""


def main(files: int = 100_000) -> None:
    """Print the tables."""
    rows, asked = [], []
    every = [file for part in entries(files + NEW) for file in _files(part.to_pylist())]
    with cluster() as address:
        client = Client(address, Access(), patience=600)
        layouts = [_Denormalised, _Nested, _Normalised]
        for layout in layouts:  # the server's compiler learns from these
            layout(client, every[: files // 4]).write()
        made = [layout(client, every[:files]) for layout in layouts]
        for layout in made:
            written = _seconds(layout.write)
            refreshed = [_seconds(lambda n=n, one=layout: one.add(every[files:], n)) for n in "12"]
            read = [_seconds(layout.read) for _ in range(3)]
            size = layout.size() / files
            shown = f"{written:.1f}", f"{1e3 * min(refreshed):.0f}", f"{min(read):.2f}"
            rows.append((layout.name, layout.documents(), f"{size:.0f}", *shown))
        for question, query in _questions(files):
            times: dict[str, list[float]] = {layout.name: [] for layout in made}
            for turn in range(1 + WARM):
                answers = []
                for layout in made:
                    start = time.perf_counter()
                    answers.append(layout.find_prunable(query(turn), files))
                    times[layout.name].append(1e3 * (time.perf_counter() - start))
                assert answers[0] == answers[1] == answers[2], question
            left = files - len(answers[0])
            asked.append((question, left, *(spread(t[1:], 1) for t in times.values())))
        version = server(address)
    heading("Layouts", files=files, files_a_partition=A_DAY, OpenSearch=version)
    head = "layout", "documents", "bytes a file", "write, s", f"refresh of {NEW}, ms", "read all, s"
    table(head, rows)
    heading("Which files are pruned, ms, interleaved", warm_runs=WARM)
    table(("question", "left", *(layout.name for layout in made)), asked)


def _files(rows: Iterable[Body]) -> Iterator[Body]:
    for row in rows:
        yield {
            "day": row["ordinal"] // A_DAY,
            "ordinal": row["ordinal"],
            "path": row["path"],
            "size": row["size"],
            "low": row["s1_low"],
            "high": row["s1_high"],
            "values": row["s2_values"],
        }


def _questions(files: int) -> Iterator[tuple[str, Callable[[int], Query]]]:
    days = files // A_DAY

    def key(turn: int) -> Body:
        value = (turn * 7_919 * KEYS + 17) % (files * KEYS)
        low, high = {"range": {"low": {"lte": value}}}, {"range": {"high": {"gte": value}}}
        return {"bool": {"filter": [low, high]}}

    def numbers(turn: int) -> Body:
        chosen = np.random.default_rng(turn).choice(distinct(files), 1_000, replace=False)
        return {"terms": {"values": chosen.tolist()}}

    def tenth(turn: int) -> range:
        return range(turn, turn + days // 10)

    yield "bounds, a key", lambda turn: (None, key(turn))
    yield "values, 1,000 keys", lambda turn: (None, numbers(turn))
    yield "a tenth of the days", lambda turn: (tenth(turn), {"match_all": {}})
    yield "a tenth of the days, 1,000 keys", lambda turn: (tenth(turn), numbers(turn))


class _Layout:
    name: ClassVar[str]
    fields: ClassVar[dict[str, Body]]
    order: ClassVar[str] = "ordinal"

    def __init__(self, client: Client, files: list[Body]) -> None:
        self._client = client
        self._files = files
        self._index = f"layout-{uuid.uuid4().hex[:12]}"
        mapping = {"dynamic": "strict", "properties": self.fields}
        settings = {"number_of_shards": 1, "number_of_replicas": 0}
        body = {"mappings": mapping, "settings": {"index": settings}}
        client.call("PUT", f"/{self._index}", body)

    def items(self, files: list[Body], mark: str) -> Iterator[tuple[Body, Body]]:
        raise NotImplementedError

    def find_prunable(self, query: Query, files: int) -> BitMap:
        raise NotImplementedError

    def write(self) -> None:
        """In bulk, until it can be searched."""
        self._put(self._files, "0")

    def add(self, files: list[Body], mark: str) -> None:
        """Some files more, in partitions that are there."""
        spread = [{**file, "day": file["ordinal"] % NEW} for file in files]
        self._put(spread, mark)

    def read(self) -> None:
        """All of it, as a driver does that starts."""
        query = {"exists": {"field": self.order}}
        hits = self._client.pages(self._index, {"query": query}, by=[self.order])
        assert sum(len(hit["_source"].get("files", "1")) for hit in hits) >= len(self._files)

    def size(self) -> int:
        """Bytes on disk, merged to one segment."""
        return bytes_on_disk(self._client.server, self._index)

    def documents(self) -> str:
        """How many Lucene has."""
        stats = administer(self._client.server, "GET", f"/{self._index}/_stats/docs")
        return f"{stats['_all']['primaries']['docs']['count']:,}"

    def _put(self, files: list[Body], mark: str) -> None:
        self._client.bulk(self._index, self.items(files, mark))
        self._client.call("POST", f"/{self._index}/_refresh")

    def _asked(self, query: Body, aggregation: Body) -> Body:
        body = {"size": 1, "track_total_hits": True, "_source": False, "query": query}
        answer: Body = self._client.search(self._index, {**body, "aggs": {"a": aggregation}})
        return answer["aggregations"]["a"]


class _Denormalised(_Layout):
    name = "denormalised"
    fields: ClassVar = {**DAY, **FILE}

    def items(self, files: list[Body], mark: str) -> Iterator[tuple[Body, Body]]:
        for file in files:
            yield {"create": {"_id": f"{file['ordinal']}.{mark}"}}, file

    def find_prunable(self, query: Query, files: int) -> BitMap:
        days, holds = query
        both = [holds] if days is None else [holds, _days(days)]
        scope = {"range": {"ordinal": {"lt": files}}}
        missed = {"bool": {"filter": [scope], "must_not": [{"bool": {"filter": both}}]}}
        return bitmap_words(self._asked(missed, bitmap(_words(files)))["value"], _words(files))


class _Nested(_Layout):
    name = "nested"
    order = "day"
    fields: ClassVar = {**DAY, "files": {"type": "nested", "properties": FILE}}

    def __init__(self, client: Client, files: list[Body]) -> None:
        super().__init__(client, files)
        self._days: dict[int, list[Body]] = {}

    def items(self, files: list[Body], mark: str) -> Iterator[tuple[Body, Body]]:
        days = sorted({file["day"] for file in files})
        for file in files:
            inner = {name: value for name, value in file.items() if name != "day"}
            self._days.setdefault(file["day"], []).append(inner)
        for day in days:  # a nested document changes with all of its partition
            yield {"index": {"_id": str(day)}}, {"day": day, "files": self._days[day]}

    def find_prunable(self, query: Query, files: int) -> BitMap:
        days, holds = query
        n = _words(files)
        of_file = {
            "scripted_metric": {
                **{k: v for k, v in bitmap(n)["scripted_metric"].items() if k != "map_script"},
                "map_script": "int o = (int) doc['files.ordinal'].value;"
                " state.w[o >> 6] |= (1L << (o & 63));",
            }
        }
        scope = {"range": {"files.ordinal": {"lt": files}}}
        missed = {"bool": {"filter": [scope], "must_not": [_within_files(holds)]}}
        inner = {"f": {"filter": missed, "aggs": {"w": of_file}}}
        nested = {"nested": {"path": "files"}, "aggs": inner}
        if days is None:
            found = self._asked({"match_all": {}}, nested)
            return bitmap_words(found["f"]["w"]["value"], n)
        all_files = {"f": {"filter": scope, "aggs": {"w": of_file}}}
        sides = {
            "in": {"filter": _days(days), "aggs": {"n": nested}},
            "out": {
                "filter": {"bool": {"must_not": [_days(days)]}},
                "aggs": {"n": {"nested": {"path": "files"}, "aggs": all_files}},
            },
        }
        found = self._asked({"match_all": {}}, {"filter": {"match_all": {}}, "aggs": sides})
        parts = (bitmap_words(found[side]["n"]["f"]["w"]["value"], n) for side in ("in", "out"))
        return BitMap.union(*parts)


class _Normalised(_Layout):
    name = "normalised"
    fields: ClassVar = {**DAY, **FILE, "partition": {"type": "integer"}}

    def items(self, files: list[Body], mark: str) -> Iterator[tuple[Body, Body]]:
        for day in sorted({file["day"] for file in files}):
            if mark == "0":
                yield {"create": {"_id": f"p{day}"}}, {"day": day}
        for file in files:
            inner = {name: value for name, value in file.items() if name != "day"}
            inner["partition"] = file["day"]
            yield {"create": {"_id": f"{file['ordinal']}.{mark}"}}, inner

    def read(self) -> None:
        days = {"query": {"exists": {"field": "day"}}}
        assert list(self._client.pages(self._index, days, by=["day"]))
        super().read()

    def find_prunable(self, query: Query, files: int) -> BitMap:
        days, holds = query
        both = [holds]
        if days is not None:
            # The partitions first; which they are comes back, and goes out again with the question.
            wanted = self._client.pages(self._index, {"query": _days(days)}, by=["day"])
            both.append({"terms": {"partition": [hit["_source"]["day"] for hit in wanted]}})
        scope = {"range": {"ordinal": {"lt": files}}}
        missed = {"bool": {"filter": [scope], "must_not": [{"bool": {"filter": both}}]}}
        return bitmap_words(self._asked(missed, bitmap(_words(files)))["value"], _words(files))


def _days(days: range) -> Body:
    return {"range": {"day": {"gte": days.start, "lt": days.stop}}}


def _within_files(query: Body) -> Body:
    """The same query by the names that nested fields have."""
    if "bool" in query:
        return {"bool": {"filter": [_within_files(leg) for leg in query["bool"]["filter"]]}}
    ((kind, fields),) = query.items()
    return {kind: {f"files.{name}": value for name, value in fields.items()}}


def _words(files: int) -> int:
    return (files + 63) // 64


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
