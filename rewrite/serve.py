"""Run a server whose clients' queries skip files: `python -m rewrite.serve`.

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
from skipping.spark_api import RELEASE
from skipping.streaming.jobs import start_all, stop_all

log = logging.getLogger("skipping")

_STOP_TIMEOUT = 20.0
"""Seconds; supervisors usually kill a process 30 seconds after a stop request."""

_HIVE = "spark.hadoop.hive.server2."

_EXAMPLES = """\
examples:
  %(prog)s                                    Spark Connect on 127.0.0.1:15002
  %(prog)s --connect --thrift                 also JDBC on 127.0.0.1:10000
  %(prog)s --connect 0 --health 8080          Connect on a free port; GET /healthz on 8080
  %(prog)s --conf spark.master=spark://host:7077 --conf spark.skipping.store=sqlite:/data/i.sqlite

When the server is ready, it prints a line with its addresses that begins with "ready:". SIGTERM or
Ctrl-C stops it; a second one ends it immediately. docs/server.md explains clients, authentication
and TLS.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a stop request; return the exit code."""
    given = _parse(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("skipping.progress").setLevel(logging.INFO)
    end = _Ending()
    end.listen()
    addresses = [address for address in (given.connect, given.thrift, given.health) if address]
    try:
        _require_authentication(given)
        for address in addresses:
            address.require_free()
        Thrift.forget_environment()
        spark = session(_builder(given))
    except (SkippingError, ImportError) as error:
        print(f"cannot start the server: {error}", file=sys.stderr)
        return 1
    end.require_cleanup()
    end.listen()  # again, because PySpark has set its own handler for SIGINT
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
        print(f"cannot start the server: {error}", file=sys.stderr)
        is_stop_requested = False
    end.begin()  # from here on a signal ends the process immediately
    _stop(spark, services)
    end.cancel()
    return 0 if is_stop_requested else 1


class _Ending:
    """Handles signals: the first requests a stop, a second one ends the process immediately.

    `_STOP_TIMEOUT` seconds after the request the process ends, even if something hangs. Until there
    is a session, nothing has to be released: the first signal then ends the process, and Java with
    it.
    """

    def __init__(self) -> None:
        self.process: Any = None
        """The Java process, which is killed with this one, even if it hangs."""
        self._needs_cleanup = False
        self._requested = threading.Event()
        self._timer = threading.Timer(_STOP_TIMEOUT, self._on_timeout)
        self._timer.daemon = True

    def listen(self) -> None:
        """Install the signal handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._on_signal())

    def require_cleanup(self) -> None:
        """From now on, let the first signal request a stop instead of ending the process."""
        self._needs_cleanup = True

    def is_stop_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        return self._requested.wait(seconds)

    def begin(self) -> None:
        """Request the stop and start its timeout."""
        if not self._requested.is_set():
            self._requested.set()
            self._timer.start()

    def cancel(self) -> None:
        """Cancel the timeout after the stop."""
        self._timer.cancel()

    def _on_signal(self) -> None:
        if not self._needs_cleanup:
            self._exit(0)
        elif self.is_stop_requested():
            self._exit(1)
        else:
            self.begin()

    def _on_timeout(self) -> None:
        print(f"the server did not stop within {_STOP_TIMEOUT:.0f} s", file=sys.stderr, flush=True)
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
        "skipping. Without --connect and --thrift: Spark Connect on 127.0.0.1:15002, or on "
        "Spark 3.5 JDBC on 127.0.0.1:10000.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    at: dict[str, Any] = {"type": _address, "metavar": "[HOST:]PORT"}
    parser.add_argument(
        "--connect", nargs="?", const=_address("15002"), help="serve Spark Connect", **at
    )
    parser.add_argument(
        "--thrift", nargs="?", const=_address("10000"), help="serve JDBC, ODBC, PyHive", **at
    )
    parser.add_argument("--health", help="answer GET /healthz", **at)
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
        if RELEASE >= (4, 0):
            given.connect = _address("15002")
        else:  # it has no Spark Connect server
            given.thrift = _address("10000")
    address_settings = {**Connect.settings(_address("0")), **Thrift.settings(_address("0"))}
    for key, _ in given.conf:
        if key in address_settings:
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
    # Spark passes spark.hive.* and spark.hadoop.hive.* to Hive. Set both, so that neither in
    # spark-defaults.conf overrides an argument.
    both = {k.replace(".hadoop.", ".", 1): v for k, v in conf.items() if k.startswith(_HIVE)}
    return SparkSession.builder.config(map={**conf, **both})


def _require_authentication(given: argparse.Namespace) -> None:
    if given.connect:
        Connect.require_support(dict(given.conf), given.connect)
    if given.without_authentication:
        return
    if given.connect and not given.connect.is_loopback:
        Connect.require_authentication(dict(given.conf))
    if given.thrift and not given.thrift.is_loopback:
        Thrift.require_authentication(dict(given.conf))


def _start(spark: SparkSession, given: argparse.Namespace, services: list[Service]) -> None:
    """Start the requested services and append each to `services`, which are stopped on an error."""
    if given.connect is not None:
        services.append(Connect(spark))
    if given.thrift is not None:
        services.append(Thrift(spark))
    if given.health is not None:
        services.append(Health(spark, given.health, tuple(services)))


def _resume(spark: SparkSession) -> None:
    """Restart the streams that an earlier server ran to refresh indexes."""
    try:
        start_all(spark, SkippingIndex.on)
    except SkippingError as error:
        log.warning("cannot restart the streams: run RECOVER INDEX JOB: error=%s", error)


def _name(service: Service) -> str:
    return f"{type(service).__name__.lower()} {service.url}"


def _wait(spark: SparkSession, end: _Ending) -> bool:
    """Wait until a stop is requested, and return True; return False if Spark ends before that."""
    spark_ended = threading.Event()

    def watch() -> None:
        with suppress(Exception):  # raised after Java has exited
            while not spark.sparkContext._jsc.sc().isStopped() and not end.wait(1):
                pass
        spark_ended.set()

    # If Java hangs, only the watching thread hangs, and signals are still handled.
    threading.Thread(target=watch, name="watch", daemon=True).start()
    while not end.is_stop_requested() and not spark_ended.wait(0.2):
        pass
    if not end.is_stop_requested():
        print("Spark ended unexpectedly; its output above has the reason", file=sys.stderr)
    return end.is_stop_requested()


def _stop(spark: SparkSession, services: Sequence[Service]) -> None:
    """Stop the services, then the streams, then Spark."""
    for service in reversed(services):
        _try(service.stop)
    _try(stop_all)
    process = getattr(spark.sparkContext._gateway, "proc", None)
    _try(spark.stop)
    if process is not None:  # Java exits when its standard input is closed
        process.stdin.close()
        process.wait()


def _try(work: Callable[[], Any]) -> None:
    try:
        work()
    except Exception as error:
        log.warning("stopping a service failed: error=%s: %s", type(error).__name__, error)


if __name__ == "__main__":
    sys.exit(main())
