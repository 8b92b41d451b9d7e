# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The written inventory says what was proposed, and plans as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.template import trust_as_template
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import inventory_text
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Machine, Proposal
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_catalogue
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_inventory import fabric_problems

from tests.unit.plugins.plugin_utils._discovery.test_proposal import HOSTILE_NAMES, Lan


def read(found: Proposal, user: str = "nvidia", port: int = 22) -> tuple[dict, dict]:
    texts = inventory_text.files(found, user, port)
    return yaml.safe_load(texts["hosts.yml"]), yaml.safe_load(texts["group_vars/cluster.yml"])


@pytest.mark.parametrize("cage", [0, 1])
def test_a_pair(cage: int) -> None:
    hosts, variables = read(Lan("ab").join(("a", 1), ("b", cage)).propose())
    assert hosts["sparks"]["hosts"] == {"a": None, "b": None}
    head = hosts["cluster"]["children"]["ray_head"]["hosts"]
    workers = hosts["cluster"]["children"]["ray_workers"]["hosts"]
    assert variables["ansible_user"] == "nvidia"
    if cage == 1:
        assert variables["fabric_cage"] == 1
        assert (head, workers) == ({"a": {"ansible_host": "192.168.1.10"}}, {"b": {"ansible_host": "192.168.1.11"}})
    else:
        assert "fabric_cage" not in variables
        assert (head["a"]["fabric_cage"], workers["b"]["fabric_cage"]) == (1, 0)
    cages = {"a": 1, "b": cage}
    assert fabric_problems(variables["fabric_topology"], ["a", "b"], variables["fabric_cidr"], cages) == []


def test_it_serves_the_fastest_recipe_for_the_machines() -> None:
    _hosts, variables = read(Lan("a").propose())
    rows = recipe_catalogue.fastest(recipe_catalogue.runs(["a"], "lan", {"a": "spark"}, None))
    assert variables["vllm_serve_recipe"] == rows[0]["name"]
    assert rows[0]["hosts"] == 1
    assert rows[0]["acknowledge"] == []
    # of machines for which there is none, one is shown as a comment
    _hosts, variables = read(Lan("ab", thors="t").propose())
    assert "vllm_serve_recipe" not in variables


def test_texts_of_ansible_are_texts() -> None:
    """What tasks hand on are texts that remember where they came from."""
    machines = Lan("ab").join(("a", 1), ("b", 1)).propose()
    for machine in machines.hosts:
        machine.address = trust_as_template(machine.address)
        machine.node = {**machine.node, "hostname": trust_as_template(machine.node["hostname"])}
    assert read(machines, trust_as_template("nvidia")) == read(Lan("ab").join(("a", 1), ("b", 1)).propose())


def test_a_lan_with_a_thor_on_another_port() -> None:
    hosts, variables = read(Lan("a", thors="t").propose(), user="", port=2222)
    assert hosts["thors"]["hosts"] == {"t": None}
    assert (variables["fabric_topology"], variables["ansible_port"]) == ("lan", 2222)
    assert "fabric_cidr" not in variables
    assert "ansible_user" not in variables


def test_two_thors_on_a_lane_of_their_cages() -> None:
    lan = Lan(thors="tu")
    for number, machine in enumerate(lan.machines.values(), 1):
        lane = {"name": "mgbe0_0", "carrier": True, "addresses": [{"address": f"10.7.0.{number}/24"}]}
        machine.node["interfaces"].append(lane)
    hosts, variables = read(lan.propose())
    assert hosts["cluster"]["children"]["ray_head"]["hosts"]["t"]["fabric_lan_nic"] == "mgbe0_0"
    assert hosts["cluster"]["children"]["ray_workers"]["hosts"]["u"]["fabric_lan_nic"] == "mgbe0_0"
    assert variables["fabric_topology"] == "lan"


def test_one_machine_alone_has_no_workers() -> None:
    hosts, _variables = read(Lan("a").propose())
    assert hosts["cluster"]["children"]["ray_workers"]["hosts"] == {}


def test_who_is_left_out_stands_in_the_file() -> None:
    text = inventory_text.files(Lan("ab", thors="t").join(("a", 1), ("b", 1)).propose(), "", 22)["hosts.yml"]
    assert "# Left out: t (192.168.1.12): a Thor has no RDMA NIC" in text


