"""Parse, quote and display the names of tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skipping.parser.literals import quote, unquote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PASSWORD = re.compile(r"""(://[^/\s:@'"`]*):[^/\s'"`]*@""")


def hide_passwords(text: str) -> str:
    """Replace the passwords of URLs in a text by `***`.

    >>> hide_passwords("SELECT * FROM parquet.`ftp://u:secret@host/t`")
    'SELECT * FROM parquet.`ftp://u:***@host/t`'
    """
    return _PASSWORD.sub(r"\1:***@", text)


def printable(text: str) -> str:
    r"""Return a text that is safe for a terminal: no control characters, no passwords in URLs.

    A table's writers choose its column names, which may contain escape sequences.

    >>> print(printable("a\x1b[2J\nopened 0"), printable("ftp://u:secret@host/t"))
    a\x1b[2J\nopened 0 ftp://u:***@host/t
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in hide_passwords(text))


def sql_name(parts: Sequence[str]) -> str:
    """Join the parts of a name with dots; put backticks around parts that are not plain words.

    Parsers differ in which non-ASCII letters need backticks; Iceberg's requires them for all.

    >>> sql_name(["spark_catalog", "my db", "größe"])
    'spark_catalog.`my db`.`größe`'
    """
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_]+", part) else quote(part) for part in parts)


def qualify_name(spark: SparkSession, parts: Sequence[str]) -> str:
    """Return the full name of a table, which may not exist; a path gets Hadoop's `file:` prefix."""
    if len(parts) == 2 and parts[0].lower() in ("delta", "parquet"):
        path = f"file:{parts[1]}" if parts[1].startswith("/") else parts[1]
        return f"{parts[0].lower()}.`{path.rstrip('/')}`"
    catalogs: Any = spark._jsparkSession.sessionState().catalogManager()
    if len(parts) > 1 and catalogs.isCatalogRegistered(parts[0]):
        return sql_name(parts)
    namespace = catalogs.currentNamespace() if len(parts) == 1 else ()
    return sql_name([str(catalogs.currentCatalog().name()), *map(str, namespace), *parts])


def is_same_name(one: str, other: str) -> bool:
    """Return whether Spark treats two full names as equal: case matters only in paths."""
    return one == other if is_path_name(one) else one.casefold() == other.casefold()


def is_path_name(name: str) -> bool:
    """Return whether a full name contains the path of a table, such as ``delta.`file:/t` ``."""
    parts = name_parts(name)
    return len(parts) == 2 and name.startswith(("delta.`", "parquet.`"))


def plain_name(name: str) -> str:
    """Return a full name as scans display it: without backticks; for ``delta.`/path` `` the path.

    >>> plain_name("spark_catalog.`my db`.t"), plain_name("delta.`file:/a.b`")
    ('spark_catalog.my db.t', '/a.b')
    """
    catalog, database, table = split_name(name)
    return printable(".".join((catalog, database, table))) if database else shown_path(table)


def shown_path(path: str) -> str:
    """Return a path as users write it, without the `file:` that Hadoop puts before local paths.

    >>> shown_path("file:/a.b"), shown_path("s3a://bucket/a")
    ('/a.b', 's3a://bucket/a')
    """
    return printable(path.removeprefix("file:") if path.startswith("file:/") else path)


def shown_name(name: str) -> str:
    """Return a full name as users write it: a local path without Hadoop's `file:`.

    >>> shown_name("delta.`file:/a.b`"), shown_name("spark_catalog.default.t")
    ('delta.`/a.b`', 'spark_catalog.default.t')
    """
    return re.sub(r"\A(delta|parquet)\.`file:/", r"\1.`/", name)


def split_name(name: str) -> tuple[str, str, str]:
    """Return (catalog, database, table) of a full name; for a path, the database is empty.

    >>> split_name("spark_catalog.`my.db`.t"), split_name("delta.`file:/a.b`")
    (('spark_catalog', 'my.db', 't'), ('delta', '', 'file:/a.b'))
    """
    parts = name_parts(name)
    if len(parts) < 2:
        return "", "", name  # not a name that this project creates
    catalog, *databases, table = parts
    return catalog, ".".join(databases), table


def name_parts(name: str) -> list[str]:
    """Return the parts of a full name, without backticks.

    >>> name_parts("spark_catalog.`my.db`.t")
    ['spark_catalog', 'my.db', 't']
    """
    return [unquote(part) for part in re.findall(r"`(?:[^`]|``)+`|[^.`]+", name)]
