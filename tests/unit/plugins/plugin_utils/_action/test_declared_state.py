# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a task's lists on the controller: switches, templates, several names, and the way back."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.declared_state import (
    DeclarationError,
    merged,
    present,
    undone,
)


def text(kind: str, name: str) -> str:
    return f"{kind} {name}"


@pytest.mark.parametrize(
    ("when", "wanted"),
    [(True, True), ("yes", True), (False, False), ("false", False), ([True, "yes"], True), ([True, "no"], False)],
)
def test_an_item_is_wanted_while_its_switches_are_on(when: Any, wanted: bool) -> None:
    item = {"path": "/etc/x", "content": "1\n"}
    found = present({"files": [{**item, "when": when}, {"path": "/etc/y", "content": "2\n"}]}, text)["files"]
    assert found == [*([item] if wanted else []), {"path": "/etc/y", "content": "2\n"}]


def test_the_programs_of_hosts_are_one_item() -> None:
    files = present({"files": [{"path": "/srv/x", "programs": True, "group": "mine"}]}, text)["files"]
    assert {file["group"] for file in files} == {"mine"}
    assert {"/srv/x/__main__.py", "/srv/x/_onhost/watchdog.py"} <= {file["path"] for file in files}
    assert all(set(file) == {"path", "content", "group"} for file in files)
    assert present({"files": [{"path": "/srv/x", "programs": True, "when": "no"}]}, text)["files"] == []


def test_a_file_has_one_text() -> None:
    files = [{"path": "/a", "template": "a.j2", "mode": "0600"}, {"path": "/b", "src": "b"}]
    assert present({"files": files}, text)["files"] == [
        {"path": "/a", "mode": "0600", "content": "template a.j2"},
        {"path": "/b", "content": "src b"},
    ]
    for wrong in ({"path": "/c"}, {"path": "/c", "src": "c", "content": ""}):
        with pytest.raises(DeclarationError, match="files: /c: give one of content, template, src, from_secret"):
            present({"files": [wrong]}, text)


def test_the_text_of_what_is_switched_off_is_not_asked_for() -> None:
    def never(kind: str, name: str) -> str:
        raise AssertionError(name)

    assert present({"files": [{"path": "/a", "template": "a.j2", "when": False}]}, never)["files"] == []


@pytest.mark.parametrize("names", [["a.target", "b.target"], "a.target,b.target"])
def test_an_item_may_name_several(names: Any) -> None:
    given = {"units": [{"names": names, "masked": True}], "restore": ["/etc/x", {"names": ["b", "c.timer"]}]}
    found = present(given, text)
    assert found["units"] == [{"name": "a.target", "masked": True}, {"name": "b.target", "masked": True}]
    assert found["restore"] == ["/etc/x", "b", "c.timer"]


def test_a_unit_that_is_wanted_is_not_given_back() -> None:
    given = {"units": [{"names": ["a", "b.timer"], "masked": True}], "restore": ["a.service", "b.timer", "c.timer"]}
    assert present(given, text)["restore"] == ["c.timer"]


def test_a_list_that_is_a_text_is_refused() -> None:
    with pytest.raises(DeclarationError, match="files: 'x' is not a list"):
        present({"files": "x"}, text)


def test_a_secret_is_read_where_its_file_is_wanted_and_nowhere_else() -> None:
    files = [{"path": "/s", "from_secret": "key", "when": True}, {"path": "/t", "from_secret": "key", "when": False}]
    assert present({"files": files}, text)["files"] == [{"path": "/s", "secret": True, "content": "from_secret key"}]

    def never(kind: str, name: str) -> str:
        raise AssertionError(name)

    assert present({"files": files}, never, secrets=False)["files"] == []


def test_what_others_read_of_an_item_is_not_told_to_the_host() -> None:
    files = [{"path": "/a", "content": "1", "kept": True, "own": True, "restarts": True}]
    found = present({"files": files, "directories": [{"path": "/d", "own": True}]}, text)
    assert found == {"files": [{"path": "/a", "content": "1"}], "directories": [{"path": "/d"}]}


def test_a_part_of_the_lists_is_files_and_units_by_name_or_folder() -> None:
    given = {
        "files": [{"path": path, "template": "x"} for path in ("/etc/front/x", "/etc/front.good", "/etc/key")],
        "units": [{"name": "front", "state": "started"}, {"name": "other.service"}],
        "absent": ["/etc/y"],
        "only": ["/etc/front", "/etc/key", "front.service"],
        "timeout": 5,
    }
    found = present(given, text)
    assert [file["path"] for file in found["files"]] == ["/etc/front/x", "/etc/key"]
    assert (found["units"], found["timeout"]) == ([{"name": "front", "state": "started"}], 5)
    assert set(found) == {"files", "units", "timeout"}


def test_the_runs_of_a_loop_are_one_state() -> None:
    one, two = ({"files": [{"path": "/a"}, {"path": path}], "timeout": 5} for path in ("/b", "/c"))
    assert merged([one, two]) == {"files": [{"path": "/a"}, {"path": "/b"}, {"path": "/c"}], "timeout": 5}
    # what one list says twice is a mistake that the module names
    assert merged([{"absent": ["/a", "/a"]}]) == {"absent": ["/a", "/a"]}


DECLARED: dict[str, Any] = {
    "files": [
        {"path": "/etc/systemd/system/own.service", "template": "own.j2", "when": False},
        {"path": "/etc/systemd/system/other.service.d/60.conf", "template": "other.j2"},
        {"path": "/etc/own/x", "content": ""},
        {"path": "/etc/x.json", "content": "{}", "own": True},
    ],
    "links": [{"path": "/etc/l", "target": "/etc/t"}],
    "sysctls": [{"name": "vm.swappiness", "value": 1}],
    "restore": [{"names": ["freed.timer"]}],
    "directories": [{"path": "/var/lib/x"}, {"path": "/etc/own", "own": True}],
    "users": [{"name": "x"}],
    "units": [
        {"name": "own", "enabled": True, "state": "started"},
        {"names": ["a.target"], "masked": True, "when": False},
        {"name": "other.service", "state": "started"},
        {"name": "display-manager.service", "state": "stopped"},
    ],
    "timeout": 60,
    "state": "absent",
}


def test_all_is_taken_back_whatever_the_switches_say() -> None:
    assert undone(DECLARED) == {
        "timeout": 60,
        "absent": ["/etc/own", "/etc/x.json"],
        "restore": [
            *("/etc/systemd/system/own.service", "/etc/systemd/system/other.service.d/60.conf", "/etc/l"),
            *("vm.swappiness", "a.target", "other.service", "freed.timer"),
        ],
        "units": [{"name": "own.service", "enabled": False, "state": "stopped", "optional": True}],
    }
