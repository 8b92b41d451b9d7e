# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module ``recipe`` on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action.recipe import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_catalogue


def run(check_mode: bool = False, **args: Any) -> tuple[dict[str, Any], list[str]]:
    task = MagicMock(async_val=0, check_mode=check_mode, diff=False, args=args)
    action = ActionModule(task, *(MagicMock() for _name in range(5)))
    action._display = MagicMock()
    result = action.run(task_vars={"inventory_hostname": "localhost"})
    return result, [call.args[0] for call in action._display.display.call_args_list]


def test_list_show_check() -> None:
    result, shown = run()
    assert any(row["name"] == "gpt-oss-120b" for row in result["rows"])
    assert "gpt-oss-120b" in shown[0]
    assert "openai/gpt-oss-120b" in run(action="show", recipe="gpt-oss-120b")[1][0]
    [shown] = run(action="show", recipe="gpt-oss-120b", hosts=["a", "b"], topology="switch")[1]
    assert "# On 2 hosts: fits" in shown
    assert "On 1 host:" not in shown
    result, shown = run(action="check", recipe="gpt-oss-120b")
    assert (result["counts"], result["changed"]) == ({"planned": 1}, False)


@pytest.mark.parametrize(
    ("hosts", "topology", "kinds", "can", "cannot"),
    [
        (["a"], "lan", {}, "gpt-oss-120b", "  qwen3.5-397b-a17b-nvfp4: it is for 3 hosts"),
        (["a", "b", "c"], "switch", {}, "qwen3.5-397b-a17b-nvfp4", "  glm-5.2-int4: it is for 4 hosts"),
        (
            ["a", "b", "c", "d"],
            "lan",
            {"c": "thor", "d": "thor"},
            "nemotron-3-super-120b-a12b-nvfp4",
            "  deepseek-v4.1-flash: it is for 8 hosts",
        ),
    ],
)
def test_what_hosts_can_run_the_fastest_first(
    hosts: list[str], topology: str, kinds: dict[str, str], can: str, cannot: str
) -> None:
    result, shown = run(hosts=hosts, topology=topology, kinds=kinds)
    lines = shown[0].splitlines()
    assert lines[0].split("  ")[0] == "RECIPE"
    below = lines.index("Not on these hosts:")
    assert any(line.startswith(f"{can} ") for line in lines[1:below])
    assert cannot in lines[below:]
    assert "tiny-" not in shown[0]
    able = [row for row in result["rows"] if row["verdict"] != "refused"]
    assert all(any(line.startswith(f"{row['name']} ") for line in lines[1:below]) for row in [*able, *result["parts"]])
    assert bool(result["parts"]) is (len(hosts) > 1)
    assert all(row["bytes"] > 1e8 and row["requests"] >= 1 for row in able)
    speeds = [recipe_catalogue.row_speed(row) for row in able]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[0] > 0


def test_what_others_measured_goes_before_what_is_planned() -> None:
    answer = run(hosts=["a"], topology="lan", kinds={})[0]["rows"]
    rows = {row["name"]: row for row in answer if row["verdict"] != "refused"}
    measured, planned = rows["qwen3-coder-next-int4"], rows["nemotron-3-nano-30b-a3b-nvfp4"]
    assert measured["tokens_per_second"][0] < planned["tokens_per_second"][0]
    assert list(rows).index(measured["name"]) < list(rows).index(planned["name"])


def test_export(tmp_path: Path) -> None:
    dest = tmp_path / "r.yaml"
    wanted = {"action": "export", "recipe": "gpt-oss-120b", "dest": str(dest)}
    assert run(check_mode=True, **wanted)[0]["changed"]
    assert not dest.exists()
    assert run(**wanted)[0]["changed"]
    assert dest.read_text().startswith("recipe_version:")
    assert not run(**wanted)[0]["changed"]


def test_mistakes() -> None:
    with pytest.raises(AnsibleActionFail, match="recipe is empty"):
        run(action="show")
    with pytest.raises(AnsibleActionFail, match="is unknown"):
        run(action="check", recipe="nope")
