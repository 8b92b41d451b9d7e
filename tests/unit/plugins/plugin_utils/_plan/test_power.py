# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that switch power: what is refused, and what the guard on the head is given."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import power

OFF = ["/usr/bin/curl", "-fsS", "http://{outlet}/relay/0?turn=off"]
CLUSTER = {"hosts": ["a", "b", "c"], "head": "a"}
FABRIC = {
    "a": {"management_address": "192.168.1.1", "control_address": "10.0.0.1"},
    "b": {"management_address": "192.168.1.2", "control_address": "10.0.0.2"},
    "c": {"management_address": "192.168.1.3", "control_address": "192.168.1.3"},
}


def test_only_hosts_with_an_outlet_are_guarded_and_never_the_head() -> None:
    found = power.power_plan([OFF], {"a": "p1", "b": "p2"}, 900, 60, CLUSTER, FABRIC)
    assert found == {
        **{"after": 900, "pause": 60},
        "hosts": {
            "b": {
                "addresses": ["192.168.1.2", "10.0.0.2"],
                "commands": [["/usr/bin/curl", "-fsS", "http://p2/relay/0?turn=off"]],
            }
        },
    }


@pytest.mark.parametrize(("commands", "outlets"), [([], {"b": "p2"}), ([OFF], {}), ([OFF], {"a": "p1"})])
def test_it_is_off_without_both(commands: list[Any], outlets: dict[str, str]) -> None:
    assert power.power_plan(commands, outlets, 900, 60, CLUSTER, FABRIC) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({power.COMMANDS: ["curl http://x"]}, "a command is no list of words"),
        ({power.COMMANDS: [[]]}, "a command is no list of words"),
        ({power.COMMANDS: [["/bin/x", 7]]}, "a command is no list of words"),
        ({power.COMMANDS: [["curl", "http://x"]]}, "a program is not named by its path"),
        ({power.COMMANDS: [["/bin/x", "{plug}"]]}, "nobody knows what to put there"),
        ({power.OUTLETS: {"b": "p"}}, "there are outlets and no command"),
    ],
)
def test_what_cannot_be_run_is_named(given: dict[str, Any], words: str) -> None:
    (found,) = power.problems(given)
    assert found.where in (power.COMMANDS, power.OUTLETS)
    assert words in str(found)


def test_json_has_braces_as_well() -> None:
    assert list(power.problems({power.COMMANDS: [["/usr/bin/curl", "-d", '{"on": false}', "http://{outlet}"]]})) == []
    assert list(power.problems({})) == []
