# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mapping as a file that systemd reads with EnvironmentFile=."""

from __future__ import annotations

DOCUMENTATION = r"""
name: environment_file
short_description: Variables as the text of an environment file for systemd
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Sorted, and quoted only where systemd would split or drop something.
positional: _input
options:
  _input:
    description: Variables and their values.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the environment of this host's fabric
  ansible.builtin.debug:
    msg: "{{ sparkthor_fabric[inventory_hostname].env | sparkthor.cluster.environment_file }}"
"""

RETURN = r"""
_value:
  description: The file's text.
  type: str
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import render


def environment_file(variables: Any) -> str:
    """The file's text; a name or value that such a file cannot hold is an error."""
    if not isinstance(variables, dict):
        raise AnsibleFilterError("environment_file: needs a mapping of variables")
    try:
        return render(variables)
    except ValueError as error:
        raise AnsibleFilterError(f"environment_file: {error}") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"environment_file": environment_file}
