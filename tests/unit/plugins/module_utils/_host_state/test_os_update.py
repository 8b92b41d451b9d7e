# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates of packages over an apt and a dpkg of a few lines; the scenario ``lifecycle`` has real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import os_update

#: apt 2.7's words
SIMULATED = """\
Reading package lists...
Inst libc6 [2.39-0ubuntu8.5] (2.39-0ubuntu8.6 Ubuntu:24.04/noble-updates [arm64]) [libc6:arm64 ]
Inst nvidia-driver-580-open [580.159.03-0ubuntu1] (580.178.04-0ubuntu1 NVIDIA [arm64])
Inst linux-image-7.0.0-1019-nvidia (7.0.0-1019.19 Ubuntu [arm64])
Remv old-tool [1:2.0-1]
Conf libc6 (2.39-0ubuntu8.6 Ubuntu:24.04/noble-updates [arm64])
"""


class Host:
    """A host's packages: what is installed, and what a repository has."""

    def __init__(self, folder: Path, broken: Sequence[str] = (), gone: Sequence[str] = ()) -> None:
        self.folder = folder
        self.installed = {"libc6": "2.39-0ubuntu8.5", "nvidia-driver-580-open": "580.159.03-0ubuntu1"}
        self.installed["old-tool"] = "1:2.0-1"
        self.broken, self.gone = broken, gone
        self.calls: list[list[str]] = []

    def run(self, argv: list[str], _seconds: float) -> tuple[int, str, str]:
        self.calls.append(argv)
        if argv[0] == "dpkg-query":
            return 0, "".join(f"{name}\t{version}\tinstalled\n" for name, version in self.installed.items()), ""
        if argv[0] == "sh" and "apt-get" in argv[2]:
            return self.download(argv[4:])
        if argv[0] != "apt-get":
            return 127, "", "not installed"
        if "--simulate" in argv:
            return 0, SIMULATED, ""
        if "--download-only" in argv:
            return 0, "", ""
        if "install" in argv:
            return self.install(argv[argv.index("install") + 1 :])
        return 0, "", ""

    def download(self, argv: list[str]) -> tuple[int, str, str]:
        wanted = [word.split("=", 1) for word in argv]
        if any(name in self.gone for name, _version in wanted):
            return 100, "", "E: Version was not found"
        for name, version in wanted:
            (self.folder / "back" / f"{name}_{version.replace(':', '%3a')}_arm64.deb").touch()
        return 0, "", ""

    def install(self, words: list[str]) -> tuple[int, str, str]:
        failed = ""
        for word in words:
            if word.endswith("-"):
                self.installed.pop(word[:-1], None)
            elif word.endswith(".deb") and not Path(word).exists():
                return 100, "", f"E: Unsupported file {word} given on commandline"
            elif word.endswith(".deb"):
                name, version, _arch = Path(word).name.split("_")
                self.installed[name] = version.replace("%3a", ":")
            else:
                name, _equals, version = word.partition("=")
                self.installed[name] = version
                failed = name if name in self.broken else failed
        return (100, "", f"E: Sub-process dpkg: {failed}") if failed else (0, "", "")


def make(tmp_path: Path, **more: Sequence[str]) -> tuple[Host, os_update.OsUpdate]:
    host = Host(tmp_path, **more)
    return host, os_update.OsUpdate(host.run, str(tmp_path), str(tmp_path / "archives"))


def test_what_apt_would_do() -> None:
    plan = os_update.parse(SIMULATED)
    assert plan.updates[1] == {
        **{"name": "nvidia-driver-580-open", "old": "580.159.03-0ubuntu1", "new": "580.178.04-0ubuntu1"}
    }
    assert plan.new == [{"name": "linux-image-7.0.0-1019-nvidia", "new": "7.0.0-1019.19"}]
    assert plan.removed == [{"name": "old-tool", "old": "1:2.0-1"}]
    assert plan.reboots
    assert os_update.parse("Inst nvidia-l4t-kernel [6.8.12] (6.8.13 NVIDIA [arm64])\n").reboots
    assert not os_update.parse("Inst less [590-1] (590-2 Ubuntu [arm64])\n").reboots


