# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import hang, nodes_prepare


def test_the_task_waits_for_the_hosts_own_system(tmp_path: Path) -> None:
    request, done = tmp_path / "request", tmp_path / "done"
    answer = threading.Timer(0.2, done.write_text, ("1",))
    answer.start()
    assert nodes_prepare.request_task()(str(request), str(done), 20.0, 0.0) == ""
    answer.join()
    assert float(request.read_text()) > 0


def test_the_task_says_why_not(tmp_path: Path) -> None:
    task = nodes_prepare.request_task()
    assert task(str(tmp_path / "drop-caches"), str(tmp_path / "done"), 0.0, 60.0) == (
        "sparkthor-drop-caches.service did not answer"
    )
    assert task(str(tmp_path / "no" / "request"), "", 0.0, 0.0).endswith("/no/request: No such file or directory")


@pytest.mark.parametrize(("age", "asked"), [(5, False), (61, True), (-30, True)])
def test_what_the_head_dropped_before_the_gate_is_not_dropped_under_the_engines_imports(
    tmp_path: Path, age: float, asked: bool
) -> None:
    request, done = tmp_path / "request", tmp_path / "done"
    done.touch()
    os.utime(done, (time.time() - age,) * 2)
    answer = nodes_prepare.request_task()(str(request), str(done), 0.0, nodes_prepare.RECENT)
    assert (bool(answer), request.exists()) == (asked, asked)


def fake_ray(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, tuple[str, str, float, float]], list[str]]:
    """Nodes a (the own one), b and c (dead): with what the task was started by node, and who was asked."""
    told: dict[str, tuple[str, str, float, float]] = {}
    asked: list[str] = []

    class Remote:
        def options(self, scheduling_strategy: str) -> Any:
            self.node = scheduling_strategy
            return self

        def remote(self, *given: Any) -> str:
            told[self.node] = given
            return self.node

    ray = types.ModuleType("ray")
    ray.__dict__.update(
        init=lambda address, **_words: asked.append(address),
        remote=lambda **_words: lambda _task: Remote(),
        get_runtime_context=lambda: types.SimpleNamespace(get_node_id=lambda: "a"),
        nodes=lambda: [{"Alive": name != "c", "NodeID": name, "NodeManagerAddress": name} for name in "abc"],
        wait=lambda tasks, num_returns, timeout: (tasks, []),
        get=lambda _task: "",
        exceptions=types.SimpleNamespace(RayError=RayError),
    )
    strategies = types.ModuleType("ray.util.scheduling_strategies")
    strategies.__dict__["NodeAffinitySchedulingStrategy"] = lambda node, soft: node
    for name, module in (("ray", ray), ("ray.util", types.ModuleType("ray.util")), (strategies.__name__, strategies)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.9:6379")
    return told, asked


def test_only_the_own_node_may_keep_what_it_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    told, asked = fake_ray(monkeypatch)
    assert nodes_prepare.main(["10.0.0.1:6379"]) == 0
    assert asked == ["10.0.0.1:6379"]
    assert {node: given[3] for node, given in told.items()} == {"a": nodes_prepare.RECENT, "b": 0.0}


def test_the_other_nodes_keep_what_their_ranks_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, _asked = fake_ray(monkeypatch)
    paths = hang.Paths(others=str(tmp_path / "others"))
    monkeypatch.setattr(hang, "Paths", lambda: paths)
    assert nodes_prepare.main(["10.0.0.1:6379", "--hang"]) == 0
    # the head's own is read by its own unit
    assert told == {"b": (hang.REQUEST, hang.TAKEN, nodes_prepare.HANG_PATIENCE, 0.0)}
    assert hang.stamp(paths.others)


def test_the_task_carries_all_that_it_needs() -> None:
    """Ray's workers do not have this package: a global name of it would not be found there."""
    code = nodes_prepare.request_task().__code__
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
