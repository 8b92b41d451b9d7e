# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What preflight asks of a host beside the comparison depends on the roles of the run."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.asked import asked_of

VARIABLES = {
    "engine_cache_dir": "/srv/cache",
    "model_store_root": "/srv/models",
    "sparkthor_cluster": {"store_bytes": {"org/model": 12}, "hosts": ["a", "b"], "head": "b"},
    "ansible_facts": {"sparkthor_node": {"management": {"netdev": "enP7s7"}}},
}


def asked(*roles: str, probe: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    variables = {**VARIABLES, **more}
    templar = Templar(loader=DataLoader(), variables=variables)
    return asked_of(probe or {}, roles, variables, templar, "a")


FOLDERS = {"engine_cache_dir": "/srv/cache", "model_store_root": "/srv/models"}


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ((), {}),
        (("nccl_conf", "monitoring"), {}),
        (("firewall",), {"exposure": "enP7s7"}),
        (("os_hardening",), {"exposure": "enP7s7"}),
        (("ray_node",), {"folders": FOLDERS}),
        (("model_store",), {"folders": FOLDERS, "room": {"/srv/models": {"org/model": 12}}}),
    ],
)
def test_what_a_role_takes_is_asked_for(roles: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert asked(*roles) == expected


def test_a_host_that_never_gets_the_model_needs_no_room_for_it() -> None:
    cluster = {**VARIABLES["sparkthor_cluster"], "serving": {"everywhere": False}}
    assert "room" not in asked("model_store", sparkthor_cluster=cluster)
    assert "room" in asked("model_store", sparkthor_cluster={**cluster, "head": "a"})


def test_a_host_that_nothing_is_known_of_is_asked_less() -> None:
    assert asked("firewall", "model_store", ansible_facts={}, sparkthor_cluster={}) == {"folders": FOLDERS}


def test_a_probe_knows_whom_to_hear() -> None:
    link = {"netdev": "p0", "peer": "", "subnet": "10.0.0.0/24"}
    fabric = {name: {"links": [link]} for name in "abc"}
    found = asked(probe={"host": "a", "links": [link]}, sparkthor_fabric=fabric, ansible_play_hosts=["a", "b"])
    assert found == {"probe": {"host": "a", "links": [{**link, "peer_up": False, "hosts": ["b"]}]}}
