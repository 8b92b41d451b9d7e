# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_venv``: the wheels for this host, and what of them it lacks."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Pin, Target
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import interesting
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels as _wheels

VENV = "/opt/sparkthor/venv"


class ActionModule(push.StoreAction):
    MODULE = "engine_venv"
    FACTS = ("sparkthor_engine",)
    # which folder of the controller goes to all hosts, and where it goes
    OWN = frozenset(("wheels", "sent_bytes"))
    ERRORS = (EngineError, fanout.RunError)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        target, download = self._target(arguments), boolean(arguments.get("download", True))
        engine = _wheels.read_engine_of(arguments, target)
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
        root = os.path.join(os.path.dirname(str(arguments.get("path", VENV))), "wheels")
        if deliver == "fabric":
            files = (entry.path for entry in wheels.manifest)
            outcome["need"] = fanout.asked(outcome["need"], wheels.manifest)
            outcome.update(push.hand_over(root, wheels.digest, wheels.folder, files))
            outcome.pop("diff", None)
            return outcome
        need = fanout.asked(outcome["need"], wheels.manifest)
        wanted = push.contents(wheels.folder, wheels.manifest, need)
        sent = self._bring("wheels", wanted, root)
        return self._arrived("wheels", outcome, self._module(arguments), sent)

    def _target(self, arguments: dict[str, Any]) -> Target:
        """Facts know the system's Python; any other interpreter is asked."""
        target = None
        if arguments.get("python", _wheels.DEFAULT_PYTHON) == _wheels.DEFAULT_PYTHON:
            target = _wheels.target_of(self._node)
        if target is None:
            probe = self._module({**arguments, "target": {}})
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
                    "path": str(self._task.args.get("path", VENV)),
                    "digest": "",
                    "python": target.python,
                    "machine": target.machine,
                    "versions": interesting(pins),
                }
            },
        }
