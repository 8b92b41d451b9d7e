# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles' variables look up in the plan, evaluated here as a run would."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.lookup import (
    declared_paths,
    role_plan,
    role_secret,
    role_value,
    secret,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import hang
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

ROLES = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "roles"
ROLE = ROLES / "vllm_serve"
MEMORY = 121 * 2**30
ENV = {"RAY_ADDRESS": "10.0.0.1:6379"}


@pytest.fixture(autouse=True)
def lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collection's lookups without Ansible's importer of collections, which would stay for all other tests."""
    modules = {
        f"sparkthor.cluster.{name.__name__.rpartition('.')[2]}": name
        for name in (declared_paths, role_plan, role_secret, role_value, secret)
    }
    ansibles = lookup_loader.get

    def get(name: str, **given: Any) -> Any:
        return modules[name].LookupModule(**given) if name in modules else ansibles(name, **given)

    monkeypatch.setattr(lookup_loader, "get", get)


def variables(**given: Any) -> Templar:
    """The role's variables on the head of two hosts with two GPUs each."""
    cluster: dict[str, Any] = {
        **{"head": "a", "hosts": ["a", "b"], "workers": ["b"], "world": 4, "topology": "direct", "profile": "roce"},
        **{"generation": 1, "id": "one"},
        **{"gpus": {"a": 2, "b": 2}, "kinds": {"a": "generic", "b": "generic"}, "head_address": "10.0.0.1"},
    }
    nodes = {host: {"mem_total_bytes": MEMORY} for host in "ab"}
    first = {"vllm_serve_tensor_parallel_size": 4, "engine_vllm_version": "0.33.0", **given}
    cluster["serving"] = plan_serving(first, cluster, nodes, ".")
    cluster["executor"] = cluster["serving"]["executor"]
    loader = DataLoader()
    values: dict[str, Any] = {}
    for role in ("ray_node", "vllm_serve"):
        for part in ("defaults", "vars"):
            values.update(loader.load(trust_as_template((ROLES / role / part / "main.yml").read_text())) or {})
    values.update(
        inventory_hostname="a",
        ansible_role_name="sparkthor.cluster.vllm_serve",
        sparkthor_cluster=cluster,
        sparkthor_fabric={
            host: {"control_address": f"10.0.0.{number}", "management_address": f"192.168.1.{number}", "env": ENV}
            for number, host in enumerate("ab", 1)
        },
        ansible_facts={"sparkthor_node": {**nodes["a"], "binaries": {}}},
        hostvars={host: {"ansible_facts": {"sparkthor_node": nodes[host]}} for host in "ab"},
        **first,
    )
    return Templar(loader=loader, variables=values)


def value(name: str, **given: Any) -> Any:
    return variables(**given).template(trust_as_template(f"{{{{ {name} }}}}"))


def test_the_model_is_named_as_whoever_fetches_it_knows_it() -> None:
    hub = "Qwen/Qwen3-8B"
    assert value("__vllm_serve_plan.model_path", vllm_serve_model=hub) == "/var/lib/sparkthor/models/Qwen3-8B"
    assert value("__vllm_serve_plan.model_path", vllm_serve_model=hub, vllm_serve_from_hub=True) == hub
    assert value("__vllm_serve_plan.model_elsewhere", vllm_serve_model=hub, vllm_serve_from_hub=True) is False


def test_a_model_outside_of_the_store_is_planned_by_all_that_decides_sizes() -> None:
    args = {
        "kv-cache-dtype": "fp8",
        "kv-cache-memory-bytes": "8G",
        "max-num-seqs": 8,
        "max-num-batched-tokens": "16k",
        "enforce-eager": True,
        "hf-overrides": {"max_position_embeddings": 65536},
    }
    sizing = value("__vllm_serve_sizing", vllm_serve_model="/srv/mine", vllm_serve_args=args)
    assert sizing == {
        **{"model_path": "/srv/mine", "tensor_parallel": 4, "pipeline_parallel": 1, "max_model_len": None},
        **{"memory_bytes": [MEMORY, MEMORY], "hosts": ["a", "b"], "gpu_memory_utilization": 0.85},
        **{"dtype": "auto", "kv_cache_dtype": "fp8", "kv_cache_memory_bytes": 8 * 2**30, "max_num_seqs": 8},
        **{"max_num_batched_tokens": 16_000, "enforce_eager": True, "language_model_only": False},
        **{"mamba_ssm_cache_dtype": "auto", "hf_overrides": {"max_position_embeddings": 65536}},
        **{"kind": "generic", "vllm_version": "0.33.0"},
    }
    assert set(sizing) - {"model_path"} <= {field.name for field in dataclasses.fields(memory.Options)}


