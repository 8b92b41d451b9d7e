# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: record_variables
type: aggregate
short_description: Write down the variables of every host as they are when the run ends
description:
  - What is asked is asked as a task would, so that it has the precedence that a task sees.
options:
  file:
    description: The file to write.
    env:
      - name: SPARKTHOR_VARIABLES
    type: path
    required: true
  names:
    description: The variables, with commas between them.
    env:
      - name: SPARKTHOR_VARIABLES_NAMES
    type: list
    elements: str
    required: true
"""

import json

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record_variables"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_play_start(self, play):
        self._variables = play.get_variable_manager()

    def v2_playbook_on_stats(self, _stats):
        found = {}
        inventory = self._variables._inventory
        for host in inventory.get_hosts("all", ignore_limits=True, ignore_restrictions=True):
            known = self._variables.get_vars(host=host, include_hostvars=False)
            found[host.name] = {name: known[name] for name in self.get_option("names") if name in known}
            found[host.name]["facts"] = sorted(known["ansible_facts"])
            found[host.name]["groups"] = sorted(group.name for group in host.get_groups())
        with open(self.get_option("file"), "w", encoding="utf-8") as record:
            json.dump(found, record, default=str)
