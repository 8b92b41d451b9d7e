#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence_info
short_description: Read on a cluster host what the doctor judges, in one call
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Reads facts, NCCL's files, the files of this collection, engine processes and their network environment, listeners,
    disks, models, pings to the peers of O(links), and excerpts of the journal, limited in size and with secrets masked.
    M(sparkthor.cluster.doctor) judges it.
  - Runs read-only commands, each with a time limit, and returns no secret. A command that does not answer in time is no
    error; its part of the result is missing.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
  - sparkthor.cluster.attributes.action
options:
  timeout:
    description: Seconds that one command on the host may take.
    type: int
    default: 8
  links:
    description: This host's fabric links with their peers, as M(sparkthor.cluster.doctor) plans them.
    type: list
    elements: dict
    default: []
  since:
    description:
      - How far back the journal of a unit that does not run well is read, as C(journalctl --since) takes it.
    type: str
    default: "-2h"
  journal_lines:
    description: The newest lines of each journal.
    type: int
    default: 3000
  ray:
    description: Whether to ask Ray for its nodes, on the head only.
    type: bool
    default: true
  key:
    description:
      - A random text of this one run, by which the host tells whether its secrets are those of the other hosts. The
        result has no fingerprint of a secret without it.
      - With O(capture=true), the same for what is masked, so that equal things of all hosts stay equal.
    type: str
  capture:
    description:
      - Whether to read the files and output of commands as they are as well, for somebody elsewhere. Secrets, serial
        numbers, identifiers and the machines' own part of hardware addresses are masked on the host.
      - Nothing is read of O(links) then.
    type: bool
    default: false
  names:
    description: With O(hide_names=true), names of machines to mask as well.
    type: list
    elements: str
    default: []
  hide_names:
    description: With O(capture=true), whether the host's own name and O(names) are masked.
    type: bool
    default: false
attributes:
  action:
    details: It notes the controller's clock before and after.
"""

EXAMPLES = r"""
- name: Collect evidence for the doctor
  sparkthor.cluster.evidence_info:
    since: "-1d"
  register: read
  become: true
"""

RETURN = r"""
evidence:
  description: What was read, by part.
  returned: with O(capture=false)
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
capture:
  description: C(bundle), files and commands to replay, and C(evidence), what the doctor judges; both masked.
  returned: with O(capture=true)
  type: dict
before:
  description: The controller's clock before the host was asked, against which the host's is compared.
  returned: always
  type: float
after:
  description: The controller's clock after the host had answered.
  returned: always
  type: float
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import capture, evidence


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "timeout": {"type": "int", "default": 8},
            "links": {"type": "list", "elements": "dict", "default": []},
            "since": {"type": "str", "default": "-2h"},
            "journal_lines": {"type": "int", "default": 3000},
            "ray": {"type": "bool", "default": True},
            "key": {"type": "str", "no_log": True},
            "capture": {"type": "bool", "default": False},
            "names": {"type": "list", "elements": "str", "default": []},
            "hide_names": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    if given["timeout"] < 1:
        module.fail_json(msg=f"timeout is {given['timeout']}: a command needs at least 1 second")
    if given["capture"]:
        module.exit_json(changed=False, capture=capture.read_now(given["timeout"], given))
    found = evidence.read_now(
        given["timeout"], given["links"], given["since"], given["journal_lines"], given["ray"], given["key"] or ""
    )
    module.exit_json(changed=False, evidence=found)


if __name__ == "__main__":
    main()
