# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: parse_ibdev2netdev
author: sparkthor.cluster contributors (@sparkthor)
version_added: 0.1.0
short_description: Read the output of ibdev2netdev
description:
  - Turns the text that C(ibdev2netdev) or C(ibdev2netdev -v) prints into a list, in the order of the text.
  - Plain and column-padded lines, verbose lines, the old arrow C(<===>), several ports of one device, carriage
    returns and empty output are read. Any other line is an error that names the line and its number.
positional: _input
options:
  _input:
    description: The tool's output.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Interfaces whose cable is connected
  ansible.builtin.debug:
    msg: >-
      {{ 'rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)' | sparkthor.cluster.parse_ibdev2netdev
         | selectattr('state', 'equalto', 'up') | map(attribute='netdev') }}
"""

RETURN = r"""
_value:
  description:
    - One dictionary a line with C(device), C(port) (a number), C(netdev) and C(state) (V(up), V(down) or V(unknown),
      the carrier of the interface, not the state of the RDMA port).
    - Verbose lines add C(pci), C(firmware) and C(port_state).
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import rdma


def parse_ibdev2netdev(text: t.Any) -> list[dict[str, t.Any]]:
    if not isinstance(text, str):
        raise AnsibleFilterError(f"parse_ibdev2netdev wants the tool's output as text, not {type(text).__name__}")
    try:
        return rdma.parse_ibdev2netdev(text)
    except rdma.RdmaError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"parse_ibdev2netdev": parse_ibdev2netdev}
