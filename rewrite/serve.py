"""Serve clients whose queries skip files: `python -m rewrite.serve`.

One Spark driver serves Spark Connect, JDBC and ODBC. The exit code is 0 after a stop request
(SIGTERM, SIGINT), 2 for wrong arguments, and 1 if the server cannot start, does not stop in time,
or Spark ends unexpectedly.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import SkippingError
from rewrite.services import Address, Connect, Health, Service, Thrift, fix_settings
from rewrite.session import session
from skipping.index import SkippingIndex
from skipping.streaming.jobs import start_all, stop_all

__all__ = ["main"]

log = logging.getLogger("skipping")

_LEAVING = 20.0
"""Stop timeout in seconds; supervisors usually kill a process after 30."""

_HIVE = "spark.hadoop.hive.server2."

_EXAMPLES = """\
examples:
  %(prog)s                                    Spark Connect on 127.0.0.1:15002
  %(prog)s --connect --thrift                 and JDBC on 127.0.0.1:10000
  %(prog)s --connect 0 --health 8080          a free port; GET /healthz
  %(prog)s --conf spark.master=spark://host:7077 --conf spark.skipping.store=sqlite:/data/i.sqlite

A line on stdout that begins with "ready:" has the addresses. SIGTERM or Ctrl-C stops the server, a
second one immediately. docs/server.md explains clients, authentication and TLS.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a stop request; return the exit code."""
    given = _parse(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("skipping.progress").setLevel(logging.INFO)
    end = _Ending()
    end.listen()
    wanted = [address for address in (given.connect, given.thrift, given.health) if address]
    try:
        _require_authentication(given)
        for address in wanted:
            address.require_free()
        Thrift.forget_environment()
        spark = session(_builder(given))
    except (SkippingError, ImportError) as error:
        print(f"no server: {error}", file=sys.stderr)
        return 1
    end.require_cleanup()
    end.listen()  # PySpark takes SIGINT for itself
    end.process = getattr(spark.sparkContext._gateway, "proc", None)
    services: list[Service] = []
    is_stop_requested = True
    try:
        fix_settings(spark)
        if not end.is_stop_requested():
            _start(spark, given, services)
        if not end.is_stop_requested():
            _resume(spark)
        if not end.is_stop_requested():
            print(f"ready: {', '.join(_name(service) for service in services)}", flush=True)
            is_stop_requested = _wait(spark, end)
    except SkippingError as error:
        print(f"no server: {error}", file=sys.stderr)
        is_stop_requested = False
    end.begin()  # from here on a signal ends the process immediately
    _stop(spark, services)
    end.cancel()
    return 0 if is_stop_requested else 1


class _Ending:
    """The state of a stop: a signal requests it, and a second signal ends the process immediately.

    `_LEAVING` seconds after the request the process ends, even if something hangs. Before there is
    a session nothing has to be released, so the first signal ends the process: Java ends with it.
    """

    def __init__(self) -> None:
        self.process: Any = None
        """The process of Java. It is killed if it hangs, or it would outlive this one."""
        self._needs_cleanup = False
        self._requested = threading.Event()
        self._timer = threading.Timer(_LEAVING, self._late)
        self._timer.daemon = True

    def listen(self) -> None:
        """Handle signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._take())

    def require_cleanup(self) -> None:
        """Release the session before the process ends, from now on."""
        self._needs_cleanup = True

    def is_stop_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        return self._requested.wait(seconds)

    def begin(self) -> None:
        """Request the stop, and start its timeout."""
        if not self._requested.is_set():
            self._requested.set()
            self._timer.start()

    def cancel(self) -> None:
        """Cancel the timeout after the stop."""
        self._timer.cancel()

    def _take(self) -> None:
        if not self._needs_cleanup:
            self._exit(0)
        elif self.is_stop_requested():
            self._exit(1)
        else:
            self.begin()

    def _late(self) -> None:
        print(f"the server did not stop within {_LEAVING:.0f} s", file=sys.stderr, flush=True)
        self._exit(1)

    def _exit(self, code: int) -> None:
        if self.process is not None:
            with suppress(OSError):
                self.process.kill()
        os._exit(code)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m rewrite.serve",
        description="Serve Spark Connect and JDBC clients from one Spark driver with file "
        "skipping. Without --connect and --thrift: Spark Connect on 127.0.0.1:15002.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    place: dict[str, Any] = {"type": _address, "metavar": "[HOST:]PORT"}
    parser.add_argument(
        "--connect", nargs="?", const=_address("15002"), help="serve Spark Connect", **place
    )
    parser.add_argument(
        "--thrift", nargs="?", const=_address("10000"), help="serve JDBC, ODBC, PyHive", **place
    )
    parser.add_argument("--health", help="answer GET /healthz", **place)
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="a setting of the Spark session, such as spark.driver.memory=4g; may be repeated",
    )
    parser.add_argument(
        "--without-authentication",
        action="store_true",
        help="accept clients from other hosts without authentication",
    )
    given = parser.parse_args(arguments)
    if given.connect is None and given.thrift is None:
        given.connect = _address("15002")
    owned = {**Connect.settings(_address("0")), **Thrift.settings(_address("0"))}
    for key, _ in given.conf:
        if key in owned:
            parser.error(f"use --connect and --thrift instead of {key}")
        if key.startswith("spark.hive.server2."):
            parser.error(f"use spark.hadoop.{key.removeprefix('spark.')} instead of {key}")
    return given


