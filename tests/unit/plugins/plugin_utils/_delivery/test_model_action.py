# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller declares and sends of models; the host is a list of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import model_copy, model_prune, model_switch
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry, revision_folder
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_outline, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import url as _url

from tests.unit.delivery import Courier, act


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_models_are_declared_by_their_contents(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    args = {"models": [{"name": "tiny", "source": str(model)}]}
    result, calls = act(model_copy, monkeypatch, args, [{"changed": False, "models": {}}])
    assert result["changed"] is False
    (row,) = calls[0]["models"][0]["manifest"]
    assert row[:2] == ["config.json", 2]
    assert calls[0]["models"][0]["folder"] == revision_folder("tiny", [Entry(*row)])
    need = {"changed": True, "diff": "d", "need": [{"sha256": row[2], "size": 2, "have": 0}]}
    result, calls = act(model_copy, monkeypatch, args, [need, {"changed": True}, {"changed": True}])
    assert calls.modules == ["model_copy", "store_receive", "model_copy"]
    assert calls[1]["parts"] == [{"sha256": row[2], "path": str(model / "config.json")}]
    assert (result["sent_bytes"], result["diff"]) == (42, "d")


def test_a_hub_model_goes_by_its_commit(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hub,
        "snapshot",
        lambda repo, revision, name, fetch, say, pattern: (str(model), "c" * 40) if fetch else (None, ""),
    )
    monkeypatch.setattr(hub_outline, "outline", lambda repo, revision, fetch, pattern: None)
    args = {"models": [{"name": "tiny", "source": "owner/tiny", "revision": "main"}]}
    result, calls = act(model_copy, monkeypatch, args, [{"changed": False}])
    assert calls[0]["models"][0]["commit"] == "c" * 40
    # the rest of the run names the revision that this brings
    assert result["revisions"] == {"tiny": calls[0]["models"][0]["folder"]}
    result, calls = act(model_copy, monkeypatch, args, [], check=True)
    assert (result["changed"], calls) == (True, [])
    assert "tiny" in result["msg"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"source": "/x"}, "needs a name"),
        ({"name": "../x", "source": "/x"}, "named with letters"),
        ({"name": "tiny", "source": "/nowhere"}, "is not a folder"),
        ({"name": "tiny", "source": "/x", "revision": "main"}, "a folder has no revision"),
        ({"name": "tiny", "source": "tiny"}, "neither a folder"),
    ],
)
def test_bad_declarations_name_the_variable(
    entry: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AnsibleActionFail, match=f"model_store_models: .*{message}"):
        act(model_copy, monkeypatch, {"models": [entry]}, [])


@pytest.fixture
def lacking(model: Path) -> dict[str, Any]:
    entry = push.manifest(str(model), ["config.json"])[0]
    return {"sha256": entry.sha256, "size": 2, "have": 0}


