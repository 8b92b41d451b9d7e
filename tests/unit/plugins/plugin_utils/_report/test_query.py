# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields are picked out of documents, and a query that cannot be run names its variable and the fix."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import verify
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.query import QueryError, pick

STATUS = {
    "hosts": {"a": {"kernel": "6.17"}},
    "problems": [{"host": "a", "text": "did not answer", "fix": "power"}],
    "serving": {"state": "degraded", "endpoint": "http://10.0.0.1:8000/v1"},
}
VERIFY = {"lines": [verify.line("ray", "a", verify.PASS), verify.line("link", "b", verify.FAIL, 1.5, "Gb/s")]}
OPERATIONS = (Path(__file__).resolve().parents[5] / "docs" / "operations.md").read_text()


@pytest.mark.parametrize(
    ("query", "found"),
    [("serving.state", "degraded"), ("problems[].[host, fix]", [["a", "power"]]), ("nothing", None)],
)
def test_fields(query: str, found: Any) -> None:
    assert pick(STATUS, query) == found


def test_a_query_that_is_none() -> None:
    with pytest.raises(QueryError, match=r"status_query: 'hosts\[': .*jmespath\.org"):
        pick(STATUS, "hosts[", "status_query")


def test_a_controller_without_jmespath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jmespath", None)
    with pytest.raises(QueryError, match=r"verify_query: 'a': .* no jmespath; pip install -r requirements/controller"):
        pick(VERIFY, "a", "verify_query")


@pytest.mark.parametrize(("name", "document"), [("status", STATUS), ("verify", VERIFY)])
def test_every_query_of_the_docs_finds_something(name: str, document: dict[str, Any]) -> None:
    queries = re.findall(rf'-e "{name}_query=([^"]+)"', OPERATIONS)
    assert queries
    for query in queries:
        assert pick(document, query), query
