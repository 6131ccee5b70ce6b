"""A session's storage as Arrow opens it: what is followed, what is not, and what is never shown."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from providers.errors import TableError
from skipping.indexing.spark import (
    _balance_by_size,
    _choose_concurrency,
    _find_readable,
    can_open,
)
from skipping.indexing.storage import Opened, Storage, root_of
from skipping.indexing.storage_options import (
    UnfollowedError,
    azure_arguments,
    google_arguments,
    is_secret,
    s3_arguments,
)

HOST = "acme.dfs.core.windows.net"
LOGIN = "https://login.microsoftonline.com/a-tenant/oauth2/token"
TOKEN_PROVIDER = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"


def of_s3(**settings: str) -> dict[str, object]:
    named = {f"fs.s3a.{name.replace('__', '.')}": value for name, value in settings.items()}
    return s3_arguments(lambda key: named.get(key, ""), "lake")


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, {"scheme": "https"}),
        ({"endpoint__region": "eu-west-1"}, {"scheme": "https", "region": "eu-west-1"}),
        ({"endpoint": "s3.amazonaws.com"}, {"scheme": "https"}),
        (
            {"endpoint": "s3.eu-central-1.amazonaws.com"},
            {
                "scheme": "https",
                "region": "eu-central-1",
                "endpoint_override": "s3.eu-central-1.amazonaws.com",
                "force_virtual_addressing": True,
            },
        ),
        (
            {"endpoint": "http://minio:9000", "path__style__access": "true"},
            {
                "scheme": "http",
                "region": "us-east-1",
                "endpoint_override": "minio:9000",
                "force_virtual_addressing": False,
            },
        ),
        (
            # An address has no sub-domains, so there the SDK, too, puts the bucket into the path.
            {"endpoint": "10.0.0.1:9000", "connection__ssl__enabled": "false"},
            {
                "scheme": "http",
                "region": "us-east-1",
                "endpoint_override": "10.0.0.1:9000",
                "force_virtual_addressing": False,
            },
        ),
    ],
)
def test_where_a_bucket_is(settings: dict[str, str], arguments: dict[str, object]) -> None:
    assert of_s3(**settings) == arguments
    named = {"region": "us-east-1", **arguments}
    assert pafs.S3FileSystem(anonymous=True, **named).region == named["region"]


@pytest.mark.parametrize(
    "settings",
    [
        {"encryption__algorithm": "SSE-C"},
        {"encryption__algorithm": "CSE-KMS"},
        {"server-side-encryption-algorithm": "SSE-C"},
        {"delegation__token__binding": "org.apache.hadoop.fs.s3a.auth.delegation.X"},
        {"proxy__host": "proxy"},
        {"accesspoint__arn": "arn:x"},
        {"bucket__lake__accesspoint__arn": "arn:x"},
        {"custom__signers": "S:x.S"},
        {"signing-algorithm": "S"},
        {"s3__client__factory__impl": "x.Factory"},
        {"requester__pays__enabled": "true"},
        {"endpoint__fips": "true"},
        {"endpoint": "ftp://minio"},
        {"endpoint": "http://minio/below"},
    ],
)
def test_what_arrow_cannot_follow_on_s3(settings: dict[str, str]) -> None:
    with pytest.raises(UnfollowedError):
        of_s3(**settings)


OAUTH = {
    f"fs.azure.account.auth.type.{HOST}": "OAuth",
    f"fs.azure.account.oauth.provider.type.{HOST}": TOKEN_PROVIDER,
    f"fs.azure.account.oauth2.client.endpoint.{HOST}": LOGIN,
    f"fs.azure.account.oauth2.client.id.{HOST}": "an-id",
    f"fs.azure.account.oauth2.client.secret.{HOST}": "a-secret",
}


@pytest.mark.parametrize(
    ("named", "who"),
    [
        ({f"fs.azure.account.key.{HOST}": "a2V5"}, {"account_key": "a2V5"}),
        (
            {
                "fs.azure.account.auth.type": "SAS",
                f"fs.azure.sas.fixed.token.{HOST}": "?sv=1&sig=2",
            },
            {"sas_token": "sv=1&sig=2"},
        ),
        (OAUTH, {"tenant_id": "a-tenant", "client_id": "an-id", "client_secret": "a-secret"}),
    ],
)
def test_who_asks_azure(named: dict[str, str], who: dict[str, str]) -> None:
    arguments = azure_arguments(lambda key: named.get(key, ""), HOST)
    assert arguments == {"account_name": "acme", **who}
    pafs.AzureFileSystem(**arguments)


@pytest.mark.parametrize(
    "named",
    [
        {},  # no key
        {"fs.azure.account.auth.type": "Custom"},
        {**OAUTH, f"fs.azure.account.oauth.provider.type.{HOST}": "x.WorkloadIdentityProvider"},
        {**OAUTH, f"fs.azure.account.oauth2.client.endpoint.{HOST}": "https://elsewhere/token"},
        {"fs.azure.account.key": "k", "fs.azure.encryption.context.provider.type": "x.P"},
        {"fs.azure.account.key": "k", "fs.azure.account.keyprovider": "x.P"},
    ],
)
def test_what_arrow_cannot_follow_on_azure(named: dict[str, str]) -> None:
    with pytest.raises(UnfollowedError):
        azure_arguments(lambda key: named.get(key, ""), HOST)


def test_clouds_of_azure_other_than_the_public_one() -> None:
    named = {"fs.azure.account.key": "a2V5"}
    arguments = azure_arguments(lambda key: named.get(key, ""), "acme.dfs.core.chinacloudapi.cn")
    assert arguments["dfs_storage_authority"] == ".dfs.core.chinacloudapi.cn"
    assert arguments["blob_storage_authority"] == ".blob.core.chinacloudapi.cn"
    with pytest.raises(UnfollowedError):
        azure_arguments(lambda key: "", "acme.example.com")


@pytest.mark.parametrize(
    ("named", "arguments"),
    [
        ({}, {"anonymous": False}),
        ({"fs.gs.auth.type": "UNAUTHENTICATED", "fs.gs.project.id": "p"}, {"anonymous": True}),
        (
            {"fs.gs.auth.type": "UNAUTHENTICATED", "fs.gs.storage.root.url": "http://fake:4443"},
            {"anonymous": True, "scheme": "http", "endpoint_override": "fake:4443"},
        ),
    ],
)
def test_who_asks_google(named: Mapping[str, str], arguments: dict[str, object]) -> None:
    assert google_arguments(named) == arguments


@pytest.mark.parametrize(
    "named",
    [
        {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"},
        {"fs.gs.auth.service.account.json.keyfile": "/k.json"},
        {"google.cloud.auth.service.account.json.keyfile": "/k.json"},
        {"fs.gs.encryption.key": "k"},
        {"fs.gs.proxy.address": "p:1"},
        {"fs.gs.requester.pays.mode": "AUTO"},
        {"fs.gs.something.new": "x"},
    ],
)
def test_what_arrow_cannot_follow_on_google(named: Mapping[str, str]) -> None:
    with pytest.raises(UnfollowedError):
        google_arguments(named)


def test_no_secret_is_shown() -> None:
    secret = "top-secret"
    arguments = {"access_key": secret, "secret_key": secret, "region": "x", "no_such": secret}
    storage = Storage(
        {"s3a://lake": Opened("S3FileSystem", arguments, "lake")}, {"abfs://c@a": "x"}
    )
    assert secret not in f"{storage} {storage!r} {storage.opened['s3a://lake']!r}"
    again = pickle.loads(pickle.dumps(storage))
    assert again == storage
    with pytest.raises(TableError) as caught:  # an argument that Arrow does not know
        again("s3a://lake/t/x.parquet")
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(TableError, match="abfs://c@a"):
        again("abfs://c@a/t/x.parquet")


def test_paths_by_their_roots() -> None:
    storage = Storage({"s3a://lake": Opened("S3FileSystem", {"anonymous": True}, "lake")}, {})
    filesystem, inner = storage("s3a://lake/t x/p=a%20b/1.parquet")
    assert (filesystem.type_name, inner) == ("s3", "lake/t x/p=a%20b/1.parquet")
    assert storage("file:/t/x y")[1] == "/t/x y"
    paths = ["file:/t/x", "/t//x", "s3a://lake/t/x", "abfs://c@a.dfs/x//y", "file:///t/x"]
    roots = root_of(pa.chunked_array([paths])).to_pylist()
    assert roots == ["", "", "s3a://lake", "abfs://c@a.dfs", ""]


def test_find_readable_tries_one_file_of_each_root(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    storage = Storage({}, {"s3a://b": "it has a proxy"})
    paths = pa.chunked_array([["s3a://b/x", f"file:{tmp_path}/a", "s3a://b/y"]])
    assert _find_readable(storage, paths).to_pylist() == [False, True, False]
    assert can_open(f"file:{tmp_path}/gone", storage)


@pytest.mark.parametrize(
    ("path", "size", "at_once"),
    [("file:/x", 1, 1), ("s3a://b/x", 1, 16), ("s3a://b/x", 1 << 28, 4), ("s3a://b/x", 1 << 40, 2)],
)
def test_choose_concurrency_by_storage_and_size(path: str, size: int, at_once: int) -> None:
    assert _choose_concurrency(pa.table({"path": [path], "size": [size]})) == at_once


def test_balance_by_size_gives_each_slot_the_same_bytes() -> None:
    sizes = _balance_by_size(pa.table({"size": [1, 9, 2, 8, 3, 7]}), 3)["size"].to_pylist()
    assert [sum(sizes[i : i + 2]) for i in (0, 2, 4)] == [12, 10, 8]


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("fs.azure.account.key.acme.dfs.core.windows.net", True),
        ("fs.azure.sas.fixed.token", True),
        ("fs.azure.account.oauth2.client.secret", True),
        ("fs.azure.account.auth.type", False),
    ],
)
def test_is_secret_names_what_a_credential_provider_may_have(key: str, secret: bool) -> None:
    assert is_secret(key) is secret
