"""Open the table that a user names, in Spark."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from providers.errors import TableError, first_line
from skipping.model.identifiers import sql_name
from skipping.tables import Table
from skipping.tables.delta.spark import DeltaTable
from skipping.tables.iceberg.spark import IcebergTable
from skipping.tables.parquet.spark import ParquetTable

_DELTA = "org.apache.spark.sql.delta.files.Tahoe"
_LISTED = (
    "org.apache.spark.sql.execution.datasources.InMemoryFileIndex",
    "org.apache.spark.sql.execution.datasources.CatalogFileIndex",
)
"""Spark's file indexes of complete tables, not of streams or single versions."""


def open_table(spark: SparkSession, name: str) -> Table:
    r"""Open `t`, `db.t`, `catalog.db.t`, ``delta.`/p` ``, ``parquet.`/p` ``.

    Raises TableError for a missing table, a view (with its tables), a stream, one version of a
    table (``delta.`/path@v1` ``, `t.branch_x`), and tables of another format.
    """
    try:
        plan: Any = spark.table(name)._jdf.queryExecution().analyzed()
    except PySparkException as error:
        raise TableError(f"cannot open table {name}: {first_line(error)}") from error
    if plan.isStreaming():
        raise TableError(f"{name} is a stream; name the table it reads{_tables(plan)}")
    relation = _relation(plan)
    if relation is None:
        raise TableError(f"{name} is a view, which has no files; name its table{_tables(plan)}")
    if _is_iceberg(relation):
        return _iceberg(spark, name, relation)
    location = _location(relation)
    if location is None:
        raise TableError(f"{name} is not a Delta, Iceberg or Parquet table: {_describe(relation)}")
    if not location.getClass().getName().startswith(_DELTA):
        return _parquet(spark, name, relation)
    if location.isTimeTravelQuery():
        raise TableError(f"{name} is one version of a table; an index covers the whole table")
    root = str(location.deltaLog().dataPath().toString())
    return DeltaTable(spark, root, _catalog_name(relation) or f"delta.`{root}`")


def _iceberg(spark: SparkSession, name: str, relation: Any) -> IcebergTable:
    table = relation.table().table()
    if "BaseTable" not in _classes(table):
        raise TableError(f"{name} is a metadata table, which has no files of its own")
    full = _catalog_name(relation)
    if full is None:
        raise TableError(f"{name} is not in a catalog; name it as catalog.db.table")
    place = relation.identifier().get()
    # Branches, tags and snapshots are names below the table's: db.t.branch_x.
    if str(table.name()).endswith(f".{place.name()}"):
        return IcebergTable(spark, full)
    branch = _audit_branch(spark)
    if str(place.name()) == branch and _last_part(spark, name) != branch:
        return IcebergTable(
            spark, sql_name([str(relation.catalog().get().name()), *place.namespace()])
        )
    raise TableError(f"{name} is one version of a table; an index covers the whole table")


def _audit_branch(spark: SparkSession) -> str | None:
    """Return the suffix of table names in Iceberg while the session writes to an audit branch."""
    branch = spark.conf.get("spark.wap.branch", None)
    return branch and f"branch_{branch}"


def _last_part(spark: SparkSession, name: str) -> str:
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    return str(parser.parseMultipartIdentifier(name).last())


def _classes(value: Any) -> set[str]:
    names, above = set(), value.getClass()
    while above is not None:
        names.add(str(above.getSimpleName()))
        above = above.getSuperclass()
    return names


def _is_iceberg(leaf: Any) -> bool:
    if leaf.getClass().getSimpleName() != "DataSourceV2Relation":
        return False
    return str(leaf.table().getClass().getName()).startswith("org.apache.iceberg.spark.")


def _parquet(spark: SparkSession, name: str, leaf: Any) -> ParquetTable:
    relation = leaf.relation()
    roots = relation.location().rootPaths()
    if roots.size() != 1:
        raise TableError(f"{name} has {roots.size()} root folders; an index covers one folder")
    if relation.bucketSpec().isDefined():
        raise TableError(
            f"{name} is bucketed: Spark reads its files by bucket, so none can be skipped"
        )
    root = str(roots.apply(0).toString())
    return ParquetTable(spark, root, _catalog_name(leaf) or sql_name(["parquet", root]))


def _relation(plan: Any) -> Any | None:
    """Return the only leaf, under aliases (and the padding of CHAR columns); None for a view."""
    while True:
        children = plan.children()
        if plan.getClass().getSimpleName() == "View" or children.size() > 1:
            return None
        if children.size() == 0:
            return plan
        plan = children.apply(0)


def _location(leaf: Any) -> Any | None:
    if not _is(leaf, "LogicalRelation") or not _is(leaf.relation(), "HadoopFsRelation"):
        return None
    location = leaf.relation().location()
    listed = location.getClass().getName()
    if listed.startswith(_DELTA):
        return location
    parquet = leaf.relation().fileFormat().getClass().getSimpleName() == "ParquetFileFormat"
    return location if parquet and listed in _LISTED else None


def _is(value: Any, name: str) -> bool:
    """Return whether a value has a class of Spark's sources or a subclass: Delta extends them."""
    full = f"org.apache.spark.sql.execution.datasources.{name}"
    return bool(is_instance_of(SparkContext._gateway, value, full))


def _catalog_table(leaf: Any) -> Any | None:
    if leaf.getClass().getSimpleName() == "StreamingRelation":
        leaf = leaf.dataSource()
    elif not _is(leaf, "LogicalRelation"):
        return None
    table = leaf.catalogTable()
    return table.get() if table.isDefined() else None


def _catalog_name(leaf: Any) -> str | None:
    if _is_iceberg(leaf):
        if leaf.catalog().isEmpty() or leaf.identifier().isEmpty():
            return None
        place = leaf.identifier().get()
        if place.getClass().getSimpleName() == "PathIdentifier":
            return None
        return sql_name([str(leaf.catalog().get().name()), *place.namespace(), place.name()])
    table = _catalog_table(leaf)
    if table is None:
        return None
    parts = table.identifier().nameParts()
    return sql_name([str(parts.apply(i)) for i in range(parts.size())])


def _tables(plan: Any) -> str:
    leaves = plan.collectLeaves()
    names = set()
    for i in range(leaves.size()):
        leaf = leaves.apply(i)
        names.add(_catalog_name(leaf) or _path_name(_location(leaf)))
    known = sorted(name for name in names if name)
    return f": {', '.join(known)}" if known else ""


def _path_name(location: Any | None) -> str | None:
    if location is None:
        return None
    if location.getClass().getName().startswith(_DELTA):
        return f"delta.`{location.deltaLog().dataPath().toString()}`"
    return sql_name(["parquet", str(location.rootPaths().apply(0).toString())])


def _describe(leaf: Any) -> str:
    table = _catalog_table(leaf)
    provider = table.provider() if table is not None else None
    if provider is not None and provider.isDefined():
        return f"its provider is {provider.get()}"
    if _is(leaf, "LogicalRelation") and _is(leaf.relation(), "HadoopFsRelation"):
        return f"its files are {leaf.relation().fileFormat()}"
    return f"Spark reads it as {leaf.nodeName()}"
