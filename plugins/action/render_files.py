# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``render_files``: documented in plugins/modules/render_files.py."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template

_KEYS = frozenset(("path", "content", "mode", "owner", "group", "foreign", "backup"))
#: hosts for one process at least: below, starting it costs more than it saves
_SHARE = 16
#: what the processes of a pool inherit, because an action cannot be sent to them
_work: list[Callable[[str], list[dict[str, Any]]]] = []


def _one(host: str) -> tuple[list[dict[str, Any]], str]:
    """Files, or the reason why there are none: not every exception survives the way between processes."""
    try:
        return _work[0](host), ""
    except AnsibleError as error:
        return [], f"{host}: {error}"


def _on_all_cores(
    work: Callable[[str], list[dict[str, Any]]], hosts: Sequence[str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each host with its files, in order; many hosts are shared among forks of this process, one for each core."""
    _work[:] = [work]
    count = min(os.cpu_count() or 1, len(hosts) // _SHARE)
    with contextlib.ExitStack() as stack:
        results = map(_one, hosts)
        if count > 1:
            pool = stack.enter_context(ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")))
            results = pool.map(_one, hosts, chunksize=4)
        for host, (files, problem) in zip(hosts, results, strict=True):
            if problem:
                raise AnsibleActionFail(problem)
            yield host, files


class ActionModule(ActionBase):
    # A process and a task for each host cost more than a host's files do; so one task renders them all.
    BYPASS_HOST_LOOP = True
    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("dest", "files"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _validated, arguments = self.validate_argument_spec(
            argument_spec={"dest": {"type": "path", "required": True}, "files": {"type": "str", "required": True}}
        )
        dest = Path(os.path.abspath(arguments["dest"]))
        # the expression comes from the task itself, which is trusted; validation has lost the mark
        expression = trust_as_template(arguments["files"])
        changed: dict[str, list[str]] = {}
        diffs: list[dict[str, str]] = []

        def work(host: str) -> list[dict[str, Any]]:
            return self._files(host, expression, task_vars)

        for host, files in _on_all_cores(work, task_vars["ansible_play_hosts"]):
            changed[host] = []
            for file in files:
                before = self._write(dest / host, file)
                if before is None:
                    continue
                changed[host].append(file["path"])
                name = f"{host}:{file['path']}"
                diffs.append({"before": before, "after": file["content"], "before_header": name, "after_header": name})
        result.update(changed=any(changed.values()), changed_paths=changed, dest=str(dest))
        if self._task.diff and diffs:
            result["diff"] = diffs
        return result

    def _files(self, host: str, expression: str, task_vars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The expression's value among the variables that this task would have on that host."""
        hostvars = task_vars["hostvars"]
        variables = hostvars._variable_manager.get_vars(
            play=self._task.get_play(), host=hostvars._inventory.get_host(host), task=self._task
        )
        # where templates and files are looked for
        variables["ansible_search_path"] = task_vars["ansible_search_path"]
        found = self._templar.copy_with_new_env(available_variables=variables).evaluate_expression(expression)
        if not isinstance(found, list):
            raise AnsibleActionFail(f"files: {expression!r} is a {type(found).__name__}, not a list of files")
        files = []
        for number, file in enumerate(found, 1):
            unknown = sorted(set(file) - _KEYS) if isinstance(file, Mapping) else ["not a mapping"]
            if unknown or "path" not in file or "content" not in file:
                raise AnsibleActionFail(
                    f"files: item {number} needs path and content and may have "
                    f"{', '.join(sorted(_KEYS - {'path', 'content'}))}; found {', '.join(map(str, unknown)) or file}"
                )
            files.append(
                {"path": str(file["path"]), "content": str(file["content"]), "mode": str(file.get("mode", "0644"))}
            )
        return files

    def _write(self, top: Path, file: Mapping[str, str]) -> str | None:
        """What was there before, if that was something else; None where nothing has to be written."""
        if not file["path"].startswith("/") or ".." in Path(file["path"]).parts:
            raise AnsibleActionFail(f"files: path {file['path']!r} is not an absolute path; name it in full")
        if not re.fullmatch(r"0?[0-7]{3}", file["mode"]):
            raise AnsibleActionFail(f"files: mode {file['mode']!r} of {file['path']} is not octal, as '0644'")
        path = top / file["path"].lstrip("/")
        before = path.read_text(encoding="utf-8") if path.is_file() else None
        mode = int(file["mode"], 8)
        if before == file["content"] and path.stat().st_mode & 0o777 == mode:
            return None
        if not self._task.check_mode:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"], encoding="utf-8")
            path.chmod(mode)
        return before or ""
