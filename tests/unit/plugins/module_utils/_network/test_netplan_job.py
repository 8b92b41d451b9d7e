# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ast
import copy
import inspect
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import command, deadline
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_files, netplan_live
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

from tests.unit.clock import Clock

GLOBAL = {"scope": "global", "dynamic": False, "family": "inet"}


def state(content: str) -> dict[str, Any]:
    return {"content": content, "mode": 0o600, "uid": os.geteuid(), "gid": os.getegid()}


class Machine:
    """A host's network as far as the job speaks to it: addresses, routes, and services that obey files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.yaml = folder / "40-cx7.yaml"
        self.network = folder / "10-netplan-fab0.network"
        self.links: dict[str, dict[str, Any]] = {
            "mgmt0": {"mtu": 1500, "up": True, "carrier": True, "mac": "", "addresses": {"10.0.0.1/24": GLOBAL}},
            "fab0": {"mtu": 1500, "up": False, "carrier": False, "mac": "", "addresses": {}},
        }
        self.routes = ["-4 default via 10.0.0.254 dev mgmt0 proto static"]
        self.commands: list[str] = []
        self.obey = True
        self.sabotage = False

    def run(self, argv: list[str], limit: float = 20) -> tuple[int, str, str]:
        self.commands.append(" ".join(argv))
        words = argv[1:]
        if argv[:2] == ["systemctl", "is-active"]:
            return (0 if "networkd" in argv[-1] else 3), "", ""
        if argv[:2] == ["networkctl", "reconfigure"] and self.obey:
            fab = self.links["fab0"]
            if self.network.exists():
                fab.update(up=True, mtu=9000, addresses={"10.9.0.1/24": GLOBAL})
            else:
                fab["addresses"] = {}
            if self.sabotage and self.network.exists():
                self.links["mgmt0"]["addresses"] = {}
                self.routes.clear()
        if argv[:3] == ["ip", "address", "replace"]:
            self.links[words[-1]]["addresses"][words[2]] = GLOBAL
        if argv[:3] == ["ip", "address", "del"] and self.links[words[-1]]["addresses"].pop(words[2], None) is None:
            return 2, "", "Error: ipv4: Address not found."
        if argv[:3] == ["ip", "link", "set"]:
            link = self.links[words[3]]
            link.update({"mtu": int(words[5])} if words[4] == "mtu" else {"up": words[4] == "up"})
        if argv[:1] == ["ip"] and words[1:3] == ["route", "replace"]:
            self.routes.append(" ".join([words[0], *words[3:]]))
        return 0, "", ""

    def arm(self, **over: Any) -> dict[str, Any]:
        plan = {
            "token": "t",
            "timeout": 60,
            "path": str(self.yaml),
            "netdevs": ["fab0"],
            "before": {},
            "after": {str(self.yaml): state("yaml\n"), str(self.network): state("[Match]\nName=fab0\n")},
            "expect": [{"netdev": "fab0", "address": "10.9.0.1/24", "mtu": 9000}],
            "drop": [],
            "reset_mtu": [],
            "live": copy.deepcopy(self.links),
            "routes": list(self.routes),
            "profiles": {},
            "floating": [],
            "management": "mgmt0",
            "others": {},
            **over,
        }
        job.write_json(str(self.folder / "plan.json"), plan)
        return plan

    def outcome(self) -> dict[str, Any]:
        return json.loads((self.folder / "outcome.json").read_text())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(job, "run", made.run)
    monkeypatch.setattr(job, "live_links", lambda: copy.deepcopy(made.links))
    monkeypatch.setattr(job, "live_routes", lambda: list(made.routes))
    monkeypatch.setattr(job, "generated_files", lambda root="": {})
    monkeypatch.setattr(job, "changed_since", lambda plan: [])
    monkeypatch.setattr(job.os.path, "exists", lambda path: path.startswith("/sys/class/net/") or os.access(path, 0))
    monkeypatch.setattr(job, "BOOT_LINK", str(tmp_path / "link"))
    monkeypatch.setattr(job, "BOOT_UNIT", str(tmp_path / "unit"))
    for module in (job, deadline):
        monkeypatch.setattr(module, "time", clock)
    return made


def test_needs_nothing_but_the_standard_library() -> None:
    """The host runs a bare copy of this file while the collection may be gone."""
    carried = (job, netplan_files, netplan_live, command, deadline)
    tree = ast.parse("\n".join(inspect.getsource(module) for module in carried))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.startswith("ansible")}


def test_apply_writes_activates_only_our_nics_and_reports(machine: Machine) -> None:
    machine.arm()
    assert job.apply(str(machine.folder))["result"] == "applied"
    assert machine.outcome()["result"] == "applied"
    assert machine.yaml.read_text() == "yaml\n"
    assert machine.yaml.stat().st_mode & 0o777 == 0o600
    assert "networkctl reconfigure fab0" in machine.commands
    assert not [c for c in machine.commands if "mgmt0" in c or c.startswith("netplan")]
    assert (machine.folder / "plan.json").exists(), "armed until somebody confirms"


def test_apply_drops_former_addresses_and_resets_mtu(machine: Machine) -> None:
    machine.links["fab0"].update(up=True, mtu=9000, addresses={"10.1.1.1/24": GLOBAL})
    machine.obey = False
    machine.arm(
        after={str(machine.yaml): None},
        expect=[],
        reset_mtu=["fab0"],
        drop=[{"netdev": "fab0", "address": "10.1.1.1/24"}],
    )
    job.apply(str(machine.folder))
    assert machine.links["fab0"]["addresses"] == {}
    assert machine.links["fab0"]["mtu"] == 1500


def test_links_that_do_not_come_up_are_taken_back_at_once(machine: Machine) -> None:
    machine.obey = False
    machine.arm()
    outcome = job.apply(str(machine.folder))
    assert outcome["result"] == "rolled_back"
    assert "fab0 does not have 10.9.0.1/24" in outcome["reason"]
    assert not machine.yaml.exists()
    assert not machine.network.exists()
    assert not (machine.folder / "plan.json").exists()
    assert f"systemctl stop {job.TIMER}.timer" in machine.commands


def test_timer_restores_files_links_and_the_way_in(machine: Machine) -> None:
    before = copy.deepcopy(machine.links)
    machine.yaml.write_text("former\n")
    machine.yaml.chmod(0o600)
    machine.sabotage = True
    machine.arm(before={str(machine.yaml): job.read_state(str(machine.yaml))})
    job.apply(str(machine.folder))
    assert machine.links["mgmt0"]["addresses"] == {}
    outcome = job.rollback(str(machine.folder))
    assert outcome["reason"].startswith("no confirmation within 60 s; the way in was lost: mgmt0 lost 10.0.0.1/24")
    assert "route lost: default via 10.0.0.254 dev mgmt0" in outcome["reason"]
    assert machine.yaml.read_text() == "former\n"
    assert not machine.network.exists()
    assert machine.links == before
    assert machine.routes == ["-4 default via 10.0.0.254 dev mgmt0 proto static"]
    assert "networkctl reconfigure fab0 mgmt0" in machine.commands


def test_a_route_with_another_metric_is_not_added_a_second_time(machine: Machine) -> None:
    machine.arm(routes=["-4 default via 10.0.0.254 dev mgmt0 proto static metric 100"])
    machine.routes = ["-4 default via 10.0.0.254 dev mgmt0 proto static metric 105"]
    job.rollback(str(machine.folder))
    assert machine.routes == ["-4 default via 10.0.0.254 dev mgmt0 proto static metric 105"]


def test_a_rollback_with_the_way_in_whole_leaves_it_alone(machine: Machine) -> None:
    machine.arm()
    job.apply(str(machine.folder))
    machine.commands.clear()
    job.rollback(str(machine.folder))
    assert not [c for c in machine.commands if "mgmt0" in c]


def test_other_peoples_files_come_back_only_when_the_way_in_is_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = machine.folder / "01-m.yaml"
    other.write_text("good\n")
    other.chmod(0o600)
    plan = machine.arm(others={str(other): job.read_state(str(other))})
    monkeypatch.setattr(job, "changed_since", lambda plan: [str(other)] if other.read_text() != "good\n" else [])
    other.write_text("edited\n")
    job.rollback(str(machine.folder))
    assert other.read_text() == "edited\n"
    job.write_json(str(machine.folder / "plan.json"), plan)
    machine.links["mgmt0"]["addresses"] = {}
    job.rollback(str(machine.folder))
    assert other.read_text() == "good\n"
    assert (machine.folder / "replaced-01-m.yaml").read_text() == "edited\n"


def test_boot_restores_files_before_the_network_starts(machine: Machine) -> None:
    machine.arm()
    job.apply(str(machine.folder))
    machine.commands.clear()
    outcome = job.boot(str(machine.folder))
    assert outcome["reason"] == "the host went down before the change was confirmed"
    assert not machine.yaml.exists()
    assert not machine.network.exists()
    assert not [c for c in machine.commands if not c.startswith("systemctl stop")]


@pytest.mark.parametrize("verb", ["apply", "rollback", "boot"])
def test_nothing_armed_is_nothing_done(machine: Machine, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.main(["job.py", verb, str(machine.folder)]) == 0
    assert json.loads(capsys.readouterr().out) == {"result": "nothing armed"}
    assert machine.commands == []


def test_a_timer_that_was_faster_keeps_its_outcome(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.arm()
    real = job.expectation_problems

    def meanwhile(expect: Any, links: Any) -> list[str]:
        found = real(expect, links)
        job.rollback(str(machine.folder))
        return found

    monkeypatch.setattr(job, "expectation_problems", meanwhile)
    job.apply(str(machine.folder))
    assert machine.outcome()["result"] == "rolled_back"


FOLDER = "/run/NetworkManager/system-connections"
SETTINGS = "/etc/NetworkManager/conf.d/60-sparkthor-fabric.conf"
FAB0 = f"{FOLDER}/netplan-fab0.nmconnection"
FAB1 = f"{FOLDER}/netplan-fab1.nmconnection"


class NetworkManager:
    """It runs and knows devices and profiles; the commands that change something are kept."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = machine
        self.states = {"mgmt0": "connected", "fab0": "connected", "fab1": "connected"}
        self.loaded = {"u-mgmt": f"{FOLDER}/netplan-NM-1.nmconnection", "u0": FAB0, "u1": FAB1}
        self.networkd = True
        self.enabled = "disabled"
        monkeypatch.setattr(job, "run", self.run)

    def run(self, argv: list[str], limit: float = 20) -> tuple[int, str, str]:
        if argv[:2] == ["systemctl", "is-active"]:
            return (0 if "NetworkManager" in argv[-1] or self.networkd else 3), "", ""
        if argv[:2] == ["systemctl", "is-enabled"]:
            return (0 if "enabled" in self.enabled else 1), f"{self.enabled}\n", ""
        if argv[:5] == ["nmcli", "--escape", "no", "--get-values", "DEVICE,STATE"]:
            return 0, "".join(f"{name}:{state}\n" for name, state in self.states.items()), ""
        if argv[:5] == ["nmcli", "--escape", "no", "--get-values", "UUID,FILENAME"]:
            return 0, "".join(f"{uuid}:{path}\n" for uuid, path in self.loaded.items()), ""
        if argv[:5] == ["nmcli", "--escape", "no", "--get-values", "UUID,DEVICE"]:
            return 0, "u-mgmt:mgmt0\nu0:fab0\n", ""
        if argv[:3] == ["nmcli", "device", "set"]:
            self.states[argv[3]] = "unmanaged" if argv[5] == "no" else "disconnected"
        return self.machine.run(argv, limit)

    def made(self, files: dict[str, Any], ours: list[str], netdevs: list[str] | None = None) -> list[str]:
        """What ``activate`` has it and networkd do."""
        steps: list[str] = []
        assert job.activate({"netdevs": ours}, files, netdevs or ours, steps)
        return [step for step in steps if not step.startswith("udevadm")]


