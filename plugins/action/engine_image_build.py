# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_image_build``: which host builds, the steps' files, and what it wrote for the others."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import hash_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout, images, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import IMAGES, Record


class ActionModule(push.StoreAction):
    MODULE = "engine_image_build"
    ERRORS = (EngineError, fanout.RunError)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        head = str((self.vars.get("sparkthor_cluster") or {}).get("head") or "")
        results = images.last_results(self.vars)
        host, share = images.giver(results, head, "unbuilt")
        if self.host != host:
            return {"changed": False}
        build = {name: arguments[name] for name in ("steps", "script", "recipe")}
        build["folder"] = arguments.pop("folder", "")
        named = {name: arguments.get(name) or "" for name in ("image", "digest", "archive")}
        wanted = images.read_wanted({**named, "ray": False}, str(self._node.get("arch") or ""))
        record, name = Record(self.vars.get("inventory_dir")), images.recorded_name(wanted)
        known = wanted.digest or (record.of(IMAGES, name) if name else "")
        inputs, places = images.build_of({"build": build}, wanted, known, host, record)
        manifest = [Entry(path, os.path.getsize(whole), hash_file(whole)) for path, whole in places]
        arguments |= {
            "inputs": inputs,
            "base": str(results[host].get("unbuilt") or ""),
            "files": [list(entry) for entry in manifest],
            "kind": str(self._node.get("kind") or ""),
        }
        begun = self._begun(arguments, dict(places), manifest)
        if begun.get("failed") or not share:
            return begun
        self.tell(f"sparkthor: {host}: {begun['built']}: is being written down for the other hosts")
        outcome = self._module({**arguments, "begun": True})
        if outcome.get("failed"):
            return outcome
        return {**begun, "saved": {**images.saved(outcome.get("saved")), "of": inputs}}

    def _begun(self, arguments: dict[str, Any], places: dict[str, str], manifest: list[Entry]) -> dict[str, Any]:
        """What the host answers when it has built the image; what it lacks of the steps' files is sent before."""
        names = ", ".join(step["name"] for step in arguments["steps"])
        self.tell(f"sparkthor: {self.host}: the image of recipe {arguments['recipe']} is being built: {names}")
        outcome = self._module(arguments)
        if not outcome.get("need"):
            return outcome
        by_digest = {entry.sha256: entry for entry in manifest}
        wanted = [
            push.Content(places[entry.path], entry.size, entry.sha256, int(item["have"]))
            for item in fanout.asked(outcome["need"], manifest)
            if (entry := by_digest[item["sha256"]])
        ]
        root = os.path.join(str(arguments.get("work_dir") or image_host.WORK_DIR), "images")
        self._bring("the image's steps", wanted, root)
        outcome = self._module(arguments)
        if outcome.get("need"):
            raise AnsibleActionFail(f"host {self.host}: what was sent for the image did not arrive whole: run again")
        return outcome
