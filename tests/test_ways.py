"""The page of ways to run it: its blocks are what runs here, and then prove what they say.

Names of ports are all that is changed. `tests/proof.py` is appended to programs of the page.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import nbformat
import pexpect
import pyspark
import pytest
from nbclient import NotebookClient

from tests.proof import spoil
from tests.rewrite.served import ClientError, Server, ThriftClient, eventually
from tests.test_docs import DOCS, Block, blocks
from tests.test_house import ROOT
from tests.test_installed import build_wheel, snippets

pytestmark = [pytest.mark.process, pytest.mark.nightly]

PAGE = blocks(DOCS / "ways.md")
PROOF = (ROOT / "tests" / "proof.py").read_text().replace("from __future__ import annotations", "")
SPARK_HOME = Path(pyspark.__file__).parent


def of(section: str, language: str, title: str = "") -> Block:
    """The first such block of a section."""
    return next(b for b in PAGE if (b.section, b.language, b.title) == (section, language, title))


def lay(section: str, folder: Path, *proofs: str) -> None:
    """Write the files of a section; a program is followed by proofs of what it says."""
    for block in PAGE:
        if block.section == section and block.title:
            more = f"\n{PROOF}\n" + "\n".join(f"{proof}(spark)" for proof in proofs)
            (folder / block.title).write_text(block.code + (more if proofs else ""))


def proved(printed: str) -> list[str]:
    return re.findall(r"^PROVED (.+?)\r?$", printed, re.M)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def sh(code: str, folder: Path, environment: dict[str, str]) -> str:
    """What it prints."""
    done = subprocess.run(
        ["bash", "-ec", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's `spark-defaults.conf`, and that of all tests."""
    folder = tmp_path_factory.mktemp("conf")
    lay("Pyspark shell", folder)
    with (folder / "spark-defaults.conf").open("a") as file:
        file.write((ROOT / "tests" / "conf" / "spark-defaults.conf").read_text())
    return folder


def environment(**more: str | Path) -> dict[str, str]:
    """Of a driver: this Python and this checkout first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "PYTHONPATH": ROOT, "PYSPARK_PYTHON": sys.executable, **more}
    return os.environ | {key: str(value) for key, value in given.items()}


# One machine


def test_a_notebook(tmp_path: Path) -> None:
    code = of("Script and notebook", "python").code
    cells = [nbformat.v4.new_code_cell(text) for text in (code, f"{PROOF}\nprove(spark)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=environment())
    shown = [output.get("data", {}).get("text/html", "") for output in notebook.cells[0].outputs]
    assert any("VALUE_LIST" in html for html in shown), notebook.cells[0].outputs
    printed = "".join(output.get("text", "") for output in notebook.cells[1].outputs)
    assert proved(printed) == ["garbage was not opened"]


def test_the_shell(conf: Path, tmp_path: Path) -> None:
    """The real one, in a terminal; what is typed is the notebook's, without its session."""
    lay("Pyspark shell", tmp_path)
    (tmp_path / "proof.py").write_text(PROOF)
    typed = of("Script and notebook", "python").code.split("spark = rewrite.session()\n")[1]
    shell = pexpect.spawn(
        "bash",
        ["-c", of("Pyspark shell", "sh").code],
        cwd=tmp_path,
        env=environment(SPARK_CONF_DIR=conf, PYTHON_BASIC_REPL=1, TERM="dumb"),
        encoding="utf-8",
        timeout=120,
    )
    shell.logfile_read = told = io.StringIO()
    try:
        shell.expect_exact(">>> ")
        for line in [*typed.splitlines(), "exec(open('proof.py').read())", "prove(spark)"]:
            shell.sendline(line)
            shell.expect([r">>> ", r"\.\.\. "])
        shell.sendline("exit()")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    assert proved(told.getvalue()) == ["garbage was not opened"], told.getvalue()


# Executors that have only Python and Spark


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the environment that the page makes, and its archive."""
    folder = tmp_path_factory.mktemp("packed")
    wheel = build_wheel(folder)
    constraints = folder / "constraints.txt"
    pins = (ROOT / ".ci" / "constraints.txt").read_text()
    constraints.write_text(f"{pins}\nlakehouse-file-skipping @ {wheel.as_uri()}\n")
    given = environment(PIP_CONSTRAINT=constraints, PIP_NO_COMPILE="1", PIP_QUIET="1")
    del given["PYTHONPATH"]  # of a checkout that pip would take for the package installed
    sh(of("spark-submit, and a cluster", "sh").code, folder, given)
    return folder


@pytest.fixture
def driver(packed: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a driver that has the wheel; PySpark and Delta are those of the tests.

    It names no Python path: an executor must not find this checkout.
    """
    (tmp_path / "environment.tar.gz").symlink_to(packed / "environment.tar.gz")
    python = tmp_path / "driver"
    venv.create(python)
    (packages,) = python.glob("lib/python*/site-packages")
    (wheels,) = (packed / "environment").glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join([str(wheels), *others]))
    given = environment(PATH=f"{python}/bin{os.pathsep}{environment()['PATH']}")
    return {
        key: value for key, value in given.items() if key not in ("PYTHONPATH", "PYSPARK_PYTHON")
    }


PROVED = [
    "executors have what was shipped",
    "garbage was not opened",
    "a stream indexed what was written",
]
PROOFS = ("prove_executors", "prove", "prove_stream")


