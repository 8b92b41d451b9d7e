# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from sparklab import base, checks, cli
from sparklab import lab as labs
from sparklab.net import Faults, Network
from sparklab.plan import Plan, Wish, allot, wire
from sparklab.system import LabError, locked, write

HOSTS = allot([Wish("spark-01"), Wish("spark-02")], "10.77.0.0/24")
PLAN = Plan("lab", "ab12", "10.77.0.0/24", "trixie", "4G", (), HOSTS, wire(HOSTS, "switch"))


# --- arguments -------------------------------------------------------------------------------------------------------


def parse(*words: str):
    return cli.parser().parse_args(words)


def test_create_takes_several_inventories():
    args = parse(
        "--home", "/h", "create", "-i", "a", "-i", "b", "--suite", "trixie", "--layer", "docker", "--disk", "4G"
    )
    assert (args.home, args.inventory, args.suite, args.layer, args.disk) == (
        "/h",
        ["a", "b"],
        "trixie",
        ["docker"],
        "4G",
    )


def test_home_and_name_are_taken_behind_the_verb_too():
    args = parse("status", "--home", "/h", "--name", "ring", "spark-01")
    assert (args.home, args.name, args.hosts) == ("/h", "ring", ["spark-01"])


def test_exec_passes_options_on_untouched():
    args = parse("exec", "spark-01", "--", "ls", "-l", "--name", "x")
    assert cli.without_dashes(args.command) == ["ls", "-l", "--name", "x"]
    assert cli.without_dashes(parse("ssh", "spark-01", "ls", "-l").command) == ["ls", "-l"]


@pytest.mark.parametrize("words", [("off",), ("create",), ("explode",), ("loss", "a", "much"), ()])
def test_bad_arguments_end_with_status_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*words)
    assert ended.value.code == 2
    assert "usage: sparklab" in capsys.readouterr().err


