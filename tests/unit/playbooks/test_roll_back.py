# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""To which configuration the hosts go back, and which hosts go together."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import places
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept

from tests.unit.playbooks.test_serve_again import tasks

GROUPS = {"cluster": ["a", "b", "c"], "big": ["a", "b"], "small": ["c"]}
#: a run that was broken off left the second host with another order, and with one more
KEPT = {"a": ["new", "old"], "b": ["old", "odd", "new"], "c": ["other"]}


def task(name: str) -> dict[str, Any]:
    (found,) = [task for _hosts, task in tasks("rollback") if task["name"] == name]
    return found


def chosen(host: str, hosts: list[str] | None = None, **given: Any) -> dict[str, Any]:
    """The facts that a host gets, and whether --limit left hosts out."""
    choose, away = task("Choose the configuration"), task("Fail if hosts of the cluster are left out")
    templates = {**choose["vars"], **away["vars"], **choose["ansible.builtin.set_fact"]}
    variables = {
        **{name: trust_as_template(text) for name, text in templates.items()},
        "groups": GROUPS,
        "group_names": [name for name, members in GROUPS.items() if host in members],
        "ansible_play_hosts": GROUPS["cluster"] if hosts is None else hosts,
        "hostvars": {
            name_of_host: {
                "__roll_back_kept": {
                    "machine": f"m-{name_of_host}",
                    "configurations": [{"name": name} for name in names],
                }
            }
            for name_of_host, names in KEPT.items()
        },
        **given,
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    names = ("__roll_back_hosts", "__roll_back_name", "__roll_back_away")
    found = {name.rpartition("_")[2]: templar.template(variables[name]) for name in names}
    machines = {
        name_of_host: f"m-{name_of_host}" for name_of_host in found["hosts"] if name_of_host not in found["away"]
    }
    assert templar.template(variables["__roll_back_machines"]) == machines
    return found


def test_hosts_that_serve_together_choose_the_same() -> None:
    together = {"serving_groups": ["big", "small"]}
    assert chosen("a", **together) == {"hosts": ["a", "b"], "name": "new", "away": []}
    assert chosen("b", **together) == chosen("a", **together)
    assert chosen("c", **together) == {"hosts": ["c"], "name": "other", "away": []}
    # nothing served on all of them
    assert chosen("a") == {"hosts": ["a", "b", "c"], "name": "", "away": []}


@pytest.mark.parametrize(("wanted", "name"), [("", "new"), ("previous", "old"), ("odd", "odd")])
def test_what_is_asked_for(wanted: str, name: str) -> None:
    assert chosen("b", serving_groups=["big", "small"], roll_back_to=wanted)["name"] == name


def test_there_is_no_former_one_where_one_alone_was_kept() -> None:
    assert chosen("c", serving_groups=["big", "small"], roll_back_to="previous")["name"] == ""


def test_a_limit_must_not_part_them() -> None:
    assert chosen("b", ["b"], serving_groups=["big", "small"])["away"] == ["a"]
    assert chosen("a", ["a", "b"], serving_groups=["big", "small"])["away"] == []


def test_groups_beside_go_back_with_their_hosts_own_one() -> None:
    names = [one["name"] for _hosts, one in tasks("rollback")]
    order = [
        *(
            "Restore the files",
            "Stop the groups beside that came later",
            "Restart the watchdogs whose settings changed",
        ),
        *("Start vLLM", "Tell the doors of other heads what is served", "Reload the front proxies"),
        *("Wait for the first completion", "Start the groups beside"),
        *("Wait for the first completion of the groups beside", "Keep it as what served last"),
    ]
    assert sorted(order, key=names.index) == order
    text = task("Restart the watchdogs whose settings changed")["sparkthor.cluster.host_state"]["units"]
    templar = Templar(loader=DataLoader(), variables={"__roll_back": {"beside": ["embed"]}})
    own, beside = templar.template(trust_as_template(text))
    assert own["name"] == places.OWN.watchdog
    assert own["restart_on"] == [places.OWN.config]
    embed = places.Places("embed")
    assert (beside["name"], beside["restart_on"]) == (embed.watchdog, [embed.config])
    stop = task("Stop the groups beside that came later")
    assert stop["loop"] == "{{ __roll_back.beside_since }}"
    assert stop["sparkthor.cluster.vllm_service"]["state"] == "stopped"


def looped(name: str, host: str, **given: Any) -> Any:
    variables = {"inventory_hostname": host, "groups": {"ray_head": ["a", "c", "d"]}, **given}
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(task(name)["loop"]))


def test_every_door_is_told_by_the_heads_that_go_back() -> None:
    tell, again = "Tell the doors of other heads what is served", "Reload the front proxies"
    assert looped(tell, "a", __roll_back={"names": "# of a"}) == ["c", "d"]
    # without doors, and on a worker
    assert looped(tell, "a", __roll_back={"names": ""}) == looped(tell, "b", __roll_back={"names": ""}) == []
    # its own front proxy in any case, and those that it reached
    told = {"results": [{"item": "c", "away": True}, {"item": "d"}]}
    assert looped(again, "a", __roll_back_told=told) == ["a", "d"]
    assert looped(again, "a", __roll_back_told={"results": []}) == ["a"]
    assert looped(again, "b", __roll_back_told={"results": []}) == []
    [unit] = task(again)["sparkthor.cluster.host_state"]["units"]
    # what the module notes in PENDING is looked for because of this
    assert unit["reload_on"] == [kept.FRONT.rstrip("/")]
    assert unit["name"] == kept.FRONT_UNIT
    # two heads at once would lose each other's names
    assert task(tell)["throttle"] == task(again)["throttle"] == 1
