"""Open tables with a Spark session; read the session's settings and open its store."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
from pyspark.sql import SparkSession

from providers.errors import SettingError, SkippingError, TableError
from skipping.config.settings import PREFIX, Settings
from skipping.indexing.definitions import orphan_hint
from skipping.indexing.spark import SparkBuild
from skipping.model.identifiers import is_same_name, name_parts, qualify_name
from skipping.sources.base import Source
from skipping.sources.session_objects import session_objects
from skipping.spark_api import read_settings
from skipping.stores import IndexStore
from skipping.stores.open import open_store
from skipping.stores.opensearch.credentials import STORE, Access, StartUp
from skipping.tables.open import open_table

FILE = "skipping-index.sqlite"
"""The file name of the embedded store in a warehouse directory."""

FOLDER = "_skipping"
"""The folder of the default store in a remote warehouse directory."""

_REMOTE = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs")
_ALIASES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
"""Spark's setting for the checkpoints of streams without their own folder."""

_AT_START = (
    "store",
    "streaming.checkpointRoots",
    "tableRoots",
    *(f"opensearch.{n}" for n in ("user", "password", "ca", "certificate", "key", "insecure")),
)
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre", "gpfs"),
    *("fuse.sshfs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"),
)


def spark_source(spark: SparkSession, table: str) -> Source:
    """Open a table with the session's settings and store; raise TableError if that fails."""
    try:
        opened = open_table(spark, table)
    except TableError as error:
        if advice := _orphan_advice(spark, table):
            raise TableError(f"{error}. {advice}") from error
        raise
    return Source(
        opened,
        SparkBuild(spark, dated=not opened.has_log),
        lambda: settings_of(spark),
        lambda: store_of(spark, settings_of(spark)),
        spark=spark,
    )


def _orphan_advice(spark: SparkSession, table: str) -> str | None:
    """Return what to do about the index of a missing table; None if the store has no such index."""
    with suppress(SkippingError):
        name, settings = qualify_name(spark, name_parts(table)), settings_of(spark)
        for found in store_of(spark, settings).definitions(timeout=settings.timeout):
            if not found.value.dropped and is_same_name(found.value.name, name):
                return f"Its skipping index still exists. {orphan_hint(found.value)}"
    return None


