# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All roles' argument specs checked at once, before the first host is contacted.

Ansible checks a role's arguments when the role starts, which for the last role is after the first ones changed the
hosts.  A typing error in ``vllm_serve_max_model_len`` must not wait that long.  Runs on the controller only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import closest

#: keys of an argument spec that documentation needs and the validator does not know
_DOCUMENTATION_KEYS = ("description", "version_added", "short_description")


def _validator_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Role options as an argument_spec for the validator: no documentation, nothing required, no defaults."""
    spec = {}
    for name, option in options.items():
        entry = {key: value for key, value in option.items() if key not in _DOCUMENTATION_KEYS}
        entry.pop("required", None)
        entry.pop("default", None)
        if "options" in entry:
            entry["options"] = {
                inner: {key: value for key, value in described.items() if key not in _DOCUMENTATION_KEYS}
                for inner, described in entry["options"].items()
            }
        entry.pop("no_log", None)
        spec[name] = entry
    return spec


class RoleSpecs:
    """``specs``: role → its ``argument_specs`` mapping (entry point → ``{options: …}``)."""

    def __init__(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        self._options: dict[str, dict[str, Any]] = {}
        for role, entry_points in specs.items():
            merged: dict[str, Any] = {}
            for entry_point in entry_points.values():
                merged.update(entry_point.get("options") or {})
            self._options[role] = _validator_options(merged)
        self._secret = {
            name
            for entry_points in specs.values()
            for entry_point in entry_points.values()
            for name, option in (entry_point.get("options") or {}).items()
            if option.get("no_log")
        }

    @property
    def names(self) -> list[str]:
        return sorted(name for options in self._options.values() for name in options)

    def problems(self, hostvars: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
        """Unknown names and wrong values among the variables that begin with a role's name."""
        found: dict[Finding, list[str]] = {}
        known = self.names
        for host, variables in hostvars.items():
            for finding in self._host_problems(variables, known):
                found.setdefault(finding, []).append(host)
        return [replace(finding, source=f"on {', '.join(hosts)}") for finding, hosts in found.items()]

    def _host_problems(self, variables: Mapping[str, Any], known: Sequence[str]) -> list[Finding]:
        problems = []
        prefixes = tuple(f"{role}_" for role in self._options)
        given = [name for name in variables if name.startswith(prefixes)]
        for name in given:
            if name not in known:
                what = f"no role has a variable of this name{closest(name, known)}"
                problems.append(Finding("unknown", what, "correct or remove it", where=name))
        for role, options in self._options.items():
            values = {name: variables[name] for name in given if name in options}
            if not values:
                continue
            outcome = ArgumentSpecValidator(options).validate(values)
            for message in outcome.error_messages:
                shown = message
                for name in self._secret & set(values):
                    if values[name]:
                        shown = shown.replace(str(values[name]), "(secret)")
                problems.append(Finding("argument", shown, "correct it in the inventory", where=f"role {role}"))
        return problems
