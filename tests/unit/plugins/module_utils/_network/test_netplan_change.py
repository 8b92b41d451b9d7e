# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import deadline
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_change as change
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan_decision,
    netplan_generator,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

from tests.unit.clock import Clock

GLOBAL = {"scope": "global", "dynamic": False, "family": "inet"}


class Systemd:
    def __init__(self, folder: Path) -> None:
        self.folder, self.units, self.refuse, self.timer = folder, [], "", True
        self.problems: list[str] = []
        self.lines: list[str] = []

    def run(self, argv: list[str], limit: float = 20) -> tuple[int, str, str]:
        self.lines.append(" ".join(argv))
        if argv[0] == "systemd-run":
            unit = next(word for word in argv if word.startswith("--unit=")).partition("=")[2]
            if unit == self.refuse:
                return 1, "", "Failed to start"
            self.units.append(unit)
            assert (self.folder / "plan.json").exists() or unit == change.NOW_UNIT
            if unit == change.NOW_UNIT:
                (self.folder / "plan.json").unlink()
                job.write_json(
                    str(self.folder / "outcome.json"),
                    {"token": "t", "result": "rolled_back", "reason": argv[-1], "steps": []},
                )
        return 0, "", ""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Systemd:
    folder = tmp_path / "state"
    made = Systemd(folder)
    real = job.write_state
    me = {"uid": os.geteuid(), "gid": os.getegid()}
    monkeypatch.setattr(job, "run", made.run)
    monkeypatch.setattr(job, "write_state", lambda path, want: real(path, want and {**want, **me}))
    monkeypatch.setattr(job, "unit_active", lambda unit: made.timer)
    monkeypatch.setattr(job, "live_links", dict)
    monkeypatch.setattr(job, "live_routes", list)
    monkeypatch.setattr(job, "generated_files", lambda root="": {})
    monkeypatch.setattr(job, "management_path_problems", lambda plan: made.problems)
    monkeypatch.setattr(job, "changed_since", lambda plan: [])
    monkeypatch.setattr(netplan_generator, "source_files", dict)
    monkeypatch.setattr(job, "BOOT_UNIT", str(tmp_path / "boot.service"))
    monkeypatch.setattr(job, "BOOT_LINK", str(tmp_path / "wants" / "boot.service"))
    monkeypatch.setattr(deadline, "time", clock)
    return made


PARAMS = {"token": "t", "rollback_timeout": 60, "path": "/etc/netplan/40-cx7.yaml"}


def armed_and_applied(systemd: Systemd) -> None:
    change.arm_and_start(netplan_decision.NetplanDecision(), PARAMS, "mgmt0", str(systemd.folder))
    job.write_json(str(systemd.folder / "outcome.json"), {"token": "t", "result": "applied", "steps": [], "reason": ""})


def test_the_timer_and_the_boot_unit_are_armed_before_the_change_starts(systemd: Systemd) -> None:
    change.arm_and_start(netplan_decision.NetplanDecision(), PARAMS, "mgmt0", str(systemd.folder))
    assert systemd.units == [job.TIMER, change.APPLY_UNIT]
    assert systemd.folder.stat().st_mode & 0o777 == 0o700
    assert "def rollback" in (systemd.folder / "sparkthor_netplan/_network/netplan_job.py").read_text()
    assert (systemd.folder / "plan.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((systemd.folder / "plan.json").read_text())["management"] == "mgmt0"
    assert os.readlink(job.BOOT_LINK) == job.BOOT_UNIT
    assert "ConditionPathExists" in Path(job.BOOT_UNIT).read_text()


def test_a_way_back_that_is_killed_is_started_again(systemd: Systemd) -> None:
    """The timer comes once. What it starts ends well where nothing is armed any more, and is stopped with its files."""
    change.arm_and_start(netplan_decision.NetplanDecision(), PARAMS, "mgmt0", str(systemd.folder))
    [armed] = [line for line in systemd.lines if f"--unit={job.TIMER} " in line]
    assert "--property=Restart=on-failure" in armed
    [started] = [line for line in systemd.lines if f"--unit={change.APPLY_UNIT} " in line]
    assert "Restart" not in started, "a change is tried once"
    systemd.lines.clear()
    change.tidy(str(systemd.folder))
    assert systemd.lines == [f"systemctl stop {job.TIMER}.service"]
    assert not systemd.folder.exists()


def test_what_is_armed_runs_without_the_collection(systemd: Systemd) -> None:
    """As systemd starts it: another working directory, and nothing but the copies to import."""
    change.arm_and_start(netplan_decision.NetplanDecision(), PARAMS, "mgmt0", str(systemd.folder))
    (systemd.folder / "plan.json").unlink()
    program = [sys.executable, "-S", str(systemd.folder / "job.py"), "rollback", str(systemd.folder)]
    done = subprocess.run(program, cwd="/", env={}, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"result": "nothing armed"}), done.stderr


