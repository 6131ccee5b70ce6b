"""A real OpenSearch node with the security plugin: TLS, users and roles, as operators run it.

2.19 is the newest release whose whole distribution *and* plugin are on Maven Central and start
without borrowed parts; it takes a Java of 17 to 23. The server refuses to run as root, so root
starts it as nobody.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.jvm import CACHE, javas
from tests.opensearch import BOOT

VERSION = "2.19.4"
ZIPS = {
    f"org.opensearch.distribution.integ-test-zip:opensearch:{VERSION}:zip": (
        "3902e642715210d1d9d7cbdcc8f5abd6f931d1d7a679cea3750937becf16c406"
    ),
    f"org.opensearch.plugin:opensearch-security:{VERSION}.0:zip": (
        "1f673622c462c4171a8c53f9b1ad20e5b839834cb79b0d3b388da180a0e514e8"
    ),
}
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
CONFIG = """\
cluster.name: secured
discovery.type: single-node
network.host: 127.0.0.1
http.port: 0
transport.port: 0
node.portsfile: true
path.data: {base}/data
path.logs: {base}/logs
cluster.routing.allocation.disk.threshold_enabled: false
indices.breaker.total.use_real_memory: false
plugins.security.ssl.http.enabled: true
plugins.security.ssl.http.pemcert_filepath: node.pem
plugins.security.ssl.http.pemkey_filepath: node.key
plugins.security.ssl.http.pemtrustedcas_filepath: ca.pem
plugins.security.ssl.transport.pemcert_filepath: node.pem
plugins.security.ssl.transport.pemkey_filepath: node.key
plugins.security.ssl.transport.pemtrustedcas_filepath: ca.pem
plugins.security.ssl.transport.enforce_hostname_verification: false
plugins.security.authcz.admin_dn: ["CN=admin,O=t,C=XX"]
plugins.security.allow_default_init_securityindex: true
plugins.security.restapi.roles_enabled: ["all_access"]
plugins.security.audit.type: noop
"""


class SecuredNode:
    """One node; `ca`, and the administrator's `certificate` and `key`, are PEM files."""

    def __init__(self) -> None:
        fitting = [java for java, major in javas() if 17 <= major < 24]
        if not fitting:
            raise RuntimeError(f"OpenSearch {VERSION} needs a Java of 17 to 23")
        self._java = fitting[0].resolve()
        self._base = Path(tempfile.mkdtemp(prefix="opensearch-secured-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self.ca, self.certificate, self.key = (
            self._base / "config" / name for name in ("ca.pem", "admin.pem", "admin.key")
        )
        self.server = ""

    def start(self) -> str:
        """Start it; `https://host:port`."""
        for artifact, hash in ZIPS.items():
            with zipfile.ZipFile(_fetched(artifact, hash)) as zip:
                plugin = "security" in artifact
                into = self._base / "home" / "plugins" / "security" if plugin else self._base
                zip.extractall(into)
            if not plugin:
                (self._base / f"opensearch-{VERSION}").rename(self._base / "home")
        config = self._base / "config"
        shutil.copytree(self._base / "home" / "config", config)
        shutil.copytree(
            self._base / "home" / "plugins" / "security" / "config", config / "opensearch-security"
        )
        (config / "opensearch.yml").write_text(CONFIG.format(base=self._base))
        for folder in ("data", "logs", "tmp"):
            (self._base / folder).mkdir()
        _certify(config)
        as_nobody: dict[str, Any] = {}
        if os.getuid() == 0:
            as_nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            subprocess.run(["chown", "-R", "nobody:nogroup", self._base], check=True)
        with (self._base / "out.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(self._java, "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC"),
                    *("-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._base / 'tmp'}"),
                    *("-Dlog4j2.disable.jmx=true", "-Djava.security.manager=allow"),
                    "--add-opens=java.base/java.nio=ALL-UNNAMED",
                    f"-Dopensearch.path.home={self._base / 'home'}",
                    f"-Dopensearch.path.conf={config}",
                    *("-cp", f"{self._base / 'home' / 'lib'}/*"),
                    "org.opensearch.bootstrap.OpenSearch",
                ],
                cwd=self._base,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **as_nobody,
            )
        deadline = time.monotonic() + BOOT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self._base / "out.log").read_text(errors="replace")[-4000:]
                self.stop()
                raise RuntimeError(f"OpenSearch {VERSION} with its plugin did not start:\n{text}")
            time.sleep(0.3)
        return self.server

    def _answers(self) -> bool:
        ports = self._base / "logs" / "http.ports"
        if not ports.exists() or not ports.read_text().strip():
            return False
        self.server = f"https://{ports.read_text().split()[0]}"
        try:
            # Until its own index was read there are no roles, and users are let in by none.
            return bool(self.administer("GET", "/_plugins/_security/api/roles/all_access"))
        except OSError:
            return False

    def administer(self, method: str, path: str, body: object = None) -> Any:
        """A request with the administrator's certificate."""
        tls = ssl.create_default_context(cafile=str(self.ca))
        tls.load_cert_chain(self.certificate, self.key)
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60, context=tls) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise OSError(f"{method} {path}: {error.code} {error.read().decode()}") from error

    def user(self, name: str, password: str, role: object) -> None:
        """Make a user with a role of the same name."""
        api = "/_plugins/_security/api"
        self.administer("PUT", f"{api}/roles/{name}", role)
        self.administer("PUT", f"{api}/internalusers/{name}", {"password": password})
        self.administer("PUT", f"{api}/rolesmapping/{name}", {"users": [name]})

    def log(self) -> str:
        """All that it said."""
        return (self._base / "out.log").read_text(errors="replace")

    def stop(self) -> None:
        """End it and delete what it kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._base, ignore_errors=True)


def _fetched(artifact: str, hash: str) -> Path:
    """An artifact in the cache; fetched the first time, by `mvn`, and checked."""
    _, name, version, type = artifact.split(":")
    path = CACHE / f"{name}-{version}.{type}"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            command = ["mvn", "-q", "-B", "-ntp", GOAL, f"-Dartifact={artifact}"]
            subprocess.run([*command, f"-DoutputDirectory={work}"], cwd=work, check=True)
            (Path(work) / path.name).rename(path)
    found = sha256(path.read_bytes()).hexdigest()
    if found != hash:
        raise RuntimeError(f"{path} hashes to {found}, not {hash}")
    return path


def _certify(folder: Path) -> None:
    """A CA, and what it signed for the node and for the administrator."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("node", "admin"):
        subject = ("-subj", f"/C=XX/O=t/CN={name}")
        openssl(*new, *subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            *("x509", "-req", "-days", "2", "-in", f"{name}.csr", "-out", f"{name}.pem"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"),
        )
