# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_wheels``, which has no other: documented in plugins/modules/engine_wheels.py."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("requirements", "wheel_dir", "download", "ray_version", "vllm_version"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = self._task.args
        host = task_vars["inventory_hostname"]
        node = (task_vars.get("ansible_facts") or {}).get("sparkthor_node") or {}
        try:
            engine = wheels.read_engine_of(args)
            target = wheels.target_of(node)
            if target is None:
                raise AnsibleActionFail(
                    f"host {host}: the fact sparkthor_node with its Python, machine and C library is needed: "
                    "run sparkthor.cluster.node_info first"
                )
            folder = wheels.wheel_folder(str(args.get("wheel_dir") or ""), target)
            missing = wheels.missing_wheels(engine, folder, target)
            fetch = boolean(args.get("download", True)) and not self._task.check_mode
            if missing and (fetch or not self._task.check_mode):
                wheels.prepare_wheels(engine, folder, target, fetch)
        except EngineError as error:
            raise AnsibleActionFail(f"host {host}: {error}") from error
        # a download on the controller is no change of the host
        result.update(
            changed=False,
            target=target.label,
            folder=folder,
            fetched=[str(pin) for pin in missing] if fetch else [],
            missing=[] if fetch else [str(pin) for pin in missing],
            versions=engine.versions,
        )
        return result
