# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What preflight asks of a host in the call that compares it: its ports, its folders, room for models, the way in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared, Templated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import revisions
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import cabling_check, values

#: roles that own a folder which a variable names
_GIVEN_FOLDERS = frozenset(("engine", "model_store", "ray_node", "vllm_serve"))
#: roles that may take a port or a way in from somebody
_TAKE = frozenset(("firewall", "os_hardening"))


def asked_of(
    probe: Mapping[str, Any], roles: Collection[str], variables: Mapping[str, Any], templar: Any, host: str
) -> dict[str, Any]:
    """Arguments of ``host_compare`` beside the comparisons, without those that ask nothing.

    ``folders`` are by variable those that the roles give to the serving user; ``room`` is by the store's folder the
    bytes of each model that this host is to have; ``exposure`` is the NIC by which the controller comes in.
    """
    folders = {}
    if _GIVEN_FOLDERS.intersection(roles):
        known = Declared(Templated(variables, templar), strict=False)
        folders = {name: str(known[name]) for name in values.FOLDERS if name in known}
    cluster = variables.get("sparkthor_cluster") or {}
    sizes = cluster.get("store_bytes")
    # with some engines the head alone has the model
    if sizes and host not in revisions.holders(cluster):
        sizes = None
    node = (variables.get("ansible_facts") or {}).get("sparkthor_node") or {}
    root = folders.get("model_store_root")
    asked = {
        "probe": _probe(probe, variables, host) if probe else {},
        "folders": folders,
        "room": {root: dict(sizes)} if "model_store" in roles and root and sizes else {},
        "exposure": str((node.get("management") or {}).get("netdev") or "") if _TAKE.intersection(roles) else "",
    }
    return {name: value for name, value in asked.items() if value}


def _probe(probe: Mapping[str, Any], variables: Mapping[str, Any], host: str) -> dict[str, Any]:
    fabric = variables.get("sparkthor_fabric") or {}
    # hosts that go one after the other hear nobody, so nothing follows from that
    together = [name for name in variables.get("ansible_play_hosts") or () if name in fabric]
    if int(variables.get("ansible_forks") or 5) < len(together):
        together = []
    links = cabling_check.with_peers(probe.get("links") or [], variables.get("hostvars") or {}, host, fabric, together)
    return {**probe, "links": links}
