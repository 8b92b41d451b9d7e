#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_neighbors
short_description: Show who is at the other ends of a host's QSFP cables, before anything is planned
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Sends and receives a few Ethernet frames on the ports of a DGX Spark's QSFP cages and the lanes of a Jetson Thor's.
    All hosts have to run it at the same time, so use at least as many forks as hosts. M(sparkthor.cluster.discover)
    reads the result.
  - A port that is administratively down is set up for these seconds and down again. In check mode it stays as it is.
  - Asks C(lldpctl) as well, where lldpd runs, since switches do not answer our frames.
  - Sends no address and no name, but the boot's own identifier.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  seconds:
    description: How long to listen on a port with a carrier.
    type: float
    default: 5.0
  timeout:
    description: Seconds that one command on the host may take.
    type: int
    default: 10
"""

EXAMPLES = r"""
- name: See who is at the other ends of the cables
  sparkthor.cluster.fabric_neighbors:
  become: true
  register: neighbours
"""

RETURN = r"""
neighbours_seen:
  description:
    - C(name), the identifier by which other hosts see this one. C(ports) by NIC, with C(cage), C(half), C(up),
      C(carrier), C(plugged) and C(rate). C(neighbours) by NIC, a list of C(host) and C(netdev). C(lldp) by NIC, with
      C(name), C(port) and C(bridge). C(raised), the ports that were set up meanwhile. C(errors) by NIC. C(seconds).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job, survey


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "seconds": {"type": "float", "default": 5.0},
            "timeout": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    timeout = module.params["timeout"]
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            name = boot.read().strip()
        surveyed = survey.survey(
            name,
            netplan_job.live_links,
            lambda argv: run_limited(argv, timeout),
            seconds=module.params["seconds"],
            change_nothing=module.check_mode,
        )
    except (RuntimeError, OSError, ValueError) as error:
        module.fail_json(msg=f"the QSFP ports could not be read: {error}")
    module.exit_json(changed=False, neighbours_seen=surveyed)


if __name__ == "__main__":
    main()
