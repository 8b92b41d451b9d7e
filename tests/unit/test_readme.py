# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the README and the list of playbooks tell people to type exists, and CI goes through it; so does what the
changelog names.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).resolve().parents[2]
README = (TOP / "README.md").read_text()
LISTS = (TOP / "docs" / "playbooks.md").read_text()
DISCOVERED = re.findall(r"-e discover_inventory=(\S+)", README)
COMMANDS = [
    command.strip()
    for block in re.findall(r"^ *```console\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    for command in line.partition(" #")[0].split("&&")
]
LINT = (TOP / "tools" / "test.sh").read_text()


def test_there_are_commands_and_ci_runs_the_one_that_tests() -> None:
    assert {"make up", "make down", "make venv"} <= set(COMMANDS)
    assert "(`make test`)" in README
    assert (TOP / ".ci" / "run").read_text().rstrip().endswith("exec make test")


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"(?:^|`|  )make ([a-z-]+)[`\s]", README + LISTS, re.MULTILINE)))
)
def test_every_target_of_make_is_there(target: str) -> None:
    assert re.search(rf"^{target}:", (TOP / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("ansible-playbook")])
def test_ci_checks_every_playbook_and_every_inventory_that_is_named(command: str) -> None:
    words = shlex.split(command)
    playbook = words[1]
    assert (TOP / playbook).is_file()
    if "-i" in words:
        # of the inventory that discover.yml writes by the README's own command
        assert [words[words.index("-i") + 1]] == DISCOVERED
    else:
        assert Path(playbook).stem in ("first_contact", "discover")
    # the stage lint reads every playbook, and every inventory by site.yml
    assert DISCOVERED[0].startswith("inventories/")
    assert "for inventory in inventories/*/" in LINT
    assert 'ansible-playbook site.yml -i "$inventory" --list-tasks' in LINT
    globs = ("site.yml", "playbooks/*.yml")
    assert f"ansible-playbook {' '.join(globs)} -i inventories/3spark/ --list-tasks" in LINT
    assert any(Path(playbook).match(glob) for glob in globs)
    text = (TOP / playbook).read_text()
    for option in re.findall(r"-e (\w+)=", command):
        assert re.search(rf"\b{option}\b", text)
    rest = re.sub(r" (?:-e \w+=\S+|-u nvidia|-i \S+|-K|--check|--diff)", "", command)
    assert rest == f"ansible-playbook {playbook}"


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("$EDITOR")])
def test_every_file_to_edit_is_there(command: str) -> None:
    folder, _slash, name = command.split()[1].partition("/group_vars/")
    assert [folder] == DISCOVERED
    assert name == "cluster.yml"


def test_every_playbook_is_there_and_none_is_kept_secret() -> None:
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", LISTS, re.MULTILINE)
        for name in re.findall(r"`([a-z_]+\.yml)`", row)
    }
    used = {Path(command.split()[1]).name for command in COMMANDS if command.startswith("ansible-playbook")}
    assert used <= named
    there = {path.name for path in (TOP / "playbooks").glob("*.yml")}
    assert there == named


def test_every_inventory_is_in_the_table() -> None:
    rows = re.findall(r"^\| `([a-z0-9_]+)` \|", LISTS, re.MULTILINE)
    assert sorted(rows) == sorted(path.name for path in (TOP / "inventories").iterdir() if path.is_dir())


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", README))))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (TOP / target).exists()


def test_what_the_controller_needs_is_named() -> None:
    needs = (TOP / "requirements" / "controller.txt").read_text()
    for page in ("versions.md", "tutorial/hardware.md"):
        assert "requirements/controller.txt" in (TOP / "docs" / "site" / page).read_text()
    assert re.search(r"^netaddr\b", needs, re.MULTILINE)
    environment = yaml.safe_load((TOP / "meta" / "execution-environment.yml").read_text())
    assert environment["dependencies"]["python"] == "requirements/controller.txt"


def test_the_changelog_names_every_playbook() -> None:
    """Modules, filters and roles are found at a release by their own documentation; playbooks have none."""
    folder = TOP / "changelogs"
    releases = yaml.safe_load((folder / "changelog.yaml").read_text())["releases"].values()
    named = [entry["name"] for release in releases for entry in release.get("objects", {}).get("playbook", [])]
    for fragment in (folder / "fragments").glob("*.yml"):
        named += [entry["name"] for entry in yaml.safe_load(fragment.read_text()).get("add object.playbook", [])]
    assert sorted(named) == sorted(path.stem for path in (TOP / "playbooks").glob("*.yml"))
