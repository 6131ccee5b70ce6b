"""Iceberg's REST catalog on this machine: the servlet of its own tests, over SQLite and a folder.

Jars from Maven Central behind `RestCatalog.java`, which the JDK runs from its source; what they
share with Spark is PySpark's. Listens on 127.0.0.1 only.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.jvm import Artifact, die_with_parent, javas

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
    """One server, whose tables are below `folder`; `with RestCatalog(folder) as catalog`."""

    def __init__(self, folder: Path) -> None:
        java = next((java for java, major in javas() if major >= 17), None)
        spark = find_spec("pyspark")
        if java is None or spark is None:
            raise RuntimeError("the REST catalog needs a JDK 17 or newer, and PySpark")
        shared = Path(str(spark.origin)).parent / "jars"
        self.warehouse = folder / "warehouse"
        self._log = folder / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(java, "-Xmx256m", "-XX:+UseSerialGC"),
                    *("-cp", f"{SERVER.jars(java)}/*:{shared}/*"),
                    *(Path(__file__).with_name("RestCatalog.java"), folder / "db", self.warehouse),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        assert self._process.stdout is not None, "a pipe"
        port = self._process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the REST catalog did not start:\n{self._log.read_text()[-3000:]}")
        self.uri = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """End it."""
        with self._process:  # closes the pipes, which ends it, and waits
            pass

    def __enter__(self) -> RestCatalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
