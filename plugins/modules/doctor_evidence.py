#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: doctor_evidence
short_description: Read everything about a host that may explain a trouble
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Reads facts, RDMA links, NCCL's files, the files of this collection, engine processes and their network environment,
    units, listeners, memory, disks, models, and excerpts of the journal, and pings the peers of the fabric links.
  - Changes nothing. Every part has a time limit; a part that cannot be read is a line in C(errors) and no failure.
  - Excerpts are limited in number of lines and size, and secrets in them are masked before they leave the host.
  - What it returns is judged on the controller by M(sparkthor.cluster.doctor).
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  links:
    description: Fabric links of this host with their peers, as M(sparkthor.cluster.doctor) plans them.
    type: list
    elements: dict
    default: []
  since:
    description: How far back the journal of a unit that does not run well is read, as C(journalctl --since) takes it.
    type: str
    default: "-2h"
  journal_lines:
    description: Newest lines of each journal.
    type: int
    default: 3000
  timeout:
    description: Seconds that one command on the host may take.
    type: int
    default: 8
  ray:
    description: Whether to ask Ray for its nodes, on the head only.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Look at a host
  sparkthor.cluster.doctor_evidence:
  become: true
  register: looked
"""

RETURN = r"""
evidence:
  description: What was read, by part.
  returned: always
  type: dict
  contains:
    errors:
      description: Parts that could not be read, and why.
      type: list
      elements: str
    logs:
      description: Excerpts, each with C(name) and C(text).
      type: list
      elements: dict
    started:
      description: The host's clock when reading began, in seconds of the epoch.
      type: float
    seconds:
      description: How long it took.
      type: float
before:
  description: The controller's clock before the host was asked, against which the host's is compared.
  returned: always
  type: float
after:
  description: The controller's clock after the host had answered.
  returned: always
  type: float
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.evidence import Collector
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import link_state
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    ray_config,
    ray_health,
)

#: seconds for all commands of a host together: one that hangs in many places still answers in time
BUDGET = 30.0
#: payload of an echo that any link carries
SMALL = 56


def ping(links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each peer of each link twice: with a few bytes, and with as many as the smaller MTU of both ends takes."""
    live = job.live_links()
    small = [
        {
            **link,
            "mtu": SMALL + 28,
            "peers": [{**peer, "mtu": SMALL + 28} for peer in link.get("peers") or []],
        }
        for link in links
    ]
    answers = {(item["netdev"], item["address"]): item for item in link_state.ping_links(small, live, 1.0)}
    report = []
    for item in link_state.ping_links(links, live, 1.0):
        reached = answers.get((item["netdev"], item["address"]), {})
        report.append(
            {
                "netdev": item["netdev"],
                "host": item["host"],
                "address": item["address"],
                "small": bool(reached.get("reachable")),
                "full": item["reachable"],
                "payload": item["payload"],
                "error": reached.get("error") or item["error"],
            }
        )
    return report


def health_of_ray(timeout: float) -> dict[str, Any]:
    """Ray's nodes as the head sees them; empty on every other host, and where no Ray was ever set up."""
    try:
        config = ray_config.load_config()
    except ray_config.RayConfigError:
        return {}
    if not config.on_head:
        return {}
    return ray_health.cluster_health(config, timeout)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "links": {"type": "list", "elements": "dict", "default": []},
            "since": {"type": "str", "default": "-2h"},
            "journal_lines": {"type": "int", "default": 3000},
            "timeout": {"type": "int", "default": 8},
            "ray": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    timeout = float(given["timeout"])
    end = time.monotonic() + BUDGET

    def run(argv: list[str]) -> tuple[int, str, str]:
        left = end - time.monotonic()
        return run_limited(argv, min(timeout, left)) if left > 0 else (124, "", f"{argv[0]}: no time left")

    collector = Collector(
        run,
        since=given["since"],
        journal_lines=given["journal_lines"],
        ping=ping,
        ray_health=(lambda: health_of_ray(timeout)) if given["ray"] else None,
    )
    module.exit_json(changed=False, evidence=collector.collect(given["links"]))


if __name__ == "__main__":
    main()
