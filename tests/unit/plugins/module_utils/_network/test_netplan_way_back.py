# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back, while one thing after the other fails, hangs or answers nonsense."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import deadline
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_files
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

from tests.unit.clock import Clock
from tests.unit.plugins.module_utils._network.test_netplan_job import GLOBAL, Machine, state

#: the read and write functions of the standard library that restore a file
FILE_CALLS = ("rename", "unlink", "open", "fchmod", "fchown", "fsync", "lstat", "stat")


#: how one command goes wrong, and for how long: seconds that it takes
WRONG: dict[str, tuple[Callable[[list[str]], tuple[int, str, str]], float]] = {
    "fails": (lambda argv: (1, "", "RTNETLINK answers: Operation not permitted"), 0),
    "hangs": (lambda argv: (124, "", f"{argv[0]}: no answer within 20 s"), 20),
    "garbage": (lambda argv: (0, '[{"ifname": "mgmt0"', ""), 0),
    "nothing": (lambda argv: (0, "[]", ""), 0),
}


class Host(Machine):
    """The same machine, asked by commands alone: nothing of the job is replaced but how a command is run."""

    def __init__(self, folder: Path, clock: Clock, network_manager: bool = False) -> None:
        super().__init__(folder)
        self.clock = clock
        self.network_manager = network_manager
        if network_manager:
            self.network = folder / "system-connections" / "netplan-fab0.nmconnection"
        self.ran = 0
        #: the command that goes wrong by its number, or all that begin so, and how
        self.wrong: tuple[int | str, str] = (0, "")

    def run(self, argv: list[str], limit: float = 20) -> tuple[int, str, str]:
        self.ran += 1
        which, how = self.wrong
        if which == self.ran or (isinstance(which, str) and which and " ".join(argv).startswith(which)):
            answer, seconds = WRONG[how]
            self.clock.sleep(seconds)
            self.commands.append(f"{' '.join(argv)} ({how})")
            return answer(argv)
        if argv[:4] == ["ip", "-j", "address", "show"]:
            return 0, json.dumps([self._shown(name, link) for name, link in self.links.items()]), ""
        if argv[2:4] == ["route", "show"]:
            family = argv[1]
            return 0, "".join(f"{one[3:]}\n" for one in self.routes if one.startswith(family)), ""
        if self.network_manager and (argv[0] == "nmcli" or argv[:2] == ["systemctl", "is-active"]):
            return self._network_manager(argv)
        if argv[2:4] == ["route", "replace"] and " ".join([argv[1], *argv[4:]]) in self.routes:
            return 0, "", ""
        return super().run(argv, limit)

    def _network_manager(self, argv: list[str]) -> tuple[int, str, str]:
        """It gives the NIC what its profile says once that is raised, and takes it back when the profile is gone."""
        self.commands.append(" ".join(argv))
        if argv[0] == "systemctl":
            return (0 if "NetworkManager" in argv[-1] else 3), "", ""
        if "DEVICE,STATE" in argv:
            return 0, "mgmt0:connected\nfab0:connected\n", ""
        if "UUID,FILENAME" in argv:
            return 0, f"u0:{self.network}\n" if self.network.exists() else "", ""
        if argv[-2:] == ["up", "u0"]:
            self.links["fab0"].update(up=True, mtu=9000, addresses={"10.9.0.1/24": GLOBAL})
        if argv[-1] == "reload" and self.obey and not self.network.exists():
            self.links["fab0"]["addresses"] = {}
        return 0, "", ""

    @staticmethod
    def _shown(name: str, link: dict[str, Any]) -> dict[str, Any]:
        return {
            "ifname": name,
            "mtu": link["mtu"],
            "flags": [flag for flag, key in (("UP", "up"), ("LOWER_UP", "carrier")) if link[key]],
            "address": link["mac"],
            "addr_info": [
                {"local": address.partition("/")[0], "prefixlen": int(address.partition("/")[2]), **item}
                for address, item in link["addresses"].items()
            ],
        }


#: what has become of the host by the time of the way back
TROUBLES = ("none", "way in lost")


