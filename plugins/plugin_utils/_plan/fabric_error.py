# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the inventory's fabric variables."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding


class FabricError(ValueError):
    """A fault in the inventory: which variable, on which host, with which value, and what fixes it."""

    def __init__(self, variable: str, value: object, problem: str, fix: str, host: str = "") -> None:
        where = f" of host {host}" if host else ""
        shown = "undefined" if value is None else f"{value!s}"
        self.finding = Finding("fabric", f"{variable}{where} is {shown}: {problem}", fix, where=variable)
        super().__init__(str(self.finding))
