# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the inventory's fabric variables."""

from __future__ import annotations


class FabricError(ValueError):
    """A fault in the inventory: which variable, on which host, with which value, and what fixes it."""

    def __init__(self, variable: str, value: object, problem: str, fix: str, host: str = "") -> None:
        self.variable = variable
        self.host = host
        self.value = value
        self.problem = problem
        self.fix = fix
        where = f" of host {host}" if host else ""
        shown = "undefined" if value is None else f"{value!s}"
        super().__init__(f"{variable}{where} is {shown}: {problem}. {fix}.")
