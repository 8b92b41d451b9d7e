# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: environment_file
short_description: Variables as the text of an environment file of systemd
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - One line for each variable, sorted, every value in double quotes, below the line that marks files of the collection.
  - A null leaves its variable out.
  - Private to the roles of this collection.
options:
  _input:
    description: Values by their names.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: The text of such a file
  ansible.builtin.debug:
    msg: "{{ {'HOME': '/srv', 'WORD': 'a b'} | sparkthor.cluster.environment_file }}"
"""

RETURN = r"""
_value:
  description: The text.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment_text import environment_text


def environment_file(variables: Mapping[str, Any]) -> str:
    """The text; see :func:`environment_text`."""
    return environment_text(merged(variables))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"environment_file": environment_file}