def _address(text: str) -> Address:
    try:
        return Address.of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not [HOST:]PORT, such as 15002, 0.0.0.0:15002 or [::1]:15002"
        ) from None


def _pair(text: str) -> tuple[str, str]:
    key, is_pair, value = text.partition("=")
    if not is_pair or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not spark.key=value")
    return key, value


def _builder(given: argparse.Namespace) -> SparkSession.Builder:
    conf = {
        "spark.app.name": "skipping server",
        "spark.ui.showConsoleProgress": "false",
        # The UI listens on every address and shows all queries without authentication.
        "spark.ui.enabled": "false",
        # Clients get error messages without Java's stack trace.
        "spark.sql.connect.serverStacktrace.enabled": "false",
    }
    if dict(given.conf).get("spark.master", "").startswith("local"):
        # No executor runs on another host.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if given.connect:
        conf |= Connect.settings(given.connect)
    if given.thrift:
        conf |= Thrift.settings(given.thrift)
    conf |= dict(given.conf)
    # Spark passes both spellings to Hive, and one in spark-defaults.conf would win.
    twins = {k.replace(".hadoop.", ".", 1): v for k, v in conf.items() if k.startswith(_HIVE)}
    return SparkSession.builder.config(map={**conf, **twins})


def _require_authentication(given: argparse.Namespace) -> None:
    if given.without_authentication:
        return
    if given.connect and not given.connect.is_loopback:
        Connect.require_authentication(dict(given.conf))
    if given.thrift and not given.thrift.is_loopback:
        Thrift.require_authentication(dict(given.conf))


def _start(spark: SparkSession, given: argparse.Namespace, services: list[Service]) -> None:
    """Start the requested services. `services` has those that started, also after an error."""
    if given.connect is not None:
        services.append(Connect(spark))
    if given.thrift is not None:
        services.append(Thrift(spark))
    if given.health is not None:
        services.append(Health(spark, given.health, tuple(services)))


def _resume(spark: SparkSession) -> None:
    """Restart the streams of an earlier server, which refresh indexes."""
    try:
        start_all(spark, SkippingIndex.on)
    except SkippingError as error:
        log.warning("cannot restart streams, run RECOVER INDEX JOB: %s", error)


def _name(service: Service) -> str:
    return f"{type(service).__name__.lower()} {service.url}"


def _wait(spark: SparkSession, end: _Ending) -> bool:
    """Wait for the end; return whether a stop was requested, False if Spark ended unexpectedly."""
    over = threading.Event()

    def watch() -> None:
        with suppress(Exception):  # Java is gone
            while not spark.sparkContext._jsc.sc().isStopped() and not end.wait(1):
                pass
        over.set()

    # If Java hangs, only the watching thread hangs, and signals are still handled.
    threading.Thread(target=watch, name="watch", daemon=True).start()
    while not end.is_stop_requested() and not over.wait(0.2):
        pass
    if not end.is_stop_requested():
        print("Spark ended unexpectedly; it has printed the reason above", file=sys.stderr)
    return end.is_stop_requested()


def _stop(spark: SparkSession, services: Sequence[Service]) -> None:
    """Stop the services, then the streams, then Spark."""
    for service in reversed(services):
        _try(service.stop)
    _try(stop_all)
    process = getattr(spark.sparkContext._gateway, "proc", None)
    _try(spark.stop)
    if process is not None:  # Java ends when its standard input is closed
        process.stdin.close()
        process.wait()


def _try(work: Callable[[], Any]) -> None:
    try:
        work()
    except Exception as error:
        log.warning("the stop continues after %s: %s", type(error).__name__, error)


if __name__ == "__main__":
    sys.exit(main())
