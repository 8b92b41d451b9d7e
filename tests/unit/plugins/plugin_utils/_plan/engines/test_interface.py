# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every engine in the plan, whichever it is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import errors_and_others
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as on_hosts
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import EngineDemands, PlannedEngine

from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by

pytestmark = pytest.mark.parametrize("engine", registry.ENGINES.values(), ids=list(registry.ENGINES))


def served(variables: dict[str, Any], engine: PlannedEngine, **given: Any) -> dict[str, Any]:
    """The role's plan of a host that serves with this engine, with an executor that it has."""
    return plan(started_by(variables, sorted(engine.can.executors)[0]), serving_engine=engine.name, **given)


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
    assert serving["socket"] in found["/etc/sparkthor/front/engine.conf"]


def test_an_unknown_option_is_named_by_what_is_installed(engine: PlannedEngine, variables: dict[str, Any]) -> None:
    planned = served(variables, engine)
    asked = planned["options"]
    if not asked:
        # its own program is asked instead, unless it is said that nobody can be
        assert bool(planned["trials"]) is engine.can.checked
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
