# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every area of os_hardening has a switch and a tag of its own, and the teardown undoes each.

All areas are one task on a host, so what a tag or a switch picks is decided in the role's variables: these are
evaluated here as a run would.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / (
    "roles/os_hardening"
)
AREAS = (
    *("headless", "swap", "memlock", "drop_caches", "core_dumps", "tmp", "oom", "updates", "suspend", "hold"),
    *("time_sync", "earlyoom", "thor_power"),
)
#: lookups need a whole run of Ansible
SCRIPT = "{{ lookup('ansible.builtin.file', 'sparkthor-drop-caches', rstrip=false) }}"
#: what stays as it was made, with the reason
NOT_UNDONE = {
    "systemd-timesyncd.service": "a right clock harms nobody, and who had it off cannot be told",
    "chrony.service": "the same",
    "earlyoom.service": "it is somebody else's service: only its settings are ours",
    "display-manager.service": "stopped once, on request; the next boot decides by the default target",
    "graphical.target": "the same",
}


def variables(
    kind: str = "thor", tags: tuple[str, ...] = ("all",), skip: tuple[str, ...] = (), **given: Any
) -> Templar:
    loader = DataLoader()
    values: dict[str, Any] = {}
    for part in ("defaults", "vars"):
        text = (ROLE / part / "main.yml").read_text().replace(SCRIPT, "#!/bin/sh")
        values.update(loader.load(trust_as_template(text)))
    values.update(
        inventory_hostname="one",
        ansible_facts={"sparkthor_node": {"kind": kind}},
        ansible_run_tags=list(tags),
        ansible_skip_tags=list(skip),
        ansible_search_path=[str(ROLE)],
        role_path=str(ROLE),
        **given,
    )
    return Templar(loader=loader, variables=values)


def evaluated(templar: Templar, name: str) -> Any:
    return templar.template(templar.available_variables[name])


def state(area: str, **given: Any) -> dict[str, Any]:
    return evaluated(variables(**given), "__os_hardening_state")[area]


def test_the_areas_are_those_that_are_described() -> None:
    specs = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    _compared, task = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    assert set(evaluated(variables(), "__os_hardening_state")) == set(AREAS)
    for area in AREAS:
        assert specs[f"os_hardening_{area}"]["type"] == "bool"
    assert set(task["tags"]) == {f"os_hardening_{area}" for area in AREAS}
    readme = (ROLE / "README.md").read_text()
    assert all(f"| `{area}` |" in readme for area in AREAS)


@pytest.mark.parametrize("area", AREAS)
def test_a_tag_picks_its_area_alone(area: str) -> None:
    switches = {f"os_hardening_{name}": True for name in AREAS}
    picked = evaluated(variables(tags=(f"os_hardening_{area}",), **switches), "__os_hardening_areas")
    assert picked == [area]
    left = evaluated(variables(skip=(f"os_hardening_{area}",), **switches), "__os_hardening_areas")
    assert sorted(left) == sorted(set(AREAS) - {area})


@pytest.mark.parametrize("area", AREAS)
def test_a_switch_that_is_off_leaves_its_area_alone(area: str) -> None:
    switches = {f"os_hardening_{name}": name != area for name in AREAS}
    assert sorted(evaluated(variables(**switches), "__os_hardening_areas")) == sorted(set(AREAS) - {area})
    assert evaluated(variables(tags=(f"os_hardening_{area}",), **switches), "__os_hardening_areas") == []


@pytest.mark.parametrize("area", AREAS)
def test_the_teardown_undoes_it(area: str) -> None:
    on = {f"os_hardening_{name}": True for name in AREAS} | {"os_hardening_headless_isolate": True}
    undone = set(evaluated(variables(**on), "__os_hardening_undo"))
    stopped = {unit["name"] for unit in evaluated(variables(**on), "__os_hardening_undo_units")}
    what = state(area, **on)
    made = {item["path"] for key in ("files", "links") for item in what.get(key, ())} | set(what.get("sysctls", ()))
    made |= {unit["name"] for unit in what.get("units", ())}
    assert made, "an area that does nothing proves nothing"
    assert made - undone - stopped - set(NOT_UNDONE) == set()


def test_only_a_thor_gets_a_thors_unit() -> None:
    assert "thor_power" not in evaluated(variables(kind="spark"), "__os_hardening_areas")
    assert "thor_power" in evaluated(variables(kind="thor"), "__os_hardening_areas")
    (unit,) = state("thor_power")["files"]
    assert "ExecStart=nvpmodel -m 0\n" in unit["content"]
    assert "ExecStart=/usr/bin/jetson_clocks\n" in unit["content"]


def test_what_is_left_alone_unless_asked_for() -> None:
    assert set(AREAS) - set(evaluated(variables(), "__os_hardening_areas")) == {"hold", "earlyoom"}
    assert state("headless") == {
        "links": [
            {"path": "/etc/systemd/system/default.target", "target": "/usr/lib/systemd/system/multi-user.target"}
        ],
        "units": [],
    }


def test_every_file_says_whose_it_is() -> None:
    for area, what in evaluated(variables(), "__os_hardening_state").items():
        for item in what.get("files", ()):
            assert "# Ansible managed: sparkthor.cluster" in item["content"] or item["content"] == "#!/bin/sh", area


def test_the_hold_covers_kernels_and_drivers() -> None:
    (item,) = state("hold")["files"]
    assert item["path"].startswith("/etc/apt/preferences.d/")
    names = item["content"].partition("Package: ")[2].partition("\n")[0].split()
    assert {"linux-image-*", "nvidia-driver-*", "libnvidia-*", "nvidia-l4t-*"} <= set(names)
    assert "Pin-Priority: -1" in item["content"]
