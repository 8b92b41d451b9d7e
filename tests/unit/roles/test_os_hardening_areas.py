# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every area of os_hardening has a switch of its own, and the teardown undoes each."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted

from tests.unit import role_state

ROLE = role_state.ROLES / "os_hardening"
AREAS = (
    *("headless", "swap", "memlock", "drop_caches", "core_dumps", "tmp", "oom", "updates", "suspend", "hold"),
    *("time_sync", "earlyoom", "gpu_clock", "thor_power"),
)
#: what stays as it was made, with the reason
NOT_UNDONE = {"display-manager.service": "stopped once, on request; the next boot decides by the default target"}


def kind_with(area: str) -> str:
    """A kind of host that has this area."""
    return "spark" if area == "gpu_clock" else "thor"


def areas_of(kind: str) -> set[str]:
    return set(AREAS) - {"thor_power" if kind == "spark" else "gpu_clock"}


def planned(kind: str = "thor", **given: Any) -> dict[str, Any]:
    return role_state.state("os_hardening", sparkthor_fabric={"one": {"kind": kind}}, **given)


def only(*areas: str) -> dict[str, Any]:
    """Switches by which these areas are on, and no others."""
    return {f"os_hardening_{name}": name in areas for name in AREAS}


def state(area: str, **given: Any) -> dict[str, Any]:
    return planned(kind_with(area), **{**only(area), **given})


def made(wanted: dict[str, Any]) -> set[str]:
    """Every path, sysctl and unit of a state."""
    paths = {item["path"] for key in ("files", "links") for item in wanted[key]}
    return paths | {item["name"] for key in ("sysctls", "units") for item in wanted[key]}


#: by area, all that it makes
MADE = {area: made(state(area)) for area in AREAS}


def active(kind: str, **given: Any) -> set[str]:
    wanted = made(planned(kind, **given))
    assert wanted == set().union(*(MADE[area] for area in AREAS if MADE[area] <= wanted), set())
    return {area for area in AREAS if MADE[area] <= wanted}


def test_the_areas_are_those_that_are_described() -> None:
    specs = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    readme = (ROLE / "README.md").read_text()
    for area in AREAS:
        assert specs[f"os_hardening_{area}"]["type"] == "bool"
        assert f"| `{area}` |" in readme
        assert MADE[area], "an area that does nothing proves nothing"


@pytest.mark.parametrize("area", AREAS)
def test_a_switch_picks_its_area_alone(area: str) -> None:
    kind = kind_with(area)
    assert active(kind, **only(area)) == {area}
    assert active(kind, **only(*set(AREAS) - {area})) == areas_of(kind) - {area}


def text_of(value: bool) -> tuple[str, ...]:
    """What the command line and INI inventories make of a switch."""
    return ("true", "yes", "1") if value else ("false", "no", "0", "False")


@pytest.mark.parametrize("area", AREAS)
def test_a_switch_may_be_text(area: str) -> None:
    for text in text_of(False):
        switches = only(*AREAS) | {f"os_hardening_{area}": text}
        assert area not in active(kind_with(area), **switches), text
    for text in text_of(True):
        switches = only() | {f"os_hardening_{area}": text}
        assert active(kind_with(area), **switches) == {area}, text


def test_a_desktop_in_use_is_only_stopped_when_it_is_asked_for() -> None:
    for isolate, spare in (("false", True), ("true", False)):
        (unit,) = state("headless", os_hardening_headless_isolate=isolate)["units"]
        assert (unit["name"], unit["state"], unit["spare_desktop"]) == ("display-manager.service", "stopped", spare)


def test_var_tmp_is_cleaned_when_somebody_asks_for_it() -> None:
    (file,) = state("tmp")["files"]
    assert "q /var/tmp" not in file["content"]
    assert "x /var/tmp/ray\n" in file["content"]
    (file,) = state("tmp", os_hardening_tmp_age="10d")["files"]
    assert "\nq /var/tmp 1777 root root 10d\n" in file["content"]


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("on", [True, False])
def test_the_teardown_undoes_it_whatever_its_switch_says(area: str, on: bool) -> None:
    undo = role_state.undone("os_hardening", **only(*(AREAS if on else ())))
    stopped = {unit["name"] for unit in undo["units"] if unit["state"] == "stopped" and unit["enabled"] is False}
    assert MADE[area] - set(undo["restore"]) - stopped - set(NOT_UNDONE) == set()
    Wanted.parse(undo)  # nothing is named in units and again in restore


