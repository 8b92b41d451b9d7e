# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``engine_venv``: documented in plugins/modules/engine_venv.py."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Pin, Target
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import interesting
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels as _wheels


class ActionModule(push.StoreAction):
    MODULE = "engine_venv"
    ERRORS = (EngineError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        engine = _wheels.read_engine_of(arguments)
        download = boolean(arguments.get("download", True))
        if arguments.get("stage") == "wheels":
            return self._have_wheels(engine, str(arguments.get("wheel_dir") or ""), download)
        target = self._target(arguments)
        folder = _wheels.wheel_folder(str(arguments.get("wheel_dir") or ""), target)
        if self._task.check_mode and (missing := _wheels.missing_wheels(engine, folder, target)):
            return self._would_fetch(engine, folder, target, missing, download)
        wheels = _wheels.prepare_wheels(engine, folder, target, download)
        arguments["target"] = _wheels.target_argument(engine, target, wheels, self._node)
        deliver = str(arguments.pop("deliver", "direct"))
        outcome = self._module(arguments)
        if not outcome.get("need") or outcome.get("failed"):
            return outcome
        # once more with the size of what is to be built: a disk that is too small is known before a byte moves
        arguments["target"]["unpacked"] = wheels.unpacked()
        outcome = self._module(arguments)
        if not outcome.get("need") or outcome.get("failed"):
            return outcome
        if deliver == "fabric":
            return self._hand_over(arguments, wheels, outcome)
        return self._send(arguments, wheels, outcome)

    def _have_wheels(self, engine: _wheels.Engine, wheel_dir: str, download: bool) -> dict[str, Any]:
        """The wheels for this host on the controller; a download there is no change of the host."""
        target = _wheels.target_of(self._node)
        if target is None:
            raise AnsibleActionFail(
                f"host {self.host}: the fact sparkthor_node with its Python, machine and C library is needed: "
                "run sparkthor.cluster.node_info first"
            )
        folder = _wheels.wheel_folder(wheel_dir, target)
        missing = _wheels.missing_wheels(engine, folder, target)
        check_mode = self._task.check_mode
        if missing and not check_mode:
            _wheels.prepare_wheels(engine, folder, target, download)
        fetched = download and not check_mode
        names = [str(pin) for pin in missing]
        return {
            "changed": False,
            "target": target.label,
            "folder": folder,
            "fetched": names if fetched else [],
            "missing": [] if fetched else names,
            "versions": engine.versions,
        }

    def _target(self, arguments: dict[str, Any]) -> Target:
        """Facts know the system's Python; any other interpreter is asked."""
        target = None
        if arguments.get("python", _wheels.DEFAULT_PYTHON) == _wheels.DEFAULT_PYTHON:
            target = _wheels.target_of(self._node)
        if target is None:
            probe = self._module({**arguments, "stage": "probe"})
            if probe.get("failed") or "target" not in probe:
                raise EngineError(str(probe.get("msg", probe)))
            target = _wheels.target_of(self._node, probe["target"])
        return target

    def _would_fetch(
        self, engine: _wheels.Engine, folder: str, target: Target, missing: list[Pin], download: bool
    ) -> dict[str, Any]:
        """Check mode fetches nothing: what cannot be known without the wheels is said to be so."""
        if not download:
            raise EngineError(_wheels.lacking(missing, folder, target, engine.source))
        pins = {pin.name: pin.version for pin in engine.pins}
        return {
            "changed": True,
            "msg": f"{len(missing)} of {len(engine.pins)} wheels would be fetched into {folder} on the controller",
            "problems": [],
            "diff": {"before": "", "after": "".join(f"{name}=={pins[name]}\n" for name in sorted(pins))},
            "ansible_facts": {
                "sparkthor_engine": {
                    "path": str(self._task.args.get("path", "/opt/sparkthor/venv")),
                    "digest": "",
                    "python": target.python,
                    "machine": target.machine,
                    "versions": interesting(pins),
                }
            },
        }

    @staticmethod
    def _hand_over(arguments: dict[str, Any], wheels: _wheels.WheelSet, outcome: dict[str, Any]) -> dict[str, Any]:
        """Let the role model_store bring the wheels to all hosts."""
        root = os.path.join(os.path.dirname(str(arguments.get("path", "/opt/sparkthor/venv"))), "wheels")
        outcome.update(push.hand_over(root, wheels.digest, wheels.folder, (entry.path for entry in wheels.manifest)))
        outcome.pop("diff", None)
        return outcome

    def _send(self, arguments: dict[str, Any], wheels: _wheels.WheelSet, outcome: dict[str, Any]) -> dict[str, Any]:
        wanted = push.contents(wheels.folder, wheels.manifest, outcome["need"])
        sent = self._bring("wheels", wanted, {**arguments, "target": {}})
        return self._arrived("wheels", outcome, self._module(arguments), sent)
