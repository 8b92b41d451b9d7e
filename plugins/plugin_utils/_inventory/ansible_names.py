# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that look like a variable of Ansible's for its way into a host: it takes no notice of them, without a word."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from functools import cache

from ansible import constants
from ansible.plugins.loader import become_loader, connection_loader
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding

_PREFIX = "ansible_"
#: what a host's way in is made of
_WAY_IN = ("host", "port", "user", "connection", "become_password", "ssh_private_key_file")
#: other words for them, which no letter too many or too few explains
_OTHER_WORDS = {"ip": "host", "address": "host", "host_ip": "host", "username": "user", "sshport": "port"}
#: above a fact's likeness such as ``user_id`` (0.73), and below two letters in the wrong order (``prot``: 0.75)
_ALIKE = 0.74


@cache
def known() -> frozenset[str]:
    """Every variable that the installed ansible-core takes for its way into a host."""
    names = {name for variables in constants.MAGIC_VARIABLE_MAPPING.values() for name in variables}
    for kind, loader, plugin in (("connection", connection_loader, "ssh"), ("become", become_loader, "sudo")):
        loader.get(plugin, class_only=True)  # what a plugin's variables are is known once it is loaded
        names.update(constants.config.get_plugin_vars(kind, plugin))
    return frozenset(names)


def meant(name: str, names: Collection[str]) -> str:
    """The variable of Ansible's that somebody meant who wrote ``name``; empty for what is one of ``names``."""
    if name in names or not name.startswith(_PREFIX):
        return ""
    rest = name.removeprefix(_PREFIX)
    near = [_OTHER_WORDS[rest]] if rest in _OTHER_WORDS else difflib.get_close_matches(rest, _WAY_IN, 1, _ALIKE)
    return f"{_PREFIX}{near[0]}" if near else ""


def problems(variables: Mapping[str, Iterable[str]]) -> list[Finding]:
    """Of each host's names of variables those that Ansible does not have; values are not asked for."""
    found: dict[str, list[str]] = {}
    for host, names in variables.items():
        for name in names:
            if meant(name, known()):
                found.setdefault(name, []).append(host)
    fix = "correct it (a variable of your own begins with another word)"
    return [
        Finding(
            "unknown",
            f"Ansible has no variable of this name (did you mean '{meant(name, known())}'?)",
            fix,
            ", ".join(hosts),
            name,
        )
        for name, hosts in found.items()
    ]
