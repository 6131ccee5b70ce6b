"""Users, roles and certificates on a node with the security plugin; the README names the roles.

SKIPPING_TEST_SECURED=1 python -m pytest tests/skipping/stores/test_opensearch_secured.py
"""

from __future__ import annotations

import logging
import re
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.predicate import In
from providers.values import Domain
from skipping.lookup.lookup import Lookup
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import IndexedColumn, State
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from tests.opensearch_secured import SecuredNode
from tests.skipping.stores.samples import bounds, definition, entries

pytestmark = pytest.mark.nightly

PREFIX = "roles-"
READ = ["indices:data/read/get", "indices:data/read/search"]
WRITE = [*READ, "indices:data/write/*", "indices:admin/create", "indices:admin/mapping/put"]
WRITE += ["indices:admin/refresh*"]
ACTIONS = {
    "reader": (READ, []),
    "writer": (WRITE, ["indices:data/write/bulk"]),
    "maintainer": ([*WRITE, "indices:admin/delete"], ["indices:data/write/bulk"]),
}
SECRETS = {  # those that hold the user's name are refused as weak
    "reader": "Quilt-71-Zebra-Umbrella",
    "writer": "Harbour-52-Violin-Thistle",
    "maintainer": "Meadow-38-Copper-Lantern",
}
LONG = Domain("integer", pa.int64())


@pytest.fixture(scope="module")
def node() -> Iterator[SecuredNode]:
    node = SecuredNode()
    try:
        node.start()
        for name, (actions, cluster) in ACTIONS.items():
            allowed = {"index_patterns": [f"{PREFIX}*"], "allowed_actions": actions}
            role = {"cluster_permissions": cluster, "index_permissions": [allowed]}
            node.user(name, SECRETS[name], role)
        yield node
    finally:
        node.stop()


def as_user(node: SecuredNode, name: str, **other: Any) -> OpenSearchStore:
    access = Access(prefix=PREFIX, user=name, password=SECRETS[name], ca=str(node.ca))
    return OpenSearchStore(node.server, replace(access, **other))


def expect_refusal(use: Callable[[], object], message: str) -> str:
    """All that anybody could print of an error."""
    with pytest.raises(StoreError, match=message) as raised:
        use()
    return "".join(traceback.format_exception(raised.value))


def test_roles_and_certificates(
    node: SecuredNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    writer, reader, maintainer = (
        as_user(node, name) for name in ("writer", "reader", "maintainer")
    )
    made = replace(
        definition("secured"), columns=(IndexedColumn(1, "x", "x", "bigint", "MIN_MAX"),)
    )
    assert writer.define(made, expect=None) == 1
    writer.write("secured", entries(writer.reserve("secured", 4), bounds(range(4))), revision=1)
    writer.remove("secured", pa.array([3]))
    writer.report("secured", State("active"))

    # A role that only reads is enough for a query.
    lookup = Lookup(reader, ttl=0)
    (found,) = lookup.definitions().values()
    for keys in ([1], [1, *range(10, 400)]):  # by a query, and on the fields that are kept
        asked = In("x", pa.array(keys, pa.int64()))
        answer = lookup.find(found, asked, {"x": QueryColumn("x", LONG, "bigint")}, timeout=60)
        assert list(answer.pruned) == [0, 2]
    assert lookup.entries.get("secured").entries.files["path"].to_pylist() == ["f0", "f1", "f2"]
    assert reader.state("secured") == State("active")

    said = [
        expect_refusal(lambda: reader.reserve("secured", 1), "does not allow reader"),
        expect_refusal(lambda: reader.remove("secured", pa.array([0])), "does not allow reader"),
        expect_refusal(
            lambda: reader.define(replace(made, dropped=True), expect=1), "not allow reader"
        ),
    ]
    dropped = replace(made, dropped=True)
    assert writer.define(dropped, expect=1) == 2
    said.append(expect_refusal(lambda: writer.erase("secured"), "does not allow writer"))
    maintainer.erase("secured")
    assert list(maintainer.definitions()) == []

    # Nobody else is let in, and who asks is told why.
    wrong = as_user(node, "reader", password=SECRETS["writer"])
    said.append(
        expect_refusal(wrong.definitions, "does not accept the user or the password of reader")
    )
    nobody = OpenSearchStore(node.server, Access(prefix=PREFIX, ca=str(node.ca)))
    said.append(expect_refusal(nobody.definitions, "does not accept"))
    said.append(
        expect_refusal(as_user(node, "reader", ca=None).definitions, "not trusted.*opensearch.ca")
    )
    other = OpenSearchStore(node.server, replace(reader._access, prefix="others-"))
    said.append(expect_refusal(other.definitions, "does not allow reader"))
    plain = OpenSearchStore(node.server.replace("https", "http"), reader._access)
    said.append(expect_refusal(plain.definitions, "cannot be reached"))

    # A certificate instead of a password.
    pair = {"certificate": str(node.certificate), "key": str(node.key)}
    certified = OpenSearchStore(node.server, Access(prefix=PREFIX, ca=str(node.ca), **pair))
    assert list(certified.definitions()) == []

    shown = [*said, caplog.text, node.log(), reader.location, repr(reader._access), str(lookup)]
    for name, secret in SECRETS.items():
        login = b64encode(f"{name}:{secret}".encode()).decode()
        assert not any(re.search(f"{re.escape(secret)}|{re.escape(login)}", text) for text in shown)