@pytest.mark.parametrize("words", ["The following packages have been kept back", "Not upgrading"])
def test_what_is_kept_back_is_read(words: str) -> None:
    """What an ASUS Ascent GX10 holds; the words of apt 2 and apt 3."""
    held = "linux-headers-nvidia-hwe-24.04 linux-image-nvidia-hwe-24.04\n  linux-nvidia-hwe-24.04"
    text = f"Calculating upgrade...\n{words}:\n  {held}\nThe following packages will be upgraded:\n  less\n{SIMULATED}"
    assert os_update.parse(text).kept_back == held.split()
    assert os_update.parse(SIMULATED).kept_back == []


def test_an_update_and_its_way_back(tmp_path: Path) -> None:
    host, update = make(tmp_path)
    before = dict(host.installed)
    assert update.fetch(update.plan([])) == []
    assert host.installed == before
    assert update.take_back().words == []
    update.apply()
    assert host.installed == {
        "libc6": "2.39-0ubuntu8.6",
        "nvidia-driver-580-open": "580.178.04-0ubuntu1",
        "linux-image-7.0.0-1019-nvidia": "7.0.0-1019.19",
    }
    assert update.take_back().words
    assert host.installed == before
    # done once
    assert update.take_back().words == []
    assert json.loads((tmp_path / "record.json").read_text())["state"] == "taken_back"


def test_an_update_that_fails_is_taken_back(tmp_path: Path) -> None:
    host, update = make(tmp_path, broken=["libc6"])
    before = dict(host.installed)
    update.fetch(update.plan([]))
    with pytest.raises(os_update.UpdateError, match="apt-get install ended with 100: E: Sub-process dpkg: libc6"):
        update.apply()
    assert host.installed != before
    update.take_back()
    assert host.installed == before


def test_an_update_that_broke_off_is_part_of_the_way_back_of_the_next(tmp_path: Path) -> None:
    host, update = make(tmp_path, broken=["nvidia-driver-580-open"])
    before = dict(host.installed)
    update.fetch(update.plan([]))
    with pytest.raises(os_update.UpdateError, match="apt-get install ended"):
        update.apply()
    assert host.installed["libc6"] == "2.39-0ubuntu8.6"
    # nobody took it back; what remains for the next one is a newer driver
    rest = os_update.Plan(updates=[{"name": "nvidia-driver-580-open", "old": "580.178.04-0ubuntu1", "new": "581.1"}])
    update.fetch(rest)
    # only looked at, and looked at again
    update.fetch(rest)
    host.broken = []
    done = update.apply()
    assert ("nvidia-driver-580-open", "580.159.03-0ubuntu1") in done.former
    assert host.installed["nvidia-driver-580-open"] == "581.1"
    update.take_back()
    assert host.installed == before


def test_the_plan_of_two_updates_is_one() -> None:
    def updated(name: str, old: str, new: str) -> dict[str, str]:
        return {"name": name, "old": old, "new": new}

    earlier = os_update.Plan(
        updates=[updated("a", "1", "2"), updated("b", "1", "2"), updated("c", "1", "2")],
        new=[{"name": "n", "new": "1"}, {"name": "m", "new": "1"}],
        removed=[{"name": "r", "old": "1"}, {"name": "s", "old": "1"}],
    )
    plan = os_update.Plan(
        updates=[updated("a", "2", "3"), updated("b", "1", "2"), updated("n", "1", "2")],
        removed=[{"name": "c", "old": "2"}, {"name": "s", "old": "1"}, {"name": "m", "old": "1"}],
    )
    # b was not reached, and neither was the removal of s
    both = os_update.merged(earlier, plan, {"a": "2", "b": "1", "c": "2", "n": "1", "m": "1", "s": "1"})
    assert both.updates == [updated("a", "1", "3"), updated("b", "1", "2")]
    assert both.new == [{"name": "n", "new": "2"}]
    assert both.removed == [{"name": "r", "old": "1"}, {"name": "c", "old": "1"}, {"name": "s", "old": "1"}]


def test_what_nobody_has_any_more_is_named(tmp_path: Path) -> None:
    _host, update = make(tmp_path, gone=["old-tool"])
    assert update.fetch(update.plan([])) == ["old-tool=1:2.0-1"]
    # the others are there all the same
    assert len(list((tmp_path / "back").glob("*.deb"))) == 2
    # whoever went on without a way back is told so
    update.apply()
    with pytest.raises(os_update.UpdateError, match=r"after the way back old-tool is absent, not 1:2\.0-1"):
        update.take_back()


def test_a_package_in_apts_own_cache_is_not_fetched(tmp_path: Path) -> None:
    host, update = make(tmp_path, gone=["old-tool"])
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives" / "old-tool_1%3a2.0-1_all.deb").touch()
    assert update.fetch(update.plan([])) == []
    assert not any("old-tool=1:2.0-1" in call for call in host.calls)


