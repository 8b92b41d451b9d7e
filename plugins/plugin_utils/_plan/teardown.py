# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which parts playbooks/teardown.yml takes from a host; the roles say themselves what that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import serving_values

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


@dataclass(frozen=True)
class TeardownSettings:
    """Variables of the playbook."""

    teardown_parts: Any = ""
    teardown_acknowledged: Any = False
    serving_beside: dict[str, Any] = field(default_factory=dict)


def plan_teardown(settings: TeardownSettings, check: bool, there: Sequence[str] = ()) -> dict[str, Any]:
    """``parts``, ``problems`` (texts), and ``serving``, the groups whose files and units vllm_serve takes back.

    ``there``: names of groups that the host has beside its own one, which the inventory may not name any more.
    """
    parts, findings = requested(settings.teardown_parts)
    if not (findings or check or boolean(settings.teardown_acknowledged)):
        what = f"takes away {', '.join(parts)}" + (", and the API with them" if "serving" in parts else "")
        fix = "look at it with --check --diff, then run it with -e teardown_acknowledged=true"
        findings.append(Finding("teardown", what, fix, where="teardown_parts"))
    return {
        "parts": parts,
        "problems": [str(finding) for finding in findings],
        "serving": serving_values.unplanned(dict.fromkeys([*settings.serving_beside, *there])),
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
