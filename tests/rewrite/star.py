"""A star schema that tests share and only read: one per format, made once per session.

`fact` has 24 files; a key lives in one file, and each file spans all keys, so bounds cannot prune.
`dim` and `sub` are its dimensions. `sorted` has no index but bounds: each of its 20 files holds
ten neighbors of each column; `few` holds three of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.rewrite.differential import in_catalog_of, make_table, matching

FILES = 24
FACT = f"""SELECT id, int(id % 240) AS k, id % 240 AS l, concat('key ', id % 240) AS s,
    date_add(date'2024-01-01', int(id % 240)) AS d, double(id % 240) / 2 AS x,
    timestamp_micros((id % 240) * 1000001) AS ts, decimal(id % 240) / 4 AS dec,
    int(id % {FILES}) AS m, named_struct('a', int(id % 240)) AS st,
    repeat(md5(string(id)), 4) AS pad, int(id % 240) % {FILES} AS _f FROM range(960)"""
FACT_INDEX = ", ".join(
    f"{column} VALUE_LIST" for column in ("k", "l", "s", "d", "x", "ts", "dec", "m", "st.a")
)
DIM = f"""SELECT int(id) AS k, id AS l, concat('key ', id) AS s,
    date_add(date'2024-01-01', int(id)) AS d, double(id) / 2 AS x,
    timestamp_micros(id * 1000001) AS ts, decimal(id) / 4 AS dec, int(id % {FILES}) AS m,
    concat('n', id % {FILES}) AS name, int(id % 12) AS g, 0 AS _f FROM range(240)"""
SUB = "SELECT int(id) AS g, concat('g', id) AS name, 0 AS _f FROM range(12)"

SORTED_FILES = 20
BOUNDS = {
    "delta.dataSkippingNumIndexedCols": "32",
    "write.metadata.metrics.default": "truncate(16)",
}
# Texts begin alike, longer than what statistics keep; `t` is alike in 50 rows; one file has nulls.
SORTED = f"""
    SELECT id, int(id) AS i, float(id) / 4 AS f, double(id) / 7 AS d,
           CAST(id / 10 AS DECIMAL(12, 3)) AS e, date_add(DATE'2024-01-01', int(id)) AS day,
           timestamp_micros(1700000000000000 + id * 1001) AS ts,
           CAST(timestamp_micros(1600000000000000 + id * 333) AS TIMESTAMP_NTZ) AS ntz,
           concat('s', lpad(id, 4, '0'), repeat('x', 40)) AS s,
           concat(char(55357 + 0 * id), lpad(id, 4, '0')) AS odd,
           named_struct('a', named_struct('b', id)) AS st, int(id div 50) AS t,
           IF(id BETWEEN 103 AND 107, NULL, int(id)) AS n,
           int(id div 10) AS p, int(id div 10) AS _f
    FROM range({10 * SORTED_FILES})
"""
FEW = f"SELECT *, 0 AS g FROM ({SORTED}) WHERE i IN (25, 26, 131)"
TABLES: dict[str, tuple[str, str | None, dict[str, str]]] = {
    "fact": (FACT, FACT_INDEX, {}),
    "dim": (DIM, None, {}),
    "sub": (SUB, None, {}),
    "sorted": (SORTED, None, BOUNDS),
    "few": (FEW, None, {}),
}


class Star:
    """The star schemas of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._made = set[tuple[str, str]]()
        self._files: dict[tuple[str, str], set[Path]] = {}

    @contextmanager
    def of(self, format: str, *names: str) -> Iterator[None]:
        """Resolve names to the tables of a format; make these, or the star, on first use."""
        spark = self._spark
        with in_catalog_of(spark, format, "star"):
            for name in names or ("fact", "dim", "sub"):
                if (format, name) not in self._made:
                    rows, index, properties = TABLES[name]
                    make_table(spark, name, rows, index, properties=properties)
                    self._made.add((format, name))
            yield

    def files(self, condition: str = "true") -> set[Path]:
        """Return the files of `fact` that hold a matching row; each condition is run once."""
        key = (self._spark.catalog.currentCatalog(), condition)
        if key not in self._files:
            self._files[key] = matching(self._spark, "fact", condition)
        return self._files[key]
