# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import threading
import types
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import nodes_prepare


def test_the_task_waits_for_the_hosts_own_system(tmp_path: Path) -> None:
    request, done = tmp_path / "request", tmp_path / "done"
    answer = threading.Timer(0.2, done.write_text, ("1",))
    answer.start()
    assert nodes_prepare.drop_caches_task()(str(request), str(done), 20.0) == ""
    answer.join()
    assert float(request.read_text()) > 0


def test_the_task_says_why_not(tmp_path: Path) -> None:
    task = nodes_prepare.drop_caches_task()
    assert task(str(tmp_path / "request"), str(tmp_path / "done"), 0.0) == (
        "sparkthor-drop-caches.service did not answer"
    )
    assert task(str(tmp_path / "no" / "request"), "", 0.0).endswith("/no/request: No such file or directory")


def test_the_task_carries_all_that_it_needs() -> None:
    """Ray's workers do not have this package: a global name of it would not be found there."""
    code = nodes_prepare.drop_caches_task().__code__
    assert "<locals>" in code.co_qualname
    names = {
        *code.co_names,
        *(name for one in code.co_consts if isinstance(one, types.CodeType) for name in one.co_names),
    }
    assert not names & {name for name in vars(nodes_prepare) if name not in ("os", "time")}


class RayError(Exception):
    pass


def test_who_cannot_is_named() -> None:
    answers = {"a": "", "b": "no file", "c": RayError("node died\nmore")}

    def get(task: str) -> str:
        found = answers[task]
        if isinstance(found, Exception):
            raise found
        return found

    ray = types.SimpleNamespace(
        wait=lambda tasks, num_returns, timeout: (tasks[:3], tasks[3:]),
        get=get,
        exceptions=types.SimpleNamespace(RayError=RayError),
    )
    tasks = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3", "d": "10.0.0.4"}
    assert nodes_prepare.refusals(ray, tasks) == ["10.0.0.4: no answer", "10.0.0.2: no file", "10.0.0.3: node died"]


def test_help_needs_no_ray(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        nodes_prepare.main(["--help"])
    assert ended.value.code == 0
    assert "page cache" in capsys.readouterr().out
