# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: program_digest
short_description: Digest of the code of a program that this collection installs on hosts
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - A unit whose file carries it changes with the code, and is restarted for it.
  - Private to the roles of this collection.
options:
  _input:
    description: Verb of the program, such as V(exporter).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: The digest in a unit's file
  ansible.builtin.debug:
    msg: "# digest of the program: {{ 'exporter' | sparkthor.cluster.program_digest }}"
"""

RETURN = r"""
_value:
  description: 16 hexadecimal digits.
  type: str
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import onhost


def program_digest(verb: str) -> str:
    """The digest; AnsibleFilterError for a verb that there is not."""
    try:
        return onhost.program_digest(str(verb))
    except KeyError as error:
        raise AnsibleFilterError(f"program_digest: there is no program {verb!r} on hosts") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"program_digest": program_digest}