class Case:
    """An applied, unconfirmed change, and whether everything is back."""

    def __init__(self, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, network_manager: bool) -> None:
        self.host = host = Host(folder, clock, network_manager)
        real = os.path.exists
        monkeypatch.setattr(job, "run", host.run)
        for module in (job, deadline):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(job, "generated_files", lambda root="": {})
        monkeypatch.setattr(job, "changed_since", lambda plan: [])
        monkeypatch.setattr(job.os.path, "exists", lambda path: str(path).startswith("/sys/class/net/") or real(path))
        monkeypatch.setattr(job, "BOOT_LINK", str(folder / "link"))
        monkeypatch.setattr(job, "BOOT_UNIT", str(folder / "unit"))
        host.yaml.write_text("former\n")
        host.yaml.chmod(0o600)
        self.links, self.routes = copy.deepcopy(host.links), list(host.routes)
        profiles = {"mgmt0": "u-mgmt", "fab0": "u0"} if network_manager else {}
        host.arm(before={str(host.yaml): job.read_state(str(host.yaml))}, profiles=profiles)
        assert job.apply(str(folder))["result"] == "applied"
        (folder / "unit").write_text("")
        (folder / "link").symlink_to(folder / "unit")
        host.commands.clear()
        host.ran = 0

    def strike(self, trouble: str) -> None:
        if trouble == "way in lost":
            self.host.links["mgmt0"]["addresses"] = {}
            self.host.links["mgmt0"]["up"] = False
            self.host.routes.clear()

    def take_back(self) -> dict[str, Any]:
        return job.rollback(str(self.host.folder))

    def restored(self) -> None:
        host = self.host
        assert host.links == self.links
        assert host.routes == self.routes
        assert host.yaml.read_text() == "former\n"
        assert not host.network.exists()

    def disarmed(self) -> None:
        names = os.listdir(self.host.folder)
        assert not {"plan.json", "link", "unit"} & set(names)
        assert [one for one in self.host.commands if one.startswith(f"systemctl stop {job.TIMER}.timer")]


