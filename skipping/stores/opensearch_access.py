"""How to reach a cluster: addresses and credentials. Needs nothing that may not be installed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from providers.errors import SettingError

__all__ = ["PASSWORD", "SCHEMES", "USER", "Access", "server"]

USER, PASSWORD = "SKIPPING_OPENSEARCH_USER", "SKIPPING_OPENSEARCH_PASSWORD"
"""Environment variables that stand in for the settings of these names."""

SCHEMES = {"opensearch": "http", "opensearch+https": "https"}
PORT = 9200
DEFAULT_PREFIX = "skipping-"

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who asks: names of indices begin with `prefix`; `ca`, `certificate` and `key` are PEM files.

    Never shows the password. Raises SettingError for half of a pair, and for a prefix that no name
    of an index can begin with.

    >>> Access(user="me", password="secret")
    Access(prefix='skipping-', user='me', ca=None, certificate=None, key=None)
    """

    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise SettingError(
                f"spark.skipping.opensearch.prefix: {self.prefix!r} begins no name of an index: "
                "take lower-case letters, digits, - and _"
            )
        if (self.user is None) != (self.password is None):
            raise SettingError(
                "spark.skipping.opensearch.user and its password go together; the password may "
                f"also be in the environment variable {PASSWORD}, the user in {USER}"
            )
        if self.key is not None and self.certificate is None:
            raise SettingError("spark.skipping.opensearch.key needs its certificate")

    @classmethod
    def of(
        cls,
        *,
        prefix: str = DEFAULT_PREFIX,
        user: str | None = None,
        password: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
    ) -> Access:
        """What settings say, and the environment where they say nothing."""
        return cls(
            prefix=prefix,
            user=user or os.environ.get(USER) or None,
            password=password or os.environ.get(PASSWORD) or None,
            ca=ca,
            certificate=certificate,
            key=key,
        )


def server(url: str) -> str:
    """`http://host:9200` for `opensearch://host`; raises SettingError without showing secrets.

    >>> server("opensearch+https://search.example:443")
    'https://search.example:443'
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError:
        raise SettingError("spark.skipping.store: the port of OpenSearch is no number") from None
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
