# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles

from tests.unit import role_state
from tests.unit.plugins.plugin_utils._plan import vllm_plan
from tests.unit.plugins.plugin_utils._plan.vllm_plan import started_by

UNIT = "/etc/systemd/system/sparkthor-ray.service"


def plan(variables: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The host's values, and what the role's task makes of them, without secrets."""
    known = {**variables, **given}
    state = role_state.state("ray_node", secrets=False, **known)
    Wanted.parse(state)
    planned = roles.plan("ray_node", Declared(known))
    return {**planned, "wanted": role_state.value("ray_node", "__ray_node_wanted", **known), "state": state}


def secret_files(variables: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """The files with secrets by their path."""
    (folder / "ray_token").write_text("token-0123456789abcdef\n")
    found = role_state.state("ray_node", **{**variables, "sparkthor_secrets_dir": str(folder)})
    Wanted.parse(found)
    return {file["path"]: file for file in found["files"] if file.get("secret")}


def files(planned: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in planned["state"]["files"]}


def test_the_head(variables: dict[str, Any]) -> None:
    planned = plan(variables)
    assert (planned["problems"], planned["wanted"], planned["head"]) == ([], True, True)
    found = files(planned)
    config = json.loads(found["/etc/sparkthor/ray.json"])
    assert config["engine"] == ["/opt/sparkthor/venv/bin/python"]
    assert config["user"] == "sparkthor"
    assert config["environment"] == {"PYTHONPYCACHEPREFIX": "/var/lib/sparkthor/cache/pycache"}
    assert config["inputs"] == {"engine": "", "fabric": variables["sparkthor_fabric"]["a"]["env"]}
    launch = "/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host launch --file=/etc/sparkthor/fabric.env "
    launch += "--file=-/etc/sparkthor/engine.env --file=/etc/sparkthor/ray.env --without=RAY_ADDRESS --"
    assert f"ExecStart={launch} /opt/sparkthor/venv/bin/ray start --head --node-ip-address=10.0.0.1" in found[UNIT]
    assert "docker" not in found[UNIT]
    assert 'RAY_health_check_period_ms="1000"' in found["/etc/sparkthor/ray.env"]
    assert 'RAY_worker_niceness="0"' in found["/etc/sparkthor/ray.env"]


def test_a_worker_in_a_container_with_caches_elsewhere(variables: dict[str, Any]) -> None:
    planned = plan(
        variables,
        inventory_hostname="b",
        engine_runtime="container",
        engine_cache_dir="/data/cache",
        ray_node_num_cpus="4",
        ray_node_labels={"k": "two words"},
    )
    found = files(planned)
    assert planned["head"] is False
    start = "ExecStart=+/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host container run ray start"
    assert f"{start} --address=10.0.0.1:6379" in found[UNIT]
    assert "--num-cpus=4" in found[UNIT]
    assert "'--labels=k=two words'" in found[UNIT]
    # what works in folders of the serving user's is not root's
    program = "/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host"
    as_root = [line for line in found[UNIT].splitlines() if "=+" in line or "=-+" in line]
    assert f"ExecStartPre={program} ray-prepare" in found[UNIT].splitlines()
    assert [line.removeprefix("ExecStartPre=").removeprefix("ExecStopPost=") for line in as_root[:2]] == [
        f"-+{program} container remove ray",
        f"+{program} ray-prepare --ask-head",
    ]
    assert all(f"{program} container" in line for line in as_root[2:])
    assert "WorkingDirectory=/var/lib/sparkthor/ray\n" in found[UNIT]
    config = json.loads(found["/etc/sparkthor/ray.json"])
    assert config["user"] == ""
    assert config["environment"] == {"PYTHONPYCACHEPREFIX": "/data/cache/pycache"}
    # Docker's client has another environment than Ray inside, and lies elsewhere
    assert planned["state"]["units"][0]["environment"] == {}
    assert planned["state"]["units"][0]["program_from"] is None


def test_what_a_restart_is_decided_by(variables: dict[str, Any]) -> None:
    [unit] = plan(variables, ray_node_env={"NEW_HOST_VARIABLE": "x"})["state"]["units"]
    assert unit["defer"] is True
    assert unit["program_from"] == "/opt/sparkthor/venv"
    assert unit["restart_on"] == [
        "/etc/sparkthor/ray.env",
        "/etc/sparkthor/ray.json",
        *(f"/etc/sparkthor/secrets/{name}" for name in ("ray_token", "ray_tls.key", "ray_tls.crt")),
        UNIT,
    ]
    # the unit unsets the client's address, and ray.env outranks fabric.env
    assert unit["environment"] == {"NCCL_IB_HCA": "mlx5_1"}


def test_without_ray_it_is_switched_off(variables: dict[str, Any], tmp_path: Path) -> None:
    planned = plan(started_by(variables, "mp"))
    assert planned["wanted"] is False
    assert planned["state"]["files"] == planned["state"]["directories"] == []
    [unit] = planned["state"]["units"]
    assert (unit["enabled"], unit["state"], unit["optional"], unit["defer"]) == (False, "stopped", True, True)
    assert secret_files(started_by(variables, "mp"), tmp_path) == {}


def test_the_token_is_asked_for_apart(variables: dict[str, Any], tmp_path: Path) -> None:
    [token] = secret_files(variables, tmp_path).values()
    assert token == {
        "path": "/etc/sparkthor/secrets/ray_token",
        "content": "token-0123456789abcdef\n",
        "secret": True,
    }
    assert [file.mode for file in Wanted.parse({"files": [token]}).files] == [0o600]
    assert not [file for file in plan(variables)["state"]["files"] if file.get("secret")]


def test_problems_are_named_and_nothing_is_rendered(variables: dict[str, Any]) -> None:
    planned = plan(variables, ray_node_temp_dir="relative")
    assert planned["problems"][0].startswith("a: ray_node_temp_dir: 'relative'")
    assert planned["state"]["files"] == []
    clash = plan(variables, ray_node_ports={"gcs": 8000})
    assert "vllm_serve_api_port" in clash["problems"][0]


def test_a_run_without_a_plan_says_what_is_missing(variables: dict[str, Any]) -> None:
    with pytest.raises(KeyError) as caught:
        roles.plan("ray_node", {**variables, "inventory_hostname": "z", "sparkthor_fabric": {}})
    assert "run the preflight role first" in roles.explained(caught.value)
    with pytest.raises(ValueError, match="not a role with a plan"):
        roles.plan("nothing", variables)


def test_tls_between_nodes(variables: dict[str, Any], tmp_path: Path) -> None:
    names = ["/etc/sparkthor/secrets/ray_tls.key", "/etc/sparkthor/secrets/ray_tls.crt"]
    without = plan(variables)
    assert without["state"]["absent"] == names
    assert "RAY_USE_TLS" not in files(without)[UNIT]
    assert len(secret_files(variables, tmp_path)) == 1
    given = {**variables, "ray_node_tls": True}
    found = plan(given)
    assert found["state"]["absent"] == []
    assert json.loads(files(found)["/etc/sparkthor/ray.json"])["tls"] is True
    for unit in (files(found)[UNIT], vllm_unit(given)):
        assert "RAY_USE_TLS=1 RAY_TLS_SERVER_KEY=%d/ray_tls.key" in unit
        assert [f"LoadCredential={path.rpartition('/')[2]}:{path}" in unit for path in names] == [True, True]
    assert "PRIVATE KEY" not in str(found)
    secrets = secret_files(given, tmp_path)
    marked = Wanted.parse({"files": [secrets[name] for name in names]}).files
    assert [(file.mode, file.secret) for file in marked] == [(0o600, True)] * 2
    assert secret_files(started_by(given, "mp"), tmp_path) == {}
    assert "RAY_USE_TLS" not in vllm_unit(started_by(given, "mp"))


def vllm_unit(variables: dict[str, Any]) -> str:
    return vllm_plan.files(vllm_plan.plan(variables))["/etc/systemd/system/sparkthor-vllm.service"]
