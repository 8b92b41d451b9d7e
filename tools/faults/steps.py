# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks whose steps take as long as a file says, as those of a large model do (``lab/engine/stepped_worker.py``)."""

from __future__ import annotations

from typing import Any

from tools.faults.site import Site
from tools.playbooks import TOP

WORKER = "stepped_worker.SteppedWorker"
#: a prompt long enough for its step to be a slow one
PROMPT = "one two three four five six seven eight nine ten " * 10
#: a step of which nothing moves, and one of this many seconds, which keeps its CPU busy; neither ends
WEDGED, BUSY = "wedge", "1000000"

_FOLDER = "/opt/lab"
_FILE = "/run/lab-step"
_SOURCE = TOP / "lab" / "engine" / "stepped_worker.py"
_INSTALL = f'install -d {_FOLDER} && printf %s "$1" >{_FOLDER}/stepped_worker.py'


def install(site: Site, **arguments: Any) -> dict[str, Any]:
    """Copy the worker to every host. Returns variables with which site.yml serves with it.

    It lies beside the engine, because site.yml installs an engine anew that has a file too many. ``arguments`` are
    vLLM's other ones. The inventory's ``ray_node_env`` and ``vllm_serve_env`` are replaced.
    """
    for host in site.hosts:
        site.on(host, _INSTALL, _SOURCE.read_text(encoding="utf-8"))
    search = {"PYTHONPATH": _FOLDER}
    return {
        "ray_node_env": search,
        "vllm_serve_env": search,
        "vllm_serve_args": {**arguments, "worker-cls": WORKER},
        "vllm_serve_acknowledged": ["worker-cls"],
    }


def set_step(site: Site, word: str, *hosts: str) -> None:
    """Seconds of each step with a long prompt, or ``WEDGED``; on all hosts if none is named."""
    site.everywhere(f"echo {word} >{_FILE}; chmod 644 {_FILE}", hosts)


def end_steps(site: Site) -> None:
    """Steps take their own time again. One that is under way goes on."""
    site.everywhere(f"rm -f {_FILE}")
