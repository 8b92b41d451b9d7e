# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action.doctor import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case

GROUPS = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}


def run(hostvars: dict[str, Any], groups: dict[str, list[str]] | None = None, **arguments: Any) -> dict[str, Any]:
    task = MagicMock(async_val=0, check_mode=False, diff=False)
    task.args = {} if "logs" in arguments else {"evidence": "__doctor_evidence"}
    task.args.update(arguments)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    groups = GROUPS if groups is None else groups
    asked = groups.get("cluster", [])
    return action.run(task_vars={"hostvars": hostvars, "groups": groups, "ansible_play_hosts_all": asked})


def host(number: int, **registered: Any) -> dict[str, Any]:
    variables = {"ansible_host": f"192.168.1.{number}", "fabric_topology": "direct", "fabric_cidr": "10.100.0.0/16"}
    return {**variables, "__doctor_evidence": registered}


def evidence(**parts: Any) -> dict[str, Any]:
    return {"evidence": {"started": 10.0, "ended": 12.0, "seconds": 2.0, **parts}, "before": 9.5, "after": 12.5}


def test_the_plan_needs_nothing_but_the_inventory() -> None:
    result = run({"a": host(11), "b": host(12)}, stage="plan")
    links = result["links"]["a"]
    assert [link["netdev"] for link in links] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert [peer["host"] for link in links for peer in link["peers"]] == ["b", "b"]


def test_an_unsound_inventory_has_no_links_and_no_failure() -> None:
    result = run({"a": {"fabric_topology": "star"}, "b": {}}, stage="plan")
    assert result["links"] == {"a": [], "b": []}


def test_hosts_that_do_not_answer_or_cannot_be_read() -> None:
    unreachable = {"unreachable": True, "msg": "ssh: No route to host"}
    result = run({"a": host(11, **unreachable), "b": host(12, rc=1, module_stderr="sudo: a password is required")})
    doctor = result["doctor"]
    assert [item["rule"] for item in doctor["findings"]] == ["host-unreachable", "host-unreadable"]
    assert {name: state["state"] for name, state in doctor["hosts"].items()} == {"a": "unreachable", "b": "unreadable"}
    assert doctor["findings"][1]["evidence"] == ["sudo: a password is required"]
    assert (doctor["schema"], doctor["mode"], result["changed"]) == (2, "live", False)


def test_logs_of_a_host_are_judged_with_it() -> None:
    log = {"name": "journal of x", "text": "ModuleNotFoundError: No module named 'ray'\n"}
    result = run({"a": host(11, **evidence(logs=[log])), "b": host(12, **evidence(errors=["node: gone"]))})
    findings = {item["rule"]: item for item in result["doctor"]["findings"]}
    assert findings["ray-missing"]["host"] == "a"
    assert findings["ray-missing"]["where"] == "journal of x"
    assert "b: node: gone" in result["doctor"]["notes"]


@pytest.mark.parametrize(("healthy", "found"), [(True, False), (False, True)])
def test_a_start_that_failed_before_the_one_that_serves_is_over(healthy: bool, found: bool) -> None:
    state = json.dumps({"state": "serving", "healthy": healthy, "updated": 11.0})
    folder = f"/var/lib/sparkthor/ray/t/session_latest/logs/worker-{'0f' * 28}"
    said = {"01000000": "ModuleNotFoundError: No module named 'ray'\n", "02000000": "ready\n"}
    logs = [{"name": f"{folder}-{job}-7.err", "text": text} for job, text in said.items()]
    result = run({"a": host(11, **evidence(files={"state.json": state})), "b": host(12, **evidence(logs=logs))})
    assert ("ray-missing" in {item["rule"] for item in result["doctor"]["findings"]}) is found


