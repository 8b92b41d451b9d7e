# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_image_pull``: which host pulls, how far it is, and what it wrote for the others."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_share
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.progress_line import ProgressLine, terminal
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import images
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record

#: seconds between two questions to a pull
ASK_EVERY = 2.0
#: questions in a row that may stay without an answer: an empty one does not say that the pull has ended
UNANSWERED = 30


class ActionModule(Action):
    ERRORS = (EngineError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        head = str((self.vars.get("sparkthor_cluster") or {}).get("head") or "")
        host, share = images.giver(images.results(self.vars, images.INSTALLED), head)
        if self.host != host:
            return {"changed": False}
        image = str(arguments["image"])
        record, name = Record(self.vars.get("inventory_dir")), images.tag_of(image, str(arguments.get("digest") or ""))
        if name:
            arguments["digest"] = images.first(host, name, [], record).digest
        begun = self.execute("engine_image_pull", arguments)
        if begun.get("failed"):
            return begun
        if begun["pulling"]:
            self._follow(image)
        if share:
            self.tell(f"sparkthor: {self.host}: {image}: is being written down for the other hosts")
        outcome = self.execute("engine_image_pull", {**arguments, "begun": True, "share": share})
        if outcome.get("failed"):
            return outcome
        images.keep_digest(self.host, name, outcome, record)
        if share:
            outcome["saved"] = {**images.saved(outcome.get("saved")), "of": image}
        return {**outcome, "changed": begun["changed"]}

    def _follow(self, image: str) -> None:
        """Show how far the pull is until its unit has ended; the call after it knows how."""
        begun = time.monotonic()
        line = ProgressLine(terminal(), self._display.display, self._display.columns)
        unanswered = 0
        while True:
            shown = self._low_level_execute_command(
                f"cat {image_share.LOG}; echo; systemctl is-active {image_share.UNIT}"
            )
            log, _newline, state = shown["stdout"].strip().rpartition("\n")
            unanswered = 0 if state else unanswered + 1
            if state.strip() != "active" and (state or unanswered > UNANSWERED):
                line.end()
                return
            if state:
                seconds = time.monotonic() - begun
                line.tell(f"{self.host}: {image}: {image_share.progress(log)} after {seconds:.0f} s")
            time.sleep(ASK_EVERY)
