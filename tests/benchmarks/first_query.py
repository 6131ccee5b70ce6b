"""From `pip install` in an empty environment to the first pruned query, by the quickstart alone.

    python -m tests.benchmarks.first_query

Nothing was fetched before: pip has no cache, and the home is empty, so there are no jars and no
compiled classes. The second start finds what the first has left.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.test_installed import build_wheel, snippets

STEPS = (
    ("import rewrite", "import"),
    ("spark = rewrite.session()", "session"),
    ("CREATE OR REPLACE TABLE", "the table, 20 files"),
    ("CREATE SKIPPING INDEX", "CREATE SKIPPING INDEX"),
    ("REFRESH SKIPPING INDEX", "REFRESH SKIPPING INDEX"),
    ("df = spark.sql", "the query is planned"),
    ("df.show()", "the query has run"),
    ("rewrite.explain", "explain"),
)
CLOCK = """
import ast, sys, time
tree = ast.parse(open("quickstart.py").read())
for node in tree.body:
    began = time.perf_counter()
    exec(compile(ast.Module([node], []), "quickstart.py", "exec"))
    print("took", time.perf_counter() - began, repr(ast.unparse(node)), flush=True)
"""


def timed(*command: str | Path, cwd: Path, env: dict[str, str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - began, done.stdout


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        home, work = folder / "home", folder / "work"
        home.mkdir()
        work.mkdir()
        wheel = build_wheel(folder)
        unseen = ("PYTHON", "SPARK_", "PYSPARK_", "XDG_", "VIRTUAL_ENV")
        env = {k: v for k, v in os.environ.items() if not k.startswith(unseen)}
        env |= {"HOME": str(home), "JDK_JAVA_OPTIONS": f"-Duser.home={home}"}
        began = time.perf_counter()
        venv.create(folder / "environment", with_pip=True)
        print(f"{time.perf_counter() - began:6.1f} s  python -m venv")
        python = folder / "environment" / "bin" / "python"
        pip = (python, "-m", "pip", "install", "--no-cache-dir", f"{wheel}[spark]")
        print(f"{timed(*pip, cwd=work, env=env)[0]:6.1f} s  pip install")
        (work / "quickstart.py").write_text(snippets(spark=True)[0])
        for start in ("first", "second"):
            whole, told = timed(python, "-c", CLOCK, cwd=work, env=env)
            print(f"{whole:6.1f} s  the {start} start, of which")
            for seconds, code in re.findall(r"^took (\S+) (.+)$", told, re.M):
                step = next(shown for part, shown in STEPS if part in code)
                print(f"{float(seconds):12.1f} s  {step}")
            assert re.search(r"pruned +1[6-9] ", told), told


if __name__ == "__main__":
    sys.exit(main())
