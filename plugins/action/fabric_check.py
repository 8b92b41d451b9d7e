# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``fabric_check``: documented in plugins/modules/fabric_check.py."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import errors_and_others, nothing_changed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric as _fabric
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import compare, fabric_check


class ActionModule(ClusterAction):
    ARGUMENTS = {
        "fabric": {"type": "dict", "required": True},
        "probes": {"type": "str", "required": True},
        "accept": {"type": "list", "elements": "str", "default": [], "choices": list(fabric_check.ACCEPTABLE)},
        "replace_foreign": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        hostvars = self.vars["hostvars"]
        fabric = copy.deepcopy(arguments["fabric"])
        nodes = {host: hostvars[host]["ansible_facts"]["sparkthor_node"] for host in fabric}
        outcomes: dict[str, Mapping[str, Any]] = {
            host: hostvars[host].get(arguments["probes"]) or {} for host in fabric
        }
        probes = {host: outcome.get("probe") or {} for host, outcome in outcomes.items()}
        errors, warnings = errors_and_others(
            fabric_check.check_facts(fabric, nodes, probes, arguments["accept"], arguments["replace_foreign"])
        )
        if errors:
            raise AnsibleActionFail(nothing_changed(errors))
        _fabric.adopt_devices(fabric, fabric_check.devices(probes))
        renamed = fabric != arguments["fabric"]
        compared = next(iter(outcomes.values()), {}).get("compared") or []
        # hosts that were compared with a plan that has other device names in it were not compared
        converged = [] if renamed else compare.converged_everywhere(compared, outcomes)
        return {
            "changed": False,
            "msg": f"the facts of {len(fabric)} hosts agree with the plan",
            "fabric": fabric,
            "renamed": renamed,
            "converged": converged,
            "nothing_to_do": bool(converged) and converged == compared,
            "warnings": warnings,
        }
