# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that stay away: a smaller recipe is served without one, and a head that was replaced meanwhile stays down."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Cluster
from tests.integration.faults import moved
from tools.faults.observe import Endpoint, Watch
from tools.faults.site import Site, wait
from tools.playbooks import run_playbook

#: seconds for a restart of the group on a busy machine
PATIENCE = 900


@pytest.fixture
def site(cluster: Cluster) -> Site:
    return Site(cluster.lab, cluster.inventories)


def run(inventories: list[Path], name: str, **variables: Any) -> None:
    outcome = run_playbook("site.yml", inventories, extra_vars=variables or None, name=name)
    assert outcome.rc == 0, outcome.failures
    print(f"\n{name}: {outcome.seconds:.0f} s, changed {outcome.changed}")


def fabric(site: Site, host: str) -> dict[str, str]:
    """The addresses of a host's fabric ports as they are."""
    shown = json.loads(site.on(host, "ip -j -4 address show"))
    management = site.lab.plan.host(host).address
    return {
        link["ifname"]: f"{one['local']}/{one['prefixlen']}"
        for link in shown
        for one in link["addr_info"]
        if link["ifname"] != "lo" and one["local"] != management
    }


def test_a_smaller_recipe_is_served_until_the_host_is_back(site: Site) -> None:
    run(site.inventories, "degraded", vllm_serve_degraded_after=30, vllm_serve_degraded_recipe="tiny-qwen3")
    site.lab.off(site.worker)
    away = time.monotonic()
    with Watch(site.leader) as watch:
        wait(lambda: "serving the smaller recipe" in str(watch.newest.get("line")), PATIENCE, "the smaller recipe")
        print(f"served without {site.worker} {time.monotonic() - away:.0f} s after it went")
        assert watch.newest["line"] == f"degraded: serving the smaller recipe without {site.worker}"
        assert watch.newest["healthy"]
        assert site.endpoint.complete(8, stream=False, timeout=120) == ""
        site.lab.boot(site.worker)
        site.lab.wait(site.worker)
        back = time.monotonic()
        wait(lambda: watch.state == "serving", PATIENCE, "the whole recipe")
        print(f"whole again {time.monotonic() - back:.0f} s after its ssh")
        print("\n".join(watch.story(away)))
        assert site.endpoint.complete(8, stream=False, timeout=120) == ""
        restarts = watch.newest["restarts"]
        assert (restarts["degraded"], restarts["restored"]) == (1, 1)
    # off again: the role leaves nothing of it
    run(site.inventories, "whole")
    assert "No such file" in site.on(site.head, "ls /etc/sparkthor/vllm-degraded.yaml 2>&1", check=False)


def test_a_stand_in_sockets_host_is_switched_once_and_not_twice(site: Site) -> None:
    """The socket is a program on the head that tells the journal what it is asked; the host stays away all the same.

    The guard may write nowhere but in its own folder.
    """
    plug, asked = "/usr/local/bin/stand-in-socket", "journalctl --no-pager --output=cat --identifier=stand-in-socket"
    site.on(site.head, f"printf '#!/bin/sh\\nlogger -t stand-in-socket \"$*\"\\n' > {plug}; chmod 755 {plug}")
    run(
        site.inventories,
        "socket",
        vllm_serve_power_commands=[[plug, "off", "{outlet}"], [plug, "on", "{outlet}"]],
        vllm_serve_power_outlets={site.worker: "outlet-7"},
        vllm_serve_power_after=300,
        vllm_serve_power_pause=2,
    )
    site.lab.off(site.worker)
    wait(lambda: "on outlet-7" in site.on(site.head, asked), PATIENCE, "the power to be switched", every=5)
    time.sleep(330)
    assert site.on(site.head, asked).splitlines() == ["off outlet-7", "on outlet-7"]
    journal = site.on(site.head, "journalctl --no-pager --unit=sparkthor-power-guard")
    assert f"{site.worker} is still away after its power was switched once" in journal
    site.lab.boot(site.worker)
    site.lab.wait(site.worker)
    wait(lambda: site.endpoint.complete(1, stream=False, timeout=60) == "", PATIENCE, "serving again")
    run(site.inventories, "no-socket")
    assert "inactive" in site.on(site.head, "systemctl is-active sparkthor-power-guard", check=False)


def test_a_former_head_that_returns_stays_down_and_says_why(site: Site, tmp_path: Path) -> None:
    former, new, *others = site.hosts
    site.lab.off(former)
    # a former head comes back with the fabric addresses it had; counted anew, one of the others would have got them
    kept = {name: {"fabric_overrides": fabric(site, name)} if others else {} for name in (new, *others)}
    inventories, variables = moved.write(tmp_path, site, new, others, kept)
    run(inventories, "new-head", **variables)
    generation = json.loads(site.on(new, "cat /etc/sparkthor/cluster.json"))["generation"]
    key = site.endpoint.key
    served = Endpoint(site.lab.plan.host(new).address, 8000, key, site.model)
    assert served.complete(4, stream=False, timeout=120) == ""

    site.lab.boot(former)
    site.lab.wait(former)
    back = time.monotonic()
    with Watch(lambda: site.lab.machine(former).leader()) as watch:
        wait(lambda: watch.state == "stopped", 180, "the former head to give way")
        print(f"gave way {time.monotonic() - back:.0f} s after its ssh: {watch.newest['line']}")
        text = f"{new} was declared head of this cluster later (generation {generation})"
        assert text in watch.newest["line"]
        wait(lambda: text in site.on(former, "journalctl -u sparkthor-ray -o cat --no-pager"), 120, "Ray's reason")
        assert site.shown(former, "sparkthor-ray", "MainPID") == "0"
        # while the new head is away as well, the former one does not take its chance
        site.lab.off(new)
        site.on(former, "systemctl restart --no-block sparkthor-ray sparkthor-watchdog")
        time.sleep(20)
        assert watch.state == "stopped"
        assert site.shown(former, "sparkthor-ray", "MainPID") == "0"
        assert site.processes(former, "sparkthor-ray.service", "gcs_server") == []
    site.lab.boot(new)
    site.lab.wait(new)
    wait(lambda: served.complete(4, stream=False, timeout=60) == "", PATIENCE, "the new head after its power loss")
    # a play gives it its place again
    run(site.inventories, "former-head")
    assert site.endpoint.complete(4, stream=False, timeout=120) == ""
    assert json.loads(site.on(former, "cat /etc/sparkthor/cluster.json"))["generation"] == generation + 1
