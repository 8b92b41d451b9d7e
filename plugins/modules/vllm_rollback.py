#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_rollback
short_description: Bring back the configuration of vLLM that served last
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Each time that a start of the engine comes to its first real completion, the files that it was started with are
    kept on the host.  This module puts them back where they differ.
  - The head's copies are root's. Those of a rank (executor V(mp)) are not, so of these only arguments and the variables
    of the engine and its libraries are taken, nothing that a process of root's obeys.
  - Restarts nothing; M(sparkthor.cluster.vllm_ready) does that on the head.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  executor:
    description: The executor of the units that are installed, which a rollback of files cannot change.
    type: str
    choices: [ray, mp]
    default: ray
  required:
    description: Whether it is an error that nothing was kept on this host, as it is for the head.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Bring back what served last
  sparkthor.cluster.vllm_rollback:
  become: true
"""

RETURN = r"""
files:
  description: Files that were (in check mode, would be) put back or removed.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import rollback


def main():
    module = AnsibleModule(
        argument_spec={
            "executor": {"type": "str", "choices": ["ray", "mp"], "default": "ray"},
            "required": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        found = rollback.differences(module.params["executor"], module.params["required"])
        if not module.check_mode:
            rollback.apply(found)
    except (rollback.RollbackError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(found),
        files=[change.path for change in found],
        diff=[
            {
                "before_header": change.path,
                "after_header": change.path,
                "before": change.before or "",
                "after": change.after or "",
            }
            for change in found
        ],
    )


if __name__ == "__main__":
    main()
