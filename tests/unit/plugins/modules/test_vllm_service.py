# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which part of the host each state of the module calls, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.modules import vllm_service


def call(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        vllm_service.main()
    outcome: dict[str, Any] = json.loads(capsys.readouterr().out)
    return outcome


def test_a_rollback_that_has_nothing_to_go_back_to_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(name: str) -> None:
        raise vllm_service.kept.KeptError(f"no configuration {name} was kept")

    monkeypatch.setattr(vllm_service.kept, "choose", nothing)
    outcome = call(capsys, state="rolled_back", name="monday")
    assert (outcome["failed"], outcome["msg"]) == (True, "no configuration monday was kept")
    kept = call(capsys, state="kept", name="monday")
    assert kept["msg"] == "what serves cannot be kept on this host: no configuration monday was kept"


@pytest.mark.parametrize("check", [False, True])
def test_a_rollback_is_only_predicted_in_check_mode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], check: bool
) -> None:
    class Change:
        path = "/etc/sparkthor/vllm.yaml"

        def shown(self) -> dict[str, str]:
            return {"before": "a", "after": "b"}

    class Beside:
        def _asdict(self) -> dict[str, Any]:
            return {"beside_since": []}

    applied: list[Any] = []
    monkeypatch.setattr(vllm_service.kept, "choose", lambda name: name)
    monkeypatch.setattr(vllm_service.kept, "differences", lambda _one, _hosts, machines: [Change()])
    monkeypatch.setattr(vllm_service.kept, "apply", applied.extend)
    monkeypatch.setattr(vllm_service.kept, "beside", lambda _one: Beside())
    monkeypatch.setattr(vllm_service.kept, "names", lambda: f"names after {len(applied)}")
    outcome = call(capsys, state="rolled_back", name="monday", _ansible_check_mode=check)
    assert (outcome["changed"], outcome["files"]) == (True, ["/etc/sparkthor/vllm.yaml"])
    assert len(applied) == (0 if check else 1)
    # of what is served then
    assert outcome["names"] == f"names after {len(applied)}"


@pytest.mark.parametrize("check", [False, True])
def test_a_door_is_told_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, check: bool
) -> None:
    applied: list[Any] = []
    monkeypatch.setattr(vllm_service.kept, "apply", applied.extend)
    told = vllm_service.kept.told
    monkeypatch.setattr(vllm_service.kept, "told", lambda names: told(names, str(tmp_path / "others.conf")))
    (tmp_path / "others.conf").write_text('# of a\n"~^new$" "big new";\n# end of a\n')
    outcome = call(capsys, state="told", names='# of a\n"~^old$" "big old";\n# end of a\n', _ansible_check_mode=check)
    assert (outcome["changed"], outcome["files"]) == (True, [str(tmp_path / "others.conf")])
    assert [change.after for change in applied] == ([] if check else ['# of a\n"~^old$" "big old";\n# end of a\n'])
    outcome = call(capsys, state="told", names="nonsense")
    assert (outcome["failed"], outcome["msg"]) == (
        True,
        "what another head says that it serves are no names: 'nonsense'",
    )


def test_a_group_that_cannot_be_asked_is_an_error_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*_more: Any, **_named: Any) -> None:
        raise vllm_service.ready.ReadyError("serving.json is not there; run site.yml")

    monkeypatch.setattr(vllm_service.ready, "ensure", lost)
    outcome = call(capsys, state="serving")
    assert (outcome["failed"], outcome["msg"]) == (True, "serving.json is not there; run site.yml")
