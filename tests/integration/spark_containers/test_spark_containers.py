# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventories for hardware that run in containers, deployed on simulated hosts with an image that was built here.

Simulated hosts cannot load the model or the image of the inventory: the image is the lab's, the model the tiny one, and
everything else is the inventory as it is.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sparklab import Lab

from tests.integration.conftest import TOP, Cluster
from tests.integration.serve.conftest import Serving
from tools.playbooks import run_playbook

ENGINE = TOP / ".lab" / "engine"
#: by inventory, its lab's network, how the tiny model divides there (its 6 KV heads do not go into 4), and the
#: executor: what the inventory's own comes to, and the other one
CLUSTERS = {"2spark": ("10.79.52.0/24", 2, 1, "auto"), "4spark": ("10.79.54.0/24", 2, 2, "ray")}
#: simulated ports are slow, and hosts of one machine slower
THRESHOLDS = {"tcp_half_gbits": 0.12, "tcp_both_gbits": 0.12, "busbw_gloo_gbytes": 0.0005, "latency_us": 5e6}


def wanted(tensor: int, pipeline: int, executor: str) -> dict[str, Any]:
    """What simulated hosts have instead of the image and the model of the inventory."""
    lab = yaml.safe_load((TOP / "inventories" / "lab_container" / "group_vars" / "cluster.yml").read_text())
    return {
        "engine_image_archive": str(ENGINE / "image.tar"),
        "engine_image_requirements": str(TOP / "requirements" / "engine" / "lab-ray-cp311-x86_64.txt"),
        "engine_wheel_dir": str(ENGINE / "wheels"),
        "engine_extra_env": lab["engine_extra_env"],
        "model_store_models": [{"name": "tiny-qwen3", "source": str(ENGINE / "model")}],
        "vllm_serve_recipe": "tiny-qwen3",
        # the tiny recipe names the lab's; those of the inventories come to this one
        "engine_runtime": "container",
        "vllm_serve_tensor_parallel_size": tensor,
        "vllm_serve_pipeline_parallel_size": pipeline,
        "vllm_serve_executor": executor,
    }


@pytest.fixture(params=CLUSTERS)
def deployed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Serving, dict[str, Any]]]:
    name = str(request.param)
    subnet, tensor, pipeline, executor = CLUSTERS[name]
    subprocess.run([sys.executable, "lab/engine/image.py"], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    inventory = shutil.copytree(TOP / "inventories" / name, tmp_path / name)
    lab = Lab.create(
        [inventory],
        home=TOP / ".lab",
        name=f"cont-{name}",
        subnet=subnet,
        suite="trixie",
        disk="20G",
        layers=["docker"],
    )
    try:
        rows = lab.status()
        hosts = [row["host"] for row in rows]
        cluster = Cluster(
            lab=lab,
            inventories=[inventory, lab.folder / "inventory.yml"],
            head=hosts[0],
            hosts=hosts,
            addresses={row["host"]: row["address"] for row in rows},
        )
        yield Serving(cluster), wanted(tensor, pipeline, executor)
    finally:
        lab.destroy()


def test_it_serves_from_containers_and_is_proven_inside(
    deployed: tuple[Serving, dict[str, Any]], tmp_path: Path
) -> None:
    serving, variables = deployed
    cluster = serving.cluster
    serving.site(whole=True, **variables)
    names = {host: cluster.run(host, "docker ps --format '{{.Names}}'").split() for host in cluster.hosts}
    by_ray = variables["vllm_serve_executor"] == "ray"
    assert [("sparkthor-ray" in found) for found in names.values()] == [by_ray] * len(names), names
    # without Ray each host runs its own rank
    ranks = [host for host, found in names.items() if {"sparkthor-vllm", "sparkthor-rank"} & set(found)]
    assert ranks == ([cluster.head] if by_ray else cluster.hosts), names
    serving.assert_answers_as_one_host()
    again = serving.play("site.yml", **variables)
    assert (again.rc, again.changes) == (0, [])
    proof = {"verify_parts": "collective", "verify_folder": str(tmp_path), "verify_thresholds": THRESHOLDS}
    outcome = run_playbook(
        "playbooks/verify.yml",
        cluster.inventories,
        extra_vars={**variables, **proof},
        name="verify",
        say=lambda line: None,
    )
    assert outcome.rc == 0, outcome.failures
    (document,) = (tmp_path / "verify").glob("*.json")
    lines = {line["check"]: line for line in json.loads(document.read_text())["lines"]}
    print({check: (line["where"], line["value"]) for check, line in lines.items()}, flush=True)
    assert lines["all-reduce"]["verdict"] == "pass"
