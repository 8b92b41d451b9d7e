# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``render_files``: documented in plugins/modules/render_files.py."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import module_files, role_tasks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action

#: in the folder: of which inventory it is
MARKER = ".sparkthor-render.json"
#: what is written of a file; the arguments of host_state that say nothing about text and mode are passed over
FILES = {
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "str", "required": True},
            "content": {"type": "str", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "secret": {"type": "bool", "default": False},
            **{name: {"type": "raw"} for name in ("owner", "group", "foreign", "backup")},
        },
    }
}


class ActionModule(Action):
    _requires_connection = False
    ARGUMENTS = {
        "dest": {"type": "path", "required": True},
        "roles": {"type": "list", "elements": "str", "required": True},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        folder = Path(os.path.abspath(arguments["dest"]))
        self._take(folder)
        top = folder / self.host
        changed: list[str] = []
        diffs: list[dict[str, str]] = []
        files = [file for role in arguments["roles"] for file in self._files(role)]
        for file in files:
            before = self._write(top, file["path"], file["content"], file["mode"])
            if before is None:
                continue
            changed.append(file["path"])
            name = f"{self.host}:{file['path']}"
            texts = (before, file["content"])
            if file["secret"]:
                texts = ("", "(secret content is not shown)\n")
            diffs.append({"before": texts[0], "after": texts[1], "before_header": name, "after_header": name})
        would = "would be " if self._task.check_mode else ""
        self.tell(f"sparkthor: {self.host}: {len(files)} files {would}in {top}, {len(changed)} new or changed")
        result: dict[str, Any] = {"changed": bool(changed), "changed_paths": changed, "dest": str(top)}
        if self._task.diff and diffs:
            result["diff"] = diffs
        return result

    def _take(self, folder: Path) -> None:
        """Have the folder for one inventory: the hosts of another one would lie in it as if they were of the same."""
        sources = [os.path.realpath(source) for source in self.vars.get("ansible_inventory_sources") or []]
        path = folder / MARKER
        former = read_json(str(path)).get("inventories")
        if former is not None and former != sources:
            raise AnsibleActionFail(
                f"render_dir: {folder} holds files of the inventory {', '.join(map(str, former))}, and this run is of "
                f"{', '.join(sources)}: hosts of both would lie side by side. Nothing was written; name another folder "
                "with -e render_dir=FOLDER, or remove this one"
            )
        if former is None and not self._task.check_mode:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(str(path), json.dumps({"inventories": sources}) + "\n")
            # what it says of somebody's network belongs into no repository by accident
            write_atomic(str(folder / ".gitignore"), "*\n")

    def _files(self, role: str) -> list[dict[str, Any]]:
        state = role_tasks.state(role, self._loader, self._templar, self.vars, secrets=False) or {"files": []}
        calls = role_tasks.calls_that_make_files(role, self._templar, self.vars)
        made = [file for call in calls for file in module_files.of_call(call)]
        result = ArgumentSpecValidator(FILES).validate({"files": [*state["files"], *made]})
        if result.error_messages:
            raise AnsibleActionFail(f"{role}: {'; '.join(result.error_messages)}")
        return list(result.validated_parameters["files"])

    def _write(self, top: Path, name: str, content: str, mode: str) -> str | None:
        """What was there before, if that was something else; None where nothing has to be written."""
        if not name.startswith("/") or ".." in Path(name).parts:
            raise AnsibleActionFail(f"files: path {name!r} is not an absolute path; name it in full")
        if not re.fullmatch(r"0?[0-7]{3}", mode):
            raise AnsibleActionFail(f"files: mode {mode!r} of {name} is not octal, as '0644'")
        path = top / name.lstrip("/")
        before = path.read_text(encoding="utf-8") if path.is_file() else None
        if before == content and path.stat().st_mode & 0o777 == int(mode, 8):
            return None
        if not self._task.check_mode:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            path.chmod(int(mode, 8))
        return before or ""
