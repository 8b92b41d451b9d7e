# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``cluster_status``: documented in plugins/modules/cluster_status.py."""

from __future__ import annotations

import json

from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results, screen


class ActionModule(ActionBase):
    BYPASS_HOST_LOOP = True
    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("looks", "output", "path", "query"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            argument_spec={
                "looks": {"type": "str", "default": "__look"},
                "output": {"type": "str", "choices": ["text", "json", "none"], "default": "text"},
                "path": {"type": "path"},
                "query": {"type": "str"},
            }
        )
        status = results.see(task_vars or {}, arguments["looks"]).status
        text = screen.render(status)
        if arguments["query"]:
            result["picked"] = results.show_picked(status, arguments["query"], "status_query", self._display)
        elif arguments["output"] == "json":
            self._display.display(json.dumps(status, indent=1))
        elif arguments["output"] == "text":
            self._display.display(text)
        if arguments["path"]:
            results.save(arguments["path"], status, "output_file")
        # the screen has been shown; a callback would print the whole document once more
        result.update(changed=False, status=status, text=text, _ansible_verbose_override=True)
        return result
