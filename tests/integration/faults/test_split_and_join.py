# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that becomes two, and two that become one, by site.yml alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Cluster
from tests.integration.faults import moved
from tools.faults.observe import Endpoint
from tools.faults.site import Site, wait
from tools.playbooks import run_playbook


@pytest.fixture
def site(cluster: Cluster) -> Site:
    return Site(cluster.lab, cluster.inventories)


def run(inventories: list[Path], name: str, **variables: Any) -> dict[str, int]:
    outcome = run_playbook("site.yml", inventories, extra_vars=variables or None, name=name)
    assert outcome.rc == 0, outcome.failures
    print(f"\n{name}: {outcome.seconds:.0f} s, changed {outcome.changed}: {outcome.changes[:20]}")
    return outcome.changed


def cluster_id(site: Site, host: str) -> str:
    return str(json.loads(site.on(host, "cat /etc/sparkthor/cluster.json"))["cluster"])


def answers(site: Site, head: str) -> str:
    return Endpoint(site.lab.plan.host(head).address, 8000, site.endpoint.key, site.model).complete(
        4, stream=False, timeout=120
    )


def test_one_cluster_becomes_two_and_one_again(site: Site, tmp_path: Path) -> None:
    first, second, third = site.hosts
    whole = cluster_id(site, first)
    kept, kept_variables = moved.write(tmp_path / "kept", site, first, [second])
    apart, apart_variables = moved.write(tmp_path / "apart", site, third, [])
    # the secrets of the second cluster are its own business; its hosts keep the token that they have
    apart_variables["vllm_serve_tls"] = "off"
    apart_variables["sparkthor_secrets_dir"] = str(tmp_path / "apart" / "secrets")
    run(kept, "split-first", **kept_variables)
    assert answers(site, first) == ""
    run(apart, "split-second", **apart_variables)
    key = (tmp_path / "apart" / "secrets" / "api_key").read_text().strip()
    alone = Endpoint(site.lab.plan.host(third).address, 8000, key, site.model)
    assert (answers(site, first), alone.complete(4, stream=False, timeout=120)) == ("", "")
    assert cluster_id(site, first) == cluster_id(site, second) == whole
    # neither head takes the other one for its successor, whoever was declared later
    site.everywhere("systemctl restart sparkthor-ray", [first, third])
    wait(
        lambda: answers(site, first) == alone.complete(4, stream=False, timeout=120) == "", 900, "both after a restart"
    )
    assert set(run(kept, "split-first-again", **kept_variables).values()) == {0}
    assert set(run(apart, "split-second-again", **apart_variables).values()) == {0}

    run(site.inventories, "join")
    assert answers(site, first) == ""
    assert {cluster_id(site, host) for host in site.hosts} == {whole}
    assert sum(site.ranks().values()) == len(site.hosts)
    assert set(run(site.inventories, "join-again").values()) == {0}
