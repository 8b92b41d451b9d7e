# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What the head's program publishes of its group, for the watchdog and ``vllm_service``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from .._lib import files, foreign
from . import patience

STATE = "/run/sparkthor/vllm/group.json"


def published(path: str = STATE, wall: Callable[[], float] = time.time) -> dict[str, Any]:
    """The head's view, empty where it is absent or no longer kept up."""
    state = files.read_json(path)
    return state if kept_up(state, wall()) else {}


def kept_up(state: Mapping[str, Any], now: float, seconds: float = 30.0) -> bool:
    """Whether who keeps a state file wrote it lately; any value may stand there."""
    try:
        return abs(now - foreign.number(state.get("updated"))) < seconds
    except foreign.ForeignError:
        return False


def signs(path: str = STATE) -> dict[str, patience.Signs]:
    """What each host shows of its rank, by host name; asked for only while the watchdog waits for a token."""
    found = published(path).get("signs")
    return (
        {str(key): patience.Signs.from_dict(value) for key, value in found.items()} if isinstance(found, dict) else {}
    )


def ranks(path: str = STATE) -> dict[str, str] | None:
    """Address of each host that is here -> what changes when its rank is another one; None = nobody knows."""
    found = published(path).get("ranks")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else None
