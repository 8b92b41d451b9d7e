# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.believed import believed

PYTHON = "discovered_interpreter_python"


@pytest.mark.parametrize("key", ["ansible_facts", "ansible_stats", "add_host", "add_group"])
def test_what_ansible_obeys_is_dropped(key: str) -> None:
    assert believed({"changed": True, key: {"model_store_models": ["/root/.ssh"]}}) == {"changed": True}


@pytest.mark.parametrize("told", [None, "text", ["sparkthor_node"], 7])
def test_facts_that_are_none_are_dropped(told: Any) -> None:
    assert believed({"ansible_facts": told}, ("sparkthor_node",)) == {}


def test_the_facts_that_a_module_reads_are_kept() -> None:
    told = {"sparkthor_node": {"kind": "spark"}, "firewall_sources": ["0.0.0.0/0"], "inventory_dir": "/forged"}
    assert believed({"ansible_facts": told}, ("sparkthor_node",)) == {
        "ansible_facts": {"sparkthor_node": {"kind": "spark"}}
    }


def test_what_the_controller_alone_says_is_dropped() -> None:
    assert believed({"wheels": {"model": {"source": "/root/.ssh"}}, "need": []}, own=("wheels",)) == {"need": []}


@pytest.mark.parametrize(
    ("fact", "path", "own", "kept"),
    [
        (PYTHON, "/usr/bin/python3.12", True, True),
        # a task that is done once, or for another host
        (PYTHON, "/usr/bin/python3.12", False, False),
        (PYTHON, "/bin/sh -c 'touch /tmp/x' #", True, False),
        (PYTHON, "python3", True, False),
        (PYTHON, ["/usr/bin/python3"], True, False),
        ("ansible_python_interpreter", "/usr/bin/python3", True, False),
    ],
)
def test_only_a_host_itself_says_where_its_python_is(fact: str, path: Any, own: bool, kept: bool) -> None:
    found = believed({"ansible_facts": {fact: path}}, of_this_host=own)
    assert found == ({"ansible_facts": {fact: path}} if kept else {})
