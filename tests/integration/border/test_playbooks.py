# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook that asks hosts, with one that lies in all it says: it decides nothing, and writes nothing."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest

from tests.integration.border.conftest import Border, node
from tests.integration.border.lies import ACTED_ON, FORGED, NAMES, SHAPES
from tests.integration.border.test_facts import assert_none_counts, kept
from tests.unit import honest_host

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
    "drift": ("--check",),
    "report": ("-e", "report_path=report.html"),
    "status": ("-e", "status_output=json", "-e", "status_output_file=status.json"),
}
PLAYBOOKS = (
    *("capture", "doctor", "drain", "drift", "host_layer", "keys", "models", "monitoring", "reboot", "report"),
    *("restart", "rollback", "site", "start", "status", "stop", "switch_model", "update", "upgrade", "verify"),
)


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


def told_in(border: Border, playbook: str) -> str:
    """What a playbook that only reads wrote of its hosts."""
    return (border.home / MAY[playbook][0]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("playbook", "module", "key"),
    [("status", "node_info", "status"), ("report", "node_info", "status"), ("doctor", "evidence_info", "evidence")],
)
@pytest.mark.parametrize("whole", [True, False], ids=["all of it", "a part of it"])
def test_a_malformed_answer_is_its_own_hosts_failure(
    border: Border, playbook: str, module: str, key: str, whole: bool
) -> None:
    """The playbooks that only read go on for all others, and say whose answer it is and what is wrong with it."""
    border.inventory({"one": {}, "two": {}}, fabric_topology="lan")
    parts = {"status": ("memory", honest_host.status), "evidence": ("rdma", honest_host.evidence)}
    part, read = parts[key]
    for number, host in enumerate(border.hosts, 1):
        border.answers(host, {module: {key: read(number)}})
    wrong = SHAPES[0] if whole else {**read(1), part: SHAPES[2]}
    border.answers("one", {module: {key: wrong}})
    output = border.play(f"sparkthor.cluster.{playbook}", *WORDS[playbook])
    assert "Traceback" not in output, output
    assert "failed=0" in output, output
    text = told_in(border, playbook)
    field = key if whole else f"{key}.{part}"
    assert re.search(rf"host one: what it answered to {module} cannot be used: {field}\b", text), output
    assert "--limit" in text
    if playbook == "status":
        assert {host: found["reachable"] for host, found in json.loads(text)["hosts"].items()} == {
            "one": False,
            "two": True,
        }
    if playbook == "doctor":
        states = {host: state["state"] for host, state in json.loads(text)["hosts"].items()}
        assert states == {"one": "unreadable", "two": "read"}


def test_malformed_facts_stop_a_run_before_anything_is_changed(border: Border) -> None:
    kept(border, fabric_topology="lan", model_store_models=[], firewall_sources=[], serving_groups=[])
    bad = {**node(0), "interfaces": [{"name": "eth0"}]}
    for number, host in enumerate(border.hosts):
        told = bad if host == "one" else node(number)
        border.answers(host, {"node_info": {"ansible_facts": {"sparkthor_node": told}}})
    output = border.play("sparkthor.cluster.site", "--tags=firewall")
    assert "Traceback" not in output
    assert re.search(
        r"Nothing was changed: .*host one: .*node_info cannot be used: "
        r"ansible_facts\.sparkthor_node\.interfaces\[0\]\.\w+ is absent",
        " ".join(output.split()),
    ), output
    for host in border.hosts:
        asked = (border.hosts[host] / "asked.jsonl").read_text(encoding="utf-8")
        assert {json.loads(line)["module"] for line in asked.splitlines()} == {"node_info"}


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_host_that_lies_changes_nothing_of_the_controller(border: Border, playbook: str) -> None:
    shape = SHAPES[PLAYBOOKS.index(playbook) % len(SHAPES)]
    mine = kept(
        border,
        fabric_topology="lan",
        model_store_models=[],
        firewall_sources=[],
        serving_groups=[],
        vllm_serve_model="organisation/model",
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
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    # what verify measured is kept under the time at which it did
    changed = {name for name in changed if not (playbook == "verify" and name.startswith("inventory/.results/verify/"))}
    assert changed <= {*MAY.get(playbook, ())}


@pytest.mark.parametrize(("playbook", "said"), [("start", "mp"), ("restart", "{{ 1 }}"), ("rollback", "ray")])
def test_what_starts_the_ranks_is_each_hosts_own_word(border: Border, playbook: str, said: str) -> None:
    """A host whose ranks Ray starts, as it says, has Ray started there, and nowhere else; no third word is taken."""
    border.inventory({name: {} for name in ("one", "two", "three")}, fabric_topology="lan")
    kept = {"configurations": [{"name": "a", "digest": "b", "about": {}}], "machine": "", "ready": True}
    kept |= {"beside": [], "beside_since": [], "names": ""}
    for number, (host, executor) in enumerate({"one": said, "two": "ray", "three": "mp"}.items()):
        told: dict[str, Any] = {"node_info": {"ansible_facts": {"sparkthor_node": node(number)}}}
        told |= {"controller_lock": {"since": "now"}, "vllm_service": {**kept, "executor": executor}}
        border.answers(host, told)
    output = border.play(f"sparkthor.cluster.{playbook}")
    asked = {
        host: any("sparkthor-ray.service" in json.dumps(call) for call in border.asked(host, "host_state"))
        for host in border.hosts
    }
    assert "Traceback" not in output
    assert asked == {"one": said == "ray", "two": True, "three": False}, output
    refused = "host one: what it answered to vllm_service cannot be used: executor is "
    assert (refused in " ".join(output.split())) is (said == "{{ 1 }}"), output
