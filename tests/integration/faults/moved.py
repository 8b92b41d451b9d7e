# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a lab in another inventory: other roles, fewer of them, another cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.faults.site import Site


def write(
    folder: Path, site: Site, head: str, workers: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[list[Path], dict[str, Any]]:
    """The inventories of these hosts below ``folder``, and the variables that the lab's own finds by its place."""
    inventory = folder / "inventory"
    inventory.mkdir(parents=True)
    host_variables = {name: dict((hostvars or {}).get(name, {})) for name in (head, *workers)}
    groups = {
        "ray_head": {"hosts": {head: host_variables[head]}},
        "ray_workers": {"hosts": {name: host_variables[name] for name in workers}},
    }
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"cluster": {"children": groups}}))
    (inventory / "group_vars").symlink_to(site.inventories[0] / "group_vars")
    overlay = yaml.safe_load(site.inventories[1].read_text())
    overlay["all"]["hosts"] = {name: overlay["all"]["hosts"][name] for name in host_variables}
    (folder / "lab.yml").write_text(yaml.safe_dump(overlay))
    top = site.inventories[0].parent.parent
    variables = {
        "engine_requirements": str(top / "requirements/engine/lab-cp311-x86_64.txt"),
        "engine_wheel_dir": str(top / ".lab/engine/wheels"),
        "model_store_models": [{"name": "tiny-qwen3", "source": str(top / ".lab/engine/model")}],
        "sparkthor_secrets_dir": str(site.secrets),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={site.lab.folder}/ssh/known_hosts -o IdentitiesOnly=yes",
        "ansible_ssh_private_key_file": f"{site.lab.folder}/ssh/id_ed25519",
        "vllm_serve_pipeline_parallel_size": len(host_variables),
    }
    if not workers:
        variables["fabric_topology"] = "lan"
    return [inventory, folder / "lab.yml"], variables
