"""A star join in Spark and in other engines: `python -m tests.benchmarks.peers [files] [rows]`.

A Delta table of 200 files, and a dimension whose keys are in 1 % of them, of a column by which the
table is in no order. All engines read the same files, from the local disk and from an object store
that answers each request 30 ms late: Spark with skipping and without; Spark given the surviving
files as a list, which is what can be reached, and as a Delta table of their own; DuckDB, Polars,
delta-rs and DataFusion, and two of them given that list, too. The first run of each has a column of
its own: it knows nothing yet.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import datafusion
import duckdb
import duckdb_extensions
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from tqdm import tqdm

import rewrite
from skipping import SkippingIndex
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import KEYS, star
from tests.object_store import ACCESS, BUCKET, SECRET, ObjectStore, options_at

__all__ = ["main"]

PERCENT = 1
QUERY = """SELECT count(*) AS n, max(oid) AS oid, max(note) AS note
FROM {fact} AS fact JOIN {dim} AS dim ON fact.h = dim.h WHERE dim.place < {places}"""
OURS = "Spark with skipping"
Answer = tuple[object, ...]


@dataclass(frozen=True)
class Ground:
    """The table that all engines read.

    `fact` and `dim` are folders, `survivors` the files that hold a key, all as other engines than
    Spark spell them; `port` is where the object store listens.
    """

    fact: str
    dim: str
    survivors: Sequence[str]
    places: int
    port: int

    @property
    def options(self) -> dict[str, str]:
        """What engines written in Rust open the object store with."""
        return options_at(self.port)

    def query(self, fact: str, dim: str) -> str:
        return QUERY.format(fact=fact, dim=dim, places=self.places)


def main(files: int, rows: int, rounds: int, delays: Sequence[int]) -> None:
    """Print a table for each delay of the object store; without one, for the local disk."""
    with ObjectStore() as store, benchmark_session(store.settings()) as spark:
        for delay in delays:
            with TemporaryDirectory() as folder:
                store.delay(0)
                fact = f"s3a://{BUCKET}/fact-{delay}" if delay else f"{folder}/fact"
                ground = _ground(spark, fact, f"{folder}/dim", files, rows, store.port)
                store.delay(delay)
                where = f"object store, {delay} ms a request" if delay else "local disk"
                _measure(spark, ground, rounds, files=files, rows=f"{files * rows:,}", at=where)


Engine = Callable[[Ground], Iterator[Callable[[], Answer]]]


def _engines(spark: SparkSession) -> dict[str, Engine]:
    return {
        OURS: partial(_spark, spark, "true"),
        "Spark": partial(_spark, spark, "false"),
        "Spark, given the files": partial(_oracle, spark),
        "Spark, a table of the files": partial(_alone, spark),
        "DuckDB": partial(_duckdb, "delta_scan('{fact}')"),
        "DuckDB, given the files": partial(_duckdb, "read_parquet({survivors})"),
        "Polars": _polars,
        "Polars, given the files": _polars_files,
        "delta-rs": _delta_rs,
        "DataFusion": _datafusion,
    }


def _measure(spark: SparkSession, ground: Ground, rounds: int, **facts: object) -> None:
    engines = _engines(spark)
    first: dict[str, float] = {}
    answers: dict[str, Answer] = {}
    arms: dict[str, Callable[[], object]] = {}
    with ExitStack() as open_things:
        for name, engine in tqdm(engines.items(), unit="engine", disable=None):
            began = perf_counter()
            run: Callable[[], Answer] = open_things.enter_context(contextmanager(engine)(ground))
            answers[name] = run()
            first[name] = perf_counter() - began
            arms[name] = run
        if len(set(answers.values())) != 1:
            raise AssertionError(f"other rows: {answers}")
        seconds = interleaved(arms, rounds=rounds, warm=0)
    heading("A star join in several engines", rounds=rounds, keys=f"{PERCENT} %", **facts)
    table(
        ("engine", "first, s", "then, s", "to ours"),
        [
            (name, f"{first[name]:.2f}", spread(seconds[name]), ratio(seconds[name], seconds[OURS]))
            for name in sorted(engines, key=lambda name: median(seconds[name]))
        ],
    )


def _ground(spark: SparkSession, fact: str, dim: str, files: int, rows: int, port: int) -> Ground:
    places = max(1, files * PERCENT // 100)
    star(spark, rows, files=files).write.format("delta").save(fact)
    keys = star(spark, KEYS, files=files).selectExpr(
        "h", f"cast(pmod((k div {KEYS}) * 7919, {files}) AS int) AS place"
    )
    keys.coalesce(1).write.format("delta").save(dim)
    SkippingIndex.create(spark, f"delta.`{fact}`", "h VALUE_LIST")
    spark.read.format("delta").load(fact).createOrReplaceTempView("fact")
    spark.read.format("delta").load(dim).createOrReplaceTempView("dim")
    held = spark.sql(
        f"""SELECT DISTINCT file FROM (SELECT *, _metadata.file_path AS file FROM delta.`{fact}`)
        JOIN dim USING (h) WHERE place < {places}"""
    ).collect()
    paths = [row.file for row in held]
    spark.read.parquet(*paths).coalesce(places).write.format("delta").save(f"{fact}-alone")
    spark.read.format("delta").load(f"{fact}-alone").createOrReplaceTempView("alone")
    return Ground(_bare(fact), dim, list(map(_bare, paths)), places, port)


def _bare(path: str) -> str:
    return path.replace("s3a://", "s3://").removeprefix("file://")


def _spark(spark: SparkSession, enabled: str, ground: Ground) -> Iterator[Callable[[], Answer]]:
    def run() -> Answer:
        spark.conf.set("spark.skipping.enabled", enabled)
        df = spark.sql(ground.query("fact", "dim"))
        (row,) = df.collect()
        if enabled == "true":
            opened = [scan.opened for scan in rewrite.explain(df).scans if scan.keys]
            assert opened == [ground.places], opened
        return tuple(row)

    yield run


def _oracle(spark: SparkSession, ground: Ground) -> Iterator[Callable[[], Answer]]:
    paths = [path.replace("s3://", "s3a://") for path in ground.survivors]
    schema = spark.table("fact").schema

    def run() -> Answer:
        spark.conf.set("spark.skipping.enabled", "false")
        spark.read.schema(schema).parquet(*paths).createOrReplaceTempView("survivors")
        (row,) = spark.sql(ground.query("survivors", "dim")).collect()
        return tuple(row)

    yield run


def _alone(spark: SparkSession, ground: Ground) -> Iterator[Callable[[], Answer]]:
    def run() -> Answer:
        spark.conf.set("spark.skipping.enabled", "false")
        (row,) = spark.sql(ground.query("alone", "dim")).collect()
        return tuple(row)

    yield run


def _duckdb(fact: str, ground: Ground) -> Iterator[Callable[[], Answer]]:
    with duckdb.connect() as db:
        for extension in ("delta", "httpfs"):
            duckdb_extensions.import_extension(extension)
            db.execute(f"LOAD {extension}")
        db.execute(
            f"""CREATE SECRET (TYPE s3, KEY_ID '{ACCESS}', SECRET '{SECRET}', USE_SSL false,
            ENDPOINT '127.0.0.1:{ground.port}', URL_STYLE 'path', REGION 'us-east-1')"""
        )
        source = fact.format(fact=ground.fact, survivors=list(ground.survivors))
        query = ground.query(source, f"delta_scan('{ground.dim}')")

        def run() -> Answer:
            row = db.execute(query).fetchone()
            assert row is not None
            return row

        yield run


def _aggregated(fact: pl.LazyFrame, ground: Ground) -> Answer:
    dim = pl.scan_delta(ground.dim).filter(pl.col("place") < ground.places)
    columns = pl.len(), pl.col("oid").max(), pl.col("note").max()
    return fact.join(dim, on="h").select(*columns).collect().row(0)


def _polars(ground: Ground) -> Iterator[Callable[[], Answer]]:
    yield lambda: _aggregated(pl.scan_delta(ground.fact, storage_options=ground.options), ground)


def _polars_files(ground: Ground) -> Iterator[Callable[[], Answer]]:
    files = list(ground.survivors)
    yield lambda: _aggregated(pl.scan_parquet(files, storage_options=ground.options), ground)


def _delta_rs(ground: Ground) -> Iterator[Callable[[], Answer]]:
    def run() -> Answer:
        fact = DeltaTable(ground.fact, storage_options=ground.options)
        builder = QueryBuilder().register("fact", fact).register("dim", DeltaTable(ground.dim))
        (row,) = pa.table(builder.execute(ground.query("fact", "dim"))).to_pylist()
        return tuple(row.values())

    yield run


def _datafusion(ground: Ground) -> Iterator[Callable[[], Answer]]:
    context = datafusion.SessionContext()
    store = datafusion.object_store.AmazonS3(
        bucket_name=BUCKET,
        region="us-east-1",
        access_key_id=ACCESS,
        secret_access_key=SECRET,
        endpoint=f"http://127.0.0.1:{ground.port}",
        allow_http=True,
    )
    context.register_object_store(f"s3://{BUCKET}/", store)
    context.register_parquet("fact", f"{ground.fact}/")
    context.register_parquet("dim", f"{ground.dim}/")

    def run() -> Answer:
        (row,) = context.sql(ground.query("fact", "dim")).to_arrow_table().to_pylist()
        return tuple(row.values())

    yield run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=200)
    parser.add_argument("rows", nargs="?", type=int, default=50_000, help="a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delays", type=int, nargs="*", default=[0, 30], help="ms a request")
    main(**vars(parser.parse_args()))