def settings_of(spark: SparkSession) -> Settings:
    """Return the session's settings; raise SettingError for an unknown key or an invalid value."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session runs"
    # Read all settings as one JSON text: py4j makes a call for each entry of a map, which takes
    # 60 ms in total.
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    return Settings.of(json.loads(mapper.writeValueAsString(read_settings(spark))))


def store_of(spark: SparkSession, settings: Settings) -> IndexStore:
    """Open the store in the settings, else in SKIPPING_STORE, else in the warehouse directory."""
    return open_store(
        settings.store or os.environ.get(STORE) or _default_store(spark),
        access=lambda server: Access.of(
            server,
            _start_up(spark, settings),
            prefix=settings.opensearch_prefix,
            user=settings.opensearch_user,
            password=settings.opensearch_password,
            ca=settings.opensearch_ca,
            certificate=settings.opensearch_certificate,
            key=settings.opensearch_key,
        ),
        objects=lambda address: session_objects(spark, address),
        kept=settings.cache_max_bytes,
        ttl=settings.cache_ttl,
        replicas=settings.store_replica,
        replica_max_bytes=settings.store_replica_max_bytes,
        application=spark.sparkContext.applicationId,
    )


def _start_up(spark: SparkSession, settings: Settings) -> StartUp:
    """Return the settings with which the Spark context was started.

    Raises SettingError if opensearch.insecure was set later.
    """
    start = _startup_settings(spark)
    if settings.opensearch_insecure and not start.opensearch_insecure:
        raise SettingError(
            f"{PREFIX}opensearch.insecure was set after the start of Spark, where it has no "
            "effect: set it in the configuration with which Spark starts"
        )
    return StartUp.of(
        store=start.store,
        user=start.opensearch_user,
        password=start.opensearch_password,
        ca=start.opensearch_ca,
        certificate=start.opensearch_certificate,
        key=start.opensearch_key,
        insecure=start.opensearch_insecure,
    )


def checkpoint_roots(spark: SparkSession) -> tuple[str, ...]:
    """Return the folders below which streams may write; the start configuration determines them."""
    folders = (spark.conf.get("spark.sql.warehouse.dir"), default_checkpoint(spark))
    return (*filter(None, folders), *_startup_settings(spark).checkpoint_roots)


def default_checkpoint(spark: SparkSession) -> str | None:
    """Return the value of Spark's `checkpointLocation` setting when the context was started.

    A later value is ignored: in a server, any client can change it in its own session.
    """
    return spark.sparkContext._conf.get(CHECKPOINTS, None)


def table_roots(spark: SparkSession) -> tuple[str, ...]:
    """Return the folders below which a path from a store may be opened.

    They include the root of the default file system (`/`) and that of the warehouse's file system.
    """
    warehouse = urlsplit(spark.conf.get("spark.sql.warehouse.dir") or "")
    own = f"{warehouse.scheme}://{warehouse.netloc}/" if warehouse.scheme else "/"
    return ("/", own, *_startup_settings(spark).table_roots)


def _startup_settings(spark: SparkSession) -> Settings:
    conf = spark.sparkContext._conf  # `getConf` would copy it, which takes 60 ms
    given = {key: conf.get(key) for key in map(PREFIX.__add__, _AT_START)}
    return Settings.lenient({key: value for key, value in given.items() if value is not None})[0]


def _default_store(spark: SparkSession) -> str:
    location = default_location(spark.conf.get("spark.sql.warehouse.dir"))
    if not location.startswith("sqlite:"):
        jvm: Any = spark.sparkContext._jvm
        mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
        conf = json.loads(mapper.writeValueAsString(read_settings(spark)))
        require_no_namespace(location, conf)
    return location


def default_location(warehouse: str | None) -> str:
    """Return the address of the default store in a warehouse directory.

    This is an SQLite file in a local directory, and a folder in a remote one. Raises SettingError,
    with the setting to use instead, for other directories: SQLite needs file locks, which network
    file systems do not implement reliably.
    """
    parts = urlsplit(warehouse or "")
    if parts.scheme in _REMOTE and parts.netloc:
        return f"{(warehouse or '').rstrip('/')}/{FOLDER}"
    local = parts.scheme in ("", "file") and parts.netloc in ("", "localhost") and parts.path
    path = Path(unquote(parts.path) if parts.scheme else (warehouse or ""))
    if not local or _file_system(path) in _NETWORK:
        raise SettingError(
            f"the warehouse {warehouse} is neither a local directory nor on object storage or HDFS "
            "with a host, so indexes have no default store: set spark.skipping.store, for example "
            "to sqlite:/var/lib/skipping.sqlite on one host"
        )
    return f"sqlite:{path / FILE}"


def require_no_namespace(location: str, conf: Mapping[str, str]) -> None:
    """Raise SettingError if a Hadoop catalog of Iceberg would show a folder as a namespace."""
    for key, warehouse in conf.items():
        catalog, _, last = key.rpartition(".")
        if last != "warehouse" or not catalog.startswith("spark.sql.catalog."):
            continue
        is_hadoop = (
            conf.get(f"{catalog}.type", "").lower() == "hadoop"
            or conf.get(f"{catalog}.catalog-impl") == "org.apache.iceberg.hadoop.HadoopCatalog"
        )
        if is_hadoop and _same_scheme(location).startswith(f"{_same_scheme(warehouse)}/"):
            raise SettingError(
                f"the default store {location} would be a namespace of the Hadoop catalog "
                f"{catalog.removeprefix('spark.sql.catalog.')}: set spark.skipping.store to a "
                "folder outside of it"
            )


def _same_scheme(address: str) -> str:
    """Return an address with one scheme for each storage."""
    scheme, _, rest = address.rstrip("/").partition("://")
    return f"{_ALIASES.get(scheme, scheme)}://{rest}"


def _file_system(path: Path) -> str | None:
    best: tuple[int, str | None] = (0, None)
    for mount in psutil.disk_partitions(all=True):
        point = Path(mount.mountpoint)
        if path.absolute().is_relative_to(point) and len(point.parts) >= best[0]:
            # of two mounts at the same path, use the later one, such as nfs4 over autofs
            best = len(point.parts), mount.fstype
    return best[1]
