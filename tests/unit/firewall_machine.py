# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An nft that holds one table and a systemd that notes its timers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_host, firewall_watch

from tests.unit import role_state
from tests.unit.clock import Clock

FABRIC = {
    host: {
        "links": [{"netdev": "enp1s0f1np1", "subnet": "10.0.0.0/24", "address": f"10.0.0.{number}/24"}],
        "trusted_netdevs": ["enp1s0f1np1"],
        **{"control_netdev": "enp1s0f1np1", "control_address": f"10.0.0.{number}"},
    }
    for number, host in enumerate(("one", "two"), 1)
}
NODE = {"ssh_port": 22, "binaries": {"nft": "/usr/sbin/nft"}}


def declared(**given: Any) -> dict[str, Any]:
    """What the role's own task tells the module, on a worker unless something else is given."""
    known = {"sparkthor_fabric": FABRIC, "sparkthor_cluster": {"head": "two"}}
    facts = {"sparkthor_node": NODE}
    return {
        "ruleset": "/etc/sparkthor/firewall.nft",
        **role_state.state("firewall", **{**known, "ansible_facts": facts, **given}),
    }


def ruleset(**given: Any) -> str:
    """The text of the ruleset on such a host."""
    found = declared(**given)
    return next(file["content"] for file in found["files"] if file["path"] == found["ruleset"])


@dataclass
class Machine:
    """What the kernel holds, what was run, and what is to fail."""

    folder: Path
    table: str = ""
    log: list[str] = field(default_factory=list)
    refuse: str = ""
    files_differ: bool = True
    declared: list[dict[str, Any]] = field(default_factory=list)
    armed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def run(self, argv: list[str], timeout: float, stdin: str | None = None) -> tuple[int, str, str]:
        words = [word.rpartition("/")[2] for word in argv]
        line = " ".join(words)
        if "list" in words:
            return self._list(words)
        if words[0] == "unshare":
            self.log.append("trial")
            text = self._table_of(argv[-1])
            return self._answer("trial", f"{text}#json\n{self._json(text)}")
        if "--check" in words:
            return self._answer("check")
        if words[:2] == ["nft", "-f"]:
            self.log.append(f"load {words[-1]}")
            if self.refuse == f"load {words[-1]}":
                return 1, "", "Operation not permitted"
            self.table = self._table_of(argv[-1])
            return 0, "", ""
        if words[:2] == ["nft", "delete"]:
            self.log.append("delete")
            self.table = ""
            return self._answer("delete")
        if words[0] == "systemd-run":
            self.log.append("arm " + next(word for word in words if word.startswith("--on-active")).partition("=")[2])
            self.armed = words
            return self._answer("arm")
        if words[:2] == ["systemctl", "stop"]:
            self.log.append("disarm")
            self.stopped = words[2:]
            return 0, "", ""
        raise AssertionError(line)

    def _answer(self, what: str, out: str = "") -> tuple[int, str, str]:
        return (1, "", "Operation not permitted") if self.refuse == what else (0, out, "")

    def _list(self, words: list[str]) -> tuple[int, str, str]:
        if self.refuse == "list":
            return 1, "", "Operation not permitted"
        if not self.table:
            return 1, "", "Error: No such file or directory"
        return 0, self._json(self.table) if "-j" in words else self.table, ""

    @staticmethod
    def _table_of(path: str) -> str:
        """What is left of a ruleset once it has replaced our table."""
        return Path(path).read_text().partition("delete table inet sparkthor\n")[2]

    @staticmethod
    def _json(text: str) -> str:
        return json.dumps({"nftables": [{"metainfo": {}}, *({"rule": line} for line in text.splitlines())]})

    def host_state(self, wanted: Any, host: Any, check: bool) -> Any:
        """In place of HostState: says what was declared."""
        self.declared.append({"wanted": wanted, "check": check})
        if not check:
            self.log.append("files")
        changed = self.files_differ
        return SimpleNamespace(
            run=lambda: SimpleNamespace(
                changed=changed, diff=[], changed_paths=["/etc/sparkthor/firewall.nft"] * changed, changed_units=[]
            )
        )


def replaced(folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Machine:
    """The machine, in place of the one that the firewall would be changed on."""
    made = Machine(folder)
    monkeypatch.setattr(firewall_host, "run_limited", made.run)
    monkeypatch.setattr(firewall_host, "HostState", made.host_state)
    monkeypatch.setattr(firewall_host, "RUN", str(made.folder))
    monkeypatch.setattr(firewall_watch, "find_nft", lambda: "/usr/sbin/nft")
    monkeypatch.setattr(firewall_host, "time", clock)
    monkeypatch.setattr(
        firewall_host,
        "write_atomic",
        lambda path, content, uid, gid, mode: (Path(path).write_bytes(content), Path(path).chmod(mode)),
    )
    return made
