# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``discover``: documented in plugins/modules/discover.py."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding, nothing_changed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import (
    candidates,
    host_keys,
    inventory_text,
    lanes,
    picture,
    proposal,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.screen import table

#: of the system itself, or of a directory: name@domain, DOMAIN\\name
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]*\$?")


class ActionModule(ClusterAction):
    ARGUMENTS = {
        "stage": {"type": "str", "choices": ["find", "keys", "propose"], "required": True},
        "addresses": {"type": "list", "elements": "str", "default": []},
        "port": {"type": "int", "default": 22},
        "topology": {"type": "str", "choices": ["", "direct", "ring", "line", "switch", "lan"], "default": ""},
        "inventory": {"type": "path", "default": ""},
        "known_hosts": {"type": "path", "default": "~/.ssh/known_hosts"},
        "fingerprints": {"type": "dict", "default": {}},
        "group": {"type": "str", "default": "discovered"},
        "nodes": {"type": "str", "default": ""},
        "neighbours": {"type": "str", "default": ""},
    }
    ERRORS = (FabricError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given = arguments
        if given["stage"] == "propose":
            return self._propose(given)
        self._check_place(given["inventory"])
        found, notes = candidates.find(given["addresses"], given["port"], lambda argv: run_limited(argv, 10))
        if given["stage"] == "keys":
            return self._keys(given, found)
        self._show([f"{len(found)} machines answer on the ssh port", *notes])
        return {
            "changed": False,
            "candidates": [{"address": one.address, "name": one.name, "given": one.given} for one in found],
        }

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            self.tell(f"  {line}")

    @staticmethod
    def _check_place(folder: str) -> None:
        """Refuse a folder in which somebody keeps an inventory; nothing but a former picture is overwritten."""
        names = [inventory_text.HOSTS, inventory_text.VARIABLES] if folder else []
        there = [path for name in names if os.path.lexists(path := os.path.join(folder, name))]
        drawn = picture.beside(folder)
        if folder and os.path.lexists(drawn) and not picture.is_own(drawn):
            there.append(drawn)
        if there:
            what = f"{', '.join(there)} is there already, and is not overwritten"
            finding = Finding(
                "inventory", what, "name another folder, or move the old one away", where="discover_inventory"
            )
            raise AnsibleActionFail(nothing_changed([finding]))

    def _keys(self, given: Mapping[str, Any], found: list[candidates.Candidate]) -> dict[str, Any]:
        offers, findings = host_keys.collect(
            [host_key.address for host_key in found],
            given["port"],
            given["known_hosts"],
            given["fingerprints"],
            lambda argv, text="": run_limited(argv, 15, text),
        )
        if findings:
            raise AnsibleActionFail(nothing_changed(findings))
        names = {host_key.address: host_key.name for host_key in found}
        rows = [[offer.address, names[offer.address], offer.fingerprint, offer.state] for offer in offers]
        self._show(table([["ADDRESS", "NAME", "HOST KEY (ED25519)", ""], *rows]))
        return {
            "changed": False,
            "addresses": [offer.address for offer in offers],
            "new": [{"host": offer.host, "line": offer.line} for offer in offers if offer.state != "known"],
            "unconfirmed": [offer.address for offer in offers if offer.state == "new"],
        }

    def _propose(self, given: Mapping[str, Any]) -> dict[str, Any]:
        machines, rows = self._machines(given)
        machines, notes = proposal.once(machines)
        offer = proposal.propose(machines, given["topology"])
        cables = proposal.Cables([machine for machine in machines if machine.kind == "spark"])
        by_lane = lanes.ends([machine for machine in machines if machine.kind == "thor"])
        for machine in machines:
            spark = machine.kind == "spark"
            places = [cables.words(machine.name, cage) if spark else "" for cage in proposal.CAGES]
            places = [lanes.words(machine, by_lane), ""] if machine.kind == "thor" else places
            product = str(machine.node.get("product") or "")[:32]
            rows.append([machine.address, machine.name, machine.kind, product, *places])
        self._show(["", *table([["ADDRESS", "NAME", "KIND", "PRODUCT", "CAGE 0", "CAGE 1"], *rows]), ""])
        if any(cables.ends.values()):
            self._show(
                ["cabled (p0 is the cage next to the RJ45 port):", *(f"  {row}" for row in cables.drawing()), ""]
            )
        if any(by_lane.values()):
            self._show(["lanes of QSFP cages:", *(f"  {row}" for row in cabling.sketch_lanes(by_lane)), ""])
        self._show([*notes, *offer.notes, *(f"left out: {one.name}: {reason}" for one, reason in offer.left_out)])
        if offer.findings:
            raise AnsibleActionFail(nothing_changed(offer.findings))
        user = str(self.vars.get("ansible_user") or "")
        if user and not _USER.fullmatch(user):
            what = "is no user name that can be written into an inventory"
            fix = "give one of letters, digits and . _ @ \\ + - (ansible-playbook -u USER)"
            raise AnsibleActionFail(nothing_changed([Finding("user", what, fix, where="ansible_user", value=user)]))
        texts = inventory_text.files(offer, user, given["port"])
        names = ", ".join(f"{machine.name} {machine.kind}" for machine in offer.hosts)
        self._show([f"proposal: {offer.topology} of {len(offer.hosts)}: {names}; head {offer.hosts[0].name}"])
        written = self._write(given["inventory"], texts, offer)
        return {**written, "topology": offer.topology, "files": texts}

    def _write(self, folder: str, texts: Mapping[str, str], offer: proposal.Proposal) -> dict[str, Any]:
        if not folder:
            self._show(["to write it as an inventory: -e discover_inventory=inventories/NAME"])
            return {"changed": False}
        self._check_place(folder)
        drawn = picture.beside(folder)
        if not self._task.check_mode:
            # who looks at it sees a wrong cable before there is an inventory
            Path(drawn).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(drawn, picture.drawn(offer))
            self._show([f"picture of what is cabled: {drawn}"])
            for name, text in texts.items():
                self._write_new(Path(folder, name), text)
            self._show([f"written to {folder}: read it, choose a model, then ansible-playbook -i {folder} site.yml"])
        return {"changed": True, "picture": drawn}

    @staticmethod
    def _write_new(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as handle:
            handle.write(text)

    def _machines(self, given: Mapping[str, Any]) -> tuple[list[proposal.Machine], list[list[str]]]:
        """Those that let us in, and table rows of the others; one that was asked for by name must let us in."""
        machines, rows, findings = [], [], []
        for address in self.vars["groups"].get(given["group"], []):
            known = self.vars["hostvars"][address]
            outcome = known.get(given["nodes"]) or {}
            node = (outcome.get("ansible_facts") or {}).get("sparkthor_node")
            if node and not outcome.get("unreachable"):
                seen = (known.get(given["neighbours"]) or {}).get("neighbours_seen") or {}
                machines.append(proposal.Machine(address, node, seen, bool(known.get("discover_given"))))
                continue
            message = " ".join(str(outcome.get(key, "")) for key in ("msg", "module_stderr"))
            user = str(self.vars.get("ansible_user") or "")
            why = inventory.explain_contact(address, address, user, message)
            if known.get("discover_given"):
                findings.append(why)
            rows.append([address, str(known.get("discover_name") or ""), "-", why.what, "", ""])
        if findings:
            raise AnsibleActionFail(nothing_changed(findings))
        looking = sum(machine.kind in ("spark", "thor") for machine in machines)
        forks = int(self.vars.get("ansible_forks") or 5)
        if forks < len(self.vars["groups"].get(given["group"], [])) and looking > 1:
            what = f"{forks} is less than the machines that look at each other's cables at the same time"
            fix = f"run with --forks={len(self.vars['groups'][given['group']])} or more"
            raise AnsibleActionFail(nothing_changed([Finding("forks", what, fix, where="forks")]))
        return machines, rows
