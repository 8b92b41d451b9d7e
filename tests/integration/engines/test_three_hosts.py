# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp with layers over three hosts, in a lab of its own: what it answers, and what a lost rank costs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import yaml

from tests.integration.engines.conftest import START
from tests.integration.lifecycle.edited_site import Site
from tests.integration.sites import within

HOSTS = ["spark-01", "spark-02", "spark-03"]
RPC_PORT = 50052


class Layers(Site):
    """The inventory of two groups as one cluster of all three hosts."""

    model = "smollm2"

    def write(self, members: list[str], **variables: object) -> None:
        for group in ("layers", "alone"):
            (self.inventory / f"group_vars/{group}.yml").unlink(missing_ok=True)
        for name in ("hosts.yml", "group_vars/cluster.yml"):
            tree = yaml.safe_load((self.inventory / name).read_text())
            tree.pop("serving_groups", None)
            for group in ("layers", "alone"):
                tree.get("cluster", {}).get("children", {}).pop(group, None)
            (self.inventory / name).write_text(yaml.safe_dump(tree, sort_keys=False))
        super().write(members, **variables)

    def answers(self) -> bool:
        try:
            self.completes()
        except OSError:
            return False
        return True


@pytest.fixture(scope="module")
def site() -> Iterator[Layers]:
    made = Layers("eng-three", "lab_engines", HOSTS, "10.79.64.0/24")
    yield made
    made.lab.destroy()


def test_layers_over_three_hosts_answer_and_a_second_run_changes_nothing(site: Layers) -> None:
    site.play()
    places = [site.on(host, "sed -n 's/^host: //p' /etc/sparkthor/llama.yaml").strip().strip('"') for host in HOSTS[1:]]
    given = site.on("spark-01", "cat /etc/sparkthor/llama.yaml")
    assert 'rpc: "' + ",".join(f"{place}:{RPC_PORT}" for place in places) + '"' in given
    site.serves()


@pytest.mark.parametrize(
    ("host", "program"),
    [("spark-01", "llama-server"), ("spark-02", "ggml-rpc-server"), ("spark-03", "ggml-rpc-server")],
)
def test_each_rank_that_is_killed_comes_back(site: Layers, host: str, program: str) -> None:
    begun, started = time.monotonic(), "systemctl show -P InvocationID sparkthor-vllm.service"
    head = site.on("spark-01", started)
    site.on(host, f"pkill -KILL -x {program}")
    within(START, lambda: site.on("spark-01", started) != head and site.answers())
    print(f"{program} of {host} killed: {time.monotonic() - begun:.0f} s until the next answer")


def test_a_worker_that_loses_its_power_comes_back(site: Layers) -> None:
    site.lab.off("spark-03")
    within(START, lambda: not site.answers())
    site.lab.boot("spark-03")
    within(START, site.answers)
