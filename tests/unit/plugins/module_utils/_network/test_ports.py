# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import ports

LINK = {"netdev": "enp1s0f1np1", "address": "10.100.0.1/25", "peer": "b", "peer_netdev": "enp1s0f1np1", "mtu": 9000}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, t.Any]:
    """A host with one fabric port that is administratively down, and what was done to it."""
    port: dict[str, t.Any] = {"mtu": 1500, "up": False, "carrier": False, "mac": "", "addresses": {}}
    state: dict[str, t.Any] = {"commands": [], "port": port}

    def run(argv: list[str], timeout: float) -> tuple[int, str, str]:
        if argv[0] != "ip":
            return 127, "", ""
        state["commands"].append(argv[-1])
        port["up"] = argv[-1] == "up"
        return 0, "", ""

    monkeypatch.setattr(ports, "run_limited", run)
    monkeypatch.setattr(ports.job, "live_links", lambda: {"enp1s0f1np1": dict(port)})
    monkeypatch.setattr(ports.link_state, "connected_routes", set)
    seen = {
        "findings": [Finding("invalid_yaml", "m", "f")],
        "foreign": False,
        "adoptable": False,
        "own": None,
        "previous": set(),
    }
    monkeypatch.setattr(ports.netplan_inspect, "inspect", lambda path, links, renderer, floating: seen)
    return state


OURS = "/etc/netplan/40-cx7.yaml"


def probe(check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    given = {"host": "a", "links": [LINK], "path": OURS, "renderer": "", "seconds": 0.1, "training": 0.1, **options}
    checked = ArgumentSpecValidator(ports.ARGUMENTS).validate(given)
    assert not checked.error_messages
    return ports.probe(checked.validated_parameters, check)


def test_a_port_is_raised_and_restored(host: dict[str, t.Any]) -> None:
    found = probe()
    assert host["commands"] == ["up", "down"]
    assert found["ports"]["enp1s0f1np1"] == {"present": True, "up": False, "carrier": False, "mtu": 1500}
    assert found["netplan"]["findings"] == [Finding("invalid_yaml", "m", "f").to_dict()]
    assert found["rdma"]["links"] == []


def test_the_speed_of_a_port_is_read_before_it_is_set_down_again(
    host: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def links(_run: t.Any) -> dict[str, t.Any]:
        up = host["port"]["up"]
        one = {"netdev": LINK["netdev"], "rate": 100.0 if up else 40.0, "state": "up" if up else "down"}
        return {"links": [one, {**one, "netdev": "enp1s0f0np0"}], "source": "sysfs", "warnings": []}

    def live() -> dict[str, t.Any]:
        return {LINK["netdev"]: {**host["port"], "carrier": host["port"]["up"]}}

    monkeypatch.setattr(ports.rdma, "read_links", links)
    # nobody is at the other end
    assert "rate" not in probe()["ports"][LINK["netdev"]]
    monkeypatch.setattr(ports.job, "live_links", live)
    found = probe()
    assert found["ports"] == {
        LINK["netdev"]: {"present": True, "up": False, "carrier": True, "mtu": 1500, "rate": 100.0}
    }
    assert found["rdma"]["links"][0]["rate"] == 40.0
    assert "rate" not in probe(check=True)["ports"][LINK["netdev"]]


def test_check_mode_touches_nothing(host: dict[str, t.Any]) -> None:
    found = probe(check=True)
    assert host["commands"] == []
    assert found["ports"]["enp1s0f1np1"]["carrier"] is None


def test_netplan_is_not_asked_while_the_plan_is_live(
    host: dict[str, t.Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "40-cx7.yaml"
    path.write_text(ports.netplan.render([LINK]))
    host["port"].update(up=True, mtu=9000, addresses={"10.100.0.1/25": {"scope": "global"}})
    monkeypatch.setattr(ports.link_state, "connected_routes", lambda: {("10.100.0.0/25", "enp1s0f1np1")})
    monkeypatch.setattr(ports.netplan_inspect, "inspect", lambda *arguments: pytest.fail("netplan was asked"))
    found = probe(path=str(path))
    assert found["netplan"] == {"findings": [], "adoptable": False, "own": ["enp1s0f1np1"]}


def test_a_host_that_cannot_be_read_is_one_message(host: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> t.Any:
        raise RuntimeError("ip address show failed: 255")

    monkeypatch.setattr(ports.job, "live_links", broken)
    with pytest.raises(ports.ProbeError) as caught:
        probe()
    assert str(caught.value) == "the fabric ports of a could not be read: ip address show failed: 255"


def test_lldp_names_the_switch_of_a_nic_that_is_planned_on_one() -> None:
    told = """{"lldp": [{"interface": [
      {"name": "enp1s0f1np1", "chassis": [{"name": [{"value": "sw-1"}],
       "capability": [{"type": "Bridge", "enabled": true}]}], "port": [{"id": [{"value": "1"}]}]},
      {"name": "enP2p1s0f1np1", "chassis": [{"name": [{"value": "spark-02"}],
       "capability": [{"type": "Station", "enabled": true}]}], "port": [{"id": [{"value": "1"}]}]}]}]}"""
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 0, told, ""

    links = [{**LINK, "peer": "", "netdev": name} for name in ("enp1s0f1np1", "enP2p1s0f1np1")]
    assert ports.switches(links, run) == {"enp1s0f1np1": "sw-1"}
    assert ports.switches([LINK], run) == {}
    assert len(asked) == 1, "where cables are planned nobody is asked"
    assert ports.switches(links, lambda _argv: (127, "", "")) == {}
