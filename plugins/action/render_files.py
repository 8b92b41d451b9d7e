# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``render_files``: documented in plugins/modules/render_files.py."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action


class ActionModule(Action):
    _requires_connection = False
    ARGUMENTS = {
        "dest": {"type": "path", "required": True},
        "files": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "path": {"type": "str", "required": True},
                "content": {"type": "str", "required": True},
                "mode": {"type": "str", "default": "0644"},
                **{name: {"type": "raw"} for name in ("owner", "group", "foreign", "backup")},
            },
        },
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        top = Path(os.path.abspath(arguments["dest"])) / self.host
        changed: list[str] = []
        diffs: list[dict[str, str]] = []
        for file in arguments["files"]:
            before = self._write(top, file["path"], file["content"], file["mode"])
            if before is None:
                continue
            changed.append(file["path"])
            name = f"{self.host}:{file['path']}"
            diffs.append({"before": before, "after": file["content"], "before_header": name, "after_header": name})
        result: dict[str, Any] = {"changed": bool(changed), "changed_paths": changed, "dest": str(top)}
        if self._task.diff and diffs:
            result["diff"] = diffs
        return result

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