def test_a_floating_address_is_not_recorded(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or losing it to another head would count as the loss of the way in, and a rollback would take it from there."""
    live = {"mgmt0": {"addresses": {"10.0.0.1/24": GLOBAL, "10.0.0.100/24": GLOBAL}}}
    monkeypatch.setattr(job, "live_links", lambda: live)
    decision = netplan_decision.NetplanDecision(floating=["10.0.0.100"])
    change.arm_and_start(decision, PARAMS, "mgmt0", str(systemd.folder))
    plan = json.loads((systemd.folder / "plan.json").read_text())
    assert plan["live"] == {"mgmt0": {"addresses": {"10.0.0.1/24": GLOBAL}}}
    assert plan["floating"] == ["10.0.0.100"]


@pytest.mark.parametrize("said", [{}, {"token": "t", "result": "applied", "steps": [], "reason": ""}])
def test_a_rollback_that_could_not_be_written_down_is_no_confirmation(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    """The disk was full: what was written when the change was made still stands there, or nothing does."""
    armed_and_applied(systemd)
    monkeypatch.setattr(change, "_systemd_run", lambda *arguments: (systemd.folder / "plan.json").unlink())
    real = job.read_netplan_json
    answers = iter([said or None])
    monkeypatch.setattr(
        job,
        "read_netplan_json",
        lambda path: next(answers, said) if not change.armed(str(systemd.folder)) else real(path),
    )
    systemd.problems = ["mgmt0 lost 10.0.0.1/24"]
    answer = change.confirm("t", folder=str(systemd.folder))
    assert (answer["status"], answer["reason"]) == ("rolled_back", "mgmt0 lost 10.0.0.1/24")


@pytest.mark.parametrize("refuse", [job.TIMER, change.APPLY_UNIT, ""])
def test_what_cannot_be_armed_is_not_started(systemd: Systemd, refuse: str) -> None:
    systemd.refuse = refuse
    systemd.timer = bool(refuse)
    with pytest.raises(netplan_decision.ChangeError):
        change.arm_and_start(netplan_decision.NetplanDecision(), PARAMS, "mgmt0", str(systemd.folder))
    assert change.APPLY_UNIT not in systemd.units
    assert not systemd.folder.exists()
    assert not Path(job.BOOT_UNIT).exists()


def test_confirm_disarms_and_leaves_nothing(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    assert change.confirm("t", folder=str(systemd.folder))["status"] == "confirmed"
    assert not systemd.folder.exists()
    assert not os.path.lexists(job.BOOT_LINK)


def test_confirm_takes_back_what_hurt_the_way_in(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    systemd.problems = ["mgmt0 lost 10.0.0.1/24"]
    answer = change.confirm("t", folder=str(systemd.folder))
    assert (answer["status"], answer["reason"]) == ("rolled_back", "mgmt0 lost 10.0.0.1/24")


def test_confirm_takes_back_what_somebody_else_joined_in(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    armed_and_applied(systemd)
    monkeypatch.setattr(job, "changed_since", lambda plan: ["/etc/netplan/01-m.yaml"])
    answer = change.confirm("t", folder=str(systemd.folder))
    assert answer["status"] == "rolled_back"
    assert "/etc/netplan/01-m.yaml was changed by someone else" in answer["reason"]


def test_confirm_reports_what_the_host_did_alone(systemd: Systemd) -> None:
    systemd.folder.mkdir()
    job.write_json(
        str(systemd.folder / "outcome.json"),
        {"token": "t", "result": "rolled_back", "reason": "no confirmation within 60 s", "steps": ["x"]},
    )
    answer = change.confirm("t", folder=str(systemd.folder))
    assert answer == {"status": "rolled_back", "reason": "no confirmation within 60 s", "steps": ["x"]}
    assert not systemd.folder.exists()


def test_confirm_of_somebody_elses_token(systemd: Systemd) -> None:
    assert change.confirm("other", folder=str(systemd.folder))["status"] == "unknown"


def test_leftovers_of_a_dead_run_are_taken_back_first(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    warning = change.clear_leftovers(str(systemd.folder))
    assert "a later run found this change unconfirmed" in warning
    assert systemd.units[-1] == change.NOW_UNIT
    assert not systemd.folder.exists()
    assert change.clear_leftovers(str(systemd.folder)) == ""


def test_copies_of_other_peoples_files_survive_the_tidying(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    (systemd.folder / "replaced-01-m.yaml").write_text("theirs\n")
    change.confirm("t", folder=str(systemd.folder))
    assert os.listdir(systemd.folder) == ["replaced-01-m.yaml"]


def test_a_sound_change_may_stay_armed(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    assert change.confirm("t", folder=str(systemd.folder), hold=True)["status"] == "held"
    assert change.armed(str(systemd.folder))
    assert os.path.lexists(job.BOOT_LINK), "a host that goes down now comes back as it was"
    assert change.confirm("t", folder=str(systemd.folder))["status"] == "confirmed"
    assert not systemd.folder.exists()


def test_links_that_did_not_stay_as_planned_are_taken_back(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    decision = netplan_decision.NetplanDecision(expect=[{"netdev": "fab0", "address": "10.9.0.1/24", "mtu": 9000}])
    change.arm_and_start(decision, PARAMS, "mgmt0", str(systemd.folder))
    job.write_json(str(systemd.folder / "outcome.json"), {"token": "t", "result": "applied", "steps": [], "reason": ""})
    live = {"fab0": {"up": True, "mtu": 1500, "addresses": {"10.9.0.1/24": GLOBAL}}}
    monkeypatch.setattr(job, "live_links", lambda: live)
    answer = change.confirm("t", folder=str(systemd.folder), hold=True)
    assert (answer["status"], answer["reason"]) == ("rolled_back", "fab0 has MTU 1500 instead of 9000")


def test_holding_takes_back_what_hurt_the_way_in(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    systemd.problems = ["mgmt0 is down"]
    assert change.confirm("t", folder=str(systemd.folder), hold=True)["status"] == "rolled_back"


def test_a_held_change_is_taken_back_because_of_another_host(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    answer = change.take_back("t", "another host failed", str(systemd.folder))
    assert (answer["status"], answer["reason"]) == ("rolled_back", "another host failed")
    assert systemd.units[-1] == change.NOW_UNIT
    assert not systemd.folder.exists()


def test_the_host_may_have_been_faster(systemd: Systemd) -> None:
    systemd.folder.mkdir()
    job.write_json(
        str(systemd.folder / "outcome.json"),
        {"token": "t", "result": "rolled_back", "reason": "no confirmation within 60 s", "steps": []},
    )
    answer = change.take_back("t", "another host failed", str(systemd.folder))
    assert (answer["status"], answer["reason"]) == ("rolled_back", "no confirmation within 60 s")
    assert change.NOW_UNIT not in systemd.units


def test_nobody_elses_change_is_taken_back(systemd: Systemd) -> None:
    armed_and_applied(systemd)
    assert change.take_back("other", "x", str(systemd.folder))["status"] == "unknown"
    assert change.armed(str(systemd.folder))
