# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_watch
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_watch import (
    NOT_LOADED,
    Watch,
    canonical,
    compare,
    difference,
    unconfirmed,
)

from tests.unit.clock import Clock

NFT = "/usr/sbin/nft"


def listing(elements: list[str], handle: int) -> str:
    match = {"left": {"payload": {"protocol": "ip", "field": "saddr"}}, "op": "==", "right": {"set": elements}}
    return json.dumps(
        {
            "nftables": [
                {"metainfo": {"version": "1.1.3"}},
                {"table": {"family": "inet", "name": "sparkthor", "handle": handle}},
                {"rule": {"chain": "input", "handle": handle + 1, "expr": [{"match": match}, {"accept": None}]}},
            ]
        }
    )


def test_listings_are_compared_without_handles_and_set_order() -> None:
    one = canonical(listing(["10.0.0.1", "10.0.0.2"], 1))
    assert one == canonical(listing(["10.0.0.2", "10.0.0.1"], 40))
    assert one != canonical(listing(["10.0.0.1"], 1))
    assert len(one) == 2


def test_a_difference_is_said_in_words() -> None:
    assert difference(["a"], ["a"]) == ""
    assert difference(["a"], []) == NOT_LOADED
    assert "1 of its parts are missing, 2 are not ours" in difference(["a", "b"], ["a", "x", "y"])


@dataclass
class Kernel:
    """One table, a file that is loaded into it, and what is to fail."""

    folder: Path
    table: list[str] = field(default_factory=list)
    loads: int = 0
    refuse: str = ""
    handle: int = 0

    @property
    def rules(self) -> Path:
        return self.folder / "firewall.nft"

    @property
    def armed(self) -> Path:
        return self.folder / "armed.json"

    @property
    def state(self) -> dict[str, Any]:
        return json.loads((self.folder / "state.json").read_text())

    def ask(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[0] == "unshare":
            if self.refuse == "unshare":
                return 1, "", "unshare failed: Operation not permitted"
            return 0, self._json(self.rules.read_text().split()), ""
        assert argv[0] == NFT
        if "list" in argv:
            if self.refuse == "list":
                return 1, "", "Operation not permitted"
            return (0, self._json(self.table), "") if self.table else (1, "", "Error: No such file or directory")
        assert argv[1:] == ["-f", str(self.rules)]
        self.loads += 1
        if self.refuse == "load":
            return 1, "", "syntax error"
        self.table = self.rules.read_text().split()
        return 0, "", ""

    def _json(self, rules: list[str]) -> str:
        self.handle += 10
        return listing(rules, self.handle)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path)
    made.rules.write_text("10.0.0.1 10.0.0.2\n")
    return made


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def watch(kernel: Kernel, said: list[str]) -> Watch:
    paths = {"rules": str(kernel.rules), "armed": str(kernel.armed), "state": str(kernel.folder / "state.json")}
    return Watch(NFT, kernel.ask, say=said.append, **paths)


def test_what_is_loaded_is_left_alone(kernel: Kernel, watch: Watch, said: list[str]) -> None:
    kernel.table = ["10.0.0.1", "10.0.0.2"]
    assert watch.check()
    # to learn what the kernel makes of the file
    assert kernel.loads == 2
    assert watch.check()
    assert (kernel.loads, watch.reloads, said) == (2, 0, [])
    assert kernel.state["closed"] is True
    assert os.stat(kernel.folder / "state.json").st_mode & 0o777 == 0o644


def test_an_empty_file_closes_nothing(kernel: Kernel, watch: Watch, said: list[str]) -> None:
    kernel.rules.write_text("")
    assert not watch.check()
    assert kernel.state["closed"] is False
    assert said[0].startswith("THE FIREWALL IS OPEN: ")


@pytest.mark.parametrize(("table", "word"), [([], NOT_LOADED), (["10.0.0.1", "0.0.0.0"], "is another one")])
def test_what_was_flushed_or_changed_comes_back(
    kernel: Kernel, watch: Watch, said: list[str], table: list[str], word: str
) -> None:
    watch.check()
    said.clear()
    kernel.table = table
    assert watch.check()
    assert kernel.table == ["10.0.0.1", "10.0.0.2"]
    assert (kernel.loads, kernel.state["closed"], kernel.state["reloads"]) == (4, True, 2)
    assert len(said) == 1
    assert word in said[0]
    assert said[0].endswith("loaded it again")


