# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments and variables that Docker's usual container refuses are named, with the option that allows them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.container_needs import lacking
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

from tests.unit.planned_cluster import planned

SECCOMP, NICE, PTRACE, STORAGE = "security-opt seccomp=FILE", "cap-add SYS_NICE", "cap-add SYS_PTRACE", "device /dev/nv"


def nixl(*backends: str) -> dict[str, Any]:
    return {"kv-transfer-config": {"kv_connector": "N", "kv_connector_extra_config": {"backends": list(backends)}}}


@pytest.mark.parametrize(
    ("args", "environment", "needed"),
    [
        ({"load-format": "b12x"}, {}, [SECCOMP]),
        ({"load-format": "b12x_uring"}, {}, [SECCOMP]),
        ({"numa-bind": True}, {}, [NICE]),
        (nixl("GDS", "POSIX", "UCX"), {}, [STORAGE, SECCOMP]),
        ({}, {"UCX_TLS": "rc,cma,cuda_copy"}, [PTRACE]),
        ({}, {"VLLM_LOADER_IO_URING": "1"}, [SECCOMP]),
        ({}, {"B12X_USE_IO_URING": "true"}, [SECCOMP]),
    ],
)
def test_what_a_container_does_not_allow_is_named(
    args: dict[str, Any], environment: dict[str, Any], needed: list[str]
) -> None:
    found = lacking(args, environment, [])
    assert len(found) == len(needed)
    for line, option in zip(found, needed, strict=True):
        assert f"give engine_container_options the words --{option}" in line
        name = next(iter({**args, **environment}))
        assert line.startswith(f"{name}=")
        assert ", or " in line


@pytest.mark.parametrize(
    ("args", "environment"),
    [
        ({"load-format": "instanttensor", "numa-bind": False}, {}),
        ({"kv-transfer-config": "{}"}, {}),
        ({"kv-transfer-config": {"kv_connector_extra_config": {"backends": "POSIX"}}}, {}),
        (nixl("UCX"), {"UCX_TLS": "all", "VLLM_USE_IO_URING": "0", "MY_IO_URING": "off", "NO_URING": None, "OMP": "1"}),
        # the host's own IPC and locked memory are in every container
        ({"mm-processor-cache-type": "shm", "enable-shm-tensor-arena": True, "kv-offloading-size": 8}, {}),
    ],
)
def test_what_every_container_has_is_not(args: dict[str, Any], environment: dict[str, Any]) -> None:
    assert lacking(args, environment, []) == []


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ({"load-format": "b12x"}, ["--security-opt", "seccomp=unconfined"]),
        ({"load-format": "b12x"}, ["--security-opt=seccomp=/etc/docker/uring.json"]),
        ({"load-format": "b12x"}, ["--privileged"]),
        ({"numa-bind": True}, ["--cap-add", "SYS_NICE"]),
        ({"numa-bind": True}, ["--cap-add=ALL"]),
        (nixl("GDS"), ["--device", "/dev/nvidia-fs0", "--shm-size", "8g"]),
    ],
)
def test_what_the_user_allows_is_met(args: dict[str, Any], options: list[str]) -> None:
    assert lacking(args, {}, options) == []


@pytest.mark.parametrize(
    "options", [["--security-opt", "apparmor=unconfined"], ["--cap-add", "SYS_NICE"], ["seccomp=unconfined"]]
)
def test_another_option_meets_nothing(options: list[str]) -> None:
    assert len(lacking({"load-format": "b12x"}, {}, options)) == 1


@pytest.mark.parametrize(("runtime", "named"), [("container", True), ("venv", False)])
def test_the_plan_says_it_of_containers_alone(runtime: str, named: bool) -> None:
    mine = {"vllm_serve_model": "Qwen/Qwen3-8B", "engine_runtime": runtime, "vllm_serve_tensor_parallel_size": 2}
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_env={"UCX_TLS": "cma"}, **mine)
    told = [line for line in plan_serving(first, cluster, nodes, ".")["warnings"] if line.startswith("UCX_TLS='cma'")]
    assert bool(told) is named
    allowed = {**first, "engine_container_options": ["--cap-add", "SYS_PTRACE"]}
    assert not [line for line in plan_serving(allowed, cluster, nodes, ".")["warnings"] if "UCX_TLS" in line]
