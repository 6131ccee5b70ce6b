"""Open the folder of a folder store as a Spark session does."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from providers.errors import Damaged, SettingError, StoreError
from skipping.indexing.storage import Opened, open_root
from skipping.indexing.storage_options import UnfollowedError
from skipping.stores.folder.objects import Listed, Objects, ObstoreObjects, require_process


def session_objects(spark: SparkSession, address: str) -> Objects:
    """Return the objects below an address, opened with the session's configuration."""
    if address.startswith("hdfs:"):
        return HadoopObjects(spark, address)
    if address.startswith("file:"):
        return ObstoreObjects(address)
    return ObstoreObjects(address, lambda: _options(spark, address))


def _options(spark: SparkSession, address: str) -> dict[str, str]:
    """Return the session's configuration as options of Rust's object_store."""
    root = "/".join(address.split("/", 3)[:3])
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        opened = open_root(spark._jvm, hadoop, root)
    except UnfollowedError as unfollowed:
        raise SettingError(
            f"spark.skipping.store: {address} cannot be opened as the session does: {unfollowed}"
        ) from None
    return {} if opened is None else object_store_options(opened)


_S3 = {
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "aws_region",
}
_AZURE = {
    "account_name": "azure_storage_account_name",
    "account_key": "azure_storage_account_key",
    "sas_token": "azure_storage_sas_key",
    "tenant_id": "azure_storage_tenant_id",
    "client_id": "azure_storage_client_id",
    "client_secret": "azure_storage_client_secret",
}


def object_store_options(opened: Opened) -> dict[str, str]:
    """Return the arguments of an Arrow file system as options of Rust's object_store.

    >>> object_store_options(Opened("S3FileSystem", {"access_key": "k", "scheme": "http"}, "b"))
    {'aws_access_key_id': 'k', 'aws_allow_http': 'true'}
    """
    given = opened.arguments
    if opened.kind == "GcsFileSystem":
        return {"google_skip_signature": "true"} if given.get("anonymous") else {}
    names = _S3 if opened.kind == "S3FileSystem" else _AZURE
    options = {names[name]: str(value) for name, value in given.items() if name in names}
    if opened.kind == "S3FileSystem":
        scheme = given.get("scheme", "https")
        if scheme == "http":
            options["aws_allow_http"] = "true"
        if "endpoint_override" in given:
            options["aws_endpoint_url"] = f"{scheme}://{given['endpoint_override']}"
            by_host = bool(given.get("force_virtual_addressing"))
            options["aws_virtual_hosted_style_request"] = str(by_host).lower()
        if given.get("anonymous"):
            options["aws_skip_signature"] = "true"
    return options


class HadoopObjects:
    """The objects below an `hdfs:` address, through the session's Hadoop.

    HDFS shows a file while it is written, so an object is written under another name and renamed,
    which fails if the name is taken.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._address = address

    @property
    def location(self) -> str:
        """The address of the folder."""
        return self._address

    def get(self, name: str, *, most: int) -> bytes | None:
        """Return an object's bytes; see `Objects`."""
        with self._errors(f"read {name}"):
            system = self._system()
            try:
                stream = system.open(self._path(name))
            except Py4JJavaError as error:
                if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
                    return None
                raise
            try:
                # Of what was opened: another object may have the name by now.
                length = stream.getVisibleLength()
                if length > most:
                    raise Damaged(
                        f"{self._address}/{name} has {length:,} bytes, more than the {most:,} that "
                        "a release writes"
                    )
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless it exists; see `Objects`."""
        return self._write(name, data, replace=False)

    def replace(self, name: str, data: bytes) -> None:
        """Write an object; see `Objects`."""
        self._write(name, data, replace=True)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield the objects of a folder; see `Objects`."""
        with self._errors(f"list {prefix}"):
            path, system = self._path(prefix.rstrip("/")), self._system()
            for each in system.listStatus(path) if system.exists(path) else ():
                modified = datetime.fromtimestamp(each.getModificationTime() / 1_000, timezone.utc)
                yield Listed(f"{prefix}{each.getPath().getName()}", each.getLen(), modified)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; see `Objects`."""
        with self._errors("delete"):
            for name in names:
                self._system().delete(self._path(name), False)

    def _write(self, name: str, data: bytes, *, replace: bool) -> bool:
        with self._errors(f"write {name}"):
            system, path = self._system(), self._path(name)
            draft = self._path(f"drafts/{uuid.uuid4().hex}")
            stream = system.create(draft, False)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            system.mkdirs(path.getParent())
            if replace:
                system.rename(draft, path, self._overwrite())
                return True
            if system.rename(draft, path):
                return True
            system.delete(draft, False)
            if not system.exists(path):
                raise StoreError(f"the store {self._address} cannot rename {name}")
            return False

    def _overwrite(self) -> Any:
        """Return the option for a rename that replaces the other file at once."""
        option = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(option, 1)
        options[0] = option.OVERWRITE
        return options

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._address}/{name}")

    def _system(self) -> Any:
        require_process(self._address)
        return self._path("log").getFileSystem(self._hadoop)

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            reason = str(error.java_exception.getClass().getName())
            raise StoreError(f"the store {self._address} cannot {what}: {reason}") from error
        except Py4JError as error:
            raise StoreError(f"the store {self._address} cannot {what}") from error
