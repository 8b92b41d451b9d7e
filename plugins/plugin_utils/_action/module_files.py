# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that modules which bring none make of the arguments in a role's task, on a host without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container

Files = list[dict[str, Any]]


def of_call(call: Mapping[str, Any]) -> Files:
    """Path, content and, where it is not 0644, mode of each file (:func:`role_tasks.calls_that_make_files`)."""
    return FILES[call["module"]](call["arguments"])


def _nccl_conf(arguments: Mapping[str, Any]) -> Files:
    present = arguments["present"]
    lines = [environment_file.MARKER, *(f"{name}={value}" for name, value in present.items())]
    return [{"path": "/etc/nccl.conf", "content": "\n".join(lines) + "\n"}] if present else []


def _netplan_apply(arguments: Mapping[str, Any]) -> Files:
    present = arguments.get("state", "present") == "present"
    planned = netplan.files(arguments["path"], arguments["links"], arguments["renderer"]) if present else {}
    files = [
        {"path": path, "content": file["content"], "mode": f"{file['mode']:04o}"}
        for path, file in planned.items()
        if file
    ]
    text = environment_file.render(arguments["environment_variables"])
    return [*files, {"path": arguments["environment_path"], "content": text}]


def _engine_image(arguments: Mapping[str, Any]) -> Files:
    """With the image's name, where a host has its ID; what only a probe of the image can tell is null."""
    name = "@".join(filter(None, (arguments["image"], arguments["digest"])))
    known = {"image": name or None, "gpu": arguments["gpu"], "commands": None, "versions": None}
    text = image.launch_file(known, arguments["settings"])[1]
    return [{"path": arguments.get("config_path") or container.CONFIG, "content": text}]


#: by module
FILES: Mapping[str, Callable[[Mapping[str, Any]], Files]] = {
    "nccl_conf": _nccl_conf,
    "netplan_apply": _netplan_apply,
    "engine_image": _engine_image,
}
