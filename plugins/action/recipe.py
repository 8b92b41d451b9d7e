# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``recipe``: documented in plugins/modules/recipe.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    recipe_catalogue,
    recipe_export,
    recipe_table,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

#: arguments that name the hosts that are planned for
_CLUSTER = ("hosts", "topology", "kinds", "version")


class ActionModule(ClusterAction):
    ERRORS = (RecipeError, SizingError)
    ARGUMENTS = {
        "action": {"type": "str", "choices": ["list", "show", "check", "export"], "default": "list"},
        "recipe": {"type": "str", "default": ""},
        "hosts": {"type": "list", "elements": "str", "default": []},
        "topology": {"type": "str", "default": "switch"},
        "kinds": {"type": "dict", "default": {}},
        "version": {"type": "str"},
        "image": {"type": "str", "default": ""},
        "dest": {"type": "path"},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["action"] != "list" and not arguments["recipe"]:
            raise AnsibleActionFail("recipe is empty; give a name, a file or a folder")
        result: dict[str, Any] = getattr(self, f"_{arguments['action']}")(arguments)
        self.tell(result["text"])
        # the text has been shown; a callback would print the whole result once more
        return {"changed": False, **result, "_ansible_verbose_override": True}

    @staticmethod
    def _list(arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["hosts"]:
            known = [arguments[key] for key in _CLUSTER]
            rows, parts = recipe_catalogue.runs(*known), recipe_catalogue.parts(*known)
            return {"rows": rows, "parts": parts, "text": "\n".join(recipe_table.run_lines(rows, parts))}
        rows = recipe_catalogue.listing()
        return {"rows": rows, "text": "\n".join(recipe_table.list_lines(rows))}

    @staticmethod
    def _show(arguments: dict[str, Any]) -> dict[str, Any]:
        known = {key: arguments[key] for key in _CLUSTER}
        return {"text": recipe_table.show(_path(arguments["recipe"]), **known)}

    @staticmethod
    def _check(arguments: dict[str, Any]) -> dict[str, Any]:
        options = {key: arguments[key] for key in _CLUSTER}
        rows = recipe_catalogue.check(_path(arguments["recipe"]), **options)
        return {
            "rows": rows,
            "counts": recipe_catalogue.counts(rows),
            "text": "\n".join(recipe_table.check_lines(rows)),
        }

    def _export(self, arguments: dict[str, Any]) -> dict[str, Any]:
        recipe = _recipe.load(_path(arguments["recipe"]))
        text = recipe_export.sparkrun(recipe, arguments["image"], len(arguments["hosts"]) or None)
        if not arguments["dest"]:
            return {"text": text}
        dest = Path(arguments["dest"])
        before = dest.read_text(encoding="utf-8") if dest.is_file() else None
        if before != text and not self._task.check_mode:
            dest.write_text(text, encoding="utf-8")
        return {"text": text, "changed": before != text}


def _path(recipe: str) -> str:
    """A path starts where the user stands; ~ is the user's folder."""
    return os.path.expanduser(recipe)
