# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``engine_image``: documented in plugins/modules/engine_image.py."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import images, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import IMAGES, Record

WORK_DIR = "/opt/sparkthor"
#: archive, then wheels, then done; more rounds mean that something does not arrive
ROUNDS = 6


class ActionModule(push.StoreAction):
    MODULE = "engine_image"
    ERRORS = (EngineError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        node = self._node
        deliver = str(arguments.pop("deliver", "direct"))
        sent = 0
        wanted = images.read_wanted(arguments, str(node.get("arch") or ""))
        name, record = images.recorded_name(wanted), Record(self.vars.get("inventory_dir"))
        if arguments.get("stage") == "preflight":
            if node and not (node.get("binaries") or {}).get("docker"):
                raise EngineError(images.NO_DOCKER)
            if name and record.of(IMAGES, name):
                self._compare(name, self._module({**arguments, "stage": "pulled"}), record)
            return {"changed": False, "image": wanted.image, "digest": wanted.archive.image if wanted.archive else ""}
        if name:
            # every host gets the image that was pulled first, wherever its tag leads by now
            arguments["digest"] = record.of(IMAGES, name)
        arguments["target"] = {**wanted.target(), "kind": str(node.get("kind") or "")}
        for _round in range(ROUNDS):
            outcome = self._module(arguments)
            if outcome.get("failed"):
                if name and arguments["digest"] and arguments["digest"] in str(outcome.get("msg")):
                    outcome["msg"] += f" (this digest of {name} is recorded in {record.path} since its first pull)"
                break
            if outcome.get("wanted"):
                wheels = images.wheels_for(outcome, arguments, boolean(arguments.get("download", True)))
                arguments["target"]["wheels"] = [list(entry) for entry in wheels.manifest]
                self._wheels = wheels
            elif outcome.get("need"):
                if deliver == "fabric" and outcome["what"] == "archive":
                    return self._hand_over(arguments, outcome, wanted)
                sent += self._send(arguments, outcome, wanted)
            else:
                break
        else:
            raise AnsibleActionFail(f"host {self.host}: what was sent did not arrive whole: run again")
        if name and outcome.get("pulled") and not self._task.check_mode:
            record.keep(IMAGES, name, outcome["pulled"][0])
            self._compare(name, outcome, record)
        if sent and not outcome.get("failed"):
            # the rounds before this one did the work: the last one alone would look as if little had changed
            outcome.update(changed=True, sent_bytes=sent)
        if outcome.get("changed") and outcome.get("nccl"):
            outcome.setdefault("warnings", []).append(
                f"host {self.host}: the image sets NCCL options of its own ({'; '.join(outcome['nccl'])}). Its "
                "nccl.conf is hidden from the engine by the host's; /etc/sparkthor/fabric.env outranks its environment."
            )
        return outcome

    def _compare(self, name: str, outcome: dict[str, Any], record: Record) -> None:
        """What this host has under a tag must be what was pulled first."""
        if outcome.get("failed"):
            raise AnsibleActionFail(f"host {self.host}: {outcome.get('msg', outcome)}")
        found = outcome.get("pulled")
        if found and record.of(IMAGES, name) not in found:
            raise AnsibleActionFail(str(images.moved(self.host, name, found[0], record)))

    @staticmethod
    def _hand_over(args: dict[str, Any], outcome: dict[str, Any], wanted: images.Wanted) -> dict[str, Any]:
        """Let the role model_store bring the archive to all hosts."""
        root = os.path.join(str(args.get("work_dir") or WORK_DIR), "images")
        folder, file = os.path.dirname(wanted.archive_path), Entry(*wanted.entry).path
        return {**push.hand_over(root, "archive", folder, [file]), "need": outcome["need"]}

    def _send(self, args: dict[str, Any], outcome: dict[str, Any], wanted: images.Wanted) -> int:
        if outcome["what"] == "archive":
            folder = os.path.dirname(wanted.archive_path)
            manifest = [Entry(*wanted.entry)]
        else:
            folder, manifest = self._wheels.folder, self._wheels.manifest
        what = "image" if outcome["what"] == "archive" else "Ray's wheels"
        return self._bring(what, push.contents(folder, manifest, outcome["need"]), {**args, "target": {}})
