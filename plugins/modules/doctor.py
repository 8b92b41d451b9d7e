#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: doctor
short_description: Show the findings with a cluster, why, and how to fix it
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts, and changes nothing anywhere.
  - Judges by rules what M(sparkthor.cluster.evidence_info) read on the hosts, or a folder of logs that somebody
    sent. Each finding has the evidence, the cause, the fix and the source of that knowledge.
  - What one fault brings along is put under it, so that one fault is one finding.
  - Hosts that cannot be reached or read are findings, not failures.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  stage:
    description:
      - V(plan) computes, from the inventory alone, which peers each host should reach on its fabric links.
      - V(judge) applies the rules.
    type: str
    choices: [plan, judge]
    default: judge
  evidence:
    description:
      - Name of the variable that M(sparkthor.cluster.evidence_info) was registered in.
      - Needed in the stage V(judge) without O(logs).
    type: str
    default: ""
  logs:
    description:
      - A file or folder on the controller. With it no host is asked; only the logs are judged.
      - A log counts as that of a host whose inventory name is in its path, else as that of its first folder.
    type: str
    default: ""
  json:
    description: File on the controller to write the result to, as JSON.
    type: str
    default: ""
  fail_on:
    description:
      - Fail if there is a finding of this severity, so that C(ansible-playbook) ends with a status other than 0.
      - V(warning) means any finding.
    type: str
    choices: [never, error, warning]
    default: never
"""

EXAMPLES = r"""
- name: Judge the logs of a cluster that is not reachable from here
  sparkthor.cluster.doctor:
    logs: /tmp/logs-of-a-friend
  register: diagnosis

- name: Which rules apply
  ansible.builtin.debug:
    msg: "{{ diagnosis.doctor.findings | map(attribute='rule') }}"
"""

RETURN = r"""
links:
  description: Fabric links with their peers, by host.
  returned: in stage V(plan)
  type: dict
key:
  description: >-
    Random text of this one run, for M(sparkthor.cluster.evidence_info). Keep it out of logs (C(no_log)).
  returned: in stage V(plan)
  type: str
doctor:
  description: The diagnosis; what O(json) holds as well.
  returned: in stage V(judge)
  type: dict
  contains:
    schema:
      description: Version of this structure.
      type: int
      sample: 2
    time:
      description: When it was made, in UTC.
      type: str
      sample: "2026-11-21T08:00:00Z"
    mode:
      description: V(live) or V(logs).
      type: str
    hosts:
      description: By host its C(state) (V(read), V(unreachable) or V(unreadable)), C(reason), C(seconds) and C(errors).
      type: dict
    summary:
      description: Numbers of C(errors), C(warnings), C(rules), C(hosts), log C(lines), and C(seconds) of judging.
      type: dict
    findings:
      description: Errors first.
      type: list
      elements: dict
      contains:
        rule:
          description: Identity of the rule, as in docs/developers.md.
          type: str
          sample: half-cable
        area:
          description: V(host), V(memory), V(network), V(nccl), V(ray), V(engine), V(api) or V(model).
          type: str
        severity:
          description: V(error) or V(warning).
          type: str
        title:
          description: The finding in a few words.
          type: str
        symptom:
          description: What a user notices.
          type: str
        host:
          description: The host it was seen on; empty for the cluster as a whole, or a log of unknown origin.
          type: str
        hosts:
          description: All hosts it is about, such as both ends of a cable.
          type: list
          elements: str
        where:
          description: File, unit, NIC or log.
          type: str
        evidence:
          description: What was seen, secrets masked.
          type: list
          elements: str
        count:
          description: How often it was seen.
          type: int
        cause:
          description: Why it happens.
          type: str
        fix:
          description: The command or variable that fixes it.
          type: str
        source:
          description: Where that is known from, each with C(title) and C(url).
          type: list
          elements: dict
        consequences:
          description: Findings that this one explains, each with C(rule), C(title), C(host) and C(evidence).
          type: list
          elements: dict
    notes:
      description: What could not be read or judged.
      type: list
      elements: str
"""

# The work is done by the action plugin of the same name, on the controller.
