# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``vllm_options``: documented in plugins/modules/vllm_options.py.

The host is asked once for each engine; afterwards a check costs no connection at all.
"""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import option_table
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import errors_and_others
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import PlannedEngine

OWN = ("engine", "arguments", "acknowledged", "environment", "needs")


class ActionModule(Action):
    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        args = arguments
        kept, table = option_tables.known(args, self.vars)
        result: dict[str, Any] = {"changed": False, "cached": table is not None, "path": kept}
        engine = registry.planned_engine(str(args.get("engine_name") or ""))
        if table is None:
            asked = {key: value for key, value in args.items() if key not in OWN}
            outcome = self.execute("vllm_options", asked)
            version = str(args.get("version") or "")
            if not outcome.get("failed") and engine.name not in outcome["table"]:
                raise AnsibleActionFail(f"{self.host} told a table of options that is not {engine.title}'s.")
            if self._task.check_mode and (
                outcome.get("failed") or _another(str(outcome["table"][engine.name]), version)
            ):
                # there is no such engine to ask yet: the shipped table of its version will do
                shipped = self._shipped(engine.name, version)
                if shipped is None:
                    # preflight has checked the arguments by the version that it expects
                    result["msg"] = "no engine to ask yet: its own options are checked by the run without --check"
                    return result
                outcome = {"table": shipped, "from_host": False}
            if outcome.get("failed"):
                return {**result, **outcome}
            table = outcome["table"]
            result.update(cached=bool(outcome.get("cached")), path=outcome.get("path") or kept)
            if kept and outcome.get("from_host", True) and not self._task.check_mode:
                os.makedirs(os.path.dirname(kept), exist_ok=True)
                write_atomic(kept, option_table.render(table))
        result["table"] = table
        if args.get("arguments") is not None:
            self._check(engine, args, table, result)
        return result

    @staticmethod
    def _shipped(engine: str, version: str) -> dict[str, Any] | None:
        """The table of an image whose version is not known yet, or of a newer vLLM, is none that we have."""
        try:
            return vllm_args.find_table(version)[0] if version and engine == registry.DEFAULT.name else None
        except SizingError:
            return None

    @staticmethod
    def _check(engine: PlannedEngine, args: dict[str, Any], table: dict[str, Any], result: dict[str, Any]) -> None:
        errors, warnings = errors_and_others(option_tables.problems(args, table))
        if errors:
            raise AnsibleActionFail(f"No service was touched: {engine.refusal(errors, str(table[engine.name]))}")
        if warnings:
            result["warnings"] = warnings


def _another(found: str, version: str) -> bool:
    """Whether the table is another engine's: in check mode the former one may still be in the new one's place."""
    return bool(version) and release(found) != release(version)
