"""What the packages offer, what needs no Spark, and where an index is if nothing says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import providers
import rewrite
import skipping
from skipping.sources.spark import default_location, require_no_namespace
from tests.conftest import WITHOUT_JAVA, RunPython


class TestSurface:
    def test_what_each_package_offers(self) -> None:
        offered = {package.__name__: package.__all__ for package in (providers, rewrite, skipping)}
        assert offered == {
            "providers": [
                "Addresses",
                "And",
                "Between",
                "BloomFilter",
                "Collector",
                "Column",
                "Compare",
                "Contains",
                "Domain",
                "EndsWith",
                "Field",
                "In",
                "IndexPredicate",
                "IsNull",
                "Layout",
                "MinMax",
                "Ngram",
                "Or",
                "Partition",
                "Predicate",
                "Ranges",
                "SkippingError",
                "SkippingProvider",
                "StartsWith",
                "Test",
                "Unknown",
                "ValueList",
            ],
            "rewrite": [
                "Alarm",
                "Explanation",
                "PrometheusCollector",
                "Session",
                "Verification",
                "alarms",
                "counters",
                "disable",
                "enable",
                "explain",
                "history",
                "session",
                "verify",
            ],
            "skipping": [
                "Saving",
                "ScanPlan",
                "SkippingError",
                "SkippingIndex",
                "Stream",
                "in_network",
                "savings",
                "schema",
                "sql",
                "streams",
            ],
        }
        for package in (providers, rewrite, skipping):
            for name in package.__all__:
                assert getattr(package, name) is not None
        with pytest.raises(AttributeError, match="has no attribute 'Index'"):
            skipping.Index  # noqa: B018

    @pytest.mark.parametrize(
        ("hiding", "program"),
        [
            ("providers", "import skipping"),
            ("providers", "import rewrite"),
            ("rewrite", "import skipping; skipping.sql"),
        ],
    )
    def test_a_folder_that_hides_a_package_is_named(
        self, run_python: RunPython, tmp_path: Path, hiding: str, program: str
    ) -> None:
        (tmp_path / hiding).mkdir()
        (tmp_path / hiding / "__init__.py").touch()
        run = run_python("-c", program, cwd=tmp_path, env=WITHOUT_JAVA)
        last = run.stderr.splitlines()[-1]
        assert last.startswith(f"ImportError: Python finds '{hiding}' at {tmp_path}/{hiding}")
        assert "rename the other folder" in last

    def test_no_spark_is_needed_to_import(self, run_python: RunPython) -> None:
        program = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "delta"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import providers, skipping
from skipping.stores.memory.store import MemoryStore
from skipping.stores.open import open_store
from skipping.parser.parse import parse
from skipping import ScanPlan, SkippingError, SkippingIndex
assert parse("DROP SKIPPING INDEX ON t").table == ("t",)
assert open_store("memory:x").definitions() == ()
try:
    SkippingIndex.on(None, "t")
except ImportError as error:
    print(error)
"""
        run = run_python("-W", "error", "-c", program)
        assert (run.returncode, run.stderr) == (0, "")
        assert run.stdout.strip() == "pyspark is blocked"


class TestDefaultLocation:
    @pytest.mark.parametrize(
        ("warehouse", "location"),
        [
            ("/data/warehouse", "sqlite:/data/warehouse/skipping-index.sqlite"),
            ("file:/data/ware%20house", "sqlite:/data/ware house/skipping-index.sqlite"),
            ("file:///data/w", "sqlite:/data/w/skipping-index.sqlite"),
            ("file://localhost/data/w", "sqlite:/data/w/skipping-index.sqlite"),
            ("s3a://bucket/w/", "s3a://bucket/w/_skipping"),
            ("s3://bucket/w", "s3://bucket/w/_skipping"),
            ("gs://bucket", "gs://bucket/_skipping"),
            ("abfss://c@a.dfs.core.windows.net/w", "abfss://c@a.dfs.core.windows.net/w/_skipping"),
            ("hdfs://name:8020/w", "hdfs://name:8020/w/_skipping"),
        ],
    )
    def test_default_location_is_in_the_warehouse(self, warehouse: str, location: str) -> None:
        assert default_location(warehouse) == location

    @pytest.mark.parametrize(
        "warehouse",
        ["dbfs:/w", "wasbs://c@a/w", "hdfs:///w", "s3a:///w", "", None],
    )
    def test_default_location_of_other_warehouses_names_the_setting(
        self, warehouse: str | None
    ) -> None:
        with pytest.raises(skipping.SkippingError, match=r"set spark\.skipping\.store"):
            default_location(warehouse)

    @pytest.mark.parametrize(
        ("catalog", "shows"),
        [
            ({"type": "hadoop", "warehouse": "s3a://b/w"}, True),
            ({"type": "Hadoop", "warehouse": "s3://b/"}, True),
            (
                {
                    "catalog-impl": "org.apache.iceberg.hadoop.HadoopCatalog",
                    "warehouse": "s3a://b/w/",
                },
                True,
            ),
            ({"type": "hadoop", "warehouse": "s3a://b/w2"}, False),
            ({"type": "hadoop", "warehouse": "s3a://b/w/iceberg"}, False),
            ({"type": "rest", "warehouse": "s3a://b/w"}, False),
            ({"warehouse": "s3a://b/w"}, False),
        ],
    )
    def test_default_location_in_a_hadoop_catalog_names_the_setting(
        self, catalog: dict[str, str], shows: bool
    ) -> None:
        conf = {f"spark.sql.catalog.lake.{key}": value for key, value in catalog.items()}
        if not shows:
            require_no_namespace(default_location("s3a://b/w"), conf)
            return
        with pytest.raises(
            skipping.SkippingError, match=r"catalog lake: set spark\.skipping\.store"
        ):
            require_no_namespace(default_location("s3a://b/w"), conf)

    def test_a_network_mount_names_the_setting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mounts = [
            SimpleNamespace(mountpoint="/", fstype="ext4"),
            SimpleNamespace(mountpoint="/data", fstype="autofs"),
            SimpleNamespace(mountpoint="/data", fstype="nfs4"),
            SimpleNamespace(mountpoint="/data/local disk", fstype="xfs"),
        ]
        monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
        for remote in ("/data/w", "file:/data/w"):
            with pytest.raises(skipping.SkippingError, match=r"set spark\.skipping\.store"):
                default_location(remote)
        for local in ("/data/local disk/w", "/database/w", "/home/w"):
            assert default_location(local).startswith("sqlite:/")
