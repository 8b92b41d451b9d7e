# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's side of the firewall change, against an nft that holds one table and a systemd that notes its timers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import has_marker
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_watch
from ansible_collections.sparkthor.cluster.plugins.modules import firewall_apply

from tests.unit import role_state
from tests.unit.clock import Clock
from tests.unit.firewall_machine import Machine, declared, replaced, ruleset

HEAD = "table inet sparkthor\ndelete table inet sparkthor\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Machine:
    return replaced(tmp_path / "run", monkeypatch, clock)


def call(capsys: pytest.CaptureFixture[str], check: bool = False, **arguments: Any) -> dict[str, Any]:
    given = {**declared(), **arguments, "_ansible_check_mode": check}
    with patch_module_args(given), pytest.raises(SystemExit):
        firewall_apply.main()
    return json.loads(capsys.readouterr().out)


def start(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    return call(capsys, **{"step": "start", "token": "t", **arguments})


def wanted_table(**given: Any) -> str:
    """The table that the role's variables come to."""
    return ruleset(**given).partition("delete table inet sparkthor\n")[2]


def test_check_mode_predicts_and_touches_nothing(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, check=True)
    assert (result["changed"], result["table_changed"]) == (True, True)
    assert result["changed_paths"] == ["/etc/sparkthor/firewall.nft"]
    assert [part["after_header"] for part in result["diff"]] == ["loaded table inet sparkthor"]
    assert "policy drop" in result["diff"][0]["after"]
    assert machine.log == ["trial"]
    assert machine.table == ""
    assert not Path(f"{machine.folder}-check").exists()


def test_the_way_back_is_armed_before_anything_is_loaded(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.table = before = "table inet sparkthor {\n}\n"
    result = start(capsys, rollback_timeout=30)
    assert result["started"] is True
    assert result["confirmed"] is False
    assert machine.log == ["trial", "arm 30s", "load candidate.nft"], "no file yet: a reboot brings the old table back"
    assert machine.table == wanted_table()
    assert (machine.folder / "restore.nft").read_text() == HEAD + before
    assert (machine.folder / "armed.json").stat().st_mode & 0o777 == 0o600
    assert machine.folder.stat().st_mode & 0o777 == 0o700


def test_without_a_table_connections_are_followed_first(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    start(capsys)
    assert machine.log == ["trial", "arm 45s", "load warm-up.nft", "load candidate.nft"]
    assert (machine.folder / "restore.nft").read_text() == HEAD, "the way back is no table at all"


def test_nothing_to_do(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.table, machine.files_differ = wanted_table(), False
    result = start(capsys)
    assert result["changed"] is False
    assert "started" not in result
    assert machine.log == ["trial"]
    assert not machine.folder.exists()


def test_files_alone_need_no_rollback(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.table = wanted_table()
    result = start(capsys)
    assert (result["changed"], result["table_changed"]) == (True, False)
    assert machine.log == ["trial", "files"]
    assert not machine.folder.exists()


def test_what_is_declared_lasts(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    start(capsys)
    wanted = machine.declared[0]["wanted"]
    rules, unit, program, watch = wanted.files
    assert (rules.path, rules.mode) == ("/etc/sparkthor/firewall.nft", 0o600)
    assert rules.content.decode().endswith(machine.table)
    assert "ExecStart=/usr/sbin/nft -f /etc/sparkthor/firewall.nft" in unit.content.decode()
    assert f"ExecStart=/usr/bin/python3 -IB {program.path} /usr/sbin/nft" in watch.content.decode()
    # it comes, and it goes with the firewall
    assert "BindsTo=sparkthor-firewall.service" in watch.content.decode()
    names = ["sparkthor-firewall.service", "sparkthor-firewall-watch.service"]
    assert [(one.name, one.enabled) for one in wanted.units] == [(name, True) for name in names]
    assert wanted.units[1].restart_on == [program.path, watch.path]


def test_the_watch_is_ours_and_stands_alone() -> None:
    text = next(file["content"] for file in declared()["files"] if file["path"].endswith("/firewall-watch"))
    assert has_marker(text.encode())
    compile(text, "firewall-watch", "exec")
    assert "ansible_collections" not in text


def test_confirming_disarms_and_makes_it_last(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    start(capsys)
    machine.log.clear()
    result = call(capsys, step="confirm", token="t")
    assert (result["changed"], result["confirmed"]) == (True, True)
    assert machine.log == ["disarm", "files"]
    assert not machine.folder.exists()


def test_one_failure_does_not_use_up_the_way_back(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """The timer comes once: what it starts is started again until the kernel has taken the old table."""
    start(capsys)
    assert "--property=Restart=on-failure" in machine.armed
    assert "--on-active=45s" in machine.armed
    call(capsys, step="confirm", token="t")
    # one that is about to be started again must not undo what is confirmed now
    assert machine.stopped == ["sparkthor-firewall-rollback.timer", "sparkthor-firewall-rollback.service"]


def test_only_the_run_that_armed_may_confirm(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    start(capsys)
    assert "no change of this run to confirm" in call(capsys, step="confirm", token="other")["msg"]
    assert (machine.folder / "armed.json").exists(), "the other run's change is still armed"


def test_what_the_host_took_back_is_not_made_to_last(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    start(capsys, rollback_timeout=12)
    machine.table = ""
    machine.log.clear()
    result = call(capsys, step="confirm", token="t", rollback_timeout=12)
    assert result["failed"] is True
    assert "the host took the change back because the controller did not come back in time (12 s)" in result["msg"]
    assert "firewall_ssh_sources" in result["msg"]
    assert machine.log == ["disarm"]
    assert not machine.folder.exists()


def test_an_unconfirmed_change_is_taken_back_before_the_next(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.table = "table inet sparkthor {\n}\n"
    start(capsys)
    machine.log.clear()
    start(capsys, token="second", **declared(firewall_ssh_ports=[22, 2222]))
    assert machine.log[:2] == ["load restore.nft", "disarm"]
    assert machine.log[2:] == ["trial", "arm 45s", "load candidate.nft"]
    assert (machine.folder / "restore.nft").read_text() == HEAD + "table inet sparkthor {\n}\n"


@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        ("check", "nft refuses the ruleset"),
        ("trial", "the kernel refuses the ruleset"),
        ("arm", "the rollback cannot be armed, so the ruleset is not loaded"),
        ("list", "nft cannot list the table"),
    ],
)
def test_what_cannot_be_tried_or_armed_is_not_loaded(
    machine: Machine, capsys: pytest.CaptureFixture[str], refuse: str, words: str
) -> None:
    machine.refuse = refuse
    result = start(capsys)
    assert result["failed"] is True
    assert words in result["msg"]
    assert not [line for line in machine.log if line.startswith("load")]
    assert "files" not in machine.log


def test_a_table_that_does_not_load_is_taken_back_at_once(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.refuse = "load candidate.nft"
    assert "nft cannot load" in start(capsys)["msg"]
    assert machine.log[-2:] == ["load restore.nft", "disarm"]
    assert machine.table == ""


def test_a_change_needs_somebody_who_confirms_it(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert "by the action plugin" in call(capsys)["msg"]
    assert machine.log == ["trial"]


def test_a_ruleset_that_is_none_of_the_files_and_a_missing_nft_are_one_message(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = start(capsys, ruleset="/etc/x.nft")["msg"]
    assert told.startswith("ruleset is /etc/x.nft, and files writes /etc/sparkthor/firewall.nft, ")
    assert told.endswith(
        ": the ruleset must be a file that files writes, so add an item with path: /etc/x.nft and its template to "
        "files, or give ruleset the path of the item that has it"
    )
    monkeypatch.setattr(firewall_watch, "find_nft", lambda: "")
    assert "install the package nftables" in start(capsys)["msg"]


@pytest.mark.parametrize("seconds", [-1, 0, 2, 9, 601])
def test_a_way_back_that_comes_too_early_or_never_is_refused(
    machine: Machine, capsys: pytest.CaptureFixture[str], seconds: int
) -> None:
    assert f"rollback_timeout: {seconds} is not between 10 and 600" in start(capsys, rollback_timeout=seconds)["msg"]
    assert machine.log == []


def test_a_ruleset_that_loads_after_the_way_back_is_taken_back(
    machine: Machine, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer has fired by then, and nothing else would roll back what it could not know of."""
    times = iter((100.0, 129.5))
    monkeypatch.setattr(clock, "monotonic", lambda: next(times))
    machine.table = before = "table inet sparkthor {\n}\n"
    assert "raise firewall_rollback_timeout" in start(capsys, rollback_timeout=30)["msg"]
    assert machine.log[-2:] == ["load restore.nft", "disarm"]
    assert machine.table == before


#: what the controller makes of the role's task with ``state: absent``
UNDONE = {
    **{"directories": [], "files": [], "state": "absent"},
    **{name: value for name, value in role_state.undone("firewall").items() if name in ("restore", "units")},
}


def test_absent_needs_no_nft(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firewall_watch, "find_nft", lambda: "")
    machine.files_differ = False
    assert call(capsys, **UNDONE)["changed"] is False
    assert machine.log == ["files"]


def test_absent_takes_the_table_and_the_files_away(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.table = "table inet sparkthor {\n}\n"
    predicted = call(capsys, check=True, **UNDONE)
    assert predicted["changed"] is True
    assert machine.log == []
    result = call(capsys, **UNDONE)
    assert (result["changed"], result["table_changed"]) == (True, True)
    assert result["diff"] == predicted["diff"]
    assert machine.log == ["files", "delete"]
    wanted = machine.declared[-1]["wanted"]
    units = "/etc/systemd/system/sparkthor-firewall"
    watch = ["/usr/local/lib/sparkthor/firewall-watch", f"{units}-watch.service"]
    assert wanted.restore == ["/etc/sparkthor/firewall.nft", f"{units}.service", *watch]
    # the watch first: it would load the table again
    assert [unit.name for unit in wanted.units] == ["sparkthor-firewall-watch.service", "sparkthor-firewall.service"]
    machine.files_differ = False
    assert call(capsys, **UNDONE)["changed"] is False
