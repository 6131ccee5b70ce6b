"""Addresses and credentials of clusters. This module needs no optional package.

Credentials belong to a server. *Start-up* is the configuration of the Spark context and, for what
that does not set, the environment. The user, password, certificate and key of start-up are sent
only to the server that start-up names (STORE, or `spark.skipping.store`: the same scheme, host and
port), and only if start-up's certificate authorities verify it. A store that is named later, with
`SET` or in a call, gets only credentials that are given the same way. Passwords are sent over plain
HTTP only to this machine, or if start-up sets `insecure`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from providers.errors import SettingError

STORE = "SKIPPING_STORE"
USER, PASSWORD = "SKIPPING_OPENSEARCH_USER", "SKIPPING_OPENSEARCH_PASSWORD"
INSECURE = "SKIPPING_OPENSEARCH_INSECURE"
"""Environment variables for the settings of the same names."""

SCHEMES = {"opensearch": "http", "opensearch+https": "https"}
PORT = 9200
DEFAULT_PREFIX = "skipping-"

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The credentials for a server; names of its OpenSearch indices begin with `prefix`.

    `ca`, `certificate` and `key` are PEM files. `withheld`: there are credentials, but for another
    server. The repr has no password. Raises SettingError for a user without password or a key
    without certificate, and for a prefix that no index name can begin with.

    >>> Access(user="me", password="secret")
    Access(prefix='skipping-', user='me', ca=None, certificate=None, key=None)
    """

    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    withheld: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise SettingError(
                f"spark.skipping.opensearch.prefix: {self.prefix!r} cannot begin an index name: "
                "use lower-case letters, digits, - and _"
            )
        if (self.user is None) != (self.password is None):
            raise SettingError(
                "spark.skipping.opensearch.user and its password go together; the password may "
                f"also be in the environment variable {PASSWORD}, the user in {USER}, for the "
                f"server that {STORE} or the start-up configuration names"
            )
        if self.key is not None and self.certificate is None:
            raise SettingError("spark.skipping.opensearch.key needs opensearch.certificate")

    @classmethod
    def of(
        cls,
        server: str,
        start: StartUp | None = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        user: str | None = None,
        password: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
    ) -> Access:
        """Return the credentials for `server` from start-up (None: environment) and later values.

        A later value that repeats start-up's counts as start-up's, also a password with space
        around it, or a file by another path. Raises SettingError if a password would be sent over
        plain HTTP.
        """
        start = StartUp.of() if start is None else start
        home = server == start.server and (ca is None or _is_same(ca, start.ca))
        withheld = not home and (start.password or start.certificate) is not None
        if password is not None and password.strip() != (start.password or "").strip():
            withheld = False
            user = user or (start.user if home else None)
        elif home:
            user, password = user or start.user, start.password
        else:
            user, password = None if user == start.user else user, None
        pair = [given for given in (certificate, key) if given is not None]
        if not pair:
            certificate, key = (start.certificate, start.key) if home else (None, None)
        elif not home and any(
            _is_same(given, theirs) for given in pair for theirs in (start.certificate, start.key)
        ):
            certificate, key = None, None
        else:
            withheld = False
        if password is not None and not start.insecure and not _is_private(server):
            raise SettingError(
                f"a password would go to {server} over plain HTTP: use opensearch+https://, or "
                "start with spark.skipping.opensearch.insecure or the environment variable "
                f"{INSECURE} set to true"
            )
        return cls(
            prefix=prefix,
            user=user,
            password=password,
            ca=ca or start.ca,
            certificate=certificate,
            key=key,
            withheld=withheld,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """The server and credentials from the start of the process."""

    server: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False

    @classmethod
    def of(
        cls,
        *,
        store: str | None = None,
        user: str | None = None,
        password: str | None = None,
        insecure: bool = False,
        environment: Mapping[str, str] = os.environ,
        **files: str | None,
    ) -> StartUp:
        """Return the configuration at start-up, with defaults from the environment."""
        store = (store or environment.get(STORE) or "").strip()
        return cls(
            server=server(store) if store.partition(":")[0].lower() in SCHEMES else None,
            user=user or environment.get(USER) or None,
            password=password or environment.get(PASSWORD) or None,
            **files,
            insecure=insecure or environment.get(INSECURE, "").lower() == "true",
        )


def _is_same(path: str, other: str | None) -> bool:
    if other is None:
        return False
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


def _is_private(server: str) -> bool:
    """Return whether requests to a server cannot be read on a network."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server(url: str) -> str:
    """Return `http://host:9200` for `opensearch://host`; raise SettingError, without secrets.

    >>> server("opensearch+https://search.example:443")
    'https://search.example:443'
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError:
        raise SettingError("spark.skipping.store: the port of OpenSearch is not a number") from None
    if "@" in parts.netloc:
        raise SettingError(
            "spark.skipping.store: the address must not have a user or password. Set "
            "spark.skipping.opensearch.user and .password, or the environment variables "
            f"{USER} and {PASSWORD}"
        )
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise SettingError(
            "spark.skipping.store: supported are opensearch://host:9200 and "
            "opensearch+https://host:9200, with nothing after the port"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{SCHEMES[parts.scheme]}://{host}:{port}"
