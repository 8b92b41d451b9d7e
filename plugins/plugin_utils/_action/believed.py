# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's words may bring about on the controller, and on the terminal there.

Ansible obeys some keys of any task's result, whoever wrote it. Facts are the worst: unless the user's ansible.cfg says
otherwise they become variables of the host that outrank its inventory, and after a task with ``run_once`` those of all
hosts. So no answer keeps such a key, but for the facts that the module is there to read.

Ansible also shows words of a host in warnings and results of its own, as they are. So they are filtered before Ansible
gets them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable, printable_data

#: keys by which Ansible itself acts: variables, hosts, groups and figures of the whole run
OBEYED = frozenset(("ansible_facts", "ansible_stats", "add_host", "add_group"))
#: where Python is, as Ansible found it; without this fact it would look again before every module
INTERPRETER = re.compile(r"discovered_interpreter_\w+")
_PATH = re.compile(r"/[\w./+-]+")


def believed(
    answer: Mapping[str, Any],
    facts: Collection[str] = (),
    of_action: Collection[str] = (),
    *,
    of_this_host: bool = True,
) -> dict[str, Any]:
    """A module's answer without what its host has no say in.

    ``facts``: the facts that this module is there to read; ``of_action``: keys of the task's result that the action
    sets itself and that steer later tasks. What another host than the task's says of its Python is nothing to this one.
    """
    kept = {key: value for key, value in answer.items() if key not in OBEYED and key not in of_action}
    told = answer.get("ansible_facts")
    if isinstance(told, Mapping):
        found = {
            name: value for name, value in told.items() if name in facts or _interpreter(name, value, of_this_host)
        }
        if found:
            kept["ansible_facts"] = found
    return kept


def heard(text: str) -> str:
    """What a program on a host wrote, without what a terminal acts on, be it in a JSON document with its escapes.

    Where the document begins and ends is decided as Ansible does.
    """
    lines = printable(text, lines=True).split("\n")
    begins = next((at for at, line in enumerate(lines) if line.strip().startswith("{")), len(lines))
    ends = next((at for at in range(len(lines) - 1, begins - 1, -1) if lines[at].strip().endswith("}")), -1) + 1
    try:
        document = json.dumps(printable_data(json.loads("\n".join(lines[begins:ends]))))
    except ValueError:
        # then it is none for Ansible either
        return "\n".join(lines)
    except RecursionError:
        # Python reads deeper than anybody can walk through what it has read: Ansible would get it as it is
        document = "a document that is nested too deeply"
    return "\n".join([*lines[:begins], document, *lines[ends:]])


def _interpreter(name: Any, value: Any, of_this_host: bool) -> bool:
    return of_this_host and bool(INTERPRETER.fullmatch(str(name))) and bool(_PATH.fullmatch(str(value)))