def test_errors_are_one_line_and_status_2(tmp_path: Path, capsys):
    assert cli.main(["--home", str(tmp_path), "list"]) == 0
    assert cli.main(["--home", str(tmp_path), "create", "-i", str(tmp_path / "none")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sparklab: ")
    assert error.count("\n") == 1


def test_without_root_nothing_happens(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(checks.os, "geteuid", lambda: 1000)
    assert cli.main(["--home", str(tmp_path / "h"), "create", "-i", str(tmp_path)]) == 2
    assert "root is needed" in capsys.readouterr().err
    assert not (tmp_path / "h").exists()


def test_a_missing_command_is_named(monkeypatch):
    monkeypatch.setattr(checks.os, "geteuid", lambda: 0)
    monkeypatch.setattr(checks.shutil, "which", lambda name: None if name == "tc" else f"/bin/{name}")
    with pytest.raises(LabError, match="commands missing on this machine: tc "):
        checks.require()


# --- which lab -------------------------------------------------------------------------------------------------------


def make_lab(home: Path, name: str) -> None:
    write(home / name / "lab.json", json.dumps({**PLAN.to_data(), "name": name}))


def test_the_only_lab_is_meant_else_a_name_is_asked_for(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("SPARKLAB_NAME", raising=False)
    with pytest.raises(LabError, match="no lab in"):
        labs.only_lab(tmp_path)
    make_lab(tmp_path, "one")
    assert labs.only_lab(tmp_path).name == "one"
    make_lab(tmp_path, "two")
    with pytest.raises(LabError, match="one, two"):
        labs.only_lab(tmp_path)
    monkeypatch.setenv("SPARKLAB_NAME", "two")
    assert labs.only_lab(tmp_path).name == "two"
    assert labs.labs(tmp_path) == ["one", "two"]


def test_an_unknown_lab_is_named(tmp_path: Path):
    with pytest.raises(LabError, match="no lab 'other'"):
        labs.Lab("other", tmp_path)


# --- the inventory that the lab writes -------------------------------------------------------------------------------


def test_the_overlay_reaches_hosts_with_their_real_keys():
    data = yaml.safe_load(labs.overlay(PLAN, Path("/h/lab"), Path("/run/sparklab/ab12.ssh")))
    host = data["all"]["hosts"]["spark-02"]
    assert host["ansible_host"] == "10.77.0.12"
    assert host["ansible_user"] == "nvidia"
    assert host["ansible_ssh_private_key_file"] == "/h/lab/ssh/id_ed25519"
    assert "UserKnownHostsFile=/h/lab/ssh/known_hosts" in host["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in host["ansible_ssh_common_args"]
    assert "ansible_host_key_checking" not in str(data)
    assert host["lab_name"] == PLAN.name


def test_the_overlay_keeps_secrets_out_of_the_users_inventory():
    data = yaml.safe_load(labs.overlay(PLAN, Path("/h/lab"), Path("/run/sparklab/ab12.ssh")))
    assert data["all"]["vars"] == {"sparkthor_secrets_dir": "/h/lab/secrets"}


# --- faults ----------------------------------------------------------------------------------------------------------


def network(tmp_path: Path) -> Network:
    return Network(PLAN, tmp_path)


def test_no_faults_no_rules(tmp_path: Path):
    assert network(tmp_path).ruleset(Faults.none()) == ""


def test_rules_of_each_fault(tmp_path: Path):
    end = "spark-02:enp1s0f1np1"
    state = {
        **Faults.none(),
        "silent": [end],
        "loss": {end: 12.5},
        "blackhole": [end],
        "oneway": [["spark-01", "spark-02"]],
    }
    rules = network(tmp_path).ruleset(state)
    assert 'iifname "h1p3" drop' in rules
    assert 'oifname "h1p3" drop' in rules
    assert 'iifname "h1p3" numgen random mod 1000 < 125 drop' in rules
    assert 'oifname "h1p3" meta length > 1500 drop' in rules
    assert 'iifname "h0p0" oifname "h1p0" drop' in rules
    assert 'iifname "h1p0" oifname "h0p0" drop' not in rules


def test_faults_are_kept_in_their_file(tmp_path: Path):
    faults = Faults(tmp_path / "faults.json")
    assert faults.read() == Faults.none()
    state = faults.read()
    state["cut"].append(["spark-01", "enp1s0f1np1"])
    faults.save(state)
    assert faults.read()["cut"] == [["spark-01", "enp1s0f1np1"]]
    assert Faults.none()["cut"] == []


class Recorder(Network):
    """A network that writes down what it would be told, instead of changing links."""

    def change_faults(self, change) -> None:
        state = self.faults.read()
        change(state)
        self.faults.save(state)


@pytest.fixture
def lab(tmp_path: Path) -> labs.Lab:
    hosts = allot([Wish(f"spark-0{number}") for number in (1, 2, 3)], "10.77.0.0/24")
    plan = Plan("lab", "ab12", "10.77.0.0/24", "trixie", "4G", (), hosts, wire(hosts, "ring"))
    write(tmp_path / "lab/lab.json", json.dumps(plan.to_data()))
    one = labs.Lab("lab", tmp_path)
    one.network = Recorder(plan, tmp_path / "lab")
    return one


def test_cut_spares_the_management_nic_and_fix_undoes_it(lab: labs.Lab):
    lab.cut("spark-01")
    cut = lab.network.faults.read()["cut"]
    assert len(cut) == 4
    assert ["spark-01", "enP7s7"] not in cut
    lab.cut("spark-01", "enP7s7")
    lab.fix("spark-01")
    assert lab.network.faults.read()["cut"] == []


def test_a_cable_can_be_fixed_at_either_end(lab: labs.Lab):
    lab.cut("spark-01", "enp1s0f0np0")
    lab.fix("spark-02", "enp1s0f1np1")
    assert lab.network.faults.read()["cut"] == []


def test_loss_rate_oneway_blackhole_on_and_off(lab: labs.Lab):
    lab.loss("spark-01", 10, "enp1s0f0np0")
    lab.rate("spark-01", ["enp1s0f0np0"], 400)
    lab.oneway("spark-01", "spark-02")
    lab.oneway("spark-01", "spark-02")
    lab.blackhole("spark-01", "enp1s0f0np0")
    end = "spark-01:enp1s0f0np0"
    assert lab.network.faults.read() == {
        "cut": [],
        "silent": [],
        "loss": {end: 10},
        "rate": {end: 400},
        "oneway": [["spark-01", "spark-02"]],
        "blackhole": [end],
    }
    lab.fix("spark-01")
    assert lab.network.faults.read() == {**Faults.none(), "rate": {end: 400}}
    lab.rate("spark-01", [], None)
    assert lab.network.faults.read() == Faults.none()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda lab: lab.cut("spark-01", "eth0"),
        lambda lab: lab.cut("nobody"),
        lambda lab: lab.loss("spark-01", 101),
        lambda lab: lab.rate("spark-01", [], 0),
        lambda lab: lab.oneway("spark-01", "nobody"),
        lambda lab: lab.memory("spark-01", 10**9),
    ],
)
def test_bad_faults_change_nothing(lab: labs.Lab, wrong):
    with pytest.raises(LabError):
        wrong(lab)
    assert lab.network.faults.read() == Faults.none()


# --- small things ----------------------------------------------------------------------------------------------------


def test_a_changed_recipe_makes_another_base(monkeypatch):
    before = base.base_name("trixie")
    assert base.base_name("trixie") == before
    assert base.base_name("bookworm") != before
    monkeypatch.setattr(base, "PACKAGES", [*base.PACKAGES, "cowsay"])
    assert base.base_name("trixie") != before


def test_unknown_suites_and_layers_are_named():
    with pytest.raises(LabError, match="unknown suite 'sid'"):
        base.base("sid")
    with pytest.raises(LabError, match="unknown layer 'snap'"):
        base.layer("snap", "trixie")


def test_the_cache_follows_xdg(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert base.cache_root() == tmp_path / "sparkthor-lab"


def test_files_appear_whole_and_with_their_mode(tmp_path: Path):
    write(tmp_path / "a/b", "x\n", 0o600)
    assert (tmp_path / "a/b").read_text() == "x\n"
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_a_lock_is_released(tmp_path: Path):
    with locked(tmp_path / "lock"):
        pass
    with locked(tmp_path / "lock"):
        pass
