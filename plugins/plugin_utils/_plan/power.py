# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that switch the power of a host which does not come back: what is wrong with them, and their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding

COMMANDS, OUTLETS = "vllm_serve_power_commands", "vllm_serve_power_outlets"
#: what a word may hold in braces
WORDS = ("host", "address", "outlet")
#: other braces are somebody's JSON
_BRACES = re.compile(r"\{(\w+)\}")


def problems(given: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with the two variables, before any host is asked."""
    commands = given.get(COMMANDS) or []
    outlets = given.get(OUTLETS) or {}
    for command in commands if isinstance(commands, list) else ():
        fix = f"write each command as a list of words, such as [curl, -fsS, 'http://{{outlet}}/off'] in {COMMANDS}"
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            yield Finding("power", "a command is no list of words", fix, where=COMMANDS, value=str(command)[:80])
            continue
        if not command[0].startswith("/"):
            fix = "name the program with its whole path on the head, such as /usr/bin/curl"
            yield Finding("power", "a program is not named by its path", fix, where=COMMANDS, value=command[0])
        for name in sorted({name for word in command for name in _BRACES.findall(word)} - set(WORDS)):
            fix = f"use {', '.join(f'{{{one}}}' for one in WORDS)}"
            yield Finding("power", "nobody knows what to put there", fix, where=COMMANDS, value=f"{{{name}}}")
    if outlets and not commands:
        fix = f"name the commands in {COMMANDS}, or remove {OUTLETS}"
        yield Finding("power", "there are outlets and no command that switches them", fix, where=OUTLETS)


def _filled(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [_BRACES.sub(lambda found: values[found[1]], word) for word in command]


def power_plan(
    commands: Sequence[Sequence[str]],
    outlets: Mapping[str, Any],
    after: float,
    pause: float,
    cluster: Mapping[str, Any],
    fabric: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What the head's guard reads: ``after``, ``pause``, ``hosts`` with addresses and commands; empty without any.

    Only a host with an outlet is guarded, and never the head: nobody would be there to give its power back.
    """
    hosts: dict[str, dict[str, Any]] = {}
    for host in cluster["hosts"]:
        if host == cluster["head"] or not outlets.get(host):
            continue
        own = fabric.get(host) or {}
        addresses = [str(own[name]) for name in ("management_address", "control_address") if own.get(name)]
        if not addresses:
            continue
        values = {"host": host, "address": addresses[0], "outlet": str(outlets[host])}
        hosts[host] = {
            "addresses": list(dict.fromkeys(addresses)),
            "commands": [_filled(command, values) for command in commands],
        }
    return {"after": after, "pause": pause, "hosts": hosts} if commands and hosts else {}
