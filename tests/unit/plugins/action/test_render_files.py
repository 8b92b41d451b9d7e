# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action.render_files import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks


@pytest.fixture(autouse=True)
def roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role two declares the files that a test gives; the role one has none."""

    def state(role: str, _loader: Any, _templar: Any, given: dict[str, Any], secrets: bool) -> dict[str, Any] | None:
        assert not secrets
        return {"files": given["files"]} if role == "two" else None

    monkeypatch.setattr(role_tasks, "state", state)
    monkeypatch.setattr(role_tasks, "calls_that_make_files", lambda *_given: [])


def render(dest: Path, *files: dict[str, Any], check: bool = False, sources: Sequence[str] = ("x",)) -> dict[str, Any]:
    task = MagicMock(async_val=0, check_mode=check, diff=True, args={"dest": str(dest), "roles": ["one", "two"]})
    templar = MagicMock(template=lambda value: value)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), templar, MagicMock())
    given = {"inventory_hostname": "spark-01", "files": list(files), "ansible_inventory_sources": list(sources)}
    return action.run(task_vars=given)


FILE = {"path": "/etc/x", "content": "1\n", "mode": "0600", "owner": "sparkthor"}


def test_files_lie_below_the_name_of_their_host(tmp_path: Path) -> None:
    assert render(tmp_path / "out", FILE, check=True)["changed_paths"] == ["/etc/x"]
    assert not (tmp_path / "out").exists()
    result = render(tmp_path, FILE)
    path = tmp_path / "spark-01" / "etc" / "x"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("1\n", 0o600)
    assert result["diff"][0]["after_header"] == "spark-01:/etc/x"
    assert render(tmp_path, FILE)["changed"] is False


def test_a_folder_is_of_one_inventory_and_of_no_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    render(tmp_path, FILE, sources=["inventories/2spark"])
    assert f"sparkthor: spark-01: 1 files in {tmp_path}/spark-01, 1 new or changed" in capsys.readouterr().out
    assert (tmp_path / ".gitignore").read_text() == "*\n"
    render(tmp_path, FILE, sources=["inventories/../inventories/2spark"])
    with pytest.raises(
        AnsibleActionFail, match=r"holds files of the inventory .*/2spark, and this run is of .*/3spark"
    ):
        render(tmp_path, {**FILE, "content": "2"}, sources=["inventories/3spark"])
    assert (tmp_path / "spark-01" / "etc" / "x").read_text() == "1\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": "1"}, "text"),
        ({"path": "etc/x"}, "not an absolute path"),
        ({"path": "/a/../x"}, "absolute"),
        ({"mode": "u=r"}, "not octal"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, change: dict[str, str], words: str) -> None:
    with pytest.raises(AnsibleActionFail, match=words):
        render(tmp_path, {**FILE, **change})
