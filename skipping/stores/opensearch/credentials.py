"""How to reach a cluster: addresses and credentials. Needs nothing that may not be installed.

Credentials belong to a server. *Start-up* is what a Spark context was started with and, where that
says nothing, the environment. The user, password, certificate and key of start-up go to the one
server that start-up names (STORE, or `spark.skipping.store`: the same scheme, host and port), and
only as long as start-up's authorities vouch for it. Who names another store later, with `SET` or in
a call, may give credentials in the same way, and only these go there. No password goes over plain
HTTP but to this machine itself, or where start-up says `insecure`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from providers.errors import SettingError

__all__ = ["INSECURE", "PASSWORD", "SCHEMES", "STORE", "USER", "Access", "StartUp", "server"]

STORE = "SKIPPING_STORE"
USER, PASSWORD = "SKIPPING_OPENSEARCH_USER", "SKIPPING_OPENSEARCH_PASSWORD"
INSECURE = "SKIPPING_OPENSEARCH_INSECURE"
"""Environment variables that stand in for the settings of these names."""

SCHEMES = {"opensearch": "http", "opensearch+https": "https"}
PORT = 9200
DEFAULT_PREFIX = "skipping-"

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who asks: names of indices begin with `prefix`; `ca`, `certificate` and `key` are PEM files.

    `withheld`: there are credentials, for another server. Never shows the password. Raises
    SettingError for half of a pair, and for a prefix that no name of an index can begin with.

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
                "take lower-case letters, digits, - and _"
            )
        if (self.user is None) != (self.password is None):
            raise SettingError(
                "spark.skipping.opensearch.user and its password go together; the password may "
                f"also be in the environment variable {PASSWORD}, the user in {USER}, for the "
                f"server that {STORE} or the start-up configuration names"
            )
        if self.key is not None and self.certificate is None:
            raise SettingError("spark.skipping.opensearch.key needs its certificate")

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
        """Who asks `server`, given what start-up says (None: the environment) and what was said
        since; what is said twice, start-up's values again, counts as start-up's: a password with
        space around it, a file by another path.

        Raises SettingError for a password that would go over plain HTTP.
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
    """What was said before anybody could say otherwise: the server, and who asks it."""

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
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        insecure: bool = False,
        environment: Mapping[str, str] = os.environ,
    ) -> StartUp:
        """The configuration at start-up, and the environment where it says nothing."""
        store = (store or environment.get(STORE) or "").strip()
        return cls(
            server=server(store) if store.partition(":")[0].lower() in SCHEMES else None,
            user=user or environment.get(USER) or None,
            password=password or environment.get(PASSWORD) or None,
            ca=ca,
            certificate=certificate,
            key=key,
            insecure=insecure or environment.get(INSECURE, "").lower() == "true",
        )


def _is_same(path: str, other: str | None) -> bool:
    """Whether two paths are of one file, as far as this can be seen."""
    if other is None:
        return False
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


def _is_private(server: str) -> bool:
    """Whether nobody on a network can read along."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server(url: str) -> str:
    """`http://host:9200` for `opensearch://host`; raises SettingError without showing secrets.

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
            "spark.skipping.store: no user or password in an address; supported are "
            f"spark.skipping.opensearch.user and .password, or the variables {USER}, {PASSWORD}"
        )
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise SettingError(
            "spark.skipping.store: supported are opensearch://host:9200 and "
            "opensearch+https://host:9200, with nothing behind the port"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{SCHEMES[parts.scheme]}://{host}:{port}"
