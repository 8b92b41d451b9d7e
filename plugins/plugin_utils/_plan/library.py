# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of this collection that roles install on the hosts, where they run without Ansible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import File

COLLECTION = Path(__file__).resolve().parents[3]
LIBRARY = "/usr/local/lib/sparkthor"

_ONHOST = "plugins/module_utils/_onhost"
#: by role and part of it: file below LIBRARY, and where it comes from; what has no suffix is a program
CONTAINER_FILES: Mapping[str, str] = {
    "_container.py": f"{_ONHOST}/container.py",
    "sparkthor-container": "roles/engine/files/sparkthor-container",
}
RAY_FILES: Mapping[str, str] = {
    "_ray.py": f"{_ONHOST}/ray.py",
    "_ray_host.py": f"{_ONHOST}/ray_host.py",
    "sparkthor-ray-gate": "roles/ray_node/files/sparkthor-ray-gate",
    "sparkthor-ray-prepare": "roles/ray_node/files/sparkthor-ray-prepare",
}
SERVING_FILES: Mapping[str, str] = {
    "_serving.py": f"{_ONHOST}/serving.py",
    "_vllm_progress.py": f"{_ONHOST}/progress.py",
    "_watchdog.py": f"{_ONHOST}/watchdog.py",
    "_group.py": f"{_ONHOST}/rank_group.py",
}
RANK_FILES: Mapping[str, str] = {"sparkthor-rank": "roles/vllm_serve/files/sparkthor-rank"}
HEAD_FILES: Mapping[str, str] = {
    "_watchdog_service.py": f"{_ONHOST}/watchdog_service.py",
    "_successor.py": f"{_ONHOST}/takeover.py",
    "sparkthor-watchdog": "roles/vllm_serve/files/sparkthor-watchdog",
    "sparkthor-vllm-prepare": "roles/vllm_serve/files/sparkthor-vllm-prepare",
    "sparkthor-nodes-prepare": "roles/vllm_serve/files/sparkthor-nodes-prepare",
    "sparkthor-front-config": "roles/vllm_serve/files/sparkthor-front-config",
}
#: run by the engine's Python, not by itself
_READ_ONLY = frozenset(("sparkthor-nodes-prepare",))
#: what a running rank was started with, and what a running watchdog was
RANK_INPUTS = (f"{LIBRARY}/_group.py", f"{LIBRARY}/sparkthor-rank")
WATCHDOG_INPUTS = tuple(
    f"{LIBRARY}/{name}"
    for name in (
        *("sparkthor-watchdog", "_ray.py", "_serving.py", "_vllm_progress.py", "_watchdog.py"),
        *("_watchdog_service.py", "_group.py", "_successor.py"),
    )
)


def command(verb: str, *arguments: str) -> list[str]:
    """The words that run one of the programs on a host."""
    return [f"{LIBRARY}/sparkthor-{verb}", *arguments]


def program(verb: str) -> str:
    """The same as units write it."""
    return " ".join(command(verb))


def script(verb: str) -> str:
    """What the engine's Python is given to run a program that needs Ray."""
    return f"{LIBRARY}/sparkthor-{verb}"


def installed(files: Mapping[str, str]) -> list[File]:
    """Entries of ``host_state`` for these files of the library."""
    return [
        {
            "path": f"{LIBRARY}/{name}",
            "content": (COLLECTION / source).read_text(encoding="utf-8"),
            "mode": "0644" if name.endswith(".py") or name in _READ_ONLY else "0755",
        }
        for name, source in files.items()
    ]
