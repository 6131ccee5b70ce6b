"""From an address to a store, and who asks it: credentials belong to a server."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf

from providers.errors import SettingError
from skipping.config.settings import Settings
from skipping.sources.environment import environment_store
from skipping.sources.spark import store_of
from skipping.stores.open import open_store, replica_of
from skipping.stores.opensearch.credentials import INSECURE, PASSWORD, STORE, USER, Access
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.schema import VERSION
from tests.conftest import RunPython
from tests.skipping.stores.samples import bounds, fill


def test_memory_is_one_store_a_name() -> None:
    store = open_store("memory:contract")
    assert open_store("memory:contract") is store
    assert open_store("memory:") is not store
    assert store.location == "memory:contract"


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("sqlite:/a/b.db", "sqlite:/a/b.db"),
        ("sqlite:///a/b c%20.db", "sqlite:/a/b c%20.db"),
        ("/a/b.db", "sqlite:/a/b.db"),
        ("file:/a/b%20c", "file:///a/b%20c"),
        ("file:///a/b/", "file:///a/b"),
        ("file://localhost/a/b", "file:///a/b"),
        ("s3a://bucket/a/", "s3a://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("abfss://c@account/a", "abfss://c@account/a"),
        (" sqlite:/a/b.db\n", "sqlite:/a/b.db"),
        ("/a/me@host/b.db", "sqlite:/a/me@host/b.db"),
    ],
)
def test_open_store_finds_files(url: str, location: str) -> None:
    assert open_store(url).location == location


@pytest.mark.parametrize(
    "url",
    [
        *("opensearch://me:secret@host:9200", "s3:///k", "sqlite://host/p", "file://host/p"),
        *("sqlite://me:secret@host/p", "file://me:secret@host/p", "/a\n/b.db", "", "sqlite:"),
        *("s3a://me:secret@bucket/p", "gs://bucket/p?token=secret", "ftp://me:secret@host/p"),
        *("opensearch ://me:secret@host:9200", "://me:secret@host:9200"),
        *("//me:secret@host:9200", "sqlite:opensearch://me:secret@host:9200"),
        *("sqlite:/opensearch://me:secret@host/a", "opensearch\t//me:secret@host:9200"),
    ],
)
def test_open_store_refuses_the_rest(url: str) -> None:
    with pytest.raises(
        SettingError, match=r"supported are|must not have a user or password"
    ) as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


def test_a_sqlite_file_at_a_file_address_names_the_scheme(tmp_path: Path) -> None:
    path = tmp_path / "a b.sqlite"
    path.touch()
    with pytest.raises(SettingError, match=f"set it to sqlite:{path}"):
        open_store(path.as_uri())


def test_a_folder_is_one_store_for_each_replica(tmp_path: Path) -> None:
    url = (tmp_path / "shared").as_uri()
    store = open_store(url)
    assert open_store(f"{url}/") is store
    assert open_store(url, replicas=f"{tmp_path}/mine") is not store
    fill(open_store(url, replicas=f"{tmp_path}/mine"), bounds([1]))
    (made,) = (tmp_path / "mine").iterdir()
    assert made.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingError, match=r"store\.replica.*is not a local folder"):
        open_store(url, replicas="s3a://bucket/replicas")


def test_outside_of_spark_hdfs_names_the_reason() -> None:
    with pytest.raises(SettingError, match="can only be opened in a Spark session"):
        environment_store(Settings(store="hdfs://name:8020/path"))


# OpenSearch


def test_opened_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER, "me")
    monkeypatch.setenv(PASSWORD, "s3cret")
    monkeypatch.setenv(STORE, "opensearch+https://Search.example")
    for blank in (" opensearch+https://search.example", "opensearch+https://search.example\n"):
        assert open_store(blank) is open_store("opensearch+https://search.example")
    monkeypatch.setenv(STORE, " opensearch+https://Search.example ")
    store = open_store("opensearch+https://search.example")
    assert store.location == "opensearch+https://search.example:9200/skipping-"
    assert open_store("opensearch+https://search.example:9200/") is store
    assert isinstance(store, OpenSearchStore)
    assert store._access == Access(user="me", password="s3cret")
    secure = open_store("opensearch+https://[::1]:443", access=lambda server: Access(prefix="p-"))
    assert secure.location == "opensearch+https://[::1]:443/p-"


def session(**start: str) -> Any:
    """As much of a session as is asked for its start-up configuration."""
    conf = SparkConf(loadDefaults=False)
    for key, value in start.items():
        conf.set(f"spark.skipping.{key.replace('_', '.')}", value)
    return SimpleNamespace(sparkContext=SimpleNamespace(_conf=conf, applicationId="local-1"))


def open_address(spark: Any, **said: str) -> Access:
    """What goes to the store of a session that says this."""
    start = dict(spark.sparkContext._conf.getAll())
    said = {f"spark.skipping.{key.replace('_', '.')}": value for key, value in said.items()}
    store = store_of(spark, Settings.of(start | said))
    assert isinstance(store, OpenSearchStore)
    return store._access


def test_opened_by_the_settings_of_a_session() -> None:
    named = {"prefix": "p-", "user": "me", "password": "s3cret", "ca": "ca.pem"}
    named |= {"certificate": "c.pem", "key": "k.pem"}
    said = {f"opensearch_{key}": value for key, value in named.items()}
    said["store"] = "opensearch+https://search.example"
    assert open_address(session(), **said) == Access(**named)
    assert open_address(session(**said)) == Access(**named)


HOME, EVIL = "opensearch+https://home.example", "opensearch+https://evil.example"


@pytest.mark.parametrize("by", ["environment", "configuration"])
def test_credentials_go_to_the_server_of_start_up_only(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "environment":
        for name, value in {STORE: HOME, USER: "svc", PASSWORD: "s3cret"}.items():
            monkeypatch.setenv(name, value)
        spark = session()
    else:
        spark = session(store=HOME, opensearch_user="svc", opensearch_password="s3cret")
    pair = {"opensearch_user": "me", "opensearch_password": "0wn"}
    mine = Access(user="me", password="0wn")
    assert open_address(spark) == Access(user="svc", password="s3cret")
    assert open_address(spark, **pair) == mine
    for other in (EVIL, HOME.replace("+https", ""), f"{HOME}:9201"):
        assert open_address(spark, store=other) == Access(withheld=True)
        assert open_store(other)._access == Access(withheld=by == "environment")  # type: ignore[attr-defined]
    assert open_address(spark, store=EVIL, **pair) == mine
    assert open_address(spark, opensearch_ca="mine.pem") == Access(ca="mine.pem", withheld=True)
    with pytest.raises(SettingError, match="go together"):
        open_address(spark, store=EVIL, opensearch_user="me")


def test_start_up_is_known_by_other_spellings(tmp_path: Path) -> None:
    """SQL can name what start-up has without knowing it: `${env:...}`, and files by a path."""
    for name in ("c.pem", "k.pem", "mine.pem", "ca.pem"):
        (tmp_path / name).touch()
    (tmp_path / "link.pem").symlink_to(tmp_path / "k.pem")
    os.link(tmp_path / "c.pem", tmp_path / "hard.pem")
    files = {f"opensearch_{key}": str(tmp_path / f"{key[0]}.pem") for key in ("certificate", "key")}
    named = {"opensearch_user": "svc", "opensearch_password": "s3cret"}
    spark = session(store=HOME, opensearch_ca=str(tmp_path / "ca.pem"), **named, **files)
    nothing = Access(ca=str(tmp_path / "ca.pem"), withheld=True)
    said = {"store": EVIL, "opensearch_user": "svc"}
    assert open_address(spark, **said, opensearch_password=" s3cret\t") == nothing
    for certificate, key in (
        ("./c.pem", "k.pem"),
        ("c.pem", "mine.pem"),
        ("mine.pem", "link.pem"),
        ("hard.pem", "mine.pem"),
    ):
        pair = {"certificate": f"{tmp_path}/{certificate}", "key": f"{tmp_path}/{key}"}
        other = {f"opensearch_{name}": path for name, path in pair.items()}
        assert open_address(spark, store=EVIL, **other) == nothing
    mine = {f"opensearch_{name}": f"{tmp_path}/mine.pem" for name in ("certificate", "key")}
    assert open_address(spark, store=EVIL, **mine).certificate == f"{tmp_path}/mine.pem"
    again = open_address(spark, opensearch_ca=f"{tmp_path}/./ca.pem")
    assert (again.user, again.certificate) == ("svc", f"{tmp_path}/c.pem")


def open_with_prefix(n: int) -> Callable[[str], Access]:
    return lambda _: Access(prefix=f"p{n}-")


def test_few_stores_are_open_at_once() -> None:
    """Anybody may SET a prefix, a user or an address, again and again."""
    first = open_store("opensearch://127.0.0.1")
    for n in range(40):
        found = {open_store("opensearch://127.0.0.1", access=open_with_prefix(n)) for _ in range(2)}
        assert len(found) == 1
    assert open_store("opensearch://127.0.0.1") is not first


def test_no_password_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = {"opensearch_user": "me", "opensearch_password": "0wn"}
    plain = {"store": "opensearch://plain.example", **pair}
    given = Access(user="me", password="0wn")
    with pytest.raises(SettingError, match=r"plain HTTP.*opensearch\.insecure") as raised:
        open_address(session(), **plain)
    assert "0wn" not in str(raised.value)
    for host in ("127.0.0.1", "[::1]", "localhost"):
        assert open_address(session(), **{**plain, "store": f"opensearch://{host}"}) == given
    assert open_address(session(opensearch_insecure="true"), **plain) == given
    with pytest.raises(SettingError, match="has no effect"):
        open_address(session(), opensearch_insecure="true", **plain)
    monkeypatch.setenv(INSECURE, "true")
    assert open_address(session(), **plain) == given


@pytest.mark.parametrize(
    "url",
    [
        *("opensearch://me:s3cret@host", " opensearch://me:s3cret@host", "opensearch://"),
        *("\topensearch+https://me:s3cret@host:9200 ", "opensearch://host:port"),
        *("opensearch://host/index", "opensearch+https://host?password=s3cret"),
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(SettingError, match=r"spark\.skipping\.store") as raised:
        open_store(url)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"user": "me"}, "go together"),
        ({"password": "s3cret"}, "go together"),
        ({"key": "k.pem"}, "needs opensearch.certificate"),
        ({"prefix": "Skipping"}, "lower-case"),
        ({"prefix": "_x"}, "cannot begin an index name"),
        ({"prefix": ""}, "cannot begin an index name"),
    ],
)
def test_access_that_is_none(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message) as raised:
        Access(**wrong)  # type: ignore[arg-type]
    assert "s3cret" not in str(raised.value)


def test_without_its_client_it_says_what_to_install(run_python: RunPython) -> None:
    program = (
        "import sys; sys.modules['opensearchpy'] = None\n"
        "from skipping.stores.open import open_store\n"
        "open_store('memory:a')\n"
        "try:\n    open_store('opensearch://host')\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    run = run_python("-c", program)
    assert run.stdout.startswith("SettingError"), run.stderr
    assert "pip install 'lakehouse-file-skipping[opensearch]'" in run.stdout


def test_replicas_of_another_format_are_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So two releases can use one folder from one host."""
    here = replica_of("s3://lake/indexes", str(tmp_path))
    monkeypatch.setattr("skipping.stores.open.VERSION", VERSION + 1)
    assert replica_of("s3://lake/indexes", str(tmp_path)) != here
