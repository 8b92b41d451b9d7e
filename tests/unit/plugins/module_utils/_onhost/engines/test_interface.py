# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every engine on a host, whichever it is."""

from __future__ import annotations

import re

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    console_state,
    progress,
    serving,
    watchdog_report,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import base, registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import EngineOnHost

pytestmark = pytest.mark.parametrize("engine", registry.ENGINES.values(), ids=list(registry.ENGINES))


@pytest.fixture(autouse=True)
def _named(engine: EngineOnHost) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", engine.name)


def page(engine: EngineOnHost, **values: float) -> str:
    """Its /metrics with these values by name, with labels."""
    return "".join(f'{name}{{model_name="m"}} {value}\n' for name, value in values.items())


def test_it_is_known_by_its_name_and_its_files_say_it(engine: EngineOnHost) -> None:
    assert registry.engine_of({"engine": engine.name}) is engine
    assert engine.title
    assert engine.launch in base.LAUNCHES


def test_a_load_comes_from_its_stages_in_order_and_never_runs_backwards(engine: EngineOnHost) -> None:
    stages = engine.log.stages
    assert [stage.start for stage in stages] == sorted(stage.start for stage in stages)
    assert all(0 <= stage.start <= stage.end <= 1 for stage in stages)
    assert len({stage.name for stage in stages}) == len(stages) > 2


def test_no_dull_line_is_a_stage_or_a_failure(engine: EngineOnHost) -> None:
    assert progress.progress(["GET /v1/models HTTP/1.1"], form=engine.log).stage == -1


def test_an_unknown_failure_is_told_by_its_error_line(engine: EngineOnHost) -> None:
    said = progress.explain(["loading", "RuntimeError: the flux is not aligned", "bye"], engine.log)
    assert said.reason == "RuntimeError: the flux is not aligned"
    assert not said.final


def test_known_failures_say_what_to_do(engine: EngineOnHost) -> None:
    assert all(known.fix and known.fix == known.fix.strip(". ") for known in engine.log.known)


def test_what_moves_is_summed_by_its_number(engine: EngineOnHost) -> None:
    moves = engine.metrics.moves
    assert sorted(set(moves.values())) == list(range(max(moves.values()) + 1))
    first = next(iter(moves))
    before = watchdog_report.engine_counters(page(engine, **{first: 3}), engine.metrics)
    after = watchdog_report.engine_counters(page(engine, **{first: 4}), engine.metrics)
    assert before is not None
    assert after is not None
    assert sum(after) == sum(before) + 1
    assert watchdog_report.engine_counters("python_info 1\n", engine.metrics) is None


def test_requests_are_counted_running_and_waiting(engine: EngineOnHost) -> None:
    names = engine.metrics
    text = page(engine, **{names.running[0]: 2, names.waiting[0]: 3})
    assert watchdog_report.requests_in_flight(text, names) == 5
    assert registry.engine_that_says(text) is engine
    seen = console_state.engine(text)
    assert (seen["running"], seen["waiting"]) == (2, 3)


def test_another_model_replaces_that_of_the_configuration(engine: EngineOnHost) -> None:
    words = ["/usr/bin/program", engine.after] if engine.after else ["/usr/bin/program"]
    own = [engine.model_option, "/models/old"] if engine.model_option else []
    loaded = engine.load([*words, *own, "--config", "/etc/sparkthor/absent.yaml"], "/models/new")
    assert loaded.count("/models/new") == 1
    assert "/models/old" not in loaded
    assert loaded[-2:] == ["--config", "/etc/sparkthor/absent.yaml"] or engine.model_option
    if engine.model_option:
        assert serving.served_by(loaded, engine) == "/models/new"


def test_its_configuration_names_the_model(engine: EngineOnHost) -> None:
    if engine.model_key:
        text = f"port: 1\n{engine.model_key}: '/models/a'\n"
        assert engine.named_model(text) == registry.named_model(text) == "/models/a"
    assert engine.named_model("") == ""


def test_its_processes_are_recognised(engine: EngineOnHost) -> None:
    assert all(0 < len(title) <= 15 for title in (*engine.titles, *engine.rank_titles))
    assert all(title.startswith(engine.titles) for title in engine.rank_titles)
    program = f"/opt/{engine.program}".replace(" ", "\0") + "\0--port\0"
    assert engine.command_line.search(program)
    assert not engine.command_line.search("/usr/bin/python3\0-c\0pass\0")


def test_a_question_proves_all_ranks(engine: EngineOnHost) -> None:
    assert engine.probes
    assert all(route.target.startswith("/") and route.field for route in engine.probes)
