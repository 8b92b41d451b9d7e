# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every engine in the plan, whichever it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import errors_and_others
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as on_hosts
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import sharing
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import EngineDemands, PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError

from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by

pytestmark = pytest.mark.parametrize("engine", registry.ENGINES.values(), ids=list(registry.ENGINES))


def served(variables: dict[str, Any], engine: PlannedEngine, **given: Any) -> dict[str, Any]:
    """The role's plan of a host that serves with this engine, with an executor that it has."""
    return plan(started_by(variables, sorted(engine.can.executors)[0]), serving_engine=engine.name, **given)


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


def test_it_has_a_file_for_hosts_under_the_same_name(engine: PlannedEngine) -> None:
    assert on_hosts.ENGINES[engine.name] is engine.on_host
    assert registry.planned_engine(engine.name) is engine


def test_what_it_can_do_is_something(engine: PlannedEngine) -> None:
    can = engine.can
    assert can.executors
    assert can.executors <= {"ray", "mp"}
    assert can.runtimes
    assert can.runtimes <= {"venv", "container"}
    assert can.kinds
    assert can.kinds <= {"spark", "thor", "generic"}
    assert can.formats
    assert can.formats <= {"safetensors", "gguf"}


def test_what_it_can_do_is_not_refused(engine: PlannedEngine) -> None:
    can = engine.can
    assert not engine.lacks(
        EngineDemands(1, sorted(can.executors)[0], sorted(can.runtimes)[0], can.kinds, sorted(can.formats)[0], 1, 1)
    )


def test_each_thing_that_it_cannot_do_is_named_with_its_variable(engine: PlannedEngine) -> None:
    lacks = engine.lacks(EngineDemands(1, "flux", "tape", frozenset(("abacus",)), "scroll"))
    known = role_specs.of_collection().names
    assert [words for _variable, words in lacks] == [
        *("flux as executor", "a tape", "hosts of kind abacus", "scroll models"),
    ]
    assert all(not variable or variable in known for variable, _words in lacks)


def test_its_files_and_unit_say_which_engine_it_is(engine: PlannedEngine, variables: dict[str, Any]) -> None:
    found = files(served(variables, engine))
    unit = found["/etc/systemd/system/sparkthor-vllm.service"]
    assert f"Description={engine.title} (" in unit
    serving = yaml.safe_load(found["/etc/sparkthor/serving.json"])
    assert on_hosts.engine_of(serving) is engine.on_host
    assert serving["socket"] in found["/etc/sparkthor/front/nginx.conf"]


def test_an_unknown_option_is_named_by_what_is_installed(engine: PlannedEngine, variables: dict[str, Any]) -> None:
    planned = served(variables, engine)
    asked = planned["options"]
    if not asked:
        # its own program is asked instead
        assert planned["trial"]
        return
    table = {engine.name: "9.9.9", "schema": 2, "options": {"flux-size": {"kind": "int"}}, "value_lists": {}}
    found = engine.option_problems({**asked, "arguments": {"flux-sise": 2}}, table)
    errors, _others = errors_and_others(found)
    assert len(errors) == 1
    assert "flux-sise" in errors[0]
    assert "did you mean flux-size" in errors[0]
    assert engine.refusal(["x"], "9.9.9") == f"vllm_serve_args ({engine.title} 9.9.9): x."
    known = {**asked, "arguments": {"flux-size": 2}}
    assert not errors_and_others(engine.option_problems(known, table))[0]


def test_its_configuration_names_the_model_that_is_served(engine: PlannedEngine, variables: dict[str, Any]) -> None:
    found = files(served(variables, engine, vllm_serve_model="/srv/models/a"))
    if engine.on_host.config:
        text = found[f"/etc/sparkthor/{engine.on_host.config}"]
        assert engine.on_host.named_model(text) == "/srv/models/a"


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
        ("an image that this collection chooses", bool(engine.image)),
    ):
        assert said[row] == ("yes" if able else "no"), row
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