MASKED = ["apt-daily-upgrade.timer", "fwupd-refresh.timer", "packagekit-offline-update.service"]


@pytest.mark.parametrize(
    ("listed", "back"),
    [
        (MASKED, []),
        ([], MASKED),
        (["fwupd-refresh.timer", "vendor.timer"], [MASKED[0], MASKED[2]]),
        (["packagekit-offline-update"], MASKED[:2]),
    ],
)
def test_what_is_taken_off_the_list_is_given_back(listed: list[str], back: list[str]) -> None:
    wanted = planned(os_hardening_updates_masked_units=listed)
    assert wanted["restore"] == back
    Wanted.parse(wanted)  # nothing is named in units and again in restore
    off = {"os_hardening_updates_masked_units": listed, "os_hardening_updates": False}
    assert planned(**off)["restore"] == []
    undone = role_state.undone("os_hardening", os_hardening_updates_masked_units=listed)["restore"]
    assert {*MASKED, *listed} - {"packagekit-offline-update"} <= set(undone)


def test_only_a_thor_gets_a_thors_unit() -> None:
    assert "thor_power" not in active("spark", **only(*AREAS))
    (unit,) = state("thor_power")["files"]
    assert "ExecStart=nvpmodel -m 0\n" in unit["content"]
    assert "ExecStart=/usr/bin/jetson_clocks\n" in unit["content"]


def test_only_a_spark_gets_a_limit_of_its_gpus_clock_and_only_if_asked_for() -> None:
    assert "gpu_clock" not in active("spark")
    assert "gpu_clock" in active("spark", os_hardening_gpu_clock=True)
    assert "gpu_clock" not in active("thor", os_hardening_gpu_clock=True)
    (unit,) = state("gpu_clock", os_hardening_gpu_clock_max=1800)["files"]
    assert "ExecStart=nvidia-smi --lock-gpu-clocks=0,1800\n" in unit["content"]
    assert "ExecStop=nvidia-smi --reset-gpu-clocks\n" in unit["content"]


def test_what_is_left_alone_unless_asked_for() -> None:
    assert set(AREAS) - active("thor") == {"hold", "earlyoom", "gpu_clock"}
    target = {"path": "/etc/systemd/system/default.target", "target": "/usr/lib/systemd/system/multi-user.target"}
    assert state("headless")["links"] == [target]


@pytest.mark.parametrize(
    ("fabric", "facts", "power"),
    [
        ({}, {}, False),
        ({"one": {"kind": "thor"}}, {"kind": "spark"}, True),
        ({"one": {"kind": ""}}, {"kind": "thor"}, True),
        ({"two": {"kind": "thor"}}, {"kind": "spark"}, False),
    ],
)
def test_the_kind_is_the_plans_or_else_the_hosts(fabric: dict[str, Any], facts: dict[str, Any], power: bool) -> None:
    known = {"sparkthor_fabric": fabric, "ansible_facts": {"sparkthor_node": facts}}
    paths = [file["path"] for file in role_state.state("os_hardening", **known)["files"]]
    assert ("/etc/systemd/system/sparkthor-jetson-power.service" in paths) is power


def test_every_file_says_whose_it_is() -> None:
    for area in AREAS:
        for item in state(area)["files"]:
            assert "# Ansible managed: sparkthor.cluster" in item["content"], area


def test_the_hold_covers_kernels_and_drivers() -> None:
    (item,) = state("hold")["files"]
    assert item["path"].startswith("/etc/apt/preferences.d/")
    names = item["content"].partition("Package: ")[2].partition("\n")[0].split()
    assert {"linux-image-*", "nvidia-driver-*", "libnvidia-*", "nvidia-l4t-*"} <= set(names)
    assert "Pin-Priority: -1" in item["content"]


@pytest.mark.parametrize("none", [[], ""])
def test_a_hold_of_nothing_is_no_pin_that_breaks_apt(none: object) -> None:
    wanted = state("hold", os_hardening_hold_packages=none)
    assert wanted["files"] == []
    # and the one of an earlier run goes
    assert wanted["restore"] == ["/etc/apt/preferences.d/60-sparkthor"]
    assert state("hold")["restore"] == []