def test_a_new_file_is_loaded_and_is_what_counts_from_then_on(kernel: Kernel, watch: Watch) -> None:
    watch.check()
    kernel.rules.write_text("10.0.0.9\n")
    assert watch.check()
    assert kernel.table == ["10.0.0.9"]
    loads = kernel.loads
    assert watch.check()
    assert kernel.loads == loads


def test_an_unconfirmed_change_is_left_alone_until_its_time_is_over(
    kernel: Kernel, watch: Watch, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(firewall_watch, "time", clock)
    watch.check()
    kernel.armed.write_text(json.dumps({"until": 60.0}))
    kernel.table = ["10.0.0.7"]
    assert watch.check()
    assert kernel.table == ["10.0.0.7"]
    assert kernel.state["closed"] is True
    clock.now = 61.0
    assert watch.check()
    assert kernel.table == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"until": "x"}', '{"until": null}'])
def test_a_note_that_says_no_time_protects_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "armed.json").write_text(text)
    assert not unconfirmed(str(tmp_path / "armed.json"), 0.0)


@pytest.mark.parametrize(("refuse", "word"), [("load", "cannot load"), ("list", "cannot list")])
def test_what_cannot_be_closed_is_said_once_and_published(
    kernel: Kernel, watch: Watch, said: list[str], refuse: str, word: str
) -> None:
    kernel.refuse = refuse
    assert not watch.check()
    assert not watch.check()
    assert len(said) == 1
    assert word in said[0]
    assert kernel.state["closed"] is False
    assert word in kernel.state["reason"]
    kernel.refuse = ""
    assert watch.check()
    assert said[-1] == "the firewall is closed"


def test_a_file_that_is_gone_is_said(kernel: Kernel, watch: Watch) -> None:
    kernel.rules.unlink()
    assert not watch.check()
    assert "No such file" in kernel.state["reason"]


@pytest.mark.parametrize("planted", [[], ["10.0.0.1", "10.0.0.2", "0.0.0.0"]])
def test_what_is_done_between_a_load_and_its_listing_is_not_taken_for_wanted(
    kernel: Kernel, said: list[str], planted: list[str]
) -> None:
    """Found on a host: the rule that came in between stayed, because it was listed with the others."""
    moments = [planted]

    def ask(argv: list[str]) -> tuple[int, str, str]:
        answer = kernel.ask(argv)
        if "-f" in argv and moments:
            kernel.table = moments.pop()
        return answer

    watch = Watch(NFT, ask, str(kernel.rules), str(kernel.armed), str(kernel.folder / "state.json"), said.append)
    assert not watch.check()
    assert said == ["THE FIREWALL IS OPEN: somebody changes the table inet sparkthor as soon as it is loaded"]
    assert watch.check()
    assert kernel.table == ["10.0.0.1", "10.0.0.2"]
    assert watch.wanted == canonical(listing(kernel.table, 1))


@pytest.mark.parametrize(
    ("table", "refuse", "state"),
    [
        (["10.0.0.1", "10.0.0.2"], "", "closed"),
        (["10.0.0.2", "10.0.0.1"], "", "closed"),
        ([], "", "open"),
        (["10.0.0.1"], "", "open"),
        (["10.0.0.1"], "list", "unknown"),
        (["10.0.0.1"], "unshare", "unknown"),
    ],
)
def test_whoever_asks_gets_the_loaded_table_beside_the_file(
    kernel: Kernel, table: list[str], refuse: str, state: str
) -> None:
    kernel.table, kernel.refuse = table, refuse
    found = compare(kernel.ask, str(kernel.rules), NFT)
    assert found["state"] == state
    assert bool(found["reason"]) == (state != "closed")
    assert kernel.loads == 0


def test_without_a_file_nothing_is_managed(kernel: Kernel) -> None:
    kernel.rules.unlink()
    assert compare(kernel.ask, str(kernel.rules), NFT)["state"] == "unmanaged"


def test_an_announcement_ends_the_wait_and_is_forgotten() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        there.send(b"changed")
        firewall_watch.wait(here, 600)
        with pytest.raises(BlockingIOError):
            here.recv(1)


def test_a_command_neither_hangs_nor_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    assert firewall_watch.run(["sh", "-c", "echo out; exit 3"]) == (3, "out\n", "")
    assert firewall_watch.run(["/nonexistent"])[0] == 127
    monkeypatch.setattr(firewall_watch, "COMMAND_LIMIT", 0.05)
    assert firewall_watch.run(["sleep", "5"])[0] == 124