def test_a_check_reports_what_is_lacking_and_no_change(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = {"deliver": "fabric", "models": [{"name": "tiny", "source": str(model)}], "results": "__given"}
    result, calls = act(model_copy, monkeypatch, args, [{"changed": True, "need": [lacking]}])
    assert (result["changed"], result["need"]) == (False, [lacking])
    assert result["revisions"] == {"tiny": calls[0]["models"][0]["folder"]}
    assert "results" not in calls[0]


def test_the_names_are_switched_once_every_host_has_the_revisions(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"models": [{"name": "tiny", "source": str(model)}]}
    # a worker of Ray loads what the head's configuration names
    hostvars = {"spark-01": {}, "spark-02": {"__model_store_check": {"named": ["tiny@" + "0" * 16]}}}
    variables: dict[str, Any] = {"hostvars": hostvars, "ansible_play_hosts": [*hostvars]}
    everywhere = {**variables, "ansible_play_hosts_all": ["spark-01", "spark-02"]}
    result, calls = act(model_switch, monkeypatch, args, [{"changed": True}], **everywhere)
    assert (result["changed"], calls.modules, calls[0]["in_use"]) == (True, ["model_switch"], ["tiny@" + "0" * 16])
    one_away = {**variables, "ansible_play_hosts_all": ["spark-01", "spark-02", "spark-03"]}
    with pytest.raises(AnsibleActionFail, match="spark-03 failed or are away, so every host keeps the revisions"):
        act(model_switch, monkeypatch, args, [], **one_away)
    unused = {**args, "results": "__model_store_check"}
    _result, calls = act(
        model_prune, monkeypatch, {**unused, "remove_unused": True}, [{"changed": False}], **everywhere
    )
    assert calls[0]["in_use"] == ["tiny@" + "0" * 16]
    with pytest.raises(AnsibleActionFail, match="spark-03 failed or are away, so nothing was removed"):
        act(model_prune, monkeypatch, {**unused, "remove_unused": True}, [], **one_away)


def test_a_listing_knows_the_declared_names_without_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {
        "models": [
            {"name": "tiny", "source": "/nowhere"},
            {"name": "x", "source": "owner/model", "layout": "hub"},
        ],
        "keep": ["old"],
    }
    _result, calls = act(model_prune, monkeypatch, args, [{"changed": False, "inventory": []}])
    assert calls[0]["declared"] == ["tiny", "models--owner--model"]
    assert calls[0]["keep"] == ["tiny", "models--owner--model", "old"]


def test_a_url_is_fetched_by_the_controller(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_url, "fetch", lambda url, cache, fetch: str(model) if fetch else None)
    args = {"models": [{"name": "tiny", "source": "s3://bucket/tiny"}]}
    _result, calls = act(model_copy, monkeypatch, args, [{"changed": False}])
    assert calls[0]["models"][0]["manifest"][0][0] == "config.json"
    result, calls = act(model_copy, monkeypatch, args, [], check=True)
    assert (result["changed"], list(calls)) == (True, [])


def hub_folder(tmp_path: Path, commit: str = "c" * 40) -> Path:
    """A model in a cache of the hub's client."""
    tree = tmp_path / "hub" / "models--o--n"
    (tree / "blobs").mkdir(parents=True, exist_ok=True)
    (tree / "blobs" / commit).write_text(commit)
    snapshot = tree / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(tree / "blobs" / commit)
    return snapshot


def test_a_listing_calls_a_model_by_the_name_under_which_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hub_folder(tmp_path)
    (tmp_path / "current").symlink_to(snapshot)
    for source in (snapshot, tmp_path / "current", "/not/mounted/models--o--n/snapshots/" + "c" * 40):
        models = [{"name": "n", "source": str(source), "layout": "hub"}]
        _result, calls = act(model_prune, monkeypatch, {"models": models}, [{"changed": False}])
        assert calls[0]["declared"] == ["models--o--n"]
    # the folder's name cannot be known: nothing may be called unused
    models = [{"name": "n", "source": "/not/mounted/current", "layout": "hub"}]
    with pytest.raises(AnsibleActionFail, match="n: layout hub needs a model of the hub's cache"):
        act(model_prune, monkeypatch, {"models": models}, [])


def test_two_models_of_one_name_are_refused(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = hub_folder(tmp_path), hub_folder(tmp_path, "d" * 40)
    for models, message in (
        ([{"name": "tiny", "source": str(model)}, {"name": "tiny", "source": "/other"}], "tiny and tiny .* be tiny in"),
        (
            [{"name": name, "source": str(path), "layout": "hub"} for name, path in (("a", one), ("b", two))],
            "a and b are both to be models--o--n in the store",
        ),
        ([{"name": name, "source": "o/n", "layout": "hub", "revision": name} for name in ("v1", "v2")], "v1 and v2"),
    ):
        with pytest.raises(AnsibleActionFail, match=message):
            act(model_copy, monkeypatch, {"models": models}, [])


@pytest.mark.parametrize("deliver", ["direct", "fabric"])
@pytest.mark.parametrize("need", [[{"sha256": "9" * 64, "size": 1, "have": 0}], "all", [{"sha256": None}], [5]])
def test_a_host_asks_for_nothing_that_was_not_declared(
    model: Path, deliver: str, need: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    args = {"deliver": deliver, "models": [{"name": "tiny", "source": str(model)}]}
    with pytest.raises(AnsibleActionFail, match="spark-01: it asks for a content that was not declared for it"):
        act(model_copy, monkeypatch, args, [{"changed": True, "need": need}])


def test_sizes_are_those_that_the_controller_knows(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = {"deliver": "fabric", "models": [{"name": "tiny", "source": str(model)}], "results": "__given"}
    lie = {**lacking, "size": 10**15, "file": "/etc/shadow"}
    result, _calls = act(model_copy, monkeypatch, args, [{"changed": True, "need": [lie]}])
    assert result["need"] == [lacking]
