"""Iceberg's REST catalog on this machine: the servlet of its own tests, over SQLite and a folder.

    python -m tests.rest_catalog COMMAND ...   runs a command, CATALOG is the catalog's address

Jars from Maven Central behind `RestCatalog.java`, which the JDK runs from its source; what they
share with Spark is PySpark's. Listens on 127.0.0.1 only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.jvm import Artifact, Program
from tests.object_store import BUCKET, ObjectStore

__all__ = ["RestCatalog"]

ICEBERG = "org.apache.iceberg:iceberg"
HTTP = "org.apache.httpcomponents"
JETTY = "org.eclipse.jetty"
SERVER = Artifact(
    "org.apache.iceberg",
    "rest-catalog",
    "1.11.0",
    "d98152cdecc00737a36f3d9859f734e753df14e9393b499f0353b53e1d7d7e01",
    parts=(
        *(f"{ICEBERG}-{part}:1.11.0" for part in ("api", "common", "bundled-guava", "core")),
        f"{ICEBERG}-core:1.11.0:tests",
        f"{HTTP}.client5:httpclient5:5.6.1",
        *(f"{HTTP}.core5:{part}:5.4" for part in ("httpcore5", "httpcore5-h2")),
        "com.github.ben-manes.caffeine:caffeine:2.9.3",
        f"{JETTY}.ee10:jetty-ee10-servlet:12.1.14",
        *(
            f"{JETTY}:jetty-{part}:12.1.14"
            for part in ("server", "http", "io", "util", "session", "security")
        ),
        "jakarta.servlet:jakarta.servlet-api:6.0.0",
        "org.xerial:sqlite-jdbc:3.54.1.0",
    ),
)


class RestCatalog:
    """One server, whose tables are below `folder`; `with RestCatalog(folder) as catalog`.

    With a `bucket` they are in that, and who loads one gets credentials for it: the key and secret
    that the caller's token is, as `key:secret`.
    """

    def __init__(self, folder: Path, bucket: ObjectStore | None = None) -> None:
        spark = find_spec("pyspark")
        if spark is None:
            raise RuntimeError("the REST catalog needs PySpark")
        self.warehouse = folder / "warehouse"
        vended = []
        if bucket is not None:
            vended = [bucket.folder, *(f"{k}={v}" for k, v in bucket.properties().items())]
        self._program = Program(
            "RestCatalog.java",
            SERVER,
            folder / "db",
            f"s3://{BUCKET}/warehouse" if bucket else self.warehouse,
            *vended,
            log=folder / "log",
            options=["-Xmx256m"],
            classpath=[Path(str(spark.origin)).parent / "jars" / "*"],
        )
        self.uri = f"http://127.0.0.1:{self._program.ready}"

    def stop(self) -> None:
        """End it."""
        self._program.stop()

    def __enter__(self) -> RestCatalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main(command: list[str]) -> int:
    """Run a command beside a catalog in a temporary folder, and return its exit code."""
    with TemporaryDirectory() as folder, RestCatalog(Path(folder)) as catalog:
        process = subprocess.Popen(command, env={**os.environ, "CATALOG": catalog.uri})
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the command gets it as well, and ends
                continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
