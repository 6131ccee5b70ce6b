"""Tables in an object store that only the session knows how to open: build, read, follow.

Arrow is told by the session's configuration; in the last driver that says what Arrow cannot follow.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_store import BUCKET, SECRET, ObjectStore

pytestmark = pytest.mark.nightly

PROGRAM = """
import json, sys, time
from pathlib import Path

from pyspark.sql import SparkSession

import rewrite
import skipping
from skipping import SkippingIndex
from skipping.indexing.column_sync import current_columns
from skipping.indexing.refresh import without_ordinals
from skipping.indexing.sketch import Work, sketch_files
from skipping.indexing.spark import can_open
from skipping.indexing import spark_reader
from skipping.indexing.storage import session_storage
from tests.rewrite.differential import skips
from tests.skipping.indexing.test_reader_build import spelled
from tests.skipping.export import export, scratch
from tests.skipping.streaming import dies
from tests.skipping.streaming.conftest import caught_up, until

step, folder, bucket, files, settings = sys.argv[1:]
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .config("spark.skipping.mode", "strict")
)
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = rewrite.session(builder)
spark.sparkContext.setLogLevel("ERROR")
place = f"s3a://{bucket}/t"
table = f"delta.`{place}`"
follow = (
    f"ALTER SKIPPING INDEX ON {table} WITH (auto_refresh = true, refresh_interval = '200ms',"
    f" checkpoint_location = 'file:{folder}/warehouse/checkpoint')"
)


def append(start, files=2):
    spark.range(start, start + 10 * files, 1, files).selectExpr(
        "id", "cast(id % 7 AS string) AS s", "timestamp_seconds(id) AS at",
        "cast(id AS decimal(20, 2)) AS d", "cast(id AS float) AS f", "date_add(date'2024-01-01',"
        " cast(id AS int)) AS day", "named_struct('x', id) AS o",
    ).write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").mode("append").save(
        place
    )


KINDS = ", ".join(
    f"{c} {kind}" for c in ("id", "s", "at", "d", "day", "o.x")
    for kind in ("MIN_MAX", "VALUE_LIST", "BLOOM_FILTER")
)


def reads():
    skips(spark, f"SELECT * FROM {table} WHERE id = 5")
    skips(spark, f"SELECT * FROM {table} WHERE d = 15.00 OR day = date'2024-01-02'")
    keys = spark.range(3, 4).selectExpr("id AS k", "id % 2 = 1 AS odd").where("odd")
    facts = spark.read.format("delta").load(place)
    skips(spark, lambda s: facts.join(keys, facts.id == keys.k).select("id", "s"))


if step == "make":
    append(0, files=8)
    index = SkippingIndex.create(spark, table, KINDS)
    listed = index.table.files()
    path = listed["path"][0].as_py()
    assert not can_open(path), "only the session can"
    storage = session_storage(spark, listed["path"])
    assert list(storage.opened) == [f"s3a://{bucket}"] and not storage.beyond
    assert can_open(path, storage)
    reads()
    # What an executor makes of it, and the driver and Spark's reader with the session's keys, too.
    pairs = current_columns(index.definition, index.table.columns())
    work = [Work(i, column, i.provider()) for i, column in pairs]
    numbered = without_ordinals(listed).set_column(0, "ordinal", [list(range(len(listed)))])
    batch = numbered.combine_chunks().to_batches()[0]
    direct = spelled(sketch_files(batch, work, locate=storage, at_once=4))
    for small in (spark_reader._SMALL, 0):
        spark_reader._SMALL = small
        (made,) = spark_reader.ReaderBuild(spark)(numbered, work)
        assert spelled(made) == direct, small
    assert all(row["s1_known"] == "True" for row in direct)
    # The same files where Python opens them: the other source of a build.
    read = SkippingIndex.create(spark, f"delta.`{files}/t`", KINDS)
    ours, theirs = ([entry[1:] for entry in export(i)] for i in (index, read))
    assert ours == theirs, (ours[0], theirs[0])
    append(100)
elif step == "die":
    dies.POINTS["between bulk and watermark"]()
    spark.sql(follow)
    time.sleep(120)
    sys.exit("it lived")
else:
    index = SkippingIndex.on(spark, table)
    assert (index.state.covered, len(index.files())) == (0, 10), (index.state, len(index.files()))
    storage = session_storage(spark, index.table.files()["path"])
    assert storage.beyond == {f"s3a://{bucket}": "fs.s3a.requester.pays.enabled"}, storage
    reads()
    spark.sql(follow)
    append(200)
    until(lambda: caught_up(spark, table), seconds=120)
    reads()
    index = SkippingIndex.on(spark, table)
    (Path(folder) / "scratch").mkdir()
    assert export(index) == scratch(spark, index, Path(folder) / "scratch")
    assert len(index.files()) == 12
    (stream,) = skipping.streams(spark)
    assert (stream.versions, stream.files, stream.error) == (0, 0, None), stream
    spark.sql(f"DROP SKIPPING INDEX ON {table}")
spark.stop()
print("done")
"""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


def run(
    store: ObjectStore, folder: Path, step: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """A step in a driver of its own, whose environment knows nothing of the object store.

    `more` is said of the bucket, in S3A's settings, as the keys are: what is said of all is wrong.
    """
    root = Path(__file__).parents[1]
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    s3a = "spark.hadoop.fs.s3a"
    settings = store.settings()
    for name in ("access.key", "secret.key"):
        settings[f"{s3a}.bucket.{BUCKET}.{name}"] = settings[f"{s3a}.{name}"]
        settings[f"{s3a}.{name}"] = "wrong"
    for name, value in more.items():
        settings[f"{s3a}.bucket.{BUCKET}.{name.replace('_', '.')}"] = value
    (folder / "events").mkdir(exist_ok=True)
    settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    settings["spark.eventLog.dir"] = f"file:{folder}/events"
    arguments = [step, str(folder), BUCKET, str(store.folder), json.dumps(settings)]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**env, "PYTHONPATH": str(root)},
        timeout=600,
        check=False,
    )


@pytest.mark.soak
def test_built_read_and_followed_with_what_the_session_knows(
    store: ObjectStore, tmp_path: Path
) -> None:
    made = run(store, tmp_path, "make")
    assert made.stdout.splitlines()[-1:] == ["done"], made.stderr[-5_000:]
    died = run(store, tmp_path, "die")
    assert died.returncode == -signal.SIGKILL, died.stderr[-5_000:]
    went_on = run(store, tmp_path, "go on", requester_pays_enabled="true")
    assert went_on.stdout.splitlines()[-1:] == ["done"], went_on.stderr[-5_000:]
    written = [file for place in (tmp_path, store.folder) for file in place.rglob("*")]
    for part in ("checkpoint", "events"):
        assert any(part in file.parts for file in written), "there is one"
    said = [run.stdout + run.stderr for run in (made, died, went_on)]
    assert not any(SECRET in text for text in said)
    for file in (file for file in written if file.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file
