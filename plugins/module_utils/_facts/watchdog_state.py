# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a watchdog's state file says, as far as it can be believed.  Pure.

It is another user's, or of another version: a field of a wrong type is unknown, and makes nothing else useless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: seconds of an epoch or of a wait that some calendar has
_TIME_LIMIT = 10**11


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _TIME_LIMIT


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_remark(value: Any) -> bool:
    return value is None or isinstance(value, str)


_OF_STATE: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("state", "line", "detail"), _is_text),
    "healthy": lambda value: isinstance(value, bool),
    **dict.fromkeys(("since", "updated"), _is_time),
    **dict.fromkeys(("completion", "answers", "restarts"), lambda value: isinstance(value, dict)),
}
_OF_COMPLETION = dict.fromkeys(("seconds_ago", "latency", "median_latency", "deadline"), _is_time)
_OF_ANSWERS: Mapping[str, Callable[[Any], bool]] = {"asked": _is_count, "right": _is_count, "wrong": _is_remark}


def _known(given: Mapping[str, Any], fields: Mapping[str, Callable[[Any], bool]]) -> dict[str, Any]:
    """Without fields of a wrong type; what is not among the fields is nobody's business."""
    return {name: value for name, value in given.items() if name not in fields or fields[name](value)}


def believed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The state without what is of a wrong type."""
    state = _known(given, _OF_STATE)
    if "completion" in state:
        state["completion"] = _known(state["completion"], _OF_COMPLETION)
    # a part of the tasks would be another result
    if "answers" in state and _known(state["answers"], _OF_ANSWERS) != state["answers"]:
        del state["answers"]
    if "restarts" in state:
        state["restarts"] = {name: count for name, count in state["restarts"].items() if _is_count(count)}
    return state
