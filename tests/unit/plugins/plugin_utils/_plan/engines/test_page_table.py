# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page that compares the engines says what the plan does. An engine that somebody adds is on no page yet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import sharing
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError

from tests.unit.plugins.plugin_utils._plan.engines.test_interface import served

pytestmark = pytest.mark.parametrize("engine", registry.ENGINES.values(), ids=list(registry.ENGINES))


def said_of(engine: PlannedEngine) -> dict[str, str]:
    """The engine's column of the page that compares them, by row."""
    page = Path(__file__).parents[6] / "docs" / "engines-compared.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    column = 1 + list(registry.ENGINES).index(engine.name)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {cells[0].strip("`"): cells[column] for cells in rows}


def serves(variables: dict[str, Any], engine: PlannedEngine, name: str, value: Any) -> bool:
    """Whether the engine takes a value of a variable; False where it is refused by the variable's name."""
    try:
        served(variables, engine, **{name: value})
    except ServeConfigError as error:
        if name in str(error):
            return False
        raise
    return True


def test_the_page_s_table_says_what_it_can_do(engine: PlannedEngine) -> None:
    said, can = said_of(engine), engine.can
    assert said["serving_engine"] == f"`{engine.name}`"
    assert engine.title in said[""]
    for row, values in (
        ("engine_runtime", can.runtimes),
        ("vllm_serve_executor", can.executors),
        ("models", can.formats),
    ):
        assert set(re.findall(r"`(\w+)`", said[row])) == values, row
    for row, able in (
        ("parts of each layer on several hosts", can.tensor),
        ("whole layers on several hosts", can.pipeline),
        ("named parsers", can.parsers),
        ("adapters (LoRA)", can.adapters),
        ("smaller model while a host is away", can.degraded),
        ("its options are checked before a restart", can.checked),
        ("an image that this collection chooses", bool(engine.image)),
    ):
        assert said[row] == ("yes" if able else "no"), row
    assert said["hosts of one group"] == ("any number" if can.hosts is None else str(can.hosts))
    assert said["which hosts get the model"] == ("all" if can.everywhere else "the head")


def test_the_page_s_table_says_what_its_plan_refuses(engine: PlannedEngine, variables: dict[str, Any]) -> None:
    limited = [{"name": "a", "key": "k" * 40, "tokens_per_minute": 5}]
    head = {"head": "a", "group": "one", "gpus": {"a": 1}, "serving": {"engine": engine.name}}
    found = {
        "several served names": serves(variables, engine, "vllm_serve_served_model_name", ["name", "other"]),
        "limits of tokens for a key": serves(variables, engine, "vllm_serve_api_keys", limited),
        "a group beside another on one host": not sharing.refused(head, ["two"], {}),
    }
    said = said_of(engine)
    assert {row: said[row] for row in found} == {row: "yes" if able else "no" for row, able in found.items()}


def test_the_page_s_table_says_where_it_listens(engine: PlannedEngine, variables: dict[str, Any]) -> None:
    on_worker = {**variables, "inventory_hostname": variables["sparkthor_cluster"]["hosts"][1]}
    (head,), (worker,) = served(variables, engine)["groups"], served(on_worker, engine)["groups"]
    own = "UNIX socket" if head["socket"].startswith("/") else "guarded loopback port"
    others = "; workers on a guarded port" if worker["listens"] else ""
    assert said_of(engine)["listens on"] == own + others
    assert bool(worker["guard"]) == ("guarded" in own + others)