def test_the_check_uses_it() -> None:
    task = yaml.safe_load((ROLE / "tasks" / "memory.yml").read_text())[0]
    assert task["sparkthor.cluster.memory_plan"] == "{{ __vllm_serve_sizing }}"


def test_the_watchdog_sees_when_a_request_was_written() -> None:
    """It is neither root nor the serving user, and waits for a file in that folder (hang.OTHERS)."""
    folder, _slash, _name = hang.OTHERS.rpartition("/")
    [task] = yaml.safe_load((ROLE / "tasks" / "configure.yml").read_text())
    [declared] = [item for item in task["sparkthor.cluster.host_state"]["directories"] if item["path"] == folder]
    [line] = [
        words
        for words in map(str.split, (ROLE / "templates" / "tmpfiles.conf.j2").read_text().splitlines())
        if words[:2] == ["d", folder]
    ]
    assert line[2] == declared["mode"]
    assert int(declared["mode"], 8) & 0o777 == 0o751


@pytest.mark.parametrize(
    ("answer", "failing", "words"),
    [
        ({"failed": True, "msg": "model_path='/srv/mine': is not a folder"}, 0, "vllm_serve_model, of its recipe"),
        (
            {"plan": {"verdict": "does_not_fit", "reasons": ["Too big."], "suggestions": []}},
            1,
            "/srv/mine does not fit",
        ),
        ({"plan": {"verdict": "fits"}}, None, ""),
    ],
)
def test_what_cannot_be_planned_or_does_not_fit_stops(answer: dict[str, Any], failing: int | None, words: str) -> None:
    templar = variables(vllm_serve_model="/srv/mine")
    templar.available_variables = {**templar.available_variables, "__vllm_serve_sizes": answer}
    tasks = yaml.safe_load((ROLE / "tasks" / "memory.yml").read_text())[1:]
    checks = [task["ansible.builtin.assert"] for task in tasks]
    for check in checks[:failing]:
        assert templar.template(trust_as_template(f"{{{{ {check['that']} }}}}")) is True
    if failing is not None:
        assert templar.template(trust_as_template(f"{{{{ {checks[failing]['that']} }}}}")) is False
        assert words in templar.template(trust_as_template(checks[failing]["fail_msg"]))


@pytest.mark.parametrize(
    ("python", "environment"),
    [
        ([], "/opt/sparkthor/venv"),
        # as an upgrade names the Python of the engine that it has staged
        (
            ["runuser", "--", "env", "/opt/sparkthor/venvs/a.1/bin/python"],
            "/opt/sparkthor/venvs/a.1",
        ),
    ],
)
def test_an_engine_s_own_program_is_asked_where_the_engine_lies(python: list[str], environment: str) -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "trials.yml").read_text())
    [asks] = [task for task in tasks if task.get("loop") == "{{ __vllm_serve_plan.trials }}"]
    words = ["systemd-run", "--", "/usr/bin/env", "A=1", "/opt/sparkthor/venv/bin/llama-server", "--model", "/m/a.gguf"]
    templar = variables(vllm_serve_model="/srv/mine")
    templar.available_variables = {**templar.available_variables, "__vllm_serve_python": python, "item": words}
    argv = templar.template(trust_as_template(asks["sparkthor.cluster.host_builtin"]["arguments"]["argv"]))
    assert argv == [*words[:4], f"{environment}/bin/llama-server", *words[5:]]


def test_the_mark_of_degraded_mode_goes_where_it_is_switched_off() -> None:
    assert "/run/sparkthor/degraded.json" in state(vllm_serve_model="/srv/mine", secrets=False)["absent"]


def state(*, secrets: bool = True, **given: Any) -> dict[str, Any]:
    """What the role's task tells host_state, the last value of each variable counting."""
    templar = variables(**given)
    found = role_tasks.state("vllm_serve", DataLoader(), templar, dict(templar.available_variables), secrets=secrets)
    assert found is not None
    return found


def secrets(folder: Path) -> dict[str, Any]:
    for name in ("api_key", "ray_token", "api_key.previous"):
        (folder / name).write_text(f"{name.replace('.', '-')}-0123456789abcdef\n")
    return {"vllm_serve_model": "/srv/mine", "sparkthor_secrets_dir": str(folder)}


