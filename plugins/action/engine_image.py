# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_image``: archive, wheels of Ray, and the digest that a tag had at its first pull."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout, images, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import IMAGES, Record

#: archive, then wheels, then done; more rounds mean that something does not arrive
ROUNDS = 6


class ActionModule(push.StoreAction):
    MODULE = "engine_image"
    FACTS = ("sparkthor_engine",)
    # which folder of the controller goes to all hosts, and where it goes
    OWN = frozenset(("wheels", "sent_bytes"))
    ERRORS = (EngineError, fanout.RunError)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        wanted = images.read_wanted(arguments, str(self._node.get("arch") or ""))
        download = boolean(arguments.get("download", True))
        record, name = Record(self.vars.get("inventory_dir")), images.recorded_name(wanted)
        if name:
            # every host gets the image that was pulled first, wherever its tag leads by now
            arguments["digest"] = record.of(IMAGES, name)
        sent, fabric = 0, arguments.pop("deliver", "direct") == "fabric"
        giver, saved, built = self._describe(arguments, wanted, record, fabric)
        store = os.path.join(str(arguments.get("work_dir") or image_host.WORK_DIR), "images")
        archive = os.path.dirname(wanted.archive_path), [Entry(*wanted.entry)]
        wheels: tuple[str, list[Entry]] = "", []
        for _round in range(ROUNDS):
            outcome = self._module(arguments)
            if outcome.get("failed"):
                if name and arguments["digest"] and arguments["digest"] in str(outcome.get("msg")):
                    outcome["msg"] += f" (this digest of {name} is recorded in {record.path} since its first pull)"
                break
            if outcome.get("wanted"):
                wheels = images.wheels_for(outcome, arguments, download)[:2]
                arguments["target"]["wheels"] = [list(entry) for entry in wheels[1]]
            elif outcome.get("lacks"):
                return {"changed": False, "lacks": outcome["lacks"]}
            elif outcome.get("unbuilt"):
                outcome = {"changed": False, "unbuilt": outcome["unbuilt"]}
                break
            elif outcome.get("need"):
                whole = outcome["what"] == "archive"
                folder, manifest = archive if whole else wheels
                known = [Entry(*saved["entry"])] if whole and saved else manifest
                outcome["need"] = fanout.asked(outcome["need"], known)
                if fabric and whole:
                    return {**self._handed(store, saved, folder, manifest), "need": outcome["need"]}
                if whole and built:
                    raise AnsibleActionFail(f"host {self.host}: the image that {giver} built did not arrive: run again")
                if whole and saved:
                    # no way led here over the fabric: this host pulls it too
                    del arguments["target"]["archive"]
                    continue
                contents = push.contents(folder, manifest, outcome["need"])
                sent += self._bring("image" if whole else "Ray's wheels", contents, store)
            else:
                break
        else:
            raise AnsibleActionFail(f"host {self.host}: what was sent did not arrive whole: run again")
        if fabric and self.host == giver and not outcome.get("failed"):
            outcome |= {**self._handed(store, saved, "", []), "need": [], "changed": outcome["changed"]}
        if not self._task.check_mode:
            images.keep_digest(self.host, name, outcome, record)
        if sent and not outcome.get("failed"):
            # the rounds before this one did the work: the last one alone would look as if little had changed
            outcome.update(changed=True, sent_bytes=sent)
        if outcome.get("changed") and outcome.get("nccl"):
            outcome.setdefault("warnings", []).append(
                f"host {self.host}: the image sets NCCL options of its own ({'; '.join(outcome['nccl'])}). Its "
                "nccl.conf is hidden from the engine by the host's; /etc/sparkthor/fabric.env outranks its environment."
            )
        return outcome

    def _describe(
        self, arguments: dict[str, Any], wanted: images.WantedImage, record: Record, fabric: bool
    ) -> tuple[str, dict[str, Any], bool]:
        """Tell the module what the host is to have: who gives it to the others, what it wrote, whether it was built."""
        giver, saved = self._saved(wanted)
        target = {**wanted.target(), "kind": str(self._node.get("kind") or "")}
        if saved:
            arguments["digest"] = arguments.get("digest") or saved["digest"]
        inputs, _places = images.build_of(arguments, wanted, str(arguments.get("digest") or ""), self.host, record)
        builder, built = self._built(inputs)
        if inputs:
            target |= {"inputs": inputs, "built": built, "built_everywhere": not fabric}
        if saved and not built:
            target |= {"archive": {**saved, "shared": True}, "tidy": not fabric}
        else:
            target["wait"] = fabric
        arguments["target"] = target
        # where one was built, every host has the image that was changed
        return (builder, built, True) if built else (giver, saved, False)

    @staticmethod
    def _handed(root: str, saved: dict[str, Any], folder: str, manifest: list[Entry]) -> dict[str, Any]:
        """For the fan-out: the archive of the controller, or the one that a host wrote."""
        if saved:
            return push.hand_over(root, image_host.ARCHIVE, root, manifest=[saved["entry"]])
        return push.hand_over(root, image_host.ARCHIVE, folder, [manifest[0].path])

    def _saved(self, wanted: images.WantedImage) -> tuple[str, dict[str, Any]]:
        """The host that has this image in its store for the others, and what it is."""
        for host, result in images.results(self.vars, images.PULLED).items():
            saved = result.get("saved") or {}
            if saved.get("of") == wanted.image and not wanted.archive:
                return host, saved
        return "", {}

    def _built(self, inputs: str) -> tuple[str, dict[str, Any]]:
        """The host that has the image of the steps in its store for the others, and what it is."""
        for host, result in images.results(self.vars, images.BUILT).items():
            saved = result.get("saved") or {}
            if inputs and saved.get("of") == inputs:
                return host, saved
        return "", {}
