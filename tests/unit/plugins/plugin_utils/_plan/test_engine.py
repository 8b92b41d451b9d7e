# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import engine, onhost, vllm_serve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import EngineSettings
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import read_settings
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import calls_of

from tests.unit import role_state

SPARK: dict[str, Any] = {"kind": "spark", "binaries": {"ptxas": "/usr/local/cuda/bin/ptxas"}}


def environment(**given: Any) -> dict[str, Any]:
    return engine.engine_environment(EngineSettings(**given), SPARK)


def test_every_cache_is_below_one_folder() -> None:
    found = environment(engine_cache_dir="/data/cache")
    folders = {name for name, value in found.items() if str(value).startswith("/data/cache")}
    assert folders == {
        *("HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR"),
        *("TORCHINDUCTOR_CACHE_DIR", "PYTHONPYCACHEPREFIX"),
    }
    assert "/var/lib/sparkthor" not in str(found)


def test_ray_and_serving_have_the_same_caches(variables: dict[str, Any]) -> None:
    folders = engine.cache_folders(engine.CACHE, VLLM)
    assert folders.items() <= environment().items()
    serving = vllm_serve.serving_on(
        read_settings(vllm_serve.ServingSettings, variables),
        variables["sparkthor_cluster"],
        variables["sparkthor_fabric"],
        "a",
        variables["ansible_facts"],
    )
    assert folders.items() <= vllm_serve.vllm_environment(serving).items()


def test_the_user_s_environment_wins_and_offline_is_a_choice() -> None:
    assert environment(engine_extra_env={"HOME": "/x", "A": 1})["HOME"] == "/x"
    assert environment()["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(engine_offline=False)


@pytest.mark.parametrize(
    ("runtime", "node", "expected"),
    [
        ("venv", SPARK, "/usr/local/cuda/bin/ptxas"),
        ("container", SPARK, None),
        ("venv", {**SPARK, "kind": "generic"}, None),
        ("venv", {"kind": "thor", "binaries": {}}, None),
    ],
)
def test_ptxas_of_the_host_s_cuda(runtime: str, node: dict[str, Any], expected: str | None) -> None:
    found = engine.engine_environment(EngineSettings(engine_runtime=runtime), node)
    assert found.get("TRITON_PTXAS_PATH") == expected


def test_the_state_of_a_host() -> None:
    given = {"sparkthor_cluster": {}, "engine_runtime": "venv", "ansible_facts": {"sparkthor_node": SPARK}}
    state = role_state.state("engine", **given, model_store_root="/data/models", engine_cache_dir="/data/cache")
    Wanted.parse(state)
    places = {entry["path"]: entry.get("owner", "root") for entry in state["directories"]}
    assert places["/data/models"] == places["/var/lib/sparkthor"] == places["/etc/sparkthor"] == "root"
    assert places["/data/cache"] == "sparkthor"
    files = [file["path"] for file in state["files"]]
    assert files[0] == "/etc/sparkthor/engine.env"
    assert f"{engine.location.PACKAGE}/__main__.py" in files
    assert onhost.package_files() == state["files"][1:]
    assert 'VLLM_CACHE_ROOT="/data/cache/vllm"' in state["files"][0]["content"].splitlines()
    assert "units" not in state


@pytest.mark.parametrize("runtime", ["venv", "container"])
def test_docker_runs_where_containers_do(runtime: str) -> None:
    started = {"name": "docker.service", "enabled": True, "state": "started"}
    given = {"engine_runtime": runtime, "ansible_facts": {"sparkthor_node": SPARK}, "sparkthor_cluster": {}}
    states = role_state.states_of("engine", "configure.yml", **given)
    units = [unit for state in states for unit in state.get("units", ())]
    assert units == ([started] if runtime == "container" else [])


def test_folders_that_lie_elsewhere_are_seen_inside_containers() -> None:
    usual = engine.container_settings(EngineSettings())
    home = "/var/lib/sparkthor"
    assert usual["writable"] == ["/run/sparkthor", "/tmp", f"{home}/cache", f"{home}/ray"]
    assert usual["readable"] == ["/etc/sparkthor", engine.location.LIBRARY, f"{home}/models"]
    assert usual["services"]["ray"]["directory"] == f"{home}/ray"
    assert usual["services"]["vllm"]["directory"] == "/var/lib/sparkthor/cache"
    moved = engine.container_settings(
        EngineSettings(
            engine_cache_dir="/data/cache",
            ray_node_temp_dir="/data/ray",
            model_store_root="/data/models",
            vllm_serve_model="/srv/mine",
            engine_container_mounts=["/opt/plugins"],
        )
    )
    assert moved["writable"][2:] == ["/data/cache", "/data/ray"]
    assert moved["readable"][2:] == ["/data/models", "/srv/mine", "/opt/plugins"]
    assert moved["services"]["vllm"]["directory"] == "/data/cache"
    same = engine.container_settings(EngineSettings(engine_cache_dir="/data", ray_node_temp_dir="/data/ray"))
    assert same["writable"][2:] == ["/data"]


def test_what_the_engine_role_found_decides_else_its_variables() -> None:
    fact = {"runtime": "venv", "path": "/srv/e", "digest": "d", "versions": {"vllm": "0.33.0"}}
    found = engine.installed_engine(fact, "container", "/elsewhere")
    assert (found.container, found.python, found.digest) == (False, ["/srv/e/bin/python"], "d")
    assert found.program("vllm", "vllm") == ["/srv/e/bin/vllm"]
    assert found.record == "/srv/e/.sparkthor-engine.json"
    assert found.as_root == ""
    planned = engine.installed_engine(None, "container", "/elsewhere")
    assert (planned.container, planned.python) == (True, engine.location.command("container", "python"))
    assert planned.program("ray", "ray") == engine.location.command("container", "run", "ray")
    assert (planned.record, planned.as_root) == ("/etc/sparkthor/container.json", "+")
    assert engine.installed_engine(None, "venv", "/elsewhere").python == ["/elsewhere/bin/python"]


def test_programs_are_brought_where_a_group_is_served_by_them() -> None:
    """Beside the engine of the host's own group as well."""
    other = {"serving": {"engine": "llama_cpp"}}
    cases = [
        ({}, "vllm", False),
        (other, "llama_cpp", True),
        ({"serving": {}, "beside": {"gguf": other}}, "vllm", True),
    ]
    for cluster, serves, by_programs in cases:
        found = engine.plan_engine(EngineSettings(), SPARK, cluster)
        assert (found["serves"], found["by_programs"]) == (serves, by_programs)


def test_what_models_call_of_the_libraries() -> None:
    experts = {"serving": {"calls": ["experts"], "degraded": {"calls": ["kda"]}}}
    beside = {"serving": {"calls": []}, "beside": {"small": {"serving": {"calls": ["experts"]}}}}
    for cluster, expected in ((experts, ["experts", "kda"]), (beside, ["experts"]), ({}, [])):
        assert engine.plan_engine(EngineSettings(), SPARK, cluster)["calls"] == expected
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 10}
    assert calls_of(None) == calls_of({"model_type": "llama", **shape}) == []
    assert calls_of(_recipe.load("gpt-oss-120b")["config"]) == ["experts"]
    assert calls_of({"model_type": "glm5_next", "text_config": {"model_type": "glm5_next_text", **shape}}) == ["kda"]