def test_secrets_are_in_files_that_are_marked(tmp_path: Path) -> None:
    given = secrets(tmp_path)
    found = state(**given)
    marked = {file["path"]: file["content"] for file in found["files"] if file.get("secret")}
    # the environment is none, and stays out of diffs all the same
    assert marked.pop("/etc/sparkthor/vllm.env")
    assert set(marked) == {"/etc/sparkthor/front/keys.conf", "/etc/sparkthor/secrets/api_key"}
    assert marked["/etc/sparkthor/secrets/api_key"] == "api_key-0123456789abcdef\n"
    assert "api_key-previous-0123456789abcdef" in marked["/etc/sparkthor/front/keys.conf"].replace("\\", "")
    plan = value("__vllm_serve_plan", **given)
    assert "0123456789abcdef" not in str(plan)
    # who renders files for people reads no secret
    shown = state(**given, secrets=False)["files"]
    assert [file["path"] for file in shown] == [file["path"] for file in found["files"] if file["path"] not in marked]
    assert "0123456789abcdef" not in str(shown)
    [token] = [file for file in ray_state(**given)["files"] if file.get("secret")]
    assert (token["path"], token["content"]) == ("/etc/sparkthor/secrets/ray_token", "ray_token-0123456789abcdef\n")
    assert "0123456789abcdef" not in str(ray_state(secrets=False, **given))


def ray_state(*, secrets: bool = True, **given: Any) -> dict[str, Any]:
    """What the role ray_node's task tells host_state."""
    templar = variables(**given)
    found = role_tasks.state("ray_node", DataLoader(), templar, dict(templar.available_variables), secrets=secrets)
    assert found is not None
    return found


def test_a_former_key_of_a_key_that_the_user_gave_does_not_count(tmp_path: Path) -> None:
    given = secrets(tmp_path)
    found = state(vllm_serve_api_key="given-0123456789abcdef", **given)["files"]
    [keys] = [file["content"] for file in found if file["path"].endswith("keys.conf")]
    assert "given" in keys
    assert "previous" not in keys


def test_what_is_compared_is_what_the_tasks_do(tmp_path: Path) -> None:
    given = secrets(tmp_path)
    templar = variables(**given)
    known = {**templar.available_variables, "ansible_check_mode": False}
    found = [(module, told) for module, told, _own in role_tasks.calls("ray_node", templar, known)]
    assert [module for module, _told in found] == ["host_state"]
    assert "/etc/sparkthor/ray.json" in [file["path"] for file in found[0][1]["files"]]
    with pytest.raises(role_tasks.NotCompared, match="Plan the memory of the model"):
        list(role_tasks.calls("vllm_serve", templar, known))
    stored = {**given, "vllm_serve_model": "Qwen/Qwen3-8B", "vllm_serve_front_package_manage": False}
    templar = variables(**stored)
    known = {**templar.available_variables, "ansible_check_mode": False}
    calls = [(module, told) for module, told, _own in role_tasks.calls("vllm_serve", templar, known)]
    assert [module for module, _told in calls] == ["vllm_options", "host_state", "vllm_service", "vllm_service"]
    assert calls[0][1] == value("__vllm_serve_plan.options", **stored)
    assert "/etc/sparkthor/vllm.yaml" in [file["path"] for file in calls[1][1]["files"]]
    assert [told["state"] for _module, told in calls[2:]] == ["serving", "kept"]
    assert "/opt/sparkthor/venv" in calls[3][1]["paths"]
    managed = {**known, "vllm_serve_front_package_manage": True}
    with pytest.raises(role_tasks.NotCompared, match="Install nginx"):
        list(role_tasks.calls("vllm_serve", templar, managed))


def test_what_waits_for_ranks_of_other_hosts_is_compared_too(tmp_path: Path) -> None:
    stored = {"vllm_serve_model": "Qwen/Qwen3-8B", "vllm_serve_front_package_manage": False}
    templar = variables(vllm_serve_executor="mp", **{**secrets(tmp_path), **stored})
    # before a run no host has a result of its own
    hosts = {"ansible_play_hosts": ["a", "b"], "hostvars": {"a": {}, "b": {}}}
    known = {**templar.available_variables, **hosts, "ansible_check_mode": False}
    calls = [(module, told) for module, told, _own in role_tasks.calls("vllm_serve", templar, known)]
    assert [module for module, _told in calls] == ["vllm_options", "host_state", "vllm_service", "vllm_service"]
    assert calls[2][1]["settle"] == 0


def test_a_wrong_value_is_named_with_its_variable() -> None:
    with pytest.raises(
        AnsibleError, match=r"'vllm_serve_api_port' is of type str .*http.* cannot be converted to an int"
    ):
        value("__vllm_serve_plan", vllm_serve_model="/srv/mine", vllm_serve_api_port="http")
    with pytest.raises(AnsibleError, match="vllm_serve_listen: 'nowhere' is not an IP address"):
        value("__vllm_serve_plan", vllm_serve_model="/srv/mine", vllm_serve_listen=["nowhere"])