@pytest.fixture
def cluster(conf: Path, tmp_path: Path) -> Iterator[int]:
    """The port of a standalone master with a worker, both started by the page's commands."""
    port = free_port()
    block = [b for b in PAGE if b.section == "spark-submit, and a cluster" and b.language == "sh"][
        -1
    ]
    bare = tmp_path / "bare"  # a Python with nothing
    venv.create(bare)
    seen = {
        "PATH": f"{bare}/bin{os.pathsep}{SPARK_HOME / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_WORKER_MEMORY": "1g",
        **{key: os.environ[key] for key in ("JDK_JAVA_OPTIONS", "JAVA_HOME") if key in os.environ},
    }
    with ExitStack() as running:
        log = running.enter_context((tmp_path / "cluster.log").open("w+"))
        for command in block.code.replace("7077", str(port)).splitlines():
            process = subprocess.Popen(
                [*shlex.split(command.removesuffix("&")), "--webui-port", "0"],
                cwd=tmp_path,
                env=seen,
                stdout=log,
                stderr=log,
            )
            running.callback(process.wait, 30)
            running.callback(process.terminate)
        text = (tmp_path / "cluster.log").read_text
        eventually(lambda: "Successfully registered with master" in text())
        yield port


def test_spark_submit_to_a_standalone_cluster(
    cluster: int, driver: dict[str, str], conf: Path, tmp_path: Path
) -> None:
    section = "spark-submit, and a cluster"
    lay(section, tmp_path, *PROOFS)
    (command,) = [b.code for b in PAGE if "spark-submit --master" in b.code]
    command = command.replace("7077", str(cluster))
    printed = sh(command, tmp_path, driver | {"SPARK_CONF_DIR": str(conf)})
    assert proved(printed) == PROVED, printed


def test_a_cluster_from_a_plain_process(driver: dict[str, str], tmp_path: Path) -> None:
    """Executors are processes of their own: nothing compiled or cached here reaches them."""
    lay("Cluster without spark-submit", tmp_path, *PROOFS, "prove_formats")
    before = {*SPARK_HOME.glob("work/app-*")}  # where Spark lets executors of this kind work
    try:
        printed = sh("python cluster.py", tmp_path, driver)
        assert proved(printed) == [*PROVED, "both formats skip files"]
    finally:
        for left in {*SPARK_HOME.glob("work/app-*")} - before:
            shutil.rmtree(left)


def test_a_session_under_spark_submit(conf: Path, tmp_path: Path) -> None:
    """It has what spark-submit was told; what was not told there, Java cannot get later."""
    (tmp_path / "session.py").write_text("""
import rewrite

spark = rewrite.session()
given = spark.sparkContext.getConf()
print("EXTENSIONS", given.get("spark.sql.extensions"))
print("MINE", given.get("spark.mine"), given.get("spark.jars").count("delta-spark"))
spark.sql("CREATE TABLE events USING delta AS SELECT 1 AS id")
spark.sql("CREATE SKIPPING INDEX ON events (id MIN_MAX)")
""")
    mine = "--conf spark.sql.extensions=org.apache.spark.sql.Mine --conf spark.mine=1"
    command = f"spark-submit --master 'local[1]' {mine} session.py"
    told = sh(command, tmp_path, environment(SPARK_CONF_DIR=conf))
    assert "MINE 1 1" in told
    assert "EXTENSIONS org.apache.spark.sql.Mine,io.delta.sql.DeltaSparkSessionExtension" in told
    done = subprocess.run(
        ["spark-submit", "--master", "local[1]", "session.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert re.search(r"Name the jars there: --packages io\.delta:delta-spark_\S+,", told), told
    assert "restart Python" not in told


# A server


def test_a_server_with_connect_and_beeline(tmp_path: Path) -> None:
    section = "Server and its clients"
    start, ask = (b.code for b in PAGE if b.section == section and b.language == "sh")
    _, _, arguments = start.partition("rewrite.serve ")
    ports = {"connect": "15002", "thrift": "10000"}
    for port in ports.values():
        arguments = arguments.replace(port, "0")
    server = Server(tmp_path, *shlex.split(arguments))
    try:
        for service, port in ports.items():
            ask = ask.replace(port, str(server.port(service)))
        lay(section, tmp_path)
        client = tmp_path / "client.py"
        client.write_text(client.read_text().replace("15002", str(server.port("connect"))))
        assert "100" in sh("python client.py", tmp_path, environment())
        thrift = ThriftClient(server.port("thrift"))
        query = "SELECT DISTINCT input_file_name() FROM events WHERE user = 'user42'"
        assert spoil([url for (url,) in thrift.sql(query)]) >= 15
        told = sh(ask, tmp_path, environment())
        assert re.search(r"\| *100 *\|", told), told
        assert "VALUE_LIST" in told, told
        thrift.sql("SET spark.skipping.enabled = false")
        with pytest.raises(ClientError):  # there is garbage
            thrift.sql("SELECT count(*) FROM events WHERE user = 'user42'")
        thrift.close()
    finally:
        server.stop()


# Without Spark


def test_pyiceberg(tmp_path: Path) -> None:
    (before,) = (code for code in snippets(spark=False) if "pyiceberg" in code)
    (tmp_path / "before.py").write_text(before)
    lay("PyIceberg", tmp_path)
    told = sh("python before.py; python reader.py", tmp_path, environment())
    assert told.splitlines()[-1].split()[1:] == ["N201", "600"], told
