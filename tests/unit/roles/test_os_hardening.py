# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every area of os_hardening has a switch and a tag of its own, and the teardown undoes each.

All areas are one task on a host, so what a tag or a switch picks is decided in the role's variables: these are
evaluated here as a run would.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
ROLE = TOP / "roles/os_hardening"
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
    (tags,) = task["tags"]
    assert set(evaluated(variables(), "__os_hardening_state")) == set(AREAS)
    for area in AREAS:
        assert specs[f"os_hardening_{area}"]["type"] == "bool"
    assert set(re.findall(r"'(\w+)'", tags)) == {f"os_hardening_{area}" for area in AREAS}
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


def text_of(value: bool) -> tuple[str, ...]:
    """What the command line and INI inventories make of a switch."""
    return ("true", "yes", "1") if value else ("false", "no", "0", "False")


@pytest.mark.parametrize("area", AREAS)
def test_a_switch_may_be_text(area: str) -> None:
    for text in text_of(False):
        switches = {f"os_hardening_{name}": True for name in AREAS} | {f"os_hardening_{area}": text}
        assert area not in evaluated(variables(**switches), "__os_hardening_areas"), text
    for text in text_of(True):
        switches = {f"os_hardening_{name}": False for name in AREAS} | {f"os_hardening_{area}": text}
        assert evaluated(variables(**switches), "__os_hardening_areas") == [area], text


def test_a_desktop_is_only_stopped_when_it_is_asked_for() -> None:
    assert state("headless", os_hardening_headless_isolate="false")["units"] == []
    assert state("headless", os_hardening_headless_isolate="true")["units"]


@pytest.mark.parametrize("area", ["swap", "oom"])
def test_an_area_that_is_skipped_leaves_the_others(tmp_path: Path, area: str) -> None:
    """By a run of Ansible itself: it skips a task whole of which one tag is skipped."""
    play = tmp_path / "play.yml"
    role = {"ansible.builtin.import_role": {"name": "sparkthor.cluster.os_hardening"}, "tags": ["os_hardening"]}
    play.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [role]}]))
    # what would ask systemd, which not every machine has that runs this
    given = {f"os_hardening_{name}": False for name in ("headless", "updates", "suspend", "time_sync")}
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), str(play), "-i", "localhost,", "-c", "local"),
            *("--check", "--diff", "--skip-tags", f"os_hardening_{area}"),
            *("-e", json.dumps({**given, "ansible_become": False, "ansible_python_interpreter": sys.executable})),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = {"swap": "/etc/sysctl.d/60-sparkthor.conf", "oom": "/etc/systemd/system/ssh.service.d/60-sparkthor.conf"}
    assert {name for name, path in made.items() if f"+++ after: {path}" in done.stdout} == set(made) - {area}


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
    wanted = evaluated(variables(os_hardening_updates_masked_units=listed), "__os_hardening_wanted")
    assert wanted["restore"] == back
    Wanted.parse(wanted)  # nothing is named in units and again in restore
    off = {"os_hardening_updates_masked_units": listed, "os_hardening_updates": False}
    assert evaluated(variables(**off), "__os_hardening_wanted")["restore"] == []
    undone = evaluated(variables(os_hardening_updates_masked_units=listed), "__os_hardening_undo")
    assert {*MASKED, *listed} - {"packagekit-offline-update"} <= set(undone)


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
