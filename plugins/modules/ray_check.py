#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ray_check
short_description: What stands against a start of Ray on this host
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Looks at what only the host itself can tell, before its unit is touched. Is the control address there and can the
    head's be reached from it? Are the ports free, or held by Ray itself? Does the object store fit into the free
    memory? Can the engine be run, and is its Ray new enough?
  - Returns the versions that all nodes must share. P(sparkthor.cluster.ray_versions#filter) makes the table of who has
    what.
  - What is wrong is data, not an error, so that a play can name it for all hosts at once.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  config:
    description: Description of the node on the host, written by P(sparkthor.cluster.ray_node#role).
    type: path
    default: /etc/sparkthor/ray.json
seealso:
  - module: sparkthor.cluster.ray_info
"""

EXAMPLES = r"""
- name: Look before Ray is touched
  sparkthor.cluster.ray_check:
  register: look
  become: true

- name: Say what stands against it
  ansible.builtin.assert:
    that: not look.problems
    fail_msg: "{{ look.problems | join('; ') }}"
"""

RETURN = r"""
problems:
  description: What stands against a start, one message each with the mend; empty if nothing does.
  returned: always
  type: list
  elements: str
versions:
  description: Versions of Python, Ray, vLLM and torch in the engine; empty if it cannot be run.
  returned: always
  type: dict
  sample: {python: 3.12.3, ray: 2.60.0, torch: 2.13.0, vllm: 0.32.0}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    ray_config,
    ray_start_check,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={"config": {"type": "path", "default": ray_config.CONFIG_PATH}}, supports_check_mode=True
    )
    path = module.params["config"]
    try:
        config, settings = ray_config.load_config(path), ray_start_check.NodeSettings.load(path)
    except (ray_config.RayConfigError, OSError, ValueError) as error:
        module.exit_json(changed=False, problems=[str(error)], versions={})
    module.exit_json(changed=False, **ray_start_check.check(config, settings))


if __name__ == "__main__":
    main()