@pytest.mark.parametrize(("acknowledged", "rules"), [([], ["heads-indivisible"]), (["padded-heads"], [])])
def test_what_the_inventory_acknowledges_is_no_finding(acknowledged: list[str], rules: list[str]) -> None:
    config = {"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 32}
    served = {"path": "/m", "present": True, "config": {**config, "intermediate_size": 96, "vocab_size": 96}}
    serving = evidence(files={"vllm.yaml": "{model: /m, tensor-parallel-size: 3}"}, served_model=served)
    one = {**host(11, **serving), "vllm_serve_acknowledged": acknowledged}
    found = run({"a": one, "b": host(12, **evidence())})["doctor"]["findings"]
    assert [item["rule"] for item in found if item["rule"] == "heads-indivisible"] == rules


def test_no_cluster_is_a_finding() -> None:
    assert [item["rule"] for item in run({}, {})["doctor"]["findings"]] == ["no-cluster"]


@pytest.mark.parametrize(("fail_on", "failed"), [("never", False), ("error", False), ("warning", True)])
def test_failing_is_asked_for(tmp_path: Path, fail_on: str, failed: bool) -> None:
    (tmp_path / "x.log").write_text(
        "WARNING: object store is using /tmp instead of /dev/shm because /dev/shm has only 7\n"
    )
    result = run({}, {}, logs=str(tmp_path), fail_on=fail_on)
    assert result["doctor"]["summary"]["warnings"] == 1
    assert bool(result.get("failed")) is failed


def test_the_diagnosis_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("fine\n")
    target = tmp_path / "out.json"
    result = run({}, {}, logs=str(tmp_path / "x.log"), json=str(target))
    assert json.loads(target.read_text()) == result["doctor"]
    with pytest.raises(AnsibleActionFail, match=r"doctor_json: .*cannot be written"):
        run({}, {}, logs=str(tmp_path / "x.log"), json=str(target / "where.json"))


def named(number: int, topology: str) -> dict[str, Any]:
    """A host that the inventory knows by its name alone."""
    variables = {**host(number), "fabric_topology": topology, "ansible_host": f"spark-{number}.example.net"}
    return {key: value for key, value in variables.items() if key != "__doctor_evidence"}


@pytest.mark.parametrize("topology", ["direct", "switch", "ring"])
def test_hosts_known_by_name_have_links_to_ping(topology: str) -> None:
    count = 3 if topology == "ring" else 2
    names = ["a", "b", "c"][:count]
    groups = {"cluster": names, "ray_head": names[:1], "ray_workers": names[1:]}
    result = run({name: named(11 + number, topology) for number, name in enumerate(names)}, groups, stage="plan")
    assert all(result["links"][name] for name in names)


@pytest.mark.parametrize("topology", ["direct", "lan", "ring"])
def test_hosts_known_by_name_that_do_not_answer_contradict_nothing(topology: str) -> None:
    names = ["a", "b", "c"][: 3 if topology == "ring" else 2]
    groups = {"cluster": names, "ray_head": names[:1], "ray_workers": names[1:]}
    gone = {"__doctor_evidence": {"unreachable": True, "msg": "ssh: No route to host"}}
    result = run({name: {**named(11 + number, topology), **gone} for number, name in enumerate(names)}, groups)
    assert {item["rule"] for item in result["doctor"]["findings"]} == {"host-unreachable"}


@pytest.mark.parametrize("lost", [False, True])
def test_one_host_without_the_nic_of_the_lan_leaves_the_others_their_plan(lost: bool) -> None:
    def answer(number: int) -> dict[str, Any]:
        names = {"eth0": [f"192.168.1.{number}/24"], "eth9": [] if lost and number == 12 else [f"10.9.0.{number}/24"]}
        interfaces = [
            {"name": name, "addresses": [{"address": cidr, "family": "inet", "scope": "global"} for cidr in cidrs]}
            for name, cidrs in names.items()
        ]
        address = f"192.168.1.{number}"
        management = {"netdev": "eth0", "address": address, "cidr": f"{address}/24"}
        node = {"kind": "generic", "product": "", "gpu_names": [], "gpus": 1}
        return evidence(node={**node, "interfaces": interfaces, "management": management})

    gone = {"unreachable": True, "msg": "ssh: No route to host"}
    outcomes = {"a": answer(11), "b": answer(12) if lost else gone}
    hostvars = {
        name: {**host(11 + number), "fabric_topology": "lan", "fabric_lan_nic": "eth9"}
        for number, name in enumerate("ab")
    }
    case = Case(hosts=["a", "b"])
    case.evidence = {name: item["evidence"] for name, item in outcomes.items() if "evidence" in item}
    action = ActionModule(*[MagicMock() for _number in range(6)])
    action._plan(case, GROUPS, ["a", "b"], hostvars)
    assert case.fabric is not None
    assert (case.fabric["a"]["control_address"], case.fabric["b"]["control_address"]) == ("10.9.0.11", "")
    assert case.fabric["a"]["env"]["VLLM_HOST_IP"] == "10.9.0.11"
    assert "VLLM_HOST_IP" not in case.fabric["b"]["env"]
    assert ("host b is eth9, which has no IPv4 address" in case.plan_error) is lost


def test_what_serves_is_judged_by_the_group_that_serves_it() -> None:
    """The model of one group is nothing that the hosts of another lack."""

    def serves(number: int, path: str) -> dict[str, Any]:
        model = {"path": path, "name": "m", "revision": "", "broken_count": 0, "broken": [], "files": 1, "bytes": 1}
        files = {"vllm.yaml": f"model: {path}\n"}
        there = evidence(files=files, models=[model], served_model={"path": path, "present": True}, engine={})
        variables = host(number, **there)
        return {**variables, "serving_groups": ["one", "two"]}

    groups = {"cluster": ["a", "b"], "ray_head": ["a", "b"], "ray_workers": [], "one": ["a"], "two": ["b"]}
    hostvars = {"a": serves(11, "/srv/one"), "b": serves(12, "/srv/two")}
    apart = run(hostvars, groups)["doctor"]
    assert "model-absent" not in {item["rule"] for item in apart["findings"]}
    for variables in hostvars.values():
        del variables["serving_groups"]
    one = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
    together = run(hostvars, one)["doctor"]
    assert "model-absent" in {item["rule"] for item in together["findings"]}


def test_a_host_that_is_away_explains_what_its_own_group_misses_and_nothing_of_another() -> None:
    state = json.dumps({"state": "degraded", "updated": 12.0, "line": "no completion for 40 s"})
    away = {"unreachable": True, "msg": "ssh: No route to host"}
    told = {"a": evidence(files={"state.json": state}), "b": away, "c": evidence(files={"state.json": state})}
    hostvars = {
        name: {**host(number, **told[name]), "fabric_topology": "switch", "serving_groups": ["big", "small"]}
        for number, name in enumerate(told, 11)
    }
    groups = {"cluster": list(told), "ray_head": ["a", "c"], "ray_workers": ["b"], "big": ["a", "b"], "small": ["c"]}
    found = run(hostvars, groups)["doctor"]["findings"]
    said = {
        (item["rule"], item["host"]): {(one["rule"], one["host"]) for one in item["consequences"]} for item in found
    }
    assert ("serving-down", "a") in said["host-unreachable", "b"]
    assert ("serving-down", "c") not in said["host-unreachable", "b"]
    assert ("serving-down", "a") not in said


def test_a_worker_has_the_revision_that_the_head_names() -> None:
    folder = "/srv/m@0123456789abcdef"

    def found(folders: list[str]) -> set[str]:
        model = {"path": "/srv/m", "name": "m", "revision": "", "broken_count": 0, "broken": [], "files": 1}
        head = evidence(
            files={"vllm.yaml": f"model: {folder}\n"},
            models=[{**model, "folders": [folder]}],
            served_model={"path": folder, "present": True},
            engine={},
        )
        worker = evidence(files={}, models=[{**model, "folders": folders}], served_model={"path": ""}, engine={})
        groups = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
        answer = run({"a": host(11, **head), "b": host(12, **worker)}, groups)["doctor"]
        return {item["rule"] for item in answer["findings"]}

    assert "model-absent" not in found([folder])
    assert "model-absent" in found(["/srv/m@fedcba9876543210"])