@pytest.fixture
def network_manager(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> NetworkManager:
    monkeypatch.setattr(job, "TAKES_ALL", "/sys/class/net/takes-all")
    monkeypatch.setattr(job.glob, "glob", lambda pattern: [])
    return NetworkManager(machine, monkeypatch)


def test_profiles_are_loaded_by_file_and_raised_by_uuid(network_manager: NetworkManager) -> None:
    assert network_manager.made({FAB0: state("[connection]\ninterface-name=fab0\n")}, ["fab0"]) == [
        f"nmcli connection load {FAB0}",
        "nmcli connection reload",
        "nmcli --wait 15 connection up u0",
    ]


def test_new_settings_for_the_carrier_are_taken_while_it_does_nothing_with_the_nic(
    network_manager: NetworkManager,
) -> None:
    assert network_manager.made({SETTINGS: state("x"), FAB0: state("interface-name=fab0\n")}, ["fab0"]) == [
        "nmcli device set fab0 managed no",
        "nmcli general reload conf",
        f"nmcli connection load {FAB0}",
        "nmcli connection reload",
        "nmcli device set fab0 managed yes",
        "nmcli --wait 15 connection up u0",
    ]


def test_a_nic_for_networkd_leaves_its_hands_first(network_manager: NetworkManager) -> None:
    network_manager.networkd = False
    files = {"/run/systemd/network/10-netplan-fab0.network": state("x"), FAB0: None, SETTINGS: None}
    assert network_manager.made(files, ["fab0"]) == [
        "nmcli device set fab0 managed no",
        "systemctl start systemd-networkd.service",
        "nmcli general reload conf",
        "nmcli connection reload",
    ]


@pytest.mark.parametrize("enabled", ["disabled", "enabled-runtime", "enabled"])
def test_back_from_networkd_it_ends_where_nothing_asks_for_it(network_manager: NetworkManager, enabled: str) -> None:
    network_manager.enabled = enabled
    network_manager.states["fab0"] = "unmanaged"
    files = {"/run/systemd/network/10-netplan-fab0.network": None}
    stop = "systemctl stop systemd-networkd.socket systemd-networkd.service"
    assert network_manager.made(files, ["fab0"]) == [
        "networkctl reload",
        "networkctl reconfigure fab0",
        *([] if enabled == "enabled" else [stop]),
        "nmcli device set fab0 managed yes",
    ]


def test_a_nic_that_nobody_configures_any_more_is_as_after_a_boot(
    network_manager: NetworkManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert network_manager.made({FAB0: None}, ["fab0"]) == [
        "nmcli device set fab0 managed no",
        "nmcli connection reload",
        "nmcli device set fab0 managed yes",
    ]
    network_manager.states["fab0"] = "connected"
    monkeypatch.setattr(job, "TAKES_ALL", "/absent")
    assert network_manager.made({FAB0: None}, ["fab0"]) == [
        "nmcli device set fab0 managed no",
        "nmcli connection reload",
    ]


def test_other_peoples_profiles_are_loaded_and_never_raised(network_manager: NetworkManager) -> None:
    other = f"{FOLDER}/netplan-NM-1.nmconnection"
    aside = "/etc/NetworkManager/system-connections/.x.nmconnection.sparkthor-aside"
    files = {other: state("[connection]\ninterface-name=mgmt0\n"), SETTINGS: state("x"), aside: state("x")}
    assert network_manager.made(files, ["fab0"], ["fab0", "mgmt0"]) == [
        "nmcli general reload conf",
        f"nmcli connection load {other}",
        "nmcli connection reload",
    ]


def test_a_lost_way_in_is_raised_by_the_uuid_that_it_had(machine: Machine, network_manager: NetworkManager) -> None:
    assert job.active_profiles() == {"mgmt0": "u-mgmt", "fab0": "u0"}
    machine.arm(profiles=job.active_profiles())
    job.apply(str(machine.folder))
    machine.commands.clear()
    machine.links["mgmt0"]["addresses"] = {}
    job.rollback(str(machine.folder))
    assert machine.commands.count("nmcli --wait 15 connection up u-mgmt") == 1
    machine.arm(profiles=job.active_profiles())
    machine.commands.clear()
    job.rollback(str(machine.folder))
    assert not [command for command in machine.commands if "u-mgmt" in command]


def test_a_lane_of_a_thor_is_down_while_it_gets_another_mtu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its driver refuses another MTU while the link is up ("Device or resource busy")."""
    commands: list[list[str]] = []
    live = {name: {"mtu": mtu, "up": True} for name, mtu in (("mgbe0_0", 1466), ("mgbe1_0", 8966), ("fab0", 1500))}
    monkeypatch.setattr(job, "live_links", lambda: live)
    monkeypatch.setattr(job, "_ok", lambda argv, _steps: commands.append(argv) is None)
    job._quieten({"expect": [{"netdev": name, "mtu": 8966} for name in live]}, list(live), [])
    assert commands == [["ip", "link", "set", "dev", "mgbe0_0", "down"]]


def test_lanes_that_cannot_be_read_do_not_end_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> dict[str, Any]:
        raise RuntimeError("ip address show failed: 255")

    monkeypatch.setattr(job, "live_links", fails)
    steps: list[str] = []
    job._quieten({"expect": [{"netdev": "mgbe0_0", "mtu": 8966}]}, ["mgbe0_0"], steps)
    assert steps == ["links: RuntimeError: ip address show failed: 255"]


def test_usage() -> None:
    assert job.main(["job.py", "explode", "/x"]) == 2


def test_write_state_is_exact_and_says_whether_it_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "file")
    wanted = {"content": "a\r\nb\udcff", "mode": 0o640, "uid": os.geteuid(), "gid": os.getegid()}
    assert job.write_state(path, wanted) is True
    assert job.write_state(path, wanted) is False
    assert job.read_state(path) == wanted
    assert Path(path).read_bytes() == b"a\r\nb\xff"
    assert job.write_state(path, None) is True
    assert job.write_state(path, None) is False
    assert os.listdir(tmp_path / "new") == []


def test_read_json_of_a_torn_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"a": ')
    assert job.read_netplan_json(str(tmp_path / "x")) is None
    (tmp_path / "x").write_text("[1]")
    assert job.read_netplan_json(str(tmp_path / "x")) is None


def test_parse_links() -> None:
    text = json.dumps(
        [
            {
                "ifname": "e0",
                "flags": ["UP", "LOWER_UP"],
                "mtu": 9000,
                "address": "02:00",
                "addr_info": [
                    {"family": "inet", "local": "10.0.0.1", "prefixlen": 24, "scope": "global", "dynamic": True},
                    {},
                ],
            },
            {},
        ]
    )
    assert job.parse_links(text) == {
        "e0": {
            "mtu": 9000,
            "up": True,
            "carrier": True,
            "mac": "02:00",
            "addresses": {"10.0.0.1/24": {"scope": "global", "dynamic": True, "family": "inet"}},
        }
    }
    assert job.parse_links("") == {}


def test_replayable_routes() -> None:
    text = (
        "default via 10.0.0.254 dev mgmt0 proto static metric 100 linkdown\n"
        "10.0.0.0/24 dev mgmt0 proto kernel scope link src 10.0.0.1\n"
        "default via fe80::1 dev mgmt0 proto ra expires 1700sec\n"
        "10.5.0.0/16 via 10.0.0.9 dev mgmt0 expires 30sec metric 5\n"
        "default proto static \n\tnexthop via 10.0.0.2 dev mgmt0 weight 1\n"
    )
    assert job.replayable_routes(text) == [
        "default via 10.0.0.254 dev mgmt0 proto static metric 100",
        "10.5.0.0/16 via 10.0.0.9 dev mgmt0 metric 5",
        "default proto static",
    ]


def test_run_has_a_time_limit_and_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.run(["sleep", "5"], 0.1)[0] == 124
    assert job.run(["no-such-program-here"])[0] == 127
    (tmp_path / "tool").write_text("echo no interpreter is named\n")
    (tmp_path / "tool").chmod(0o755)
    assert job.run([str(tmp_path / "tool")])[0] == 126
    # one that no signal reaches, as in the kernel on a NIC that is gone
    hung: list[Any] = []

    def unheard(process: Any) -> None:
        hung.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", unheard)
    began = time.monotonic()
    assert job.run(["sleep", "60"], 0.1)[0] == 124
    assert time.monotonic() - began < 30
    monkeypatch.undo()
    hung[0].kill()
    hung[0].wait()


@pytest.mark.parametrize(
    ("route", "lost"),
    [
        (
            "-4 default via 10.0.0.254 dev mgmt0 proto static",
            ["route lost: default via 10.0.0.254 dev mgmt0 proto static"],
        ),
        ("-4 default via 10.0.0.254 dev mgmt0", ["route lost: default via 10.0.0.254 dev mgmt0"]),
        ("-4 default via 10.0.0.9 dev mgmt0 proto static metric 100", []),
        ("-4 default via 1.1.1.1 dev mgmt01 proto static", []),
        ("-4 default via 1.1.1.1 dev mgmt0.10", []),
    ],
)
def test_only_the_way_ins_own_default_route_counts(
    monkeypatch: pytest.MonkeyPatch, route: str, lost: list[str]
) -> None:
    links = {"mgmt0": {"up": True, "addresses": {"10.0.0.1/24": GLOBAL}}}
    monkeypatch.setattr(job, "live_links", lambda: links)
    monkeypatch.setattr(job, "live_routes", lambda: ["-4 default via 10.0.0.9 dev mgmt0 proto static metric 105"])
    assert job.management_path_problems({"management": "mgmt0", "live": links, "routes": [route]}) == lost
    assert job.run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == (3, "out\n", "err\n")
