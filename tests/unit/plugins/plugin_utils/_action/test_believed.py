# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.believed import believed, heard

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
    assert believed({"wheels": {"model": {"source": "/root/.ssh"}}, "need": []}, of_action=("wheels",)) == {"need": []}


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


HOSTILE = "\x1b]52;c;eA==\x07\x1b[?1049ha\u202eb\x9b2J\x08"
SHOWN = "a\ufffdb\ufffd"


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_answer_keeps_its_form_and_loses_what_a_terminal_acts_on(ascii_only: bool, indent: int | None) -> None:
    answer = {HOSTILE: [HOSTILE, 1.5, None], "sum": {"x": True}, "lines": "one\ntwo\tthree"}
    text = json.dumps(answer, ensure_ascii=ascii_only, indent=indent)
    found = heard(f"{HOSTILE}\n {text}\r\n{HOSTILE}\n")
    before, document, after, end = found.split("\n")
    assert (before, after, end) == (SHOWN, SHOWN, "")
    assert json.loads(document) == {SHOWN: [SHOWN, 1.5, None], "sum": {"x": True}, "lines": "one\ntwo\tthree"}


@pytest.mark.parametrize("levels", [1200, 5000, 100_000])
def test_a_document_that_nobody_can_walk_through_does_not_come_through(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    assert heard(f'before\n{{"a": "\\u001b[2J", "b": {deep}}}') == "before\na document that is nested too deeply"


@pytest.mark.parametrize("break_", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_no_break_of_a_line_hides_a_document(break_: str) -> None:
    found = heard(f'words{break_}{{"msg": "\\u001b[?1049h"}}')
    assert found == 'words\n{"msg": ""}'


@pytest.mark.parametrize(
    "text", ["", "active", "{", "}{", "{no json}", "[1]", "{" * 100_000 + "}", '{"a": 1}\n{"b": 2}']
)
def test_what_is_no_document_stays(text: str) -> None:
    assert heard(text) == text
