# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_prepare``: all of it but the question for the image that a host has."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import images
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels as _wheels
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import IMAGES, Record


class ActionModule(Action):
    ERRORS = (EngineError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        runtime = arguments.pop("runtime", "venv")
        node = (self.vars.get("ansible_facts") or {}).get("sparkthor_node") or {}
        return self._have_wheels(arguments, node) if runtime == "venv" else self._check_image(arguments, node)

    def _check_image(self, arguments: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
        wanted = images.read_wanted(arguments, str(node.get("arch") or ""))
        if node and not (node.get("binaries") or {}).get("docker"):
            raise EngineError(images.NO_DOCKER)
        record, name = Record(self.vars.get("inventory_dir")), images.recorded_name(wanted)
        build, known = arguments.pop("build", None), wanted.digest or (record.of(IMAGES, name) if name else "")
        images.build_of({"build": build}, wanted, known, self.host, record)
        if name and record.of(IMAGES, name):
            # what this host has under a tag must be what was pulled first
            images.compare(self.host, name, self.execute("engine_image", arguments), record)
        return {"changed": False, "image": wanted.image, "digest": wanted.archive.image if wanted.archive else ""}

    def _have_wheels(self, arguments: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
        """The wheels for this host on the controller; a download there is no change of the host."""
        target, download = _wheels.target_of(node), boolean(arguments.get("download", True))
        if target is None:
            raise AnsibleActionFail(
                f"host {self.host}: the fact sparkthor_node with its Python, machine and C library is needed: "
                "run sparkthor.cluster.node_info first"
            )
        engine = _wheels.read_engine_of(arguments, target)
        folder = _wheels.wheel_folder(str(arguments.get("wheel_dir") or ""), target)
        missing = _wheels.missing_wheels(engine, folder, target)
        check_mode = self._task.check_mode
        if not missing or not check_mode:
            # those that are here may be others than the lock names
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
