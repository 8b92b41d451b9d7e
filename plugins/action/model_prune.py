# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``model_prune``: which names are declared, and what any host serves with."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import models
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.model_action import ModelAction


class ActionModule(ModelAction):
    RESULTS = "model_store_inventory"

    def step(self) -> dict[str, Any]:
        # what is declared is known by name alone, without reading its source
        names = [models.store_folder_of(model) for model in self._given]
        if self._args.get("remove_unused"):
            self._all_here("nothing was removed")
        keep = [*names, *(self._args.get("keep") or [])]
        told = {"models": [], "declared": names, "keep": keep, "in_use": self._in_use()}
        return self.execute("model_prune", {**self._args, **told})
