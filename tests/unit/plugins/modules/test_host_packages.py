# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.modules import host_packages

from tests.unit.apt import Apt


class Machine:
    """The module on a host whose packages are a dictionary."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.apt = Apt()
        self._capsys = capsys
        monkeypatch.setattr(host_packages, "run_limited", self.apt.run)
        monkeypatch.setattr(host_packages, "Host", partial(Host, root=str(root)))

    def call(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            host_packages.main()
        return json.loads(self._capsys.readouterr().out)

    def install(self, name: str, *depends: str) -> dict[str, Any]:
        self.call(names=[name], step="note")
        self.apt.install(name, *depends)
        return self.call(names=[name], step="record")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, monkeypatch, capsys)


def test_what_came_is_told_and_is_no_change_of_the_record(machine: Machine) -> None:
    assert machine.install("nginx", "libpcre") == {"changed": False, "packages": ["libpcre", "nginx"]}


def test_what_came_goes_again(machine: Machine) -> None:
    machine.install("nginx", "libpcre")
    before = dict(machine.apt.needs)
    shown = machine.call(check=True, state="absent")
    assert (shown["changed"], shown["packages"], machine.apt.needs) == (True, ["libpcre", "nginx"], before)
    gone = machine.call(state="absent")
    assert (gone["changed"], gone["packages"], gone["kept"]) == (True, ["libpcre", "nginx"], [])
    assert gone["diff"]["before"] == "libpcre\nnginx\n"
    assert set(machine.apt.needs) == {"bash", "zlib"}
    assert machine.call(state="absent")["changed"] is False


def test_what_others_need_is_kept(machine: Machine) -> None:
    machine.install("nginx")
    machine.apt.install("a-page-of-the-owner", "nginx")
    kept = machine.call(state="absent")
    assert (kept["changed"], kept["kept"]) == (False, ["nginx"])


def test_check_mode_notes_nothing(machine: Machine) -> None:
    machine.call(check=True, names=["nginx"], step="note")
    machine.apt.install("nginx")
    assert machine.call(names=["nginx"], step="record")["packages"] == []


def test_apt_that_cannot_answer_is_a_sentence(machine: Machine) -> None:
    machine.install("nginx")
    machine.apt.broken = True
    failed = machine.call(state="absent")
    assert failed["failed"] is True
    assert "Could not get lock" in failed["msg"]
