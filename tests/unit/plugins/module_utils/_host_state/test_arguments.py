# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules make of a host's state as it is given: defaults filled in, wrong values refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.arguments import argument_spec


def validated(**given: Any) -> tuple[dict[str, Any], list[str]]:
    result = ArgumentSpecValidator(argument_spec()).validate(given)
    return result.validated_parameters, result.error_messages


def test_nothing_is_wanted_unless_it_is_given() -> None:
    values, errors = validated()
    assert errors == []
    assert (values.pop("timeout"), values.pop("state")) == (300, "present")
    assert not any(values.values())


def test_defaults_of_a_folder_and_a_file() -> None:
    values, errors = validated(directories=[{"path": "/etc/x"}], files=[{"path": "/etc/x/y", "content": "z"}])
    assert errors == []
    (folder,) = values["directories"]
    assert folder == {"path": "/etc/x", "owner": "root", "group": None, "mode": "0755", "when": None, "own": None}
    (file,) = values["files"]
    # what somebody else wrote is replaced, with a backup
    assert (file["owner"], file["mode"], file["foreign"], file["backup"]) == ("root", None, "replace", True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"files": [{"path": "/etc/x"}]}, "content"),
        ({"files": [{"path": "/etc/x", "content": "", "foreign": "merge"}]}, "foreign"),
        ({"files": [{"path": "/etc/x", "content": "", "src": "x"}]}, "mutually exclusive"),
        ({"units": [{"name": "x.service", "state": "running"}]}, "state"),
        ({"units": [{"enabled": True}]}, "names"),
        ({"sysctls": [{"name": "vm.swappiness"}]}, "value"),
        ({"links": [{"path": "/etc/x"}]}, "target"),
        ({"groups": [{}]}, "name"),
        ({"modes": []}, "modes"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(given: dict[str, Any], words: str) -> None:
    _values, errors = validated(**given)
    assert words in " ".join(errors)
