# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: token_usage
short_description: What a head says its API keys used of their limits
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Whole numbers by the names of keys. A text with anything else in it is an error, which names what is wrong.
  - Private to the playbooks of this collection.
options:
  _input:
    description: The file in which a head keeps them, as JSON.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: What the key alice used in this month
  ansible.builtin.debug:
    msg: "{{ (text | sparkthor.cluster.token_usage).alice.month }}"
"""

RETURN = r"""
_value:
  description: For each key C(minute), C(month) and C(unseen).
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.foreign import ForeignError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import token_usage as _usage


def token_usage(text: str) -> dict[str, dict[str, int]]:
    """The counts; see :func:`_usage.read`."""
    try:
        return _usage.read(str(text))
    except ForeignError as error:
        raise AnsibleFilterError(
            f"/run/sparkthor-tokens/usage.json cannot be used: {error}. Restart sparkthor-tokens there, which writes it"
        ) from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"token_usage": token_usage}