@pytest.fixture(params=["networkd", "NetworkManager"])
def case(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> Callable[[], Case]:
    def made() -> Case:
        number = len(os.listdir(tmp_path))
        folder = tmp_path / str(number)
        folder.mkdir()
        return Case(folder, clock, monkeypatch, request.param == "NetworkManager")

    return made


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_whichever_command_goes_wrong_once_everything_comes_back(
    case: Callable[[], Case], trouble: str, how: str
) -> None:
    whole = case()
    whole.strike(trouble)
    assert whole.take_back()["result"] == "rolled_back"
    whole.restored()
    whole.disarmed()
    assert whole.host.ran > 10
    for number in range(1, whole.host.ran + 1):
        change = case()
        change.strike(trouble)
        change.host.wrong = (number, how)
        outcome = change.take_back()
        wrong = next(command for command in change.host.commands if command.endswith(f"({how})"))
        change.restored()
        change.disarmed()
        assert outcome["result"] == "rolled_back", wrong
        said = " ".join([*outcome["steps"], outcome["reason"]])
        # a question is asked again, and a command that changes something is named with its failure
        asks = re.match(r"ip -j|ip -[46] route show|systemctl is-|nmcli --escape", wrong)
        last = wrong.startswith(f"systemctl stop {job.TIMER}")
        if how in ("fails", "hangs") and not asks and not last:
            assert f"{wrong.rpartition(' (')[0]}: rc" in said, wrong


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize(
    ("command", "back"),
    [
        # for good: what it did not bring back is named, and the change stays armed for the next boot or run
        ("ip -j address show", False),
        ("ip address replace", False),
        ("ip link set dev mgmt0 up", False),
        # for good, and the addresses, routes and files come back without it
        ("networkctl", True),
        ("systemctl", True),
        ("udevadm", True),
        ("nmcli", True),
        ("ip -4 route show", True),
    ],
)
def test_whatever_goes_wrong_for_good_the_rest_comes_back(
    case: Callable[[], Case], command: str, back: bool, how: str
) -> None:
    change = case()
    change.strike("way in lost")
    change.host.wrong = (command, how)
    outcome = change.take_back()
    if back and outcome["result"] == "rolled_back":
        change.restored()
    elif command == "ip -j address show":
        # nothing can be seen, so all that was recorded is set
        change.restored()
    assert change.host.yaml.read_text() == "former\n"
    assert not change.host.network.exists()
    assert change.host.routes or command == "ip -4 route"
    assert change.host.outcome() == outcome
    if outcome["result"] == "failed":
        assert "not yet as it was" in outcome["reason"]
        assert (change.host.folder / "plan.json").exists(), "the next boot and the next run take it up again"
        assert (change.host.folder / "link").is_symlink()
    else:
        change.disarmed()
    assert back or outcome["result"] == "failed"


@pytest.mark.parametrize("call", FILE_CALLS)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_whichever_file_operation_fails_once_everything_comes_back(
    case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch, trouble: str, call: str
) -> None:
    seen = {"count": 0, "at": 0}
    real = getattr(os, call)

    def failing(*arguments: Any, **options: Any) -> Any:
        if "plan.json" not in str(arguments[0]):
            seen["count"] += 1
            if seen["count"] == seen["at"]:
                raise OSError(5, "Input/output error", str(arguments[0]))
        return real(*arguments, **options)

    def once(at: int) -> tuple[Case, dict[str, Any]]:
        change = case()
        change.strike(trouble)
        seen.update(count=0, at=at)
        with monkeypatch.context() as context:
            context.setattr(netplan_files.os, call, failing)
            return change, change.take_back()

    once(0)
    for number in range(1, seen["count"] + 1):
        change, outcome = once(number)
        assert outcome["result"] == "rolled_back"
        change.restored()
        assert not (change.host.folder / "plan.json").exists()


def test_a_file_that_cannot_be_put_back_is_named_and_keeps_the_change_armed(
    case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = case()
    change.strike("way in lost")
    real = os.rename

    def read_only(source: str, target: str) -> None:
        if target == str(change.host.yaml):
            raise OSError(30, "Read-only file system")
        real(source, target)

    monkeypatch.setattr(netplan_files.os, "rename", read_only)
    outcome = change.take_back()
    assert outcome["result"] == "failed"
    assert f"{change.host.yaml} could not be put back: OSError: [Errno 30] Read-only file system" in outcome["reason"]
    assert (change.host.folder / "plan.json").exists()
    assert change.host.links["mgmt0"] == change.links["mgmt0"]
    assert change.host.routes == change.routes
    monkeypatch.setattr(netplan_files.os, "rename", real)
    assert job.boot(str(change.host.folder))["result"] == "rolled_back"
    change.restored()
    change.disarmed()


def test_at_boot_too_one_bad_file_is_not_the_end(case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch) -> None:
    change = case()
    real = os.rename

    def read_only(source: str, target: str) -> None:
        if target == str(change.host.yaml):
            raise OSError(30, "Read-only file system")
        real(source, target)

    monkeypatch.setattr(netplan_files.os, "rename", read_only)
    outcome = job.boot(str(change.host.folder))
    assert outcome["result"] == "failed"
    assert outcome["reason"].startswith("the host went down before the change was confirmed; ")
    assert not change.host.network.exists()
    assert (change.host.folder / "plan.json").exists()


def test_a_full_disk_leaves_no_outcome_of_before(case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch) -> None:
    change = case()
    assert change.host.outcome()["result"] == "applied"

    def full(path: str, value: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job, "write_json", full)
    assert change.take_back()["result"] == "rolled_back"
    change.restored()
    change.disarmed()
    assert not (change.host.folder / "outcome.json").exists()


def test_who_holds_the_lock_and_hangs_is_not_waited_for(
    case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = case()
    with open(one.host.folder / "lock", "w", encoding="utf-8") as handle:
        job.fcntl.flock(handle, job.fcntl.LOCK_EX)
        assert one.take_back()["result"] == "rolled_back"
        one.restored()

    other = case()
    (other.host.folder / "lock").unlink(missing_ok=True)
    (other.host.folder / "lock").mkdir()
    assert other.take_back()["result"] == "rolled_back"
    other.restored()


def test_a_plan_that_cannot_be_read_is_not_taken_for_none(case: Callable[[], Case]) -> None:
    one = case()
    (one.host.folder / "plan.json").write_text("{")
    assert one.take_back()["result"] == "failed"
    assert job.main(["job.py", "rollback", str(one.host.folder)]) == 1


def test_a_floating_address_is_no_part_of_what_was_there(case: Callable[[], Case]) -> None:
    """It goes to another head whenever keepalived says so, and it must not be taken from there or back."""
    change = case()
    plan = json.loads((change.host.folder / "plan.json").read_text())
    job.write_json(str(change.host.folder / "plan.json"), {**plan, "floating": ["10.0.0.100"]})
    for link in change.host.links.values():
        link["addresses"]["10.0.0.100/24"] = GLOBAL
    change.host.obey = False
    change.take_back()
    for links in change.host.links.values():
        assert links["addresses"].pop("10.0.0.100/24") == GLOBAL
    change.restored()


def test_what_was_applied_late_is_not_applied_over_the_way_back(case: Callable[[], Case]) -> None:
    """The change was slow, and the timer did not wait for its lock."""
    change = case()
    change.take_back()
    change.host.arm(
        before={str(change.host.yaml): state("former\n")}, drop=[{"netdev": "mgmt0", "address": "10.0.0.1/24"}]
    )
    real = change.host.run

    def slow(argv: list[str], limit: float = 20) -> tuple[int, str, str]:
        if argv[-1] == "reload":
            (change.host.folder / "plan.json").unlink(missing_ok=True)
        return real(argv, limit)

    job.run, saved = slow, job.run
    try:
        assert job.apply(str(change.host.folder)) == {"result": "nothing armed"}
    finally:
        job.run = saved
    assert "10.0.0.1/24" in change.host.links["mgmt0"]["addresses"]


def test_a_command_that_cannot_even_be_started_is_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def outage(argv: list[str], limit: float) -> tuple[int, str, str]:
        raise MemoryError

    monkeypatch.setattr(job, "run_limited", outage)
    assert job.run(["ip", "link"]) == (125, "", "ip: MemoryError: ")
