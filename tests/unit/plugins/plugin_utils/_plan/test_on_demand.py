# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A head on which a group sleeps until its model is asked for."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.on_demand_service import policies_of

from tests.unit.plugins.plugin_utils._plan.test_door import with_beside
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, units


def on_demand(variables: dict[str, Any]) -> dict[str, Any]:
    given = with_beside(variables)
    given["sparkthor_cluster"]["beside"]["embed"]["given"]["on_demand"] = {
        **{"idle_minutes": 30, "every_minutes": 10, "not_between": "08:00-18:00"}
    }
    return given


def test_a_group_on_demand_sleeps_after_a_boot_and_the_own_one_serves(variables: dict[str, Any]) -> None:
    planned = plan(on_demand(variables))
    found, found_units = files(planned), units(planned)
    assert found_units["sparkthor-vllm-embed.service"]["enabled"] is False
    assert found_units["sparkthor-vllm.service"]["enabled"] is True
    own, embed = (json.loads(found[f"/etc/sparkthor/{path}serving.json"]) for path in ("", "beside/embed/"))
    assert own["on_demand_groups"] == {
        "embed": {"idle_minutes": 30, "every_minutes": 10, "not_between": "08:00-18:00", "ready_timeout": 2700}
    }
    assert (embed["on_demand"], "on_demand" in own, "on_demand_groups" in embed) == (True, False, False)
    wakes = found_units["sparkthor-on-demand.service"]
    assert wakes["restart_on"] == ["/etc/systemd/system/sparkthor-on-demand.service", "/etc/sparkthor/serving.json"]
    unit = found["/etc/systemd/system/sparkthor-on-demand.service"].splitlines()
    for line in ("Group=sparkthor-front", "CapabilityBoundingSet=", "ReadWritePaths=-/run/sparkthor"):
        assert line in unit
    assert "RestrictAddressFamilies=AF_UNIX" in unit


def test_one_served_by_programs_has_its_own_command_and_is_tried_too(variables: dict[str, Any]) -> None:
    given = on_demand(variables)
    given["sparkthor_cluster"]["beside"]["embed"]["serving"] |= {"engine": "llama_cpp", "args": {"ctx-size": 2048}}
    planned = plan(given)
    found = files(planned)
    group = json.loads(found["/etc/sparkthor/beside/embed/group.json"])
    path = "/etc/sparkthor/beside/embed/llama.yaml"
    assert (group["engine"], group["command"][-3:]) == (
        "llama_cpp",
        ["/opt/sparkthor/venv/bin/llama-server", "--config", path],
    )
    assert "ctx-size: 2048" in found[path].splitlines()
    [words] = planned["trials"]
    assert words[words.index("--ctx-size") + 1] == "2048"
    # vLLM's own files stand beside them
    assert json.loads(found["/etc/sparkthor/serving.json"]).get("engine", "vllm") == "vllm"
    assert "/etc/sparkthor/vllm.yaml" in found


def test_a_start_may_take_what_the_inventory_allows(variables: dict[str, Any]) -> None:
    """And no fixed time: half a terabyte from a slow disk takes longer than 45 minutes."""
    found = files(plan(on_demand({**variables, "vllm_serve_ready_timeout": 7200})))
    allowed = json.loads(found["/etc/sparkthor/serving.json"])["on_demand_groups"]
    assert {name: one.patience for name, one in policies_of({"on_demand_groups": allowed}).items()} == {"embed": 7200.0}


def test_nobody_waits_for_a_model_that_serves_all_the_time(variables: dict[str, Any]) -> None:
    planned = plan(with_beside(variables))
    assert "sparkthor_on_demand" not in files(planned)["/etc/sparkthor/front/nginx.conf"]
    assert "/etc/systemd/system/sparkthor-on-demand.service" in planned["state"]["absent"]
    assert units(planned)["sparkthor-on-demand.service"]["state"] == "stopped"
    conf = files(plan(on_demand(variables)))["/etc/sparkthor/front/nginx.conf"]
    # both servers of an engine, and not the door
    assert conf.count("error_page 500 502 503 = @asleep;") == conf.count("location @asleep {") == 2
    assert "rewrite ^ /embed? break;" in conf


def test_a_name_that_nginx_would_read_is_not_listed(variables: dict[str, Any]) -> None:
    given = on_demand(variables)
    given["sparkthor_cluster"]["beside"]["embed"]["serving"]["served_model_name"] = ["org/emb:1", "it's $uri"]
    conf = files(plan(given))["/etc/sparkthor/front/engine.conf"]
    [listed] = [line.strip() for line in conf.splitlines() if "org/emb:1" in line and "list" in line]
    found = json.loads(listed.removeprefix("sparkthor_vllm_embed '").removesuffix("';"))
    assert [model["id"] for model in found["data"]] == ["org/emb:1"]
