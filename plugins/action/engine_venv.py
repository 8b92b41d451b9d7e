# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``engine_venv``: documented in plugins/modules/engine_venv.py."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import interesting
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels as _wheels


class ActionModule(push.StoreAction):
    MODULE = "sparkthor.cluster.engine_venv"

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        try:
            engine = _wheels.read_engine_of(args)
            target = self._target(args)
            folder = _wheels.wheel_folder(str(args.get("wheel_dir") or ""), target)
            download = boolean(args.get("download", True))
            if self._task.check_mode and (missing := _wheels.missing_wheels(engine, folder, target)):
                return self._would_fetch(result, engine, folder, target, missing, download)
            wheels = _wheels.prepare_wheels(engine, folder, target, download)
        except EngineError as error:
            raise AnsibleActionFail(f"host {self._host}: {error}") from error
        args["target"] = _wheels.target_argument(engine, target, wheels, self._node)
        args.pop("deliver", None)
        outcome = self._module(args)
        if outcome.get("need") and not outcome.get("failed"):
            if str(self._task.args.get("deliver", "direct")) == "fabric":
                outcome = self._hand_over(args, wheels, outcome)
            else:
                outcome = self._send(args, wheels, outcome)
        result.update(outcome)
        return result

    def _target(self, args: dict[str, Any]) -> Any:
        """Facts know the system's Python; any other interpreter is asked."""
        target = None
        if args.get("python", _wheels.DEFAULT_PYTHON) == _wheels.DEFAULT_PYTHON:
            target = _wheels.target_of(self._node)
        if target is None:
            probe = self._module({**args, "stage": "probe"})
            if probe.get("failed") or "target" not in probe:
                raise EngineError(str(probe.get("msg", probe)))
            target = _wheels.target_of(self._node, probe["target"])
        return target

    def _would_fetch(self, result, engine, folder, target, missing, download):
        """Check mode fetches nothing: what cannot be known without the wheels is said to be so."""
        if not download:
            raise EngineError(_wheels.lacking(missing, folder, target, engine.source))
        pins = {pin.name: pin.version for pin in engine.pins}
        result.update(
            changed=True,
            msg=f"{len(missing)} of {len(engine.pins)} wheels would be fetched into {folder} on the controller",
            problems=[],
            diff={"before": "", "after": "".join(f"{name}=={pins[name]}\n" for name in sorted(pins))},
            ansible_facts={
                "sparkthor_engine": {
                    "path": str(self._task.args.get("path", "/opt/sparkthor/venv")),
                    "digest": "",
                    "python": target.python,
                    "machine": target.machine,
                    "versions": interesting(pins),
                }
            },
        )
        return result

    def _look_with_size(self, args, wheels):
        """Once more with the size of what is to be built: a disk that is too small is known before a byte moves."""
        args["target"]["unpacked"] = wheels.unpacked()
        return self._module(args)

    def _hand_over(self, args, wheels, outcome):
        """Let the role model_store bring the wheels to all hosts."""
        outcome = self._look_with_size(args, wheels)
        if outcome.get("failed") or not outcome.get("need"):
            return outcome
        root = os.path.join(os.path.dirname(str(args.get("path", "/opt/sparkthor/venv"))), "wheels")
        outcome.update(push.hand_over(root, wheels.digest, wheels.folder, (entry.path for entry in wheels.manifest)))
        outcome.pop("diff", None)
        return outcome

    def _send(self, args, wheels, outcome):
        outcome = self._look_with_size(args, wheels)
        if outcome.get("failed") or not outcome.get("need"):
            return outcome
        wanted = push.contents(wheels.folder, wheels.manifest, outcome["need"])
        sent = self._bring("wheels", wanted, {**args, "target": {}})
        return self._arrived("wheels", outcome, self._module(args), sent)
