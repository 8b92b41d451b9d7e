# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.modules import netplan_apply

LINKS = [{"netdev": "fab0", "address": "10.9.0.1/24", "mtu": 9000, "peers": [{"address": "10.9.0.2"}]}]
FILE = {"/etc/netplan/40-cx7.yaml": {"content": "x", "mode": 0o600, "uid": 0, "gid": 0}}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: dict[str, Any] = {
        "decision": netplan_apply.change.NetplanDecision(),
        "started": [],
        "written": [],
        "environment": ({}, {}),
        "report": [{"netdev": "fab0", "ok": True, "problems": [], "peers": [{"reachable": True}]}],
        "armed": False,
        "warned": [],
        "confirm": {"status": "confirmed", "reason": "", "steps": []},
        "leftover": "",
    }
    module = netplan_apply
    monkeypatch.setattr(module.job, "live_links", dict)
    monkeypatch.setattr(module.netplan_decision.ssh, "connection", list)
    monkeypatch.setattr(module.job, "live_routes", lambda: ["-4 default via 10.0.0.254 dev mgmt0"])
    monkeypatch.setattr(module.job, "write_state", lambda path, state: made["written"].append(path))
    monkeypatch.setattr(module.link_state, "verify", lambda links, wait=0: made["report"])
    monkeypatch.setattr(module.netplan_decision, "decide_present", lambda params, management: made["decision"])
    monkeypatch.setattr(module.netplan_decision, "decide_absent", lambda params, management: made["decision"])
    monkeypatch.setattr(module.netplan_decision, "decide_environment", lambda path, variables: made["environment"])
    monkeypatch.setattr(module.change, "clear_leftovers", lambda: made["leftover"])
    monkeypatch.setattr(module.change, "armed", lambda: made["armed"])
    monkeypatch.setattr(module.change, "arm_and_start", lambda *args: made["started"].append(args[2]))
    monkeypatch.setattr(module.AnsibleModule, "warn", lambda self, text: made["warned"].append(text))
    monkeypatch.setattr(module.change, "confirm", lambda token, hold=False: {**made["confirm"], "held": hold})
    return made


def run(capsys: pytest.CaptureFixture[str], check: bool = False, **params: Any) -> dict[str, Any]:
    params.setdefault("links", LINKS)
    with patch_module_args({**params, "_ansible_check_mode": check}), pytest.raises(SystemExit):
        netplan_apply.main()
    return json.loads(capsys.readouterr().out)


def test_as_planned_is_one_verified_answer(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, token="t")
    assert (result["changed"], result["needs_change"], result["verified"]) == (False, False, True)
    assert host["started"] == []


