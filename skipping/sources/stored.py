"""Check the table names and paths from a store, before Spark opens them.

Anyone who can write to a store chooses the names in its definitions. A name can make Spark open
files of any format, on any host, with the driver's credentials. So a name is accepted only if it is
in a catalog of the session, which determines the location. A path is accepted only if it is the
root in the table's identity, and is on a file system or in a folder that the session allows.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from providers.errors import DefinitionError, TableError, first_line
from skipping.config.settings import PREFIX
from skipping.model.definition import Definition
from skipping.model.identifiers import is_path_name, name_parts, sql_name
from skipping.sources.spark import table_roots


def stored_name(spark: SparkSession, definition: Definition) -> str:
    """Return the name for opening a stored definition's table; raise TableError if it is unsafe.

    This opens nothing. The name may belong to another table by now: compare its identity.
    """
    name, root = definition.name, definition.table.root
    parts = name_parts(name)
    if is_path_name(name):
        format, path = parts
        if (format, path) != (definition.table.format, root):
            raise TableError(f"{name:.200} is not opened: its stored root is another path, {root}")
        if format == "parquet" and re.search(r"[*?{}\[\]]", root):
            raise TableError(f"{name:.200} is not opened: Spark reads its path as a glob pattern")
        try:
            path = hadoop_path(spark, root)
            is_allowed = any(
                is_under(path, hadoop_path(spark, folder)) for folder in table_roots(spark)
            )
        except DefinitionError as error:
            raise TableError(f"{name:.200} is not opened: {error}") from None
        if not is_allowed:
            raise TableError(
                f"{name:.200} is not opened: the path comes from the store, and is neither on the "
                f"session's default or warehouse file system nor below a folder in {PREFIX}"
                "tableRoots. Set tableRoots when the session starts, or use a statement with the "
                "name of the table"
            )
        return name
    catalogs: Any = spark._jsparkSession.sessionState().catalogManager()
    # Delta's and Iceberg's catalogs read a part with a slash as a path.
    is_catalog_name = len(parts) > 1 and not any("/" in part for part in parts)
    if not (is_catalog_name and catalogs.isCatalogRegistered(parts[0])):
        raise TableError(f"{name:.200} is not opened: no catalog of this session contains it")
    return sql_name(parts)


def hadoop_path(spark: SparkSession, text: str) -> Any:
    """Return an absolute Hadoop `Path` (in Java) for a text; raise DefinitionError if invalid.

    This opens only the session's default file system.
    """
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        path = hadoop.Path(text)
        home = path if path.isAbsolute() else hadoop.FileSystem.get(conf).getWorkingDirectory()
        path = path.makeQualified(hadoop.FileSystem.getDefaultUri(conf), home)
        # Hadoop turns `/a/b/..` into `/a/`, whose name is empty and whose parent is `/a`.
        return path if path.getName() or path.isRoot() else path.getParent()
    except (Py4JError, PySparkException) as error:
        raise DefinitionError(f"{text!r:.200} is not a valid folder path") from error


def folder_exists(spark: SparkSession, text: str) -> bool:
    """Return whether a path is a folder, without listing it; raise TableError if that fails."""
    try:
        path = hadoop_path(spark, text)
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        return bool(files.isDirectory(path))
    except (DefinitionError, Py4JError, PySparkException) as error:
        raise TableError(f"cannot check for {text:.200}: {first_line(error)}") from error


def is_under(path: Any, root: Any) -> bool:
    """Return whether a Hadoop path is `root` or below it; names are compared as a whole."""
    one, other = path.toUri(), root.toUri()
    if (one.getScheme(), one.getAuthority() or "") != (
        other.getScheme(),
        other.getAuthority() or "",
    ):
        return False
    parts, top = (str(uri.getPath()).rstrip("/").split("/") for uri in (one, other))
    return ".." not in parts and parts[: len(top)] == top
