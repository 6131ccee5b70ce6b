"""Compile the Java sources with the JDK's javac, into one small jar for each Spark line.

    python .ci/jars.py [LINE ...] [--all]      LINE is such as 4.1; default: that of PySpark

The jars are in `rewrite/jars/`, from where wheels take them. A jar is built again only if the
sources have changed. The classes they are compiled against are fetched from Maven Central into a
cache folder, by `mvn` or by the Ivy in PySpark, and their hashes are pinned. If PySpark of the line
is installed, it provides Spark's jars; for a line without a hash, pip installs it into the cache.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.jvm import CACHE, Artifact, find_jdk  # noqa: E402

SOURCES = ROOT / "rewrite" / "jvm"
SHIMS = ROOT / "rewrite" / "shims"
JARS = ROOT / "rewrite" / "jars"
DIGEST = "rewrite/jvm/sources.sha256"
"""The resource in a jar that identifies what it was compiled from."""

LINT = ("-Xlint:all", "-Werror")
OPTIONS = ("--release", "17", "-encoding", "UTF-8", "-proc:none", "-implicit:none")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all entries of a jar, so that equal sources give equal jars."""

_MODULES = ("catalyst", "common-utils", "core", "sketch", "sql", "sql-api", "unsafe")


@dataclass(frozen=True, slots=True)
class Line:
    """A Spark line: the artifacts that its jar is compiled against, and their hashes."""

    spark: str
    scala: str
    libraries: tuple[str, ...]
    formats: tuple[str, ...]
    spark_sha256: str
    formats_sha256: str
    modules: tuple[str, ...] = _MODULES

    def find_classes(self) -> list[Path]:
        """Return the jars, fetched the first time."""
        formats = _artifact("formats", self.formats, self.formats_sha256)
        return [*self._find_spark(), *_fetch(formats)]

    def _find_spark(self) -> list[Path]:
        suffix = self.scala.rpartition(".")[0]
        parts = (
            *(f"org.apache.spark:spark-{name}_{suffix}:{self.spark}" for name in self.modules),
            f"org.scala-lang:scala-library:{self.scala}",
            *self.libraries,
        )
        names = [part.split(":")[1] for part in parts]
        if _line_of(installed_spark()) == _line_of(self.spark):  # its patch may be newer
            package = Path(str(find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
            return _choose(package / "jars", names)
        if not self.spark_sha256:
            return _install_jars(self.spark, names)
        return _fetch(_artifact("spark", parts, self.spark_sha256))


_LIBRARIES = (
    "com.esotericsoftware:kryo-shaded:4.0.3",
    "com.fasterxml.jackson.core:jackson-annotations:2.21",
    "com.fasterxml.jackson.core:jackson-core:2.21.2",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
    "com.google.code.findbugs:jsr305:3.0.0",
    "jakarta.servlet:jakarta.servlet-api:5.0.0",
    "org.antlr:antlr4-runtime:4.13.1",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.roaringbitmap:RoaringBitmap:1.3.0",
    "org.scala-lang.modules:scala-xml_2.13:2.3.0",
)
_OLD_LIBRARIES = (
    "com.esotericsoftware:kryo-shaded:4.0.2",
    "com.fasterxml.jackson.core:jackson-annotations:2.15.2",
    "com.fasterxml.jackson.core:jackson-core:2.15.2",
    "com.fasterxml.jackson.core:jackson-databind:2.15.2",
    "com.google.code.findbugs:jsr305:3.0.0",
    "jakarta.servlet:jakarta.servlet-api:4.0.3",
    "org.antlr:antlr4-runtime:4.9.3",
    "org.apache.hadoop:hadoop-client-api:3.3.4",
    "org.roaringbitmap:RoaringBitmap:0.9.45",
    "org.scala-lang.modules:scala-xml_2.12:2.1.0",
)


def _list_formats(delta: str, storage: str, iceberg: str) -> tuple[str, ...]:
    return (
        f"io.delta:delta-spark_{delta}",
        f"io.delta:delta-storage:{storage}",
        f"org.apache.iceberg:iceberg-spark-runtime-{iceberg}:1.11.0",
    )


LINES = {
    "3.5": Line(
        "3.5.9",
        "2.12.18",
        _OLD_LIBRARIES,
        _list_formats("2.12:3.3.3", "3.3.3", "3.5_2.12"),
        "7d1142b66f2e2aaacce3fa4b16fa93c4625de64887fabae74f6bb50224ac16cd",
        "cb2c2c7ebe58290afcfb5de61d1e128596f22766f8ff428b159fbb09974611cf",
    ),
    "4.0": Line(
        "4.0.1",
        "2.13.16",
        _LIBRARIES,
        _list_formats("4.0_2.13:4.4.0", "4.4.0", "4.0_2.13"),
        "42858e26d21d0355b77d80ac0f722e830da527a256cf81459384bc0eb72ba81a",
        "38da608e3c2afce53007912ea155a9cf15f47c2b78759b74fc45bebde4f5b51c",
    ),
    "4.1": Line(
        "4.1.1",
        "2.13.17",
        _LIBRARIES,
        _list_formats("4.1_2.13:4.4.0", "4.4.0", "4.1_2.13"),
        "",
        "ddb25f6b34b68429137e02104d8fd6aed429c72169e20da69007b9863934512f",
        (*_MODULES, "common-utils-java"),
    ),
    # No Iceberg is released for 4.2; its classes compile against the one before.
    "4.2": Line(
        "4.2.0",
        "2.13.18",
        _LIBRARIES,
        _list_formats("4.2_2.13:4.4.0", "4.4.0", "4.1_2.13"),
        "4fc02f20e7c82a617c71fa60029b9a25d20163d3ebe00f884728a24fa7239154",
        "529da8f38c574a3448c4f9daeb61556a6fa0ae23330f50100b098e3b78a28511",
        (*_MODULES, "common-utils-java"),
    ),
    # No Delta or Iceberg is released for 4.3: it takes those of the line before.
    "4.3": Line(
        "4.3.0",
        "2.13.18",
        _LIBRARIES,
        _list_formats("4.2_2.13:4.4.0", "4.4.0", "4.1_2.13"),
        "",
        "529da8f38c574a3448c4f9daeb61556a6fa0ae23330f50100b098e3b78a28511",
        (*_MODULES, "common-utils-java"),
    ),
}
"""The supported lines. Libraries may be of an older patch than those that run."""


def installed_spark() -> str | None:
    """Return the version of the installed PySpark; None without one."""
    if find_spec("pyspark") is None:
        return None
    from pyspark import __version__

    return str(__version__)


def _line_of(version: str | None) -> str:
    return ".".join((version or "").split(".")[:2])


def _install_jars(version: str, names: list[str]) -> list[Path]:
    """Return jars of a PySpark that pip installs the first time, and keep only these jars."""
    chosen_by = hashlib.sha256(repr(names).encode()).hexdigest()[:8]
    kept = CACHE / f"pyspark-{version}-{chosen_by}"  # other names: other jars
    if not kept.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", name]
            subprocess.run([*pip, f"pyspark=={version}"], check=True)
            chosen = Path(name, "chosen")
            chosen.mkdir()
            for jar in _choose(Path(name, "pyspark", "jars"), names):
                jar.rename(chosen / jar.name)
            with suppress(OSError):  # another process was first
                chosen.rename(kept)
    return _choose(kept, names)


def _choose(folder: Path, names: list[str]) -> list[Path]:
    return [next(folder.glob(f"{name}-[0-9]*.jar")) for name in names]


def _artifact(name: str, parts: tuple[str, ...], sha256: str) -> Artifact:
    # The version names a folder of the cache: a new one for new contents.
    return Artifact("", f"compile-{name}", sha256[:16], sha256, parts=parts)


def _fetch(artifact: Artifact) -> list[Path]:
    return sorted(artifact.jars(find_jdk() / "bin" / "java").glob("*.jar"))


def find_sources(line: str) -> dict[str, Path]:
    """Return the sources and resources of a line by their path below the root package.

    A shim is in the folder of the line since which Spark's API is so: later lines use it, too.
    """
    lines = list(LINES)
    folders = [SOURCES, *(SHIMS / each for each in lines[: lines.index(line) + 1])]
    sources = {}
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            sources[path.relative_to(folder).as_posix()] = path
    return sources


def compute_digest(line: str, sources: dict[str, Path]) -> str:
    """Return a hash of everything that a jar depends on."""
    parts = [repr(LINES[line]), *LINT, *OPTIONS]
    for name, path in sources.items():
        parts += [name, path.read_text("utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_digest(jar: Path) -> str | None:
    """Return the digest that a jar was built with; None if there is no jar."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(DIGEST).decode()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return None


def build(line: str) -> Path:
    """Build the jar of a line, unless it is up to date, and return its path."""
    jar = JARS / f"file-skipping-spark-{line}.jar"
    sources = find_sources(line)
    digest = compute_digest(line, sources)
    if read_digest(jar) == digest:
        return jar
    JARS.mkdir(exist_ok=True)
    with _locked(JARS), tempfile.TemporaryDirectory(dir=JARS) as temporary:
        if read_digest(jar) == digest:  # another process was faster
            return jar
        classes = Path(temporary, "classes")
        java = [path for path in sources.values() if path.suffix == ".java"]
        compile_classes(java, LINES[line].find_classes(), classes)
        for name in sources:
            if name.startswith("META-INF/"):
                (classes / name).parent.mkdir(parents=True, exist_ok=True)
                (classes / name).write_bytes(sources[name].read_bytes())
        packed = Path(temporary, jar.name)
        pack(classes, digest, packed)
        packed.replace(jar)  # a JVM that has the old one open keeps it
    print(f"built {jar.relative_to(ROOT)} ({jar.stat().st_size:,} bytes)", flush=True)
    return jar


def compile_classes(sources: list[Path], class_path: list[Path], into: Path) -> None:
    """Compile sources; a warning is an error, which ends the program."""
    arguments = into.with_name("arguments")
    arguments.write_text("\n".join(f'"{path}"' for path in sources))
    jars = os.pathsep.join(map(str, class_path))
    command = [find_jdk() / "bin" / "javac", *LINT, *OPTIONS, "-cp", jars, "-d", into]
    if subprocess.run([*map(str, command), f"@{arguments}"]).returncode:
        raise SystemExit("the Java sources do not compile")


def pack(classes: Path, digest: str, into: Path) -> None:
    """Write a jar with class files, resources and the digest of their sources."""
    entries = {
        path.relative_to(classes).as_posix(): path for path in classes.rglob("*") if path.is_file()
    }
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(DIGEST, EPOCH), digest)
        for name, path in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def main(arguments: list[str]) -> None:
    """Build the jars of some lines."""
    parser = argparse.ArgumentParser(description="Build the jars of Spark lines.")
    parser.add_argument("lines", nargs="*", metavar="LINE")
    parser.add_argument("--all", action="store_true", help="all lines, as a release needs")
    options = parser.parse_args(arguments)
    found = _line_of(installed_spark())
    for line in LINES if options.all else options.lines or [found]:
        if line not in LINES:
            raise SystemExit(f"no Spark line {line!r}; supported are {', '.join(LINES)}")
        build(line)


if __name__ == "__main__":
    main(sys.argv[1:])
