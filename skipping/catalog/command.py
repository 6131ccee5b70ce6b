"""The command `file-skipping catalog`: an Iceberg REST catalog that plans scans with the index.

    file-skipping catalog --upstream https://catalog.example/api

Listens on loopback by default, without encryption: anyone on the path can read what is sent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

import uvicorn

from providers.errors import SettingError, SkippingError
from skipping.catalog.connections import Protocol
from skipping.catalog.indexes import Indexes
from skipping.catalog.limits import Limits
from skipping.catalog.memory import hide_memory
from skipping.catalog.service import application
from skipping.catalog.upstream import Upstream
from skipping.catalog.workers import Bounds, Workers
from skipping.config.settings import PREFIX, Settings, variable
from skipping.sources.environment import environment_store

_KEY = 32


def _arguments() -> argparse.ArgumentParser:
    bounds = Bounds()
    parser = argparse.ArgumentParser(
        prog="file-skipping catalog",
        description="An Iceberg REST catalog that plans scans with the index.",
    )
    parser.add_argument(
        "--upstream", required=True, metavar="URI", help="the catalog to forward to"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: loopback)"
    )
    parser.add_argument(
        "--port", type=int, default=8181, help="the port (default: 8181; 0: any free port)"
    )
    parser.add_argument(
        "--ca",
        metavar="FILE",
        help="certificate authorities of the upstream, instead of the system's",
    )
    parser.add_argument(
        "--page", type=_count, default=5_000, metavar="N", help="maximum of tasks in a response"
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        help=f"at least {_KEY} random bytes; services with the same key accept each other's pages",
    )
    parser.add_argument(
        "--workers",
        type=_count,
        default=bounds.workers,
        metavar="N",
        help="maximum of processes that read metadata and manifests",
    )
    parser.add_argument(
        "--worker-memory",
        type=_count,
        default=bounds.memory >> 20,
        metavar="MiB",
        help="maximum memory of each of these processes",
    )
    parser.add_argument(
        "--share-port",
        action="store_true",
        help="let another service listen on the port before this one ends",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="key=value",
        help="a setting, such as spark.skipping.store=sqlite:/var/lib/skipping.db; environment "
        "variables such as SKIPPING_STORE are read, too",
    )
    parser.add_argument(
        "--io",
        action="append",
        default=[],
        metavar="key=value",
        help="a property of PyIceberg for reading manifests, such as s3.region=eu-central-1",
    )
    return parser


def _key(path: str) -> bytes:
    with open(path, "rb") as file:
        key = file.read(1 << 16)
    if len(key) < _KEY:
        raise SettingError(
            f"--key takes a file of {_KEY} random bytes or more: {path} has {len(key)}"
        )
    return key


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"takes a number above zero, not {text}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until a signal; return 2 for wrong arguments, 1 if it cannot start."""
    parser = _arguments()
    given = parser.parse_args(arguments)
    pairs: dict[str, dict[str, str]] = {}
    for option in ("conf", "io"):
        wrong = [each for each in getattr(given, option) if "=" not in each]
        if wrong:
            parser.error(f"--{option} takes key=value, not {wrong[0]}")
        pairs[option] = dict(each.split("=", 1) for each in getattr(given, option))
    try:
        settings = _settings(pairs["conf"])
        limits = Limits()
        upstream = Upstream(given.upstream, ca=given.ca, connections=limits.requests, timeout=60.0)
        store = environment_store(settings)
        workers = Workers(
            Bounds(
                workers=given.workers,
                of_one_caller=max(1, given.workers // 2),
                memory=given.worker_memory << 20,
                page=given.page,
            )
        )
        key = None if given.key is None else _key(given.key)
        listening = socket.create_server(
            (given.host, given.port), backlog=512, reuse_port=given.share_port
        )
    except (OSError, ValueError, SkippingError) as error:  # the port cannot be shared: ValueError
        print(f"the catalog cannot start: {error}", file=sys.stderr)
        return 1
    indexes = Indexes(store, settings)
    app = application(upstream, indexes, workers=workers, io=pairs["io"], limits=limits, key=key)
    config = uvicorn.Config(
        app,
        http=Protocol,
        log_level="warning",
        limit_concurrency=4 * limits.requests,
        timeout_keep_alive=75,  # longer than clients keep a connection that they do not test
        access_log=False,  # paths name tables
        proxy_headers=False,  # a client must not choose the address that its limits apply to
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=10,
        h11_max_incomplete_event_size=64 << 10,
    )
    hide_memory()
    with listening:
        host, port = listening.getsockname()[:2]
        server = _Announced(config, f"catalog: http://{host}:{port} in front of {given.upstream}")
        for each in (signal.SIGTERM, signal.SIGINT):
            # Uvicorn stops gracefully, then raises the signal again for the previous handler.
            signal.signal(each, lambda *_: None)
        asyncio.run(server.serve([listening]))
    return 0


def _settings(conf: Mapping[str, str]) -> Settings:
    """Merge the environment's settings with the command line's, which win; raise SettingError."""
    Settings.of(conf)
    keys = {key.removeprefix(PREFIX): value for key, value in conf.items()}
    for key in ("opensearch.user", "opensearch.password"):
        if key in keys:
            raise SettingError(f"{PREFIX}{key} is taken from the environment only: {variable(key)}")
    return Settings.of_environment({**os.environ, **{variable(k): v for k, v in keys.items()}})


class _Announced(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, message: str) -> None:
        super().__init__(config)
        self._message = message

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._message, flush=True)
