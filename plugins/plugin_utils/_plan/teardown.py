# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbooks/teardown.yml takes from a host, by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_share
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout_job
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import serving_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import (
    CACHE,
    HOME,
    MODELS,
    RAY_TEMP_DIR,
    WORK_DIR,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import HostState, merged, switched_off

#: each part, and the others that cannot stay without it
PARTS = {
    "serving": (),
    "monitoring": (),
    "engine": ("serving", "monitoring"),
    "models": ("serving",),
    "network": ("serving",),
    "hardening": (),
    "users": ("serving", "engine", "monitoring"),
    "packages": ("serving", "engine", "monitoring"),
}
ALL = "all"
_ETC = "/etc/sparkthor"
_UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class TeardownSettings:
    """Variables of the playbook, and the roles' folders."""

    teardown_parts: Any = ""
    teardown_acknowledged: bool = False
    engine_cache_dir: str = CACHE
    model_store_root: str = MODELS
    ray_node_temp_dir: str = RAY_TEMP_DIR
    serving_beside: dict[str, Any] = field(default_factory=dict)


def plan_teardown(settings: TeardownSettings, check: bool) -> dict[str, Any]:
    """``parts``, ``problems`` (texts), ``state``: what host_state is told of the parts that no role has alone, and
    ``serving``, the groups whose files and units the role vllm_serve takes back.
    """
    parts, findings = requested(settings.teardown_parts)
    if not (findings or check or settings.teardown_acknowledged):
        what = f"takes away {', '.join(parts)}" + (", and the API with them" if "serving" in parts else "")
        fix = "look at it with --check --diff, then run it with -e teardown_acknowledged=true"
        findings.append(Finding("teardown", what, fix, where="teardown_parts"))
    state = merged(taken(settings) for part, taken in _TAKEN.items() if part in parts)
    return {
        "parts": parts,
        "problems": [str(finding) for finding in findings],
        "state": state.arguments(),
        "serving": serving_values.unplanned(settings.serving_beside),
    }


def requested(given: Any) -> tuple[list[str], list[Finding]]:
    """The parts in their order, and what is wrong with the request."""
    words = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
    named = [str(word).strip() for word in words if str(word).strip()]
    fix = f"choose from {', '.join(PARTS)}, or {ALL}"
    if not named:
        return [], [Finding("teardown", "it says nothing", fix, where="teardown_parts", value="")]
    unknown = [name for name in named if name not in (*PARTS, ALL)]
    if unknown:
        what = f"{', '.join(unknown)}: there is no such part"
        return [], [Finding("teardown", what, fix, where="teardown_parts", value=",".join(named))]
    parts = [part for part in PARTS if part in named or ALL in named]
    lacking = [part for part in PARTS if part not in parts and any(part in PARTS[one] for one in parts)]
    if lacking:
        without = [one for one in parts if set(PARTS[one]) & set(lacking)]
        what = f"{', '.join(lacking)} cannot stay without {', '.join(without)}"
        return [], [Finding("teardown", what, "name them as well", where="teardown_parts", value=",".join(named))]
    return parts, []


def _serving(settings: TeardownSettings) -> HostState:
    unit = "sparkthor-ray.service"
    return HostState(
        units=[switched_off(unit)],
        restore=[f"{_UNITS}/{unit}", *_foreign(settings.ray_node_temp_dir)],
        absent=[f"{_ETC}/ray.env", f"{_ETC}/ray.json", *_own(settings.ray_node_temp_dir)],
    )


def _engine(settings: TeardownSettings) -> HostState:
    cache = settings.engine_cache_dir
    return HostState(
        units=[switched_off(image_share.UNIT)],
        restore=[f"{_ETC}/engine.env", *_foreign(cache)],
        # an engine_venv_path elsewhere stays, because what lies beside it may be others'
        absent=[f"{_ETC}/container.json", WORK_DIR, image_share.FOLDER, location.PACKAGE, *_own(cache)],
    )


def _models(settings: TeardownSettings) -> HostState:
    return HostState(
        units=[switched_off(fanout_job.UNIT)],
        restore=_foreign(settings.model_store_root),
        absent=[fanout_job.FOLDER, *_own(settings.model_store_root)],
    )


def _users(_settings: TeardownSettings) -> HostState:
    users = ("sparkthor-front", "sparkthor-watchdog", "sparkthor")
    return HostState(restore=[*(f"user {name}" for name in users), "group sparkthor-api", "group sparkthor"])


_TAKEN: dict[str, Callable[[TeardownSettings], HostState]] = {
    "serving": _serving,
    "engine": _engine,
    "models": _models,
    # after all that belongs to them
    "users": _users,
}


def _own(folder: str) -> list[str]:
    """A folder in a place that is ours."""
    return [folder] if folder.startswith(f"{HOME}/") else []


def _foreign(folder: str) -> list[str]:
    """A folder elsewhere: it goes with its content only where we made it."""
    return [] if folder.startswith((f"{HOME}/", f"{WORK_DIR}/")) else [folder]