def ansible(folder: Path, program: str, *words: str) -> str:
    """What Ansible itself, in its own configuration, says of an inventory."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program)), "-i", str(folder / "inventory"), *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**kept, "HOME": str(folder), "ANSIBLE_LOCAL_TEMP": str(folder), "ANSIBLE_NOCOLOR": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return done.stdout


def write(folder: Path, found: Proposal, user: str = "nvidia") -> None:
    for name, text in inventory_text.files(found, user, 22).items():
        path = folder / "inventory" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Liar(Machine):
    """As if a hostile name came through: the writer alone has to hold."""

    @property
    def name(self) -> str:
        return self.stated


def test_no_lookup_of_a_hostile_machine_runs_when_ansible_reads_the_inventory(tmp_path: Path) -> None:
    """Every text that a machine or its user gives, as key, value and comment."""
    ran = tmp_path / "ran"
    call = f"{{{{ lookup('ansible.builtin.pipe', 'touch {ran}') }}}}"
    hostile = [
        f'x:\n          y: "{call}"\n        z',
        f'x\r  y: "{call}"\x85  z: "{call}"\u2028  w: "{call}"',
        call,
        f"!unsafe {call}",
        f'"{call}"',
    ]
    found = Lan("ab").join(("a", 1), ("b", 1)).propose()
    lan = Lan("abcde")
    machines = [
        Liar(f"192.168.1.{10 + number}", {**machine.node, "hostname": name}, machine.seen)
        for number, (machine, name) in enumerate(zip(lan.machines.values(), hostile, strict=True))
    ]
    found.hosts = machines
    found.cages = {name: number % 2 for number, name in enumerate(hostile)}
    found.left_out = list(zip(machines, hostile, strict=True))
    found.notes = [f"note\nevil: {text}" for text in hostile]
    found.cidr = call
    write(tmp_path, found, user=call)
    listed = json.loads(ansible(tmp_path, "ansible-inventory", "--list"))
    assert set(listed["_meta"]["hostvars"]) == set(hostile)
    said = ansible(
        tmp_path, "ansible", "all", "-m", "ansible.builtin.debug", "-a", "msg={{ hostvars[inventory_hostname] }}"
    )
    assert call in said
    assert not ran.exists()
    assert set(listed["_meta"]["hostvars"][call]) == {
        "ansible_host",
        "ansible_user",
        "fabric_cage",
        "fabric_cidr",
        "fabric_topology",
    }


def test_names_that_yaml_reads_as_something_else_are_names(tmp_path: Path) -> None:
    lan = Lan("abcdefghi")
    given = ["null", "yes", "1e3", "0x10", "0o17", "12", "NO", "n", "e5"]
    for machine, name in zip(lan.machines.values(), given, strict=True):
        machine.node = {**machine.node, "hostname": name}
    found = lan.propose("lan")
    assert found.findings == []
    write(tmp_path, found)
    listed = json.loads(ansible(tmp_path, "ansible-inventory", "--list"))
    assert set(listed["_meta"]["hostvars"]) == set(given)
    assert set(listed["sparks"]["hosts"]) == set(given)
    text = (tmp_path / "inventory/hosts.yml").read_text()
    assert set(yaml.safe_load(text)["sparks"]["hosts"]) == set(given)
    # for readers of YAML 1.2, which know more numbers, all but plain words are quoted
    assert all(f'"{name}":' in text for name in given if name != "e5")


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_in_neither_file(name: str) -> None:
    lan = Lan("ab", generic="g").join(("a", 1), ("b", 1))
    lan.machines["g"].node = {**lan.machines["g"].node, "hostname": name}
    texts = inventory_text.files(lan.propose(), "nvidia", 22)
    assert all(text.replace("\n", "").isprintable() for text in texts.values())
    assert "# Left out: 192.168.1.12 (192.168.1.12): a generic machine." in texts["hosts.yml"]


def test_a_name_that_opens_a_document_of_its_own_is_none(tmp_path: Path) -> None:
    """A machine that is only left out was enough: its name stood in a comment."""
    ran = tmp_path / "ran"
    lan = Lan("ab", generic="g").join(("a", 1), ("b", 1))
    name = f"x\nall:\n  vars:\n    evil: \"{{{{ lookup('pipe', 'touch {ran}') }}}}\"\n#"
    lan.machines["g"].node = {**lan.machines["g"].node, "hostname": name}
    write(tmp_path, lan.propose())
    ansible(tmp_path, "ansible", "all", "-m", "ansible.builtin.debug", "-a", "msg={{ hostvars[inventory_hostname] }}")
    assert not ran.exists()
    assert "evil" not in ansible(tmp_path, "ansible-inventory", "--list")
