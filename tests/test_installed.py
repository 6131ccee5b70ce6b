"""The wheel, in environments that hold it and what it declares, and nothing else."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.test_house import PACKAGES, ROOT, sources, tracked

pytestmark = [pytest.mark.process, pytest.mark.nightly]

JARS = ROOT / "rewrite" / "jars"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program prints; it sees neither the checkout nor this environment."""
    unseen = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYSPARK_PYTHON", "SPARK_HOME")
    environment = {key: value for key, value in os.environ.items() if key not in unseen}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, cwd=cwd, env=environment, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Put the sdist into a folder, and the wheel that was built of it and of nothing else.

    The sdist is of what git would take, so that nothing old in `build/` gets in.
    """
    jars = [str(jar.relative_to(ROOT)) for jar in JARS.glob("*.jar")]
    for name in (*tracked(), *jars):
        if name.partition("/")[0] not in ("tests", "notebooks"):
            copy = folder / "source" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
    build = ("-m", "build", "--no-isolation", "--outdir")
    run(sys.executable, *build, folder, folder / "source")
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """The Python of a new environment with the wheel and one extra."""
    venv.create(folder)
    python = folder / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else wheel
    # Not with a pip of its own, which takes longer to install than most of what is wanted.
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    constraints = ROOT / ".ci" / "constraints.txt"
    run(*pip, "--python", python, "install", "--no-compile", "-c", constraints, wanted)
    return python


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel alone."""
    return environment(tmp_path_factory.mktemp("plain"), wheel, "")


def snippets(*, spark: bool) -> list[str]:
    """The Python of the quickstart, that for a Spark session or that without Spark."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    return [block for block in blocks if ("from skipping import SkippingIndex" in block) != spark]


def test_the_wheel_holds_all_that_is_needed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    needed = {str(path.relative_to(ROOT)) for path in sources() if path.suffix != ".java"}
    needed |= {str(jar.relative_to(ROOT)) for jar in JARS.glob("*.jar")}
    assert any(name.endswith(".jar") for name in needed)
    needed |= {f"{package}/py.typed" for package in PACKAGES}
    assert packed == needed


def test_the_sdist_holds_what_builds_the_wheel(wheel: Path) -> None:
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(path.relative_to(ROOT)) for path in sources()} <= packed
    assert {"LICENSE", "README.md", "pyproject.toml"} <= packed
    assert any(name.endswith(".lark") for name in packed)


def test_what_the_wheel_says_of_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        said = email.message_from_bytes(archive.read(name))
        assert name.replace("METADATA", "licenses/LICENSE") in archive.namelist()
    assert said["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    assert {"spark", "iceberg", "delta", "all"} <= set(said.get_all("Provides-Extra", []))
    assert f"\n## [{said['Version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_command_without_spark(plain: Path, wheel: Path, tmp_path: Path) -> None:
    command = plain.with_name("file-skipping")
    assert run(command, "--version").strip() == wheel.name.split("-")[1]
    assert "refresh" in run(command, "--help")
    source, target = (f"sqlite:{tmp_path}/{name}.sqlite" for name in ("from", "to"))
    assert run(command, "list", "--store", source) == f"no indexes in {source}\n"
    done = subprocess.run([command, "copy", source, target], capture_output=True, text=True)
    assert done.returncode == 1
    assert "from.sqlite does not exist" in done.stderr


def test_the_quickstart_in_a_spark_session_twice_in_one_folder(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "environment", wheel, "spark")
    program = tmp_path / "program.py"
    program.write_text("print('--- block ---')\n".join(snippets(spark=True)))
    run(python, "-W", "ignore", "-c", "import pyspark.pandas")
    folder = tmp_path / "folder"
    folder.mkdir()
    for _ in range(2):
        first, second = run(python, program, cwd=folder).split("--- block ---")
        for printed in (first, second):
            # Delta's own statistics leave all files, the index a few.
            assert re.search(r"pruned +1[6-9] .*VALUE_LIST", printed), printed
            assert "= to read" in printed
        assert "200" in first


def test_the_quickstart_without_spark_twice_in_one_folder(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "environment", wheel, "iceberg,delta,duckdb,polars")
    folder = tmp_path / "folder"
    folder.mkdir()
    iceberg, delta, parquet, engines = snippets(spark=False)
    for name, snippet in (("index", iceberg), ("index", delta), ("departures", parquet)):
        program = tmp_path / "program.py"
        program.write_text(
            f"{snippet}\nprint(len(list({name}.scan(\"tailnum = 'N201'\").plan_files())))"
        )
        printed = [run(python, program, cwd=folder) for _ in range(2)]
        assert printed[0] == printed[1]
        assert "1 of 10 files" in printed[0]
        assert printed[0].split()[-1] == "1"
    program.write_text(engines)
    assert "Ann" in run(python, program, cwd=folder)
    assert "False" in run(
        python, "-c", "import importlib.util as u; print(u.find_spec('pyspark') is not None)"
    )


INSTALL = "pip install 'lakehouse-file-skipping[spark]' 'pyspark==4.1.*'"
NO_SPARK = f"this needs Apache Spark 3.5, 4.0, 4.1, 4.2 or 4.3: {INSTALL}"


@pytest.mark.parametrize(
    "program",
    [
        "import rewrite",
        "import runpy; runpy.run_module('rewrite.demo', run_name='__main__')",
        "import skipping; skipping.sql",
        "import skipping; skipping.streams()",
        "import sys; from skipping.__main__ import main; sys.exit(main(['refresh', 't']))",
        "import sys; from skipping.__main__ import main; sys.exit(main(['serve', '--help']))",
    ],
)
def test_without_spark_it_says_what_to_install(plain: Path, program: str) -> None:
    done = subprocess.run([plain, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    *_, last = done.stderr.strip().splitlines()
    assert last.endswith(NO_SPARK)
    assert ("Traceback" in done.stderr) == ("__main__ import" not in program)


def test_without_delta_rs_it_says_what_to_install(plain: Path) -> None:
    program = """
import sys
from skipping.__main__ import main
store = "spark.skipping.store=sqlite:none.sqlite"
sys.exit(main(["refresh", "/t", "--without-spark", "--conf", store]))
"""
    done = subprocess.run([plain, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("need delta-rs: pip install 'lakehouse-file-skipping[delta]'\n")


@pytest.mark.parametrize("found", ["3.4.1", "4.4.0"])
def test_another_spark_is_refused_by_name(plain: Path, tmp_path: Path, found: str) -> None:
    # The real ones differ in what breaks first; that must not be what is said.
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text(f"__version__ = {found!r}\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rewrite"
    done = subprocess.run([plain, "-c", program], capture_output=True, text=True)
    assert (
        f"PySpark {found} is installed, but this release of lakehouse-file-skipping works only "
        f"with 3.5, 4.0, 4.1, 4.2 or 4.3: {INSTALL}"
    ) in done.stderr


def test_the_library_imports_without_any_extra(plain: Path) -> None:
    program = """
import skipping, providers
from skipping import SkippingIndex, ScanPlan, SkippingError
print(sorted(set(map(lambda n: n.partition('.')[0], __import__('sys').modules)) & {'pyspark',
    'pandas', 'opensearchpy', 'pyiceberg', 'deltalake', 'matplotlib', 'delta',
    'prometheus_client'}))
"""
    assert run(plain, "-c", program) == "[]\n"
