"""Run an S3 object store on this machine, over a folder, with a configurable delay of responses.

It is S3Proxy from Maven Central, started by `SlowStore.java`, which the JDK runs from source. It
listens on 127.0.0.1 only. S3Proxy checks the condition of a PUT before it writes, so it would let
several clients create one key; SlowStore serializes PUTs.
"""

from __future__ import annotations

import socket
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.jvm import Artifact, Program

__all__ = ["ACCESS", "BUCKET", "SECRET", "ObjectStore", "options_at"]

BUCKET = "lake"
ACCESS, SECRET = "an-access-key", "a-secret-key"
SDK = "software.amazon.awssdk"
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.4.2",
    *(f"{SDK}:{part}:2.29.52" for part in ("s3", "s3-transfer-manager")),
)
"""S3A of the Hadoop release in Spark, and the modules of the AWS SDK that it needs."""

BROUGHT_BY_SPARK = (
    *("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime"),
    *("org.apache.parquet:*", "com.fasterxml.jackson.core:*", "com.fasterxml.jackson.datatype:*"),
    *("org.apache.logging.log4j:*", "org.slf4j:slf4j-api", "commons-logging:commons-logging"),
    *("org.apache.httpcomponents:*", "commons-codec:commons-codec", "io.netty:*"),
    "org.wildfly.openssl:wildfly-openssl",
)

S3PROXY = Artifact(
    "org.gaul",
    "s3proxy",
    "2.9.0",
    "a2ae57a65dc258900fc64bbe23c29482488fe1c50601fa6bfc4438e1456db4ea",
)
LOGGING = """<configuration>
<appender name="A" class="ch.qos.logback.core.ConsoleAppender"><target>System.err</target>
<encoder><pattern>%d %p %c{0} %m%n</pattern></encoder></appender>
<root level="warn"><appender-ref ref="A"/></root></configuration>"""


def options_at(port: int) -> dict[str, str]:
    """Return the options with which Rust's object_store opens `s3://lake/...` at this port."""
    return {
        "aws_access_key_id": ACCESS,
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": f"http://127.0.0.1:{port}",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }


class ObjectStore:
    """A store with one bucket, whose objects are the files in `folder`.

    The constructor starts it. Leaving `with ObjectStore() as store` stops it.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="object-store-")
        base = Path(self._folder.name)
        self.folder = base / "data" / BUCKET
        self.folder.mkdir(parents=True)
        (base / "logback.xml").write_text(LOGGING)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._program = Program(
            "SlowStore.java",
            S3PROXY,
            str(self.port),
            base / "data",
            ACCESS,
            SECRET,
            log=base / "log",
            options=["-Xmx512m", f"-Dlogback.configurationFile={base / 'logback.xml'}"],
        )

    def delay(self, milliseconds: int) -> None:
        """Delay the response to each request from now on."""
        assert self._program.ask(str(milliseconds)) == str(milliseconds)

    def settings(self) -> dict[str, str]:
        """Return the Spark settings for `s3a://lake/...`."""
        s3a = {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": ACCESS,
            "secret.key": SECRET,
            "connection.ssl.enabled": "false",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }
        return {
            "spark.jars.packages": ",".join(PACKAGES),
            "spark.jars.excludes": ",".join((f"{SDK}:bundle", *BROUGHT_BY_SPARK)),
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        }

    def options(self) -> dict[str, str]:
        """Return the options with which Rust's object_store opens `s3://lake/...`."""
        return options_at(self.port)

    def properties(self) -> dict[str, str]:
        """Return PyIceberg's properties for `s3://lake/...`, without credentials."""
        return {
            "s3.endpoint": f"http://127.0.0.1:{self.port}",
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }

    def stop(self) -> None:
        """Stop the store and delete its data."""
        self._program.stop()
        self._folder.cleanup()

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
