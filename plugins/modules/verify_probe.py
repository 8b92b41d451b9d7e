#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: verify_probe
short_description: Measure links, the all-reduce inside the engine, or the API
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - V(agent) leaves a process behind for O(seconds) that takes the measurements of other hosts of this run.
  - V(links) measures bandwidth and path MTU of each test in O(tests), with C(ib_write_bw) where both ends have RDMA and
    perftest, else with several TCP streams.
  - V(collective) runs this host's rank of an all-reduce sweep with torch.distributed in the installed engine. All hosts
    have to run it at the same time, which one task of a play does.
  - V(serving) asks the front of this host for completions, one stream and several.
  - Nothing on the host is changed. What could not be measured is returned as C(error) and fails no task, because
    M(sparkthor.cluster.cluster_verify) judges all of it together.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  part:
    description: What to do.
    type: str
    choices: [agent, links, collective, serving]
    required: true
  nonce:
    description: Secret of this run; an agent answers to nobody else.
    type: str
    default: ''
  port:
    description: Port of the agents, or of the rendezvous.
    type: int
    default: 29570
  addresses:
    description: Addresses that the agent listens on.
    type: list
    elements: str
    default: []
  tests:
    description: Measurements of this host, as M(sparkthor.cluster.cluster_verify) plans them.
    type: list
    elements: dict
    default: []
  seconds:
    description: How long one measurement takes, or how long the agent stays, or the API may take to answer.
    type: float
    default: 1.0
  streams:
    description: TCP connections on each path.
    type: int
    default: 4
  rank:
    description: Rank of this host.
    type: int
    default: 0
  world:
    description: Number of ranks.
    type: int
    default: 1
  master:
    description: Control address of rank 0.
    type: str
    default: ''
  engine:
    description: Python of the engine.
    type: path
    default: /opt/sparkthor/venv/bin/python
  user:
    description: User that the rank runs as.
    type: str
    default: sparkthor
  largest:
    description: Bytes of the largest all-reduce.
    type: int
    default: 134217728
  limit:
    description: Seconds that the ranks may take to find one another.
    type: float
    default: 90.0
  address:
    description: Address of the front on this host.
    type: str
    default: 127.0.0.1
  tls:
    description: Whether the front speaks TLS.
    type: bool
    default: false
  tokens:
    description: Tokens of each stream.
    type: int
    default: 128
attributes:
  check_mode:
    details: It measures in check mode as well.
"""

EXAMPLES = r"""
- name: Measure the API
  sparkthor.cluster.verify_probe:
    part: serving
    port: 8000
    tokens: 64
    seconds: 120
  become: true
"""

RETURN = r"""
found:
  description: What was measured; the shape depends on O(part).
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import (
    collective,
    completion,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import (
    link as _verify_link,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import link_state
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving as _serving


def echo(netdev: str, address: str, size: int) -> bool:
    """Whether an IP packet of this size comes back unfragmented."""
    link = {"netdev": netdev, "mtu": size, "peers": [{"host": "", "address": address, "mtu": size}]}
    return bool(link_state.ping_links([link], {netdev: {"mtu": size}}, 1.0)[0]["reachable"])


def serving(given: dict[str, Any]) -> dict[str, Any]:
    config = files.read_json(_serving.CONFIG)
    if not config.get("model"):
        return {"error": f"{_serving.CONFIG} names no model: nothing is served here (run site.yml)"}
    try:
        with open("/etc/sparkthor/secrets/api_key", encoding="utf-8") as handle:
            key = handle.read().strip()
    except OSError as error:
        return {"error": f"the API key cannot be read: {error.strerror}"}
    client = completion.Client(
        given["address"], given["port"], given["tls"], key, str(config["model"]), given["seconds"]
    )
    return completion.measure(client, given["tokens"], [1, 8])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "part": {"type": "str", "choices": ["agent", "links", "collective", "serving"], "required": True},
            "nonce": {"type": "str", "default": "", "no_log": False},
            "port": {"type": "int", "default": 29570},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "tests": {"type": "list", "elements": "dict", "default": []},
            "seconds": {"type": "float", "default": 1.0},
            "streams": {"type": "int", "default": 4},
            "rank": {"type": "int", "default": 0},
            "world": {"type": "int", "default": 1},
            "master": {"type": "str", "default": ""},
            "engine": {"type": "path", "default": "/opt/sparkthor/venv/bin/python"},
            "user": {"type": "str", "default": "sparkthor"},
            "largest": {"type": "int", "default": 134217728},
            "limit": {"type": "float", "default": 90.0},
            "address": {"type": "str", "default": "127.0.0.1"},
            "tls": {"type": "bool", "default": False},
            "tokens": {"type": "int", "default": 128, "no_log": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    part = given["part"]
    found: dict[str, Any]
    if part == "agent":
        found = _verify_link.start_agent(given["nonce"], given["addresses"], given["port"], given["seconds"])
    elif part == "links":
        results = _verify_link.measure(
            given["tests"], given["nonce"], given["port"], given["seconds"], given["streams"], echo
        )
        found = {"tests": results}
    elif part == "collective":
        found = collective.run_rank(
            given["rank"],
            given["world"],
            given["master"],
            given["port"],
            given["engine"],
            given["user"],
            given["largest"],
            given["seconds"],
            given["limit"],
        )
    else:
        found = serving(given)
    module.exit_json(changed=False, found=found)


if __name__ == "__main__":
    main()
