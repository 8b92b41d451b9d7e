# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of an environment file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import MARKER


def environment_text(variables: Mapping[str, Any]) -> str:
    """An EnvironmentFile= of systemd with every value in double quotes, which systemd reads as a shell does."""
    lines = [MARKER]
    for name in ordered(variables):
        value = str(variables[name])
        for special in ("\\", '"', "`", "$"):
            value = value.replace(special, "\\" + special)
        lines.append(f'{name}="{value}"')
    return "\n".join(lines) + "\n"


def ordered(names: Iterable[str]) -> list[str]:
    """Sorted as people do, whatever the case."""
    return sorted(names, key=str.lower)
