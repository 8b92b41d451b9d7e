# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``capture``: documented in plugins/modules/capture.py."""

from __future__ import annotations

import io
import json
import os
import secrets
import tarfile
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction

README = """\
What the readers of sparkthor.cluster read on these hosts: HOST/bundle.json holds files and the output of commands as
they are, HOST/evidence.json what the doctor judges, with excerpts of logs. Masked before it left the hosts: secrets,
serial numbers, identifiers, the machines' own part of hardware addresses, public addresses, names in /home{names}.
Read it before you show it: a log may hold what no program knows to be private, such as a prompt.
"""


def _json(part: Any) -> str:
    """As it was read, and yet fit for a terminal: JSON escapes every other control character itself."""
    return json.dumps(part, indent=1).replace("\x7f", "\\u007f") + "\n"


class ActionModule(ClusterAction):
    ARGUMENTS = {
        "stage": {"type": "str", "choices": ["key", "write"], "default": "write"},
        "read": {"type": "str", "default": ""},
        "path": {"type": "path", "default": ""},
        "hide_names": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["stage"] == "key":
            return {"changed": False, "key": secrets.token_hex(16)}
        path = os.path.abspath(arguments["path"])
        found, lost = {}, {}
        for number, host in enumerate(self.vars["ansible_play_hosts_all"], 1):
            outcome = self.vars["hostvars"][host].get(arguments["read"]) or {}
            captured = outcome.get("capture")
            if isinstance(captured, dict):
                # what a host says has no say in where it lies
                parts = {name: captured.get(name) for name in ("bundle", "evidence")}
                found[f"host-{number}" if arguments["hide_names"] else host] = parts
            elif "capture" in outcome:
                lost[host] = "what it answered is no capture"
            else:
                lost[host] = " ".join(str(outcome.get("msg") or "no answer").split())[:200]
        for host, why in lost.items():
            self.tell(f"  {host} is not in the archive: {why}")
        if not found:
            raise AnsibleActionFail("no host could be read: see the lines above")
        if not self._task.check_mode:
            self._write(path, found, arguments["hide_names"])
            self.tell(f"  {path}: {len(found)} hosts; read it before you show it to anybody")
        return {"changed": not self._task.check_mode, "path": path, "hosts": list(found)}

    @staticmethod
    def _write(path: str, found: dict[str, dict[str, Any]], names_hidden: bool) -> None:
        texts = {"README.txt": README.format(names=" and of hosts" if names_hidden else "")}
        for host, parts in found.items():
            texts.update({f"{host}/{name}.json": _json(part) for name, part in parts.items()})
        top = os.path.basename(path).removesuffix(".gz").removesuffix(".tar")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
                for name, text in texts.items():
                    entry = tarfile.TarInfo(f"{top}/{name}")
                    entry.size, entry.mode = len(text.encode()), 0o600
                    archive.addfile(entry, io.BytesIO(text.encode()))
        except OSError as error:
            raise AnsibleActionFail(f"capture_file: {path} cannot be written: {error.strerror}") from None
