# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import units

DOWN = {"active": "inactive", "sub": "dead", "enabled": "enabled", "result": "success", "restarts": 0}


def test_the_head_says_what_is_quiet_and_groups_beside_are_its_own() -> None:
    serving: dict[str, Any] = {"maintenance": "a person", "beside": {"embed": {"maintenance": "asleep"}, "ocr": {}}}
    found = units.paused([["a", "b"], ["c", "d"]], {"a": {"serving": serving}})
    assert found == {
        "a": {"sparkthor-vllm", "sparkthor-watchdog", "sparkthor-vllm-embed", "sparkthor-watchdog-embed"},
        "b": {"sparkthor-vllm", "sparkthor-watchdog"},
        "c": set(),
        "d": set(),
    }


def test_what_is_quiet_or_is_told_with_the_firewall_is_not_missed() -> None:
    names = ("sparkthor-front", "sparkthor-vllm", "sparkthor-firewall-watch")
    (found,) = units.problems("a", dict.fromkeys(names, DOWN), {"sparkthor-vllm"})
    assert (found.host, found.what) == ("a", "sparkthor-front is inactive (dead), result success, 0 restarts")
