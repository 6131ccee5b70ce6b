"""Clients of Spark Connect, in a process that has no other Spark: `python connect_client.py URL`.

Each line of standard input is JSON, `[tag, session, statement]`; each line of the output too:
`[tag, rows]` or `[tag, error]`, rows as lists, in the order in which they come. Sessions are made
when they are first named; statements of several sessions run at once. INTERRUPT cancels those of
its session.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

URL = sys.argv[1]
CONF = dict(pair.split("=", 1) for pair in sys.argv[2:])
sessions: dict[str, Any] = {}
making = threading.Lock()
printing = threading.Lock()


def session(name: str) -> Any:
    with making:
        if name not in sessions:
            builder = SparkSession.builder.remote(URL).config(map=CONF)
            sessions[name] = builder.create()
        return sessions[name]


def answer(tag: int, name: str, statement: str) -> None:
    try:
        if statement == "INTERRUPT":
            session(name).interruptAll()
        rows = [] if statement == "INTERRUPT" else session(name).sql(statement).collect()
        said: Any = [[str(value) for value in row] for row in rows]
    except PySparkException as error:
        said = str(error)
    except Exception as error:  # of gRPC's
        said = f"{type(error).__name__}: {error}"
    with printing:
        print(json.dumps([tag, said]), flush=True)


def main() -> None:
    with ThreadPoolExecutor(64) as pool:
        for line in sys.stdin:
            pool.submit(answer, *json.loads(line))
    for each in sessions.values():
        each.stop()


if __name__ == "__main__":
    main()
