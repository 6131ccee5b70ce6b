"""Open a session's storage with Arrow's file systems on executors.

Spark's configuration of an object store becomes the arguments of Arrow's file system. It is read
again for each batch of files, because its credentials may expire after an hour. If it has a setting
that Arrow does not support (a client-side key, a signer, a proxy), Spark reads the files.

Secrets reach the tasks within their code, as Hadoop's configuration does. They are in no plan, job
description, setting or text of these classes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from providers.errors import TableError, first_line
from skipping.indexing.storage_options import (
    Arguments,
    UnfollowedError,
    azure_arguments,
    google_arguments,
    is_secret,
    s3_arguments,
)
from skipping.tables.filesystem import locate

_ROOT = r"^(?P<root>[A-Za-z][A-Za-z0-9+.-]*://[^/]+)/"

_KINDS: Mapping[str, Callable[..., pafs.FileSystem]] = {
    name: getattr(pafs, name)
    for name in ("S3FileSystem", "AzureFileSystem", "GcsFileSystem")
    if hasattr(pafs, name)  # Arrow is built with what its platform has
}


@dataclass(frozen=True, slots=True)
class Opened:
    """The arguments of an Arrow file system, and the prefix of paths in it."""

    kind: str
    arguments: Arguments = field(repr=False)
    base: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Opens paths (`Locate`) under the `opened` roots as the session does, others as Python can.

    A root is like `s3a://bucket`. `beyond` are the roots that only Spark can read, with the
    reasons.
    """

    opened: Mapping[str, Opened]
    beyond: Mapping[str, str]

    def __call__(self, path: str) -> tuple[pafs.FileSystem, str]:
        """Return the file system of a path and the path in it; raise TableError if it cannot."""
        root = "/".join(path.split("/", 3)[:3])
        if root in self.beyond:
            raise TableError(f"Arrow cannot open {root} as the session does: {self.beyond[root]}")
        opened = self.opened.get(root)
        if opened is None:
            return locate(path)
        try:
            filesystem = _create_filesystem(opened.kind, tuple(sorted(opened.arguments.items())))
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
            raise TableError(f"pyarrow cannot open {root}: {first_line(error)}") from None
        return filesystem, opened.base + path[len(root) :]


@functools.lru_cache(maxsize=16)
def _create_filesystem(kind: str, arguments: tuple[tuple[str, Any], ...]) -> pafs.FileSystem:
    """Create a file system, one for all tasks of a process, so that connections stay open."""
    return _KINDS[kind](**dict(arguments))


def root_of(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the root of each path, such as `s3a://bucket`; "" for a path without a root."""
    return pc.struct_field(pc.extract_regex(paths, _ROOT), "root").fill_null("")


def session_storage(spark: SparkSession, paths: pa.ChunkedArray) -> Storage:
    """Return the storage of some files, by the session's configuration.

    This requests credentials from the session's provider, and the region of a bucket from the
    storage unless the session has it.
    """
    opened: dict[str, Opened] = {}
    beyond: dict[str, str] = {}
    hadoop: Any = None
    for root in filter(None, root_of(paths).unique().to_pylist()):
        hadoop = hadoop or spark._jsparkSession.sessionState().newHadoopConf()
        try:
            found = open_root(spark._jvm, hadoop, root)
        except UnfollowedError as unfollowed:
            beyond[root] = str(unfollowed)
            continue
        if found is not None:
            opened[root] = found
    return Storage(opened, beyond)


def open_root(jvm: Any, hadoop: Any, root: str) -> Opened | None:
    """Read the session's configuration of a root; None if Arrow needs none of it.

    Raises UnfollowedError if Arrow cannot follow it.
    """
    scheme, authority = root.split("://", 1)
    try:
        kind = jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
        read_settings = _READERS.get(kind.getName())
    except Py4JError:
        return None  # Hadoop does not know the scheme
    if read_settings is None:
        return None
    try:
        return read_settings(jvm, hadoop, root, authority)
    except Py4JError:  # its text may contain any part of the configuration
        raise UnfollowedError(f"{kind.getSimpleName()} did not return its settings") from None


def _s3(jvm: Any, hadoop: Any, root: str, bucket: str) -> Opened:
    """Read S3A's settings: those of the bucket override those of all buckets."""
    system = jvm.org.apache.hadoop.fs.Path(f"{root}/").getFileSystem(hadoop)
    arguments = s3_arguments(_getter(system.getConf()), bucket)
    # Works with any configured provider: requests are signed only with the keys that it returns.
    shared = system.getS3AInternals().shareCredentials("file skipping")
    try:
        arguments |= _read_keys(shared.resolveCredentials())
    finally:
        shared.close()
    if "region" not in arguments:
        arguments["region"] = _region(bucket)
    return Opened("S3FileSystem", arguments, bucket)


def _read_keys(keys: Any) -> Arguments:
    if keys.accessKeyId() is None:
        return {"anonymous": True}
    arguments = {"access_key": keys.accessKeyId(), "secret_key": keys.secretAccessKey()}
    with suppress(Py4JError):  # permanent keys have no session token
        arguments["session_token"] = keys.sessionToken()
    return arguments


def _region(bucket: str) -> str:
    try:
        return str(pafs.resolve_s3_region(bucket))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnfollowedError("the region of the bucket is unknown") from error


def _azure(jvm: Any, hadoop: Any, root: str, authority: str) -> Opened:
    container, _, host = authority.partition("@")
    return Opened("AzureFileSystem", azure_arguments(_getter(hadoop), host), container)


def _google(jvm: Any, hadoop: Any, root: str, bucket: str) -> Opened:
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    named = {
        f"{prefix}{name}": value
        for prefix in ("fs.gs.", "google.cloud.")
        for name, value in json.loads(
            mapper.writeValueAsString(hadoop.getPropsWithPrefix(prefix))
        ).items()
    }
    return Opened("GcsFileSystem", google_arguments(named), bucket)


def _getter(conf: Any) -> Callable[[str], str]:
    """Return a function that reads Hadoop's settings ("" if unset), and its secrets."""

    def get(key: str) -> str:
        if not is_secret(key):
            return str(conf.getTrimmed(key) or "")
        secret = conf.getPassword(key)
        return "".join(secret).strip() if secret is not None else ""

    return get


_READERS: Mapping[str, Callable[[Any, Any, str, str], Opened]] = {
    "org.apache.hadoop.fs.s3a.S3AFileSystem": _s3,
    "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem": _azure,
    "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem": _azure,
    "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem": _google,
}
"""By Hadoop's class. A class that is not listed may do anything, so Spark reads its files."""
