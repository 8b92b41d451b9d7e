# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of hosts with every part of them replaced: each is refused by name, or every reader copes with it."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_plan, cluster_report, doctor
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import answer, shape

from tests.unit import honest_host

GROUPS = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
TOP = honest_host.TOP


def nested(levels: int) -> Any:
    value: Any = []
    for _level in range(levels):
        value = [value]
    return value


JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**400, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "1" * 5000, "::", "1/2/3"),
    *([], {}, [1], ["x"], [None], [{}], {"x": 1}, {"x": None}, {"": {}}, nested(900), ["x"] * 3000),
)
ABSENT = object()


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if above:
        yield above
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        # of things that are alike the first stands for all
        if not (isinstance(value, list) and key):
            yield from paths(item, (*above, key))


def mutated(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    found = copy.deepcopy(value)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    if junk is ABSENT:
        del inner[path[-1]]
    else:
        inner[path[-1]] = junk
    return found


def told(gather: str, number: int) -> dict[str, Any]:
    match gather:
        case "facts":
            return {"ansible_facts": {"sparkthor_node": honest_host.node(number)}}
        case "status":
            return {"status": honest_host.status(number)}
    now = honest_host.NOW
    return {"evidence": honest_host.evidence(number), "before": now, "after": now + 2}


def variables(number: int, registered: Any, facts: Any) -> dict[str, Any]:
    return {
        "ansible_host": f"10.110.1.{10 + number}",
        "fabric_topology": "direct",
        "fabric_cidr": "10.100.0.0/16",
        "inventory_dir": "/nowhere",
        "registered": registered,
        **facts,
    }


class Controller:
    """The action plugins that read what hosts answered."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        for module in (cluster_plan, cluster_report, doctor):
            monkeypatch.setattr(module.ActionModule, "tell", lambda self, text: None)

    def act(self, module: Any, one: Any, other: Any, arguments: dict[str, Any], facts: tuple[Any, Any]) -> None:
        task = MagicMock(async_val=0, check_mode=False, diff=False)
        task.args = arguments
        action = module.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
        hostvars = {"a": variables(1, one, facts[0]), "b": variables(2, other, facts[1])}
        given = {"hostvars": hostvars, "groups": GROUPS, "ansible_play_hosts_all": ["a", "b"], "inventory_dir": "/x"}
        # a sentence of ours, which names a host or the inventory
        with contextlib.suppress(AnsibleActionFail):
            action.run(task_vars=given)

    def read(self, gather: str, first: Any, other: Any) -> None:
        own = {"a": first.get("ansible_facts"), "b": other.get("ansible_facts")}
        facts = tuple({"ansible_facts": value} if value else {} for value in own.values())
        match gather:
            case "facts":
                self.act(cluster_plan, first, other, {"stage": "facts", "nodes": "registered"}, facts)
            case "status":
                self.act(cluster_report, first, other, {"nodes": "registered"}, ({}, {}))
                page = {"nodes": "registered", "format": "html", "path": str(self.home / "page.html")}
                self.act(cluster_report, first, other, page, ({}, {}))
            case "evidence":
                self.act(doctor, first, other, {"evidence": "registered"}, ({}, {}))
            case "probe":
                fabric = {name: dict(entry) for name, entry in self.fabric.items()}
                node = tuple({"ansible_facts": told("facts", number)["ansible_facts"]} for number in (1, 2))
                self.act(cluster_plan, first, other, {"stage": "hosts", "fabric": fabric, "probes": "registered"}, node)

    fabric: dict[str, Any]


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan

    found = Controller(tmp_path, monkeypatch)
    found.fabric = fabric_plan(["a", "b"], "direct", "10.100.0.0/16")
    return found


#: of what may stand in a place, and of the answers that are not refused, how many are tried in a run of the tests
TRIED, SHARE = 5, 0.15
QUESTIONS = {
    "facts": ("node_info", {"gather": "facts"}),
    "status": ("node_info", {"gather": "status"}),
    "evidence": ("evidence_info", {}),
    "probe": ("host_compare", {}),
}


def answered(gather: str, number: int) -> dict[str, Any]:
    return honest_host.probe(number) if gather == "probe" else told(gather, number)


@pytest.mark.parametrize("gather", QUESTIONS)
def test_no_answer_of_one_host_is_a_mistake_of_the_controller(controller: Controller, gather: str) -> None:
    module, arguments = QUESTIONS[gather]
    honest = [answered(gather, number) for number in (1, 2)]
    for one in honest:
        assert answer.wrong(f"sparkthor.cluster.{module}", arguments, one) == ""
    controller.read(gather, *honest)
    refused = read = 0
    # the controller reads its own clock
    where = [path for path in paths(honest[0]) if path[0] not in ("before", "after")]
    draw = random.Random(48)
    for path in where:
        for junk in draw.sample((ABSENT, *JUNK), TRIED):
            bad = mutated(honest[0], path, junk)
            why = answer.wrong(f"sparkthor.cluster.{module}", arguments, bad)
            if why:
                refused += 1
                assert [word for word in (module, "--limit") if word not in why] == []
                assert len(why) < 600
            elif draw.random() < SHARE:
                read += 1
                try:
                    controller.read(gather, bad, honest[1])
                except Exception as error:
                    raise AssertionError(f"{path}: {str(junk)[:80]!r}") from error
    assert refused > 2 * len(where)
    assert read > 5


def test_a_failure_names_host_module_field_and_fix() -> None:
    node = honest_host.node(1)
    node["interfaces"][0]["mtu"] = "9000\x1b[2J"
    why = answer.wrong("sparkthor.cluster.node_info", {}, {"ansible_facts": {"sparkthor_node": node}})
    assert why.startswith(
        "what it answered to node_info cannot be used: ansible_facts.sparkthor_node.interfaces[0].mtu is "
        '"9000\\u001b[2J", not a count. '
    )
    assert "leave the host out (--limit)" in why


@pytest.mark.parametrize("module", sorted(answer.FORMS))
def test_every_documented_answer_has_its_form(module: str) -> None:
    """What the controller adds itself is the only part of a result that no form speaks of."""
    text = (TOP / f"plugins/modules/{module}.py").read_text(encoding="utf-8")
    documented = yaml.safe_load(text.split('RETURN = r"""')[1].split('"""')[0])
    own = {"sent_bytes", "wheels", "folder", "fetched", "missing", "versions", "plan", "verify", "picked", "path"}
    forms = answer.FORMS[module]
    assert documented.keys() - forms.keys() <= own
    samples = {"str": "x", "bool": True, "int": 1, "float": 1.5, "list": [], "dict": {}}
    for name in documented.keys() & forms.keys():
        kind = documented[name]["type"]
        others = [sample for other, sample in samples.items() if other != kind and (other, kind) != ("int", "float")]
        if forms[name] is object:
            continue
        for sample in others:
            with pytest.raises(shape.Misshapen):
                shape.check(sample, forms[name], name)


def test_every_module_that_hosts_answer_has_a_form() -> None:
    on_hosts = {
        path.stem for path in (TOP / "plugins/modules").glob("*.py") if "def main" in path.read_text(encoding="utf-8")
    }
    assert on_hosts <= answer.FORMS.keys()