def test_the_way_back_needs_nothing_of_apts_own_cache(tmp_path: Path) -> None:
    """An installation may empty it (DPkg::Post-Invoke), and so may a cleaning by time."""
    host, update = make(tmp_path, gone=["old-tool"])
    before = dict(host.installed)
    (tmp_path / "archives").mkdir()
    cached = tmp_path / "archives" / "old-tool_1%3a2.0-1_all.deb"
    cached.touch()
    update.fetch(update.plan([]))
    update.apply()
    cached.unlink()
    update.take_back()
    assert host.installed == before


def test_only_the_way_back_of_the_newest_update_is_kept(tmp_path: Path) -> None:
    host, update = make(tmp_path)
    former = tmp_path / "back" / "libc6_2.39-0ubuntu8.4_arm64.deb"
    former.parent.mkdir()
    former.touch()
    update.fetch(update.plan([]))
    # until the new packages are installed, nobody knows whether the earlier ones are needed
    assert former.exists()
    host.broken = ["libc6"]
    with pytest.raises(os_update.UpdateError):
        update.apply()
    assert former.exists()
    host.broken = []
    update.apply()
    assert sorted(path.name for path in former.parent.iterdir()) == [
        "libc6_2.39-0ubuntu8.5_arm64.deb",
        "nvidia-driver-580-open_580.159.03-0ubuntu1_arm64.deb",
        "old-tool_1%3a2.0-1_arm64.deb",
    ]
    update.take_back()
    assert host.installed["old-tool"] == "1:2.0-1"


def test_a_former_package_that_is_lost_keeps_no_other_one(tmp_path: Path) -> None:
    host, update = make(tmp_path)
    before = dict(host.installed)
    update.fetch(update.plan([]))
    update.apply()
    (tmp_path / "back" / "old-tool_1%3a2.0-1_arm64.deb").unlink()
    with pytest.raises(os_update.UpdateError, match=r"after the way back old-tool is absent, not 1:2\.0-1"):
        update.take_back()
    assert host.installed == {name: version for name, version in before.items() if name != "old-tool"}


def test_a_package_of_another_architecture_goes_and_no_other() -> None:
    plan = os_update.parse("Remv libfoo1:armhf [1.2-3]\nRemv libbar1 [1:1.0]\n")
    assert plan.words == ["libfoo1:armhf-", "libbar1-"]
    assert plan.former == [("libfoo1:armhf", "1.2-3"), ("libbar1", "1:1.0")]


def test_nothing_is_installed_that_was_not_planned(tmp_path: Path) -> None:
    host, update = make(tmp_path)
    plan = update.plan(["libc6"])
    assert host.calls[-1][-3:] == ["install", "--only-upgrade", "libc6"]
    update.fetch(plan)
    update.apply()
    installs = [call for call in host.calls if "--option" in call and "Dpkg::Options::=--force-confold" in call]
    assert installs[-1][-4:] == [
        *("libc6=2.39-0ubuntu8.6", "nvidia-driver-580-open=580.178.04-0ubuntu1"),
        *("linux-image-7.0.0-1019-nvidia=7.0.0-1019.19", "old-tool-"),
    ]


def test_an_update_that_nobody_prepared(tmp_path: Path) -> None:
    _host, update = make(tmp_path)
    for step in (update.apply, update.take_back):
        with pytest.raises(os_update.UpdateError, match="no update was prepared on this host"):
            step()


def test_firmware_is_read_as_far_as_a_tool_shows_it(tmp_path: Path) -> None:
    devices = {"Devices": [{"Name": "Embedded Controller", "Version": "0x02004e18"}, {"Name": "USB hub"}]}

    def run(argv: list[str], _seconds: float) -> tuple[int, str, str]:
        if argv[0] == "fwupdmgr":
            assert argv[1] == "get-devices"
            return 0, json.dumps(devices), ""
        return 0, "9A.0B.21.00.00\n", ""

    found = os_update.OsUpdate(run, str(tmp_path)).firmware()
    assert found["Embedded Controller"] == "0x02004e18"
    assert found["VBIOS"] == "9A.0B.21.00.00"
    assert "USB hub" not in found
    nothing = os_update.OsUpdate(lambda _argv, _seconds: (0, "[N/A]", ""), str(tmp_path)).firmware()
    assert set(nothing) <= {"BIOS"}
