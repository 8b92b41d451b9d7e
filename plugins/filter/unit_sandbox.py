# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: unit_sandbox
short_description: What systemd keeps a unit of this collection from
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Lines of a unit's section Service, the same for all units but for what the mapping says.
  - Private to the roles of this collection.
options:
  _input:
    description:
      - Kinds of sockets (C(families)), folders that can be written (C(writable)) or are not seen (C(hidden)),
        C(capabilities), groups of system calls that are C(refused), directives to leave out (C(without)), and what
        C(ProtectHome=) says (C(home)).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: The lines of a service that only writes below /run/example
  ansible.builtin.debug:
    msg: "{{ {'families': ['none'], 'writable': ['/run/example']} | sparkthor.cluster.unit_sandbox }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sandbox import sandbox


def unit_sandbox(options: Mapping[str, Any]) -> str:
    """The lines for a unit; see :func:`sandbox` for the options."""
    try:
        return sandbox(**options)
    except TypeError as error:
        raise AnsibleFilterError(f"unit_sandbox: {error}") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"unit_sandbox": unit_sandbox}
