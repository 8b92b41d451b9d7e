# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.modules import model_store

USER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name
FILES = {"config.json": b"{}", "model.safetensors": b"w" * 1000}


def row(name: str, data: bytes) -> list[Any]:
    return [name, len(data), hashlib.sha256(data).hexdigest()]


class Host:
    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root / "models"
        self._tmp = root
        self._capsys = capsys

    def call(self, files: dict[str, dict[str, bytes]], check: bool = False, **args: Any) -> dict[str, Any]:
        models = [
            {"name": name, "source": "/x", "manifest": [row(*item) for item in contents.items()]}
            for name, contents in files.items()
        ]
        settings = {
            "root": str(self.root),
            "models": models,
            "owner": USER,
            "group": GROUP,
            **args,
            "_ansible_check_mode": check,
            "_ansible_diff": True,
        }
        with patch_module_args(settings), pytest.raises(SystemExit):
            model_store.main()
        return json.loads(self._capsys.readouterr().out)

    def send(self, data: bytes) -> None:
        upload = self._tmp / "upload"
        upload.write_bytes(data)
        part = {"file": str(upload), "sha256": hashlib.sha256(data).hexdigest(), "offset": 0, "size": len(data)}
        assert self.call({}, stage="receive", parts=[part])["changed"] is True


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def test_a_model_arrives_and_a_second_run_moves_nothing(host: Host) -> None:
    wanted = {"tiny": FILES}
    prediction = host.call(wanted, check=True)
    assert prediction["changed"] is True
    assert "need" not in prediction
    assert not host.root.exists()
    need = host.call(wanted)["need"]
    assert sorted(item["size"] for item in need) == [2, 1000]
    for data in FILES.values():
        host.send(data)
    result = host.call(wanted)
    assert result["changed"] is True
    assert result["diff"]["before"] == "tiny: 0 of 2 files, 0 owners wrong\n"
    assert result["diff"]["after"] == "tiny: 2 files, 1002 B\n"
    assert result["models"]["tiny"]["path"] == str(host.root / "tiny")
    again = host.call(wanted)
    assert (again["changed"], "need" in again, "diff" in again) == (False, False, False)
    assert sorted(os.listdir(host.root)) == [".records", "tiny"]


def test_other_models_are_left_alone_and_named(host: Host) -> None:
    for data in FILES.values():
        host.send(data)
    host.call({"tiny": FILES})
    shared = host.call({"twin": {"weights": FILES["model.safetensors"]}})
    assert shared["changed"] is True  # linked, nothing to send
    assert shared["unlisted"] == ["tiny"]
    assert (host.root / "twin" / "weights").read_bytes() == FILES["model.safetensors"]


def test_two_models_are_checked_for_room_together(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(model_store.Store, "check_space", lambda self, size, what: asked.append((size, what)))
    host.call({"tiny": FILES, "other": {"x": b"12345", "y": b"{}"}})
    assert asked == [(1007, "model_store_models: tiny, other")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"files": {"../up": FILES}}, "named with letters"),
        ({"files": {"tiny": {"../../etc/passwd": b""}}}, "does not stay inside"),
        ({"files": {"tiny": FILES}, "owner": "nobody-here"}, "owner 'nobody-here' with group"),
    ],
)
def test_bad_input(host: Host, args: dict[str, Any], message: str) -> None:
    result = host.call(**args)
    assert result["failed"] is True
    assert message in result["msg"]
    assert not host.root.exists()


def test_a_user_that_an_earlier_role_would_make(host: Host) -> None:
    assert host.call({"tiny": FILES}, check=True, owner="not-yet")["changed"] is True