def test_a_change_is_started_and_writes_nothing_itself(
    host: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    host["decision"] = netplan_apply.change.NetplanDecision(changed=True, needs_apply=True, after=dict(FILE))
    host["environment"] = ({"/etc/sparkthor/fabric.env": {}}, {"before": "", "after": "A=1\n"})
    result = run(capsys, token="t", environment_path="/etc/sparkthor/fabric.env")
    assert result["started"] is True
    assert host["started"] == ["mgmt0"]
    assert host["written"] == [], "the environment waits for the confirmation"
    assert {"before": "", "after": "A=1\n"} in result["diff"]


def test_check_mode_predicts_and_touches_nothing(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    host["decision"] = netplan_apply.change.NetplanDecision(changed=True, needs_apply=True, after=dict(FILE))
    host["environment"] = ({"/etc/sparkthor/fabric.env": {}}, {})
    host["armed"] = True
    result = run(capsys, check=True, environment_path="/etc/sparkthor/fabric.env")
    assert (result["changed"], result["needs_change"], result["started"]) == (True, True, False)
    assert (host["started"], host["written"]) == ([], [])
    assert host["warned"] == ["an unconfirmed network change is armed on this host; a real run takes it back first"]


@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_a_run_that_died_left_armed_is_a_needed_change(
    host: dict[str, Any], capsys: pytest.CaptureFixture[str], state: str
) -> None:
    host["armed"] = True
    result = run(capsys, check=True, state=state)
    assert (result["changed"], result["needs_change"]) == (True, True)
    assert "verified" not in result, "the links are as planned only until the timer ends"


def test_mode_and_environment_need_no_rollback(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    host["decision"] = netplan_apply.change.NetplanDecision(changed=True, after=dict(FILE))
    host["environment"] = ({"/etc/sparkthor/fabric.env": {}}, {})
    result = run(capsys, token="t", environment_path="/etc/sparkthor/fabric.env")
    assert (result["changed"], result["started"]) == (True, False)
    assert sorted(host["written"]) == ["/etc/netplan/40-cx7.yaml", "/etc/sparkthor/fabric.env"]


def test_without_action_plugin_or_way_in_nothing_is_started(
    host: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host["decision"] = netplan_apply.change.NetplanDecision(changed=True, needs_apply=True, after=dict(FILE))
    assert "needs its action plugin" in run(capsys)["msg"]
    monkeypatch.setattr(netplan_apply.job, "live_routes", list)
    assert "nothing was changed" in run(capsys, token="t")["msg"]
    assert host["started"] == []


def test_what_was_set_aside_is_accounted_for(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    host["decision"] = netplan_apply.change.NetplanDecision(
        changed=True,
        needs_apply=True,
        restored=["/etc/netplan/40-cx7.yaml"],
        kept=["/etc/netplan/50-x.yaml.sparkthor-aside"],
    )
    for check in (True, False):
        result = run(capsys, check=check, token="t", state="absent", links=[])
        assert result["restored"] == ["/etc/netplan/40-cx7.yaml"]
        assert result["kept"] == ["/etc/netplan/50-x.yaml.sparkthor-aside"]
    assert len(host["warned"]) == 2
    assert "not put back: /etc/netplan/50-x.yaml.sparkthor-aside" in host["warned"][0]
    host["decision"] = netplan_apply.change.NetplanDecision()
    assert run(capsys, token="t", state="absent", links=[])["kept"] == []
    assert len(host["warned"]) == 2


def test_a_host_without_a_default_route_gives_its_fabric_back(
    host: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = {"mgmt0": {"addresses": {"10.0.0.1/24": {}}}}
    monkeypatch.setattr(netplan_apply.job, "live_links", lambda: live)
    monkeypatch.setattr(netplan_apply.job, "live_routes", list)
    monkeypatch.setattr(
        netplan_apply.netplan_decision.ssh, "connection", lambda: ["10.0.0.9", "50000", "10.0.0.1", "22"]
    )
    host["decision"] = netplan_apply.change.NetplanDecision(changed=True, needs_apply=True)
    assert run(capsys, token="t", state="absent", links=[])["started"] is True
    assert host["started"] == ["mgmt0"]


def test_leftovers_are_reported(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    host["leftover"] = "an earlier network change was rolled back"
    assert not run(capsys)["changed"]
    assert host["warned"] == ["an earlier network change was rolled back"]


@pytest.mark.parametrize(("status", "changed"), [("confirmed", True), ("rolled_back", False), ("unknown", False)])
def test_confirm(host: dict[str, Any], capsys: pytest.CaptureFixture[str], status: str, changed: bool) -> None:
    host["confirm"] = {"status": status, "reason": "r", "steps": []}
    host["environment"] = ({"/etc/sparkthor/fabric.env": {}}, {})
    result = run(capsys, step="confirm", token="t", environment_path="/etc/sparkthor/fabric.env")
    assert (result["changed"], result["rollback"]["status"]) == (changed, status)
    assert host["written"] == (["/etc/sparkthor/fabric.env"] if changed else [])


def test_a_check_holds_and_writes_nothing_yet(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    host["confirm"] = {"status": "held", "reason": "", "steps": []}
    host["environment"] = ({"/etc/sparkthor/fabric.env": {}}, {})
    result = run(capsys, step="check", token="t", environment_path="/etc/sparkthor/fabric.env")
    assert (result["changed"], result["rollback"]["held"]) == (True, True)
    assert "verified" not in result
    assert host["written"] == []


def test_files_alone_wait_for_the_other_hosts_too(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    host["decision"] = netplan_apply.change.NetplanDecision(changed=True, after=dict(FILE))
    host["environment"] = ({"/etc/sparkthor/fabric.env": {}}, {})
    result = run(capsys, token="t", confirm=False, environment_path="/etc/sparkthor/fabric.env")
    assert (result["changed"], result["deferred"], result["started"]) == (True, True, False)
    assert host["written"] == []


def test_taking_back(host: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        netplan_apply.change,
        "take_back",
        lambda token, reason: {"status": "rolled_back", "reason": f"{token}: {reason}"},
    )
    result = run(capsys, step="take_back", token="t", reason="another host failed")
    assert result["changed"] is False
    assert result["rollback"]["reason"] == "t: another host failed"


def test_all_hosts_are_the_controllers_business(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert "on the controller" in run(capsys, outcomes="x")["msg"]


def test_refusal_is_a_failure_with_the_reason(
    host: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(params: Any, management: str) -> None:
        raise netplan_apply.change.ChangeError("/etc/netplan/01-m.yaml holds a change that was never applied")

    monkeypatch.setattr(netplan_apply.netplan_decision, "decide_present", refuse)
    result = run(capsys)
    assert result["failed"]
    assert result["msg"] == "/etc/netplan/01-m.yaml holds a change that was never applied"


SILENT = [{"netdev": "fab0", "ok": False, "problems": ["fab0 does not reach b"], "peers": [{"reachable": False}]}]
WRONG = [
    {
        "netdev": "fab0",
        "ok": False,
        "problems": ["fab0 has MTU 1500", "fab0 does not reach b"],
        "peers": [{"reachable": False}],
    }
]


@pytest.mark.parametrize(
    ("wanted", "report", "message"),
    [
        ("verified", SILENT, "fab0 does not reach b"),
        ("adopted", SILENT, ""),
        ("verified", WRONG, "fab0 has MTU 1500; fab0 does not reach b"),
        ("adopted", WRONG, "fab0 has MTU 1500"),
    ],
)
def test_inspecting_only(
    host: dict[str, Any], capsys: pytest.CaptureFixture[str], wanted: str, report: Any, message: str
) -> None:
    host["report"] = report
    result = run(capsys, state=wanted)
    assert result.get("msg", "") == message
    assert bool(result.get("failed")) is bool(message)
    assert result["verified"] is False


def test_adopted_writes_the_environment_only(host: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    host["environment"] = ({"/etc/sparkthor/fabric.env": {}}, {})
    result = run(capsys, state="adopted", environment_path="/etc/sparkthor/fabric.env")
    assert (result["changed"], result["needs_change"]) == (True, True)
    assert host["written"] == ["/etc/sparkthor/fabric.env"]
    run(capsys, check=True, state="adopted", environment_path="/etc/sparkthor/fabric.env")
    assert len(host["written"]) == 1


def test_inspected(host: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding("pending_edit", "m", "n"), Finding("shadowed", "m", "n")]
    monkeypatch.setattr(
        netplan_apply.netplan_inspect,
        "inspect",
        lambda *args: {"findings": found, "renderer": "networkd", "foreign": True, "adoptable": True},
    )
    result = run(capsys, state="inspected", accept=["pending_edit"])
    assert result["findings"] == [finding.to_dict() for finding in found]
    assert result["blocking"] == [found[1].to_dict()]
    assert (result["changed"], result["adopted"], result["renderer"]) == (False, True, "networkd")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"rollback_timeout": 5}, "rollback_timeout: 5 is not between 30 and 600"),
        ({"links": []}, "links: state present needs at least one link"),
    ],
)
def test_bad_arguments(
    host: dict[str, Any], capsys: pytest.CaptureFixture[str], params: dict[str, Any], words: str
) -> None:
    assert words in run(capsys, **params)["msg"]
