# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparing first may only ever say less than the roles would find out, never more."""

from __future__ import annotations

import dataclasses
import grp
import hashlib
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._drift import compare
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    firewall_host,
    nccl,
    netplan_change,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config, ray_health
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import ready as _ready
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    Entry,
    StoreLink,
    revision_folder,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store


def item(role: str, module: str = "", **arguments: Any) -> dict[str, Any]:
    return {"role": role, "module": module, "arguments": arguments} if module else {"role": role}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Comparisons that answer by their name, and the arguments they were asked with."""
    names: list[str] = []

    def same(arguments: dict[str, Any]) -> str:
        names.append(arguments["name"])
        return ""

    def differs(arguments: dict[str, Any]) -> str:
        names.append(arguments["name"])
        return "/etc/x"

    def broken(arguments: dict[str, Any]) -> str:
        names.append(arguments["name"])
        raise KeyError

    known = {"same": same, "differs": differs, "broken": broken}
    monkeypatch.setattr(compare, "difference_of", known.__getitem__)
    return names


def test_all_as_wanted(asked: list[str]) -> None:
    comparisons = [
        item("a", "same", name="1"),
        item("a", "same", name="2"),
        item("b"),
        item("c", "same", name="3"),
    ]
    assert compare.compare(comparisons) == (["a", "b", "c"], "")
    assert asked == ["1", "2", "3"]


@pytest.mark.parametrize(("kind", "words"), [("differs", "b: /etc/x"), ("broken", "b: KeyError")])
def test_the_first_difference_ends_it(asked: list[str], kind: str, words: str) -> None:
    comparisons = [
        item("a", "same", name="1"),
        item("b", "same", name="2"),
        item("b", kind, name="3"),
        item("c"),
    ]
    assert compare.compare(comparisons) == (["a"], words)
    assert asked == ["1", "2", "3"]


def test_a_module_without_a_comparison_is_not_known_to_be_right(asked: list[str]) -> None:
    assert compare.compare([item("a", "package")])[0] == []


def test_declared_state(tmp_path: Path) -> None:
    path = tmp_path / "file"
    me, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    file = {"path": str(path), "content": "x\n", "owner": me, "group": group, "mode": "0640"}
    assert compare.compare([item("a", "host_state", files=[file])]) == ([], f"a: {path}")
    path.write_text("x\n")
    path.chmod(0o640)
    os.chown(path, os.geteuid(), os.getegid())
    assert compare.compare([item("a", "host_state", files=[file])]) == (["a"], "")
    # an argument that the module would refuse is refused by the module, not here
    assert "fils" in compare.compare([item("a", "host_state", fils=[file])])[1]
    assert compare.compare([item("a", "host_state", files=[{**file, "mode": "640"}])])[0] == []


def test_nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nccl.conf"
    monkeypatch.setattr(nccl, "SYSTEM_FILE", str(path))
    nothing = item("a", "nccl_conf", present={}, absent=["NCCL_IB_DISABLE"])
    wanted = item("a", "nccl_conf", present={"NCCL_DEBUG": "INFO"}, absent=["NCCL_IB_DISABLE"])
    assert compare.compare([nothing]) == (["a"], "")
    assert compare.compare([wanted])[0] == []
    path.write_text("NCCL_DEBUG=INFO\n")
    assert compare.compare([wanted]) == (["a"], "")
    path.write_text("NCCL_DEBUG=INFO\nNCCL_IB_DISABLE=1\n")
    assert compare.compare([wanted]) == ([], f"a: {path}")


@pytest.mark.parametrize(
    ("changed", "armed", "converged"), [(False, False, ["a"]), (True, False, []), (False, True, [])]
)
def test_firewall(monkeypatch: pytest.MonkeyPatch, changed: bool, armed: bool, converged: list[str]) -> None:
    found = {"changed": changed, "changed_paths": [], "changed_units": []}
    monkeypatch.setattr(firewall_host.Firewall, "__init__", lambda self, params, check: None)
    monkeypatch.setattr(firewall_host.Firewall, "unconfirmed", staticmethod(lambda: armed))
    monkeypatch.setattr(firewall_host.Firewall, "start", lambda self: found)
    assert compare.compare([item("a", "firewall_apply", ruleset="/etc/x.nft")])[0] == converged


LINKS = [{"netdev": "p0", "address": "10.0.0.1/24"}]


@pytest.mark.parametrize(
    ("state", "world", "words"),
    [
        ("present", {}, ""),
        ("present", {"armed": True}, "an unconfirmed network change is armed"),
        ("present", {"changed": True}, "netplan"),
        ("present", {"environment": {"/etc/e": None}}, "/etc/e"),
        ("present", {"problems": ["p0: no answer"]}, "p0: no answer"),
        ("adopted", {"changed": True}, ""),
        ("adopted", {"environment": {"/etc/e": None}}, "/etc/e"),
    ],
)
def test_netplan(monkeypatch: pytest.MonkeyPatch, state: str, world: dict[str, Any], words: str) -> None:
    decision = netplan_change.NetplanDecision(changed=world.get("changed", False))
    monkeypatch.setattr(netplan_change, "armed", lambda: world.get("armed", False))
    monkeypatch.setattr(netplan_change.job, "live_links", dict)
    monkeypatch.setattr(netplan_change.job, "live_routes", list)
    monkeypatch.setattr(netplan_change.netplan_decision, "decide_present", lambda params, management: decision)
    monkeypatch.setattr(
        netplan_change.netplan_decision, "decide_environment", lambda path, values: (world.get("environment", {}), {})
    )
    report = [{"netdev": "p0", "problems": world.get("problems", [])}]
    monkeypatch.setattr(netplan_change.link_state, "verify", lambda links: report)
    arguments = {"state": state, "links": LINKS, "environment_path": "/etc/e"}
    converged, differs = compare.compare([item("a", "netplan_apply", **arguments)])
    assert (converged, differs) == (([], f"a: {words}") if words else (["a"], ""))


def test_models_are_right_by_record_alone(tmp_path: Path) -> None:
    store = private_store(str(tmp_path))
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    entries = [Entry("config.json", 2, hashlib.sha256(b"{}").hexdigest())]
    links = [StoreLink("again.json", "config.json")]
    assert not store.as_recorded("m", entries)
    store.commit("m", entries, [])
    assert store.as_recorded("m", entries)
    assert not store.as_recorded("m", entries, links)
    model = {"name": "m", "manifest": [list(entries[0])], "links": []}
    asked = item("a", "model_copy", root=str(tmp_path), models=[model])
    assert compare.compare([asked]) == (["a"], "")
    # the same content at another time: the role reads the file and keeps the new time
    os.utime(folder / "config.json", (1, 1))
    assert compare.compare([asked]) == ([], "a: m")
    store.commit("m", entries, [])
    (folder / "config.json").chmod(0o600)
    assert compare.compare([asked]) == ([], "a: m")


def test_a_model_is_converged_once_its_name_means_the_declared_revision(tmp_path: Path) -> None:
    store, entries = private_store(str(tmp_path)), [Entry("config.json", 2, hashlib.sha256(b"{}").hexdigest())]
    revision = revision_folder("m", entries)
    (tmp_path / revision).mkdir()
    (tmp_path / revision / "config.json").write_text("{}")
    store.commit(revision, entries, [])
    model = {"name": "m", "folder": revision, "manifest": [list(entries[0])], "links": []}
    asked = item("a", "model_copy", root=str(tmp_path), models=[model])
    assert compare.compare([asked]) == ([], f"a: m is not {revision}")
    (tmp_path / "m").symlink_to(revision)
    assert compare.compare([asked]) == (["a"], "")
    (tmp_path / revision / "config.json").write_text("{ }")
    assert compare.compare([asked]) == ([], "a: m")


def test_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"healthy": True, "reason": "all are there"}
    monkeypatch.setattr(ray_config, "load_config", lambda path: "config")
    monkeypatch.setattr(ray_health, "wait_healthy", lambda config, wait, timeout, source: answer)
    assert compare.compare([item("a", "ray_info")]) == (["a"], "")
    answer.update(healthy=False, reason="one is gone")
    assert compare.compare([item("a", "ray_info")]) == ([], "a: one is gone")


@pytest.mark.parametrize(
    ("found", "converged"),
    [
        ({"ready": True, "latency": 0.1, "deadline": 10.0, "interval": 5.0}, ["a"]),
        ({"ready": False, "line": "loading"}, []),
        ({"ready": True, "changed": True}, []),
        ({"ready": True, "latency": 9.0, "deadline": 10.0}, []),
    ],
)
def test_serving(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], converged: list[str]) -> None:
    asked: list[dict[str, Any]] = []

    def ready(**arguments: Any) -> Any:
        asked.append(arguments)
        return dataclasses.replace(_ready.Readiness(), **found)

    monkeypatch.setattr(_ready, "ensure", ready)
    monkeypatch.setattr(kept, "newest_is_present", lambda paths: paths == ["/etc/a"])
    assert compare.compare([item("a", "vllm_service", state="serving")])[0] == converged
    assert (asked[0]["start"], asked[0]["check"]) == (True, True)
    assert compare.compare([item("a", "vllm_service", state="kept", paths=["/etc/a"])])[0] == ["a"]
    found, why = compare.compare([item("a", "vllm_service", state="kept", paths=["/etc/b"])])
    assert (found, why) == ([], "a: what serves is not kept for a rollback yet")


def test_serving_beside_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def ready(**arguments: Any) -> Any:
        asked.append(arguments)
        return dataclasses.replace(_ready.Readiness(), ready=True, latency=0.1, deadline=10.0, interval=5.0)

    monkeypatch.setattr(_ready, "ensure", ready)
    # what a rollback goes back to is of the host's own group
    monkeypatch.setattr(kept, "newest_is_present", lambda _paths: False)
    assert compare.compare([item("a", "vllm_service", state="serving", group="embed")])[0] == ["a"]
    assert asked[0]["config_path"] == "/etc/sparkthor/beside/embed/serving.json"
    assert asked[0]["record_path"] == "/run/sparkthor/beside/embed/vllm-started-with.json"
