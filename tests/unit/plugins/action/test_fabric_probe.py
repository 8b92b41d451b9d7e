# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import fabric_probe


def probe(links: list[dict[str, Any]], hostvars: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """What the module is told about the other end of each link."""
    monkeypatch.setattr(fabric_probe.ActionBase, "run", lambda *_args, **_kwargs: {})
    action = object.__new__(fabric_probe.ActionModule)
    action._task = SimpleNamespace(args={"host": "a", "links": links})
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(
        action, "_execute_module", lambda module_name, module_args, task_vars: given.append(module_args), raising=False
    )
    action.run(task_vars={"hostvars": hostvars})
    assert given[0]["host"] == "a"
    return {link["netdev"]: link["peer_up"] for link in given[0]["links"]}


def facts(**up: bool) -> dict[str, Any]:
    interfaces = [{"name": name, "up": value} for name, value in up.items()]
    return {"ansible_facts": {"sparkthor_node": {"interfaces": interfaces}}}


def link(netdev: str, peer: str, peer_netdev: str) -> dict[str, Any]:
    return {"netdev": netdev, "peer": peer, "peer_netdev": peer_netdev}


def test_the_state_of_the_other_end_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [link("p0", "b", "p1"), link("q0", "b", "q1"), link("p1", "c", "p0"), link("s0", "", "")]
    hostvars = {"b": facts(p1=True, q1=False), "c": facts(p1=True)}
    assert probe(links, hostvars, monkeypatch) == {"p0": True, "q0": False, "p1": False, "s0": False}
    assert "peer_up" not in links[0], "the plan itself stays as it is"


def test_a_peer_without_facts_is_not_known_to_be_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe([link("p0", "b", "p1"), link("p1", "c", "p0")], {"b": {}}, monkeypatch) == {"p0": False, "p1": False}
