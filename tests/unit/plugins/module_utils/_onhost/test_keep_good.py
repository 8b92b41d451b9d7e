# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root keeps its own files when a rank asks for it; the rank decides neither what is kept nor where."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import keep_good, serving


class Worker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = [str(folder / "vllm.yaml"), str(folder / "vllm.env")]
        (folder / "vllm.yaml").write_text("model: one\n")
        (folder / "group.json").write_text(json.dumps({"kept": self.kept}))

    def ask(self, request: object) -> int:
        (self.folder / "request").write_text(json.dumps(request))
        words = [f"--{name}={self.folder / place}" for name, place in OPTIONS.items()]
        return keep_good.main(words)

    @property
    def copies(self) -> dict[str, str | None]:
        return serving.kept_good(str(self.folder / "good"))


OPTIONS = {"config": "group.json", "request": "request", "folder": "good"}


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def test_what_a_rank_was_started_with_is_kept(worker: Worker) -> None:
    assert worker.ask(serving.fingerprint(worker.kept)) == 0
    assert worker.copies == {worker.kept[0]: "model: one\n", worker.kept[1]: None}
    # the serving user may not read vllm.env where it holds a secret
    (worker.folder / "vllm.env").write_text("A=1\n")
    assert worker.ask({**serving.fingerprint(worker.kept), worker.kept[1]: ""}) == 0
    assert worker.copies[worker.kept[1]] == "A=1\n"


@pytest.mark.parametrize("request_", [{}, {"files": 1}, [1], {"/etc/shadow": ""}])
def test_a_request_that_fits_nothing_keeps_nothing(worker: Worker, request_: object) -> None:
    assert worker.ask(request_) == 0
    assert worker.copies == {}


def test_a_configuration_that_was_declared_anew_is_not_kept(worker: Worker, capsys: pytest.CaptureFixture[str]) -> None:
    request = serving.fingerprint(worker.kept)
    (worker.folder / "vllm.yaml").write_text("model: two\n")
    assert worker.ask(request) == 0
    assert worker.copies == {}
    assert "declared anew" in capsys.readouterr().out


def test_only_the_files_that_root_names_are_kept(worker: Worker) -> None:
    secret = worker.folder / "shadow"
    secret.write_text("x")
    assert worker.ask(serving.fingerprint([*worker.kept, str(secret)])) == 0
    assert str(secret) not in worker.copies
    kept = [name.partition("-")[0] for name in sorted(os.listdir(worker.folder / "good"))]
    assert kept == ["index.json", "vllm.yaml"]


def test_a_host_that_is_no_member_says_so(worker: Worker, capsys: pytest.CaptureFixture[str]) -> None:
    (worker.folder / "group.json").unlink()
    assert worker.ask({}) == 78
    assert "run the playbook again" in capsys.readouterr().err
