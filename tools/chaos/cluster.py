# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom chaos is laid on: a lab that it makes, or one that another tool has deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.groups import names_of

from tools.chaos import schedule
from tools.playbooks import TOP

#: on hosts that own a GPU these reach beyond the host, or nothing: ``/dev/shm`` takes the machine's own memory, a disk
#: without inodes is a million files on the machine's one disk, ``/proc/meminfo`` is the machine's, and their one NIC
#: has no frames above 1500 bytes and no other half
SHARED = frozenset({"shm", "inodes", "memory", "blackhole", "half", "duplicate"})


@dataclass(frozen=True)
class Cluster:
    inventory: str
    executor: str
    subnet: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    #: empty = the lab's own
    model: str = ""
    #: kinds that are not laid
    without: frozenset[str] = frozenset()
    #: the engine's arguments, which a play that changes one of them has to name in full
    args: Mapping[str, Any] = field(default_factory=dict)

    def change(self, number: int) -> dict[str, Any]:
        """The variables of a play that changes something."""
        found = {**self.variables, **schedule.CHANGES[number]}
        if "vllm_serve_args" in found:
            found["vllm_serve_args"] = {**self.args, **found["vllm_serve_args"]}
        return found


CLUSTERS: Mapping[str, Cluster] = {
    "ray": Cluster("lab_tiny", "ray", "10.84.1.0/24"),
    "mp": Cluster("lab_tiny", "mp", "10.84.2.0/24", {"vllm_serve_executor": "mp"}),
    "direct": Cluster("lab_direct", "ray", "10.84.3.0/24"),
}


def given(inventory: str) -> Cluster:
    """What the inventory of a deployed lab declares."""
    path = TOP / "inventories" / Path(inventory) / "group_vars" / "cluster.yml"
    declared = dict(yaml.safe_load(path.read_text(encoding="utf-8")))
    return Cluster(
        inventory,
        declared.get("vllm_serve_executor", "ray"),
        model=names_of(declared.get("vllm_serve_served_model_name"), "")[0],
        without=SHARED if declared.get("lab_gpu") else frozenset(),
        args=declared.get("vllm_serve_args", {}),
    )
