"""Translate Hadoop's settings of object stores to arguments of Arrow's file systems.

Some settings change the data or the credentials. If Arrow cannot follow such a setting, the
translation raises an error.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Arguments: TypeAlias = dict[str, Any]
"""Arguments for the constructor of an Arrow file system."""

Get: TypeAlias = Callable[[str], str]
"""Returns a setting by its key, "" if it is not set."""


class UnfollowedError(Exception):
    """Arrow cannot follow a setting. The message has the setting's name, but never its value."""


def is_secret(key: str) -> bool:
    """Return whether Hadoop may read a setting from a credential provider."""
    return key.startswith(("fs.azure.account.key", "fs.azure.sas.fixed.token")) or ".secret" in key


_S3_ONLY = {
    "fs.s3a.impl": ("org.apache.hadoop.fs.s3a.S3AFileSystem",),
    "fs.s3a.s3.client.factory.impl": ("org.apache.hadoop.fs.s3a.DefaultS3ClientFactory",),
    # With these algorithms the store decrypts the data. Others require a key from the client.
    "fs.s3a.encryption.algorithm": ("AES256", "SSE-KMS", "DSSE-KMS"),
    "fs.s3a.server-side-encryption-algorithm": ("AES256", "SSE-KMS", "DSSE-KMS"),
    "fs.s3a.delegation.token.binding": (),
    "fs.s3a.proxy.host": (),
    "fs.s3a.accesspoint.arn": (),
    "fs.s3a.custom.signers": (),
    "fs.s3a.signing-algorithm": (),
    "fs.s3a.s3.signing-algorithm": (),
    "fs.s3a.http.signer.enabled": ("false",),
    "fs.s3a.requester.pays.enabled": ("false",),
    "fs.s3a.endpoint.fips": ("false",),
}
"""Settings of S3A that Arrow cannot follow, and values with which they change nothing."""

_AWS = re.compile(r"(?:.*\.)?amazonaws\.com(?:\.cn)?")
_REGIONAL = re.compile(r"s3[.-]((?:[a-z]+-)+\d+)\.amazonaws\.com(?:\.cn)?")


def s3_arguments(get: Get, bucket: str) -> Arguments:
    """Return the arguments for a bucket from S3A's settings, without credentials.

    The region is left out if it has to be looked up. Raises UnfollowedError.
    """
    _require(get, _S3_ONLY)
    if get(f"fs.s3a.bucket.{bucket}.accesspoint.arn"):
        raise UnfollowedError("fs.s3a.accesspoint.arn")
    endpoint, region = get("fs.s3a.endpoint"), get("fs.s3a.endpoint.region")
    plain = get("fs.s3a.connection.ssl.enabled").lower() == "false"
    parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    if parts.scheme not in ("", "http", "https") or parts.path.strip("/"):
        raise UnfollowedError("fs.s3a.endpoint")
    arguments: Arguments = {"scheme": parts.scheme or ("http" if plain else "https")}
    host = parts.hostname or ""
    if regional := _REGIONAL.fullmatch(host):
        region = region or regional[1]
    if host and host not in ("s3.amazonaws.com", "s3.amazonaws.com.cn"):
        arguments["endpoint_override"] = parts.netloc
        by_host = get("fs.s3a.path.style.access").lower() != "true" and not _is_address(host)
        arguments["force_virtual_addressing"] = by_host
        if not _AWS.fullmatch(host):
            region = region or "us-east-1"  # the signature needs a region; other stores ignore it
    if region:
        arguments["region"] = region
    return arguments


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_AZURE_ONLY: Mapping[str, tuple[str, ...]] = {
    "fs.azure.account.keyprovider": ("org.apache.hadoop.fs.azurebfs.services.SimpleKeyProvider",),
    "fs.azure.sas.token.provider.type": (),
    "fs.azure.encryption.encoded.client-provided-key": (),
    "fs.azure.encryption.context.provider.type": (),
    "fs.azure.always.use.https": ("true",),
}
_TENANT = re.compile(r"https://login\.microsoftonline\.com/([^/]+)/oauth2/(?:v2\.0/)?token/?")


def azure_arguments(get: Get, host: str) -> Arguments:
    """Return the arguments for an account (`name.dfs.core.windows.net`) with its credentials.

    They come from ABFS's settings. Raises UnfollowedError.
    """

    def of_account(key: str) -> str:
        return get(f"{key}.{host}") or get(key)

    _require(of_account, _AZURE_ONLY)
    account, _, domain = host.partition(".")
    if not account or not domain.startswith("dfs."):
        raise UnfollowedError("an account outside dfs.core.windows.net")
    arguments: Arguments = {"account_name": account}
    if domain != "dfs.core.windows.net":
        arguments["dfs_storage_authority"] = f".{domain}"
        arguments["blob_storage_authority"] = f".blob{domain.removeprefix('dfs')}"
    kind = of_account("fs.azure.account.auth.type") or "SharedKey"
    provider = of_account("fs.azure.account.oauth.provider.type").rpartition(".")[2]
    if kind == "SharedKey":
        return arguments | _all(account_key=of_account("fs.azure.account.key"))
    if kind == "SAS":
        return arguments | _all(sas_token=of_account("fs.azure.sas.fixed.token").lstrip("?"))
    if kind == "OAuth" and provider == "ClientCredsTokenProvider":
        tenant = _TENANT.fullmatch(of_account("fs.azure.account.oauth2.client.endpoint"))
        return arguments | _all(
            tenant_id=tenant[1] if tenant else "",
            client_id=of_account("fs.azure.account.oauth2.client.id"),
            client_secret=of_account("fs.azure.account.oauth2.client.secret"),
        )
    raise UnfollowedError("fs.azure.account.auth.type")


_GOOGLE_HARMLESS = re.compile(
    r"fs\.gs\.(impl|project\.id|block\.size|working\.dir|inputstream\..*|outputstream\..*"
    r"|performance\.cache\..*|status\.parallel\.enable|application\.name\.suffix"
    r"|auth\.type|storage\.root\.url|implicit\.dir\.repair\.enable|lazy\.init\.enable"
    r"|http\..*|batch\..*|max\.requests\.per\.batch|glob\.algorithm|list\..*|reported\..*)"
    r"|google\.cloud\.auth\.type"
)


def google_arguments(named: Mapping[str, str]) -> Arguments:
    """Return the arguments for Google Cloud Storage from the connector's settings.

    Arrow takes no key files. It uses the credentials in the environment of each executor, as the
    connector does on Google's machines. Raises UnfollowedError.
    """
    for key in named:
        if not _GOOGLE_HARMLESS.fullmatch(key):
            raise UnfollowedError(key)
    kind = named.get("fs.gs.auth.type") or named.get("google.cloud.auth.type") or "COMPUTE_ENGINE"
    if kind not in ("COMPUTE_ENGINE", "APPLICATION_DEFAULT", "UNAUTHENTICATED"):
        raise UnfollowedError("fs.gs.auth.type")
    arguments: Arguments = {"anonymous": kind == "UNAUTHENTICATED"}
    root = named.get("fs.gs.storage.root.url", "")
    if root:
        parts = urlsplit(root)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UnfollowedError("fs.gs.storage.root.url")
        arguments |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
    return arguments


def _require(get: Get, only: Mapping[str, tuple[str, ...]]) -> None:
    for key, ordinary in only.items():
        if get(key) not in ("", *ordinary):
            raise UnfollowedError(key)


def _all(**arguments: str) -> Arguments:
    for name, value in arguments.items():
        if not value:
            raise UnfollowedError(f"no {name}")
    return dict(arguments)
