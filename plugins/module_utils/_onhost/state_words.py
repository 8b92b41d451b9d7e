# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible as well:
# pylint: disable=ansible-bad-function
"""What a serving group does, in the words that status.yml, the report and the page share.  Pure."""

from __future__ import annotations

SERVING = "serving"
LOADING = "loading"
STARTING = "starting"
DEGRADED = "degraded"
RESTARTING = "restarting"
DRAINING = "draining"
MAINTENANCE = "maintenance"
STOPPED = "stopped"
#: stopped until its model is asked for, where groups share a host on demand
ASLEEP = "asleep"
STATES = (SERVING, LOADING, STARTING, DEGRADED, RESTARTING, DRAINING, MAINTENANCE, STOPPED, ASLEEP)

#: nobody says how it is; nothing is set up to be served
UNKNOWN, ABSENT = "unknown", "absent"
#: serves without a host of its own
SMALLER = "smaller"
#: roles/console/files/page/words.js has the same for browsers
WORDS = {
    SERVING: "Serving",
    LOADING: "Loading",
    STARTING: "Starting",
    DEGRADED: "Not serving",
    SMALLER: "Serving the smaller model",
    RESTARTING: "Healing by itself",
    DRAINING: "Draining",
    MAINTENANCE: "Stopped for maintenance",
    STOPPED: "Stopped",
    ASLEEP: "Asleep",
    UNKNOWN: "Unknown",
    ABSENT: "Nothing is set up",
}


def word(state: str, healthy: bool = False) -> str:
    """For a person; a state that nobody here knows is its own word."""
    return WORDS.get(SMALLER if state == DEGRADED and healthy else state, state)
