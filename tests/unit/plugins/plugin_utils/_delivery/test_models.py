# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declared models: their names and folders in the store, and what their sources hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, models, url
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record

COMMIT = "c" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "tiny"
    found.mkdir()
    (found / "config.json").write_text("{}")
    (found / "notes.txt").write_text("n")
    return found


@pytest.mark.parametrize("entry", [{"source": "/x"}, "tiny", None, {"name": "../x"}])
def test_a_model_without_a_proper_name_is_refused_with_its_variable(entry: Any) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^model_store_models: "):
        models.name_of(entry)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"name": "tiny", "source": "/srv/tiny"}, "tiny"),
        ({"name": "tiny", "source": "owner/model", "layout": "hub"}, "models--owner--model"),
        ({"name": "tiny", "source": f"/absent/models--o--n/snapshots/{COMMIT}", "layout": "hub"}, "models--o--n"),
    ],
)
def test_the_folder_in_the_store_is_known_without_the_source(model: dict[str, str], expected: str) -> None:
    assert models.store_folder_of(model) == expected


def test_the_hub_s_layout_needs_a_folder_of_its_cache() -> None:
    with pytest.raises(AnsibleActionFail, match="tiny: layout hub needs a model of the hub's cache"):
        models.store_folder_of({"name": "tiny", "source": "/srv/tiny", "layout": "hub"})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"source": "/srv/tiny"}, True),
        ({"source": "~/tiny"}, True),
        ({"source": "s3://bucket/tiny"}, True),
        ({"source": "owner/tiny", "revision": COMMIT}, True),
        ({"source": "owner/tiny", "revision": "main"}, False),
        ({"source": "owner/tiny"}, False),
    ],
)
def test_only_a_branch_of_the_hub_moves(model: dict[str, str], expected: bool) -> None:
    assert models.fixed(model) is expected


def test_a_folder_is_declared_by_its_contents(folder: Path) -> None:
    given = [{"name": "tiny", "source": str(folder), "files": ["config.json"], "keep": 1}]
    found = models.declare(given, fetch=False)
    (model,) = found.models
    assert [row[:2] for row in model["manifest"]] == [["config.json", 2]]
    assert (model["name"], model["keep"], model["links"], model["commit"]) == ("tiny", 1, [], "")
    assert "files" not in model
    assert found.folders["tiny"][0] == str(folder)
    assert found.pending == []
    assert given[0]["files"] == ["config.json"], "the task's own argument stays as it is"


def test_what_is_not_here_is_pending_until_it_may_be_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hub, "snapshot", lambda *_given, fetch, say, pattern: (str(folder), COMMIT) if fetch else (None, "")
    )
    monkeypatch.setattr(url, "fetch", lambda *_given, fetch: str(folder) if fetch else None)
    given = [{"name": "a", "source": "owner/a"}, {"name": "b", "source": "s3://bucket/b"}]
    assert models.declare(given, fetch=False).pending == ["a", "b"]
    found = models.declare(given, fetch=True)
    assert [(model["name"], model["commit"], len(model["manifest"])) for model in found.models] == [
        ("a", COMMIT, 2),
        ("b", "", 2),
    ]


def test_two_models_of_one_folder_are_refused(folder: Path) -> None:
    given = [{"name": name, "source": "owner/model", "layout": "hub"} for name in ("a", "b")]
    with pytest.raises(AnsibleActionFail, match="a and b are both to be models--owner--model in the store"):
        models.declare(given, fetch=False)


@pytest.mark.parametrize(
    ("source", "words"), [("/srv/tiny", "a folder has no revision"), ("s3://b/tiny", "a URL has no revision")]
)
def test_only_the_hub_has_revisions(source: str, words: str) -> None:
    with pytest.raises(AnsibleActionFail, match=f"^model_store_models: tiny: {words}"):
        models.declare([{"name": "tiny", "source": source, "revision": "main"}], fetch=False)


def test_what_hub_and_url_refuse_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_hub(*_given: Any, fetch: bool, say: Any, pattern: str) -> None:
        raise hub.HubError("no such repository")

    def refuse_url(*_given: Any, fetch: bool) -> None:
        raise url.UrlError("no such bucket")

    monkeypatch.setattr(hub, "snapshot", refuse_hub)
    monkeypatch.setattr(url, "fetch", refuse_url)
    with pytest.raises(AnsibleActionFail, match=r"^model_store_models: tiny: no such repository"):
        models.declare([{"name": "tiny", "source": "owner/tiny"}], fetch=True)
    with pytest.raises(AnsibleActionFail, match=r"^model_store_models: tiny: no such bucket"):
        models.declare([{"name": "tiny", "source": "s3://b/tiny"}], fetch=True)


def test_a_branch_stays_what_it_was_at_its_first_download(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [
        {"name": "a", "source": "owner/model"},
        {"name": "b", "source": "owner/model", "revision": "v1"},
        {"name": "c", "source": "owner/other", "revision": "d" * 40},
        {"name": "d", "source": str(folder)},
    ]
    record = Record(tmp_path)
    assert models.with_recorded(given, record) == given
    asked = []

    def snapshot(repo: str, revision: str, name: str, fetch: bool, say: Any, pattern: str) -> tuple[str, str]:
        asked.append(revision)
        return str(folder), {"": "c" * 40, "v1": "e" * 40}.get(revision, revision)

    monkeypatch.setattr(hub, "snapshot", snapshot)
    models.keep_commits(given, models.declare(given, fetch=True), record)
    assert json.loads(Path(record.path).read_text()) == {
        "models": {"owner/model": "c" * 40, "owner/model@v1": "e" * 40}
    }
    later = models.with_recorded(given, record)
    models.keep_commits(given, models.declare(later, fetch=True), record)
    assert asked == ["", "v1", "d" * 40, "c" * 40, "e" * 40, "d" * 40]
    assert [item["name"] for item in later] == ["a", "b", "c", "d"]
    assert all(models.fixed(item) for item in later)


def test_a_model_that_is_not_here_yet_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [{"name": "a", "source": "owner/model"}]
    monkeypatch.setattr(hub, "snapshot", lambda *_args, **_options: (None, ""))
    models.keep_commits(given, models.declare(given, fetch=False), Record(tmp_path))
    assert not (tmp_path / ".sparkthor-lock.json").exists()


def test_a_revision_follows_the_content_of_the_source(folder: Path, tmp_path: Path) -> None:
    record = Record(str(tmp_path))
    given = [{"name": "tiny", "source": str(folder)}]
    [(name, first)] = models.revisions_here(given, record).items()
    assert (name, first.partition("@")[0], len(first)) == ("tiny", "tiny", len("tiny@") + 16)
    assert models.declare(given, fetch=False).models[0]["folder"] == first
    (folder / "config.json").write_text('{"a": 1}')
    assert models.revisions_here(given, record)["tiny"] != first
    # a branch may mean something else by now, and what is wrong is said by whoever brings the models
    assert models.revisions_here([{"name": "tiny", "source": "owner/tiny", "revision": "main"}], record) == {}
    assert models.revisions_here([{"name": "tiny", "source": "/no/such/folder"}], record) == {}
