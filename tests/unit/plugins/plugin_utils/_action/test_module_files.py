# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that modules make of their arguments, as playbooks/render.yml writes them."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import module_files

LINK = {"netdev": "p0", "address": "10.0.0.1/24", "mtu": 9000}


def network(**given: Any) -> list[dict[str, Any]]:
    told = {"path": "/etc/netplan/40-cx7.yaml", "links": [LINK], "renderer": "", "environment_path": "/etc/x.env"}
    return module_files.of_call(
        {"module": "netplan_apply", "arguments": {**told, "environment_variables": {"A": "b"}, **given}}
    )


def test_network_files() -> None:
    netplan, environment = network()
    assert (netplan["path"], netplan["mode"]) == ("/etc/netplan/40-cx7.yaml", "0600")
    assert "        - 10.0.0.1/24\n" in netplan["content"]
    assert environment["content"].endswith("A=b\n")
    assert [file["path"] for file in network(renderer="NetworkManager")][1:] == [
        "/etc/NetworkManager/conf.d/60-sparkthor-fabric.conf",
        "/etc/x.env",
    ]
    assert [file["path"] for file in network(state="adopted")] == ["/etc/x.env"]


def test_nccl() -> None:
    def made(**present: str) -> list[dict[str, Any]]:
        return module_files.of_call({"module": "nccl_conf", "arguments": {"present": present}})

    assert made() == []
    assert made(NCCL_DEBUG="INFO")[0]["content"].endswith("NCCL_DEBUG=INFO\n")


def test_container() -> None:
    """Everything but what only the host's image can tell."""
    told = {"image": "x/y:1", "digest": "", "gpu": "cdi", "settings": {"user": "sparkthor", "options": ["--ipc=host"]}}
    [file] = module_files.of_call({"module": "engine_image", "arguments": told})
    unknown = {"commands": None, "versions": None}
    assert file["path"] == "/etc/sparkthor/container.json"
    assert json.loads(file["content"]) == {"image": "x/y:1", "gpu": "cdi", **unknown, **told["settings"]}
    [pinned] = module_files.of_call({"module": "engine_image", "arguments": {**told, "digest": "sha256:1"}})
    assert json.loads(pinned["content"])["image"] == "x/y:1@sha256:1"
    [other] = module_files.of_call({"module": "engine_image", "arguments": {**told, "image": "", "config_path": "/x"}})
    assert (other["path"], json.loads(other["content"])["image"]) == ("/x", None)
