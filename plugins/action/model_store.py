# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``model_store``: documented in plugins/modules/model_store.py."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import StoreError, check_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils import _hub, _push

MODULE = "sparkthor.cluster.model_store"
display = Display()


class ActionModule(ActionBase):
    # a folder on the host is made when something is sent, not in every run
    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        host = self._vars["inventory_hostname"]
        args = dict(self._task.args)
        models, folders, pending = [], {}, []
        for model in args.get("models") or []:
            name = self._name(model)
            folder, commit = self._folder(model, name)
            if folder is None:
                pending.append(name)
                continue
            what = f"model_store_models: {name}"
            entries = _push.manifest(folder, _push.folder_files(folder, what))
            folders[name] = (folder, entries)
            models.append({**model, "manifest": [list(entry) for entry in entries], "commit": commit})
        args["models"] = models
        outcome = self._module(args) if models or not pending else {"changed": False, "models": {}, "unlisted": []}
        if outcome.get("need") and not outcome.get("failed"):
            outcome = self._send(args, folders, outcome, host)
        if pending and not outcome.get("failed"):
            outcome["changed"] = True
            outcome["msg"] = "would be fetched from the hub first: " + ", ".join(pending)
        result.update(outcome)
        return result

    def _module(self, args: dict[str, Any]) -> dict[str, Any]:
        return self._execute_module(module_name=MODULE, module_args=dict(args), task_vars=self._vars)

    @staticmethod
    def _name(model: Any) -> str:
        try:
            return check_name(str(model["name"]))
        except (KeyError, TypeError) as error:
            raise AnsibleActionFail(f"model_store_models: {model!r} needs a name and a source") from error
        except StoreError as error:
            raise AnsibleActionFail(f"model_store_models: {error}") from error

    def _folder(self, model: dict[str, Any], name: str) -> tuple[str | None, str]:
        """A local folder, or the controller's copy of a hub id with its commit; None if check mode must not fetch."""
        source = str(model.get("source") or "")
        if source.startswith(("/", ".", "~")):
            if model.get("revision"):
                raise AnsibleActionFail(f"model_store_models: {name}: a folder has no revision; remove it")
            return os.path.realpath(os.path.expanduser(source)), ""
        try:
            with _push.locked(_push.user_cache("locks", "hub.lock")):
                return _hub.snapshot(source, str(model.get("revision") or ""), name, fetch=not self._task.check_mode)
        except _hub.HubError as error:
            raise AnsibleActionFail(f"model_store_models: {name}: {error}") from error

    def _send(self, args, folders, outcome, host):
        entries_of = {}
        for folder, entries in folders.values():
            for entry in entries:
                entries_of.setdefault(entry.sha256, (folder, entry))
        wanted = []
        for item in outcome["need"]:
            folder, entry = entries_of[item["sha256"]]
            wanted += _push.contents(folder, [entry], [item])

        slim = {**args, "models": [], "stage": "receive"}

        def receive(parts: list[dict[str, Any]]) -> None:
            got = self._module({**slim, "parts": parts})
            if got.get("failed"):
                raise AnsibleActionFail(f"host {host}: {got.get('msg', got)}")

        courier = _push.Courier(self, "models", host, display.display)
        courier.deliver(wanted, receive)
        first, outcome = outcome, self._module(args)
        outcome["sent_bytes"] = courier.sent
        if "diff" in first:
            outcome["diff"] = first["diff"]
        if outcome.get("need"):
            raise AnsibleActionFail(f"host {host}: {len(outcome['need'])} files did not arrive whole: run again")
        return outcome
