# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ray_versions
author: sparkthor.cluster contributors (@sparkthor)
version_added: 0.1.0
short_description: A table of who has what where the nodes of a cluster differ
description:
  - Ray refuses nodes of another Python or Ray, and says so only in the log of the node refused. This tells before.
positional: _input
options:
  _input:
    description:
      - Versions by host, as M(sparkthor.cluster.ray_info) returns them with C(before_start=true). Hosts without any are
        left out.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Check that all hosts run the same engine
  ansible.builtin.assert:
    that: not table
    fail_msg: "{{ table }}"
  vars:
    table: "{{ {'spark-01': {'ray': '2.60.0'}, 'spark-02': {'ray': '2.59.0'}} | sparkthor.cluster.ray_versions }}"
"""

RETURN = r"""
_value:
  description: A table of what differs, one line a host; empty where all agree.
  type: str
"""

from ansible.errors import AnsibleFilterError


def ray_versions(by_host):
    # imported here because Ansible loads every filter of a collection to find one of them, in each host's process
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ray_node import version_differences

    try:
        # the same release built for another machine carries another local part
        return version_differences(
            {
                host: {name: str(version).partition("+")[0] for name, version in versions.items()}
                for host, versions in by_host.items()
                if versions
            }
        )
    except (AttributeError, TypeError) as error:
        raise AnsibleFilterError(f"ray_versions: versions by host are needed: {error!r}") from error


class FilterModule:
    def filters(self):
        return {"ray_versions": ray_versions}
