# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a host answers, in the form of an answer or not, the terminal gets text."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.integration.border.conftest import Border
from tests.integration.border.lies import ACTED_ON, HOSTILE

ANSWERS: dict[str, dict[str, Any]] = {
    "a failure": {"failed": True, "msg": HOSTILE, "exception": HOSTILE, "stdout": HOSTILE},
    "warnings": {"warnings": [HOSTILE], "deprecations": [{"msg": HOSTILE, "version": "9"}]},
    "a difference": {"changed": True, "diff": {"before": HOSTILE, "after": "", "before_header": HOSTILE}},
    "keys": {HOSTILE: 1, f"_ansible_{HOSTILE}": HOSTILE, "ansible_facts": {f"ansible_ssh_{HOSTILE}": 1}},
    "kinds": {"failed": HOSTILE, "changed": HOSTILE, "skipped": HOSTILE, "warnings": HOSTILE, "diff": HOSTILE},
    "away": {"unreachable": True, "msg": HOSTILE},
    "left out": {"skipped": True, "skip_reason": HOSTILE, "msg": HOSTILE},
    "no answer": {"raw": {"instead": HOSTILE, "error": HOSTILE, "rc": 1}},
    "no program": {"raw": {"instead": "", "error": f"{HOSTILE}: not found", "rc": 127}},
    "words before": {"raw": {"before": HOSTILE}},
    "words after": {"raw": {"after": HOSTILE}},
}


@pytest.mark.parametrize("words", [(), ("--diff", "-v")], ids=["", "diff"])
def test_a_terminal_gets_text(border: Border, words: tuple[str, ...]) -> None:
    """A host for every answer, so that one run shows them all."""
    hosts = {said.replace(" ", "_"): answer for said, answer in ANSWERS.items()}
    border.inventory({host: {} for host in hosts})
    for host, answer in hosts.items():
        border.answers(host, {"*": answer})
    stat = {"module": "stat", "arguments": {"path": "/"}}
    calls = {"sparkthor.cluster.host_state": {"absent": ["/nowhere"]}, "sparkthor.cluster.host_builtin": stat}
    goes_on = {"ignore_errors": True, "ignore_unreachable": True}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{name: args, **goes_on} for name, args in calls.items()]}
    playbook = border.home / "play.yml"
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    output = border.play(playbook, *words)
    for host in hosts:
        assert border.asked(host, "stat"), output
    shown = [line for line in output.split("\n") if ACTED_ON.search(line)]
    assert not shown
