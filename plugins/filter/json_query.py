# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: json_query
short_description: Fields out of a document, picked with JMESPath
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Picks fields out of what a module returned, like P(community.general.json_query#filter), without that collection.
  - Needs the Python package C(jmespath) on the controller.
positional: query
options:
  _input:
    description: The document.
    type: raw
    required: true
  query:
    description: A JMESPath expression, see U(https://jmespath.org).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Addresses of the nodes that are alive
  ansible.builtin.debug:
    msg: "{{ ray | sparkthor.cluster.json_query('alive[].address') }}"
  vars:
    ray: {alive: [{name: spark-01, address: 10.10.0.1}, {name: spark-02, address: 10.10.0.2}]}
"""

RETURN = r"""
_value:
  description: What the expression finds; none where it finds nothing.
  type: raw
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.query import QueryError, pick


def json_query(document: Any, query: str) -> Any:
    """What the expression finds in the document."""
    try:
        return pick(document, query, "json_query")
    except (QueryError, TypeError) as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"json_query": json_query}
