# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.modules import rdma_info

TEXT = "rocep1s0f1 port 1 ==> enp1s0f1np1-none (Up)\n"


def call(
    arguments: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: t.Any
) -> dict[str, t.Any]:
    monkeypatch.setattr(rdma_info, "run_limited", answer)
    with patch_module_args(arguments | {"_ansible_check_mode": True}), pytest.raises(SystemExit):
        rdma_info.main()
    return json.loads(capsys.readouterr().out)


def test_links_and_source(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    limits = []

    def answer(argv: list[str], timeout: float) -> tuple[int, str, str]:
        limits.append(timeout)
        return 0, TEXT, ""

    result = call({"timeout": 3}, monkeypatch, capsys, answer)
    assert result["changed"] is False
    assert result["source"] == "ibdev2netdev"
    assert (result["links"][0]["device"], result["links"][0]["state"]) == ("rocep1s0f1", "up")
    assert limits == [3], "every command has the time limit"


def test_a_tool_that_hangs_is_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(rdma_info.AnsibleModule, "warn", lambda module, text: warnings.append(text))
    result = call({"sources": ["rdma"]}, monkeypatch, capsys, lambda argv, timeout: (124, "", "rdma: no answer"))
    assert result["links"] == []
    assert warnings == ["rdma failed with exit code 124: rdma: no answer"]


def test_a_time_limit_of_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = call({"timeout": 0}, monkeypatch, capsys, lambda argv, timeout: (0, TEXT, ""))
    assert result["failed"] is True
    assert "timeout is 0" in result["msg"]
