# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook that asks hosts, with one that lies in all it says: it decides nothing, and writes nothing."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.integration.border.conftest import Border, node
from tests.integration.border.test_facts import FORGED, assert_none_counts, kept
from tests.integration.border.test_terminal import ACTED_ON, HOSTILE

#: what a playbook may write beside the inventory
MAY: dict[str, tuple[str, ...]] = {
    "capture": ("capture.tar.gz",),
    "doctor": ("doctor.json",),
    "report": ("report.html",),
    "status": ("status.json",),
}
WORDS: dict[str, tuple[str, ...]] = {
    "capture": ("-e", "capture_file=capture.tar.gz"),
    "doctor": ("-e", "doctor_json=doctor.json"),
    "report": ("-e", "report_file=report.html"),
    "status": ("-e", "output=json", "-e", "output_file=status.json"),
}
PLAYBOOKS = (
    *("capture", "doctor", "drain", "drift", "host_layer", "keys", "models", "monitoring", "reboot", "report"),
    *("restart", "rollback", "site", "start", "status", "stop", "switch_model", "upgrade", "verify"),
)
NAMES = ("status", "evidence", "capture", "configurations", "need", "models", "results", "converged", "drift", "probe")
#: answers that are no answers to what was asked
SHAPES: tuple[Any, ...] = ({HOSTILE: {HOSTILE: HOSTILE}}, HOSTILE, [HOSTILE])


def files(border: Border) -> dict[str, str]:
    """What lies on the controller, but for what stands for the hosts and what Ansible keeps of its own."""
    own = [path for path in border.home.rglob("*") if path.is_file()]
    ours = {str(path.relative_to(border.home)): path for path in own if border.home / "hosts" not in path.parents}
    left_out = (".ansible/", ".cache/", "variables.json", "inventory/.secrets/")
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in ours.items()
        if not name.startswith(left_out)
    }


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_host_that_lies_changes_nothing_of_the_controller(border: Border, playbook: str) -> None:
    shape = SHAPES[PLAYBOOKS.index(playbook) % len(SHAPES)]
    mine = kept(
        border,
        fabric_topology="lan",
        model_store_models=[],
        firewall_sources=[],
        serving_groups=[],
        engine_requirements=str(border.home / "none.txt"),
    )
    for number, host in enumerate(border.hosts):
        told: dict[str, Any] = {"node_info": {"ansible_facts": {"sparkthor_node": node(number)}}}
        # nobody waits for a model
        told |= {"controller_lock": {"since": "now"}, "vllm_service": {"ready": True}}
        # the head is the host that is asked most, and the first of every play
        if host == "one":
            told["*"] = {"ansible_facts": FORGED, **dict.fromkeys(NAMES, shape)}
        border.answers(host, told)
    before = files(border)
    output = border.play(f"sparkthor.cluster.{playbook}", *WORDS.get(playbook, ()), watched=tuple(FORGED))
    assert (border.hosts["one"] / "asked.jsonl").read_text(encoding="utf-8"), output
    assert_none_counts(border, mine, ("sparkthor_node", "sparkthor_engine"))
    assert not [line for line in output.split("\n") if ACTED_ON.search(line)]
    after = files(border)
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} <= {*MAY.get(playbook, ())}
