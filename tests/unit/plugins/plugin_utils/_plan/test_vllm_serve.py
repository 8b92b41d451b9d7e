# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which model is served under which names, with which arguments and environment."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError

from tests.unit import role_state
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by, with_serving


def test_the_environment_of_the_recipe_goes_to_ray_s_workers(variables: dict[str, Any]) -> None:
    own = {"VLLM_X": 1, "a_b": "$x", "HOME": "/elsewhere"}
    environment = files(plan(variables, vllm_serve_env=own))["/etc/sparkthor/vllm.env"].splitlines()
    assert 'VLLM_RAY_EXTRA_ENV_VARS_TO_COPY="a_b,HOME,VLLM_X"' in environment
    assert 'a_b="\\$x"' in environment
    assert 'HOME="/elsewhere"' in environment
    without = files(plan(started_by(variables, "mp"), vllm_serve_env=own))["/etc/sparkthor/vllm.env"]
    assert "VLLM_RAY_EXTRA" not in without
    kept = json.loads(files(plan(variables))["/etc/sparkthor/vllm/ray_non_carry_over_env_vars.json"])
    assert {"NEW_HOST_VARIABLE", "HOME", "NCCL_IB_HCA"} <= set(kept)
    assert kept == sorted(set(kept), key=str.lower)


def test_a_null_takes_a_variable_away(variables: dict[str, Any]) -> None:
    own = {"DO_NOT_TRACK": None, "VLLM_X": "1", "VLLM_Y": None}
    planned = plan(variables, vllm_serve_env=own)
    environment = files(planned)["/etc/sparkthor/vllm.env"]
    assert "None" not in environment
    assert "DO_NOT_TRACK" not in environment
    assert 'VLLM_RAY_EXTRA_ENV_VARS_TO_COPY="VLLM_X"' in environment.splitlines()
    assert planned["options"]["environment"] == {"VLLM_X": "1"}
    for role, path, name in (
        ("engine", "/etc/sparkthor/engine.env", "engine_extra_env"),
        ("ray_node", "/etc/sparkthor/ray.env", "ray_node_env"),
    ):
        given = {**variables, name: {"RAY_USAGE_STATS_ENABLED": None, "MINE": 1}}
        found = {
            file["path"]: file.get("content", "") for file in role_state.state(role, secrets=False, **given)["files"]
        }[path]
        assert "None" not in found
        assert "RAY_USAGE_STATS_ENABLED" not in found
        assert 'MINE="1"' in found


def test_redirects_of_media_are_not_followed(variables: dict[str, Any]) -> None:
    planned = plan(variables, vllm_serve_media_domains=["images.example.org"])
    assert 'VLLM_MEDIA_URL_ALLOW_REDIRECTS="0"' in files(planned)["/etc/sparkthor/vllm.env"].splitlines()
    assert yaml.safe_load(files(planned)["/etc/sparkthor/vllm.yaml"])["allowed-media-domains"] == ["images.example.org"]


@pytest.mark.parametrize("executor", ["ray", "mp"])
def test_vllm_s_own_limit_on_a_step_follows_the_watchdog_s_patience(variables: dict[str, Any], executor: str) -> None:
    def limits(planned: dict[str, Any]) -> set[str]:
        lines = files(planned)["/etc/sparkthor/vllm.env"].splitlines()
        return {line for line in lines if "EXECUTE_MODEL_TIMEOUT" in line or "CGRAPH" in line}

    def wanted(seconds: int) -> set[str]:
        names = ["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", *(["RAY_CGRAPH_get_timeout"] if executor == "ray" else [])]
        return {f'{name}="{seconds}"' for name in names}

    variables = started_by(variables, executor)
    assert limits(plan(variables)) == wanted(900)
    slow = {"step_patience": 400.0, "wedge_bound": 200.0, "working_power": 30.0}
    assert limits(plan(with_serving(variables, model="m", patience=slow))) == wanted(2000)
    own = {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": 77}
    assert 'VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS="77"' in limits(plan(variables, vllm_serve_env=own))


def test_preflight_s_plan_goes_before_the_variables(variables: dict[str, Any]) -> None:
    planned = {
        **{"model": "m", "models": [{"name": "m"}], "served_model_name": "name", "max_model_len": 4096},
        **{"args": {"enforce-eager": False}, "environment": {"A": "1"}, "acknowledged": ["x"], "sizing": {"q": 1}},
    }
    found = plan(with_serving(variables, **planned), vllm_serve_args={"other": 1})
    config = yaml.safe_load(files(found)["/etc/sparkthor/vllm.yaml"])
    assert config["model"] == "/var/lib/sparkthor/models/m"
    assert (config["served-model-name"], config["max-model-len"], config["no-enforce-eager"]) == ("name", 4096, True)
    assert "other" not in config
    assert found["model_elsewhere"] is False
    assert (found["options"]["arguments"], found["options"]["acknowledged"]) == (planned["args"], ["x"])
    assert found["sizing"]["q"] == 1
    assert found["sizing"]["hosts"] == ["a", "b"]


def test_the_configuration_names_the_revision_and_no_link(variables: dict[str, Any]) -> None:
    cluster = {**variables["sparkthor_cluster"], "revisions": {"m": "m@" + "0" * 16, "n": "n@" + "1" * 16}}
    found = plan({**variables, "sparkthor_cluster": cluster}, vllm_serve_model="m")
    config = yaml.safe_load(files(found)["/etc/sparkthor/vllm.yaml"])
    assert config["model"] == found["model_path"] == "/var/lib/sparkthor/models/m@" + "0" * 16
    assert json.loads(files(found)["/etc/sparkthor/serving.json"])["model"] == "m"
    # a way back takes the link back as well
    assert "/var/lib/sparkthor/models/m" in found["kept"]
    assert "/var/lib/sparkthor/models/n" not in found["kept"]
    elsewhere = plan({**variables, "sparkthor_cluster": cluster}, vllm_serve_model="/srv/m")
    assert elsewhere["model_path"] == "/srv/m"


def test_names_of_the_model(variables: dict[str, Any]) -> None:
    names = files(plan(variables, vllm_serve_served_model_name=["x", "y"]))
    assert yaml.safe_load(names["/etc/sparkthor/vllm.yaml"])["served-model-name"] == ["x", "y"]
    assert json.loads(names["/etc/sparkthor/serving.json"])["model"] == "x"
    hub = files(plan(variables, vllm_serve_model="Qwen/Qwen3-8B", vllm_serve_from_hub=True))
    assert yaml.safe_load(hub["/etc/sparkthor/vllm.yaml"])["served-model-name"] == "Qwen3-8B"
    assert json.loads(hub["/etc/sparkthor/serving.json"])["model"] == "Qwen3-8B"


def test_a_wrong_argument_is_refused_with_its_variable(variables: dict[str, Any]) -> None:
    with pytest.raises(ServeConfigError, match="vllm_serve_args: port is decided by the role"):
        plan(variables, vllm_serve_args={"port": 1})
    with pytest.raises(ValueError, match="vllm_serve_front_max_body: 'big' is not a size"):
        plan(variables, vllm_serve_front_max_body="big")
