# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
    Wanted,
    unit_name,
)


def test_foreign_needs_a_marker_of_ours() -> None:
    with pytest.raises(HostStateError, match="foreign: refuse needs the line"):
        Wanted.parse({"files": [{"path": "/etc/x", "content": "A=1\n", "foreign": "refuse"}]})


def test_open_secret_is_refused() -> None:
    with pytest.raises(HostStateError, match="/etc/key: a secret must not be open to others"):
        Wanted.parse({"files": [{"path": "/etc/key", "content": "x", "secret": True, "mode": "0644"}]})


@pytest.mark.parametrize("mode", [420, "420", "644", "0888", "rw"])
def test_mode_must_be_four_octal_digits(mode: Any) -> None:
    with pytest.raises(HostStateError, match="four octal digits"):
        Wanted.parse({"files": [{"path": "/etc/x", "content": "", "mode": mode}]})


@pytest.mark.parametrize("path", ["etc/x", "/etc/../x", "/etc//x", "/etc/x/"])
def test_path_must_be_absolute_and_normal(path: str) -> None:
    with pytest.raises(HostStateError, match="absolute"):
        Wanted.parse({"files": [{"path": path, "content": ""}]})


def test_a_path_is_declared_once() -> None:
    with pytest.raises(HostStateError, match="/etc/x is named in files and again in absent"):
        Wanted.parse({"files": [{"path": "/etc/x", "content": ""}], "absent": ["/etc/x"]})


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib", "/etc/systemd/system"])
def test_system_directories_are_never_removed(path: str) -> None:
    with pytest.raises(HostStateError, match="never removed"):
        Wanted.parse({"absent": [path]})


def test_unit_declared_twice() -> None:
    with pytest.raises(HostStateError, match=r"x\.service is named twice"):
        Wanted.parse({"units": [{"name": "x"}, {"name": "x.service"}]})


def test_unit_masked_and_running() -> None:
    with pytest.raises(HostStateError, match="cannot be masked and enabled or running"):
        Wanted.parse({"units": [{"name": "x", "masked": True, "state": "started"}]})


@pytest.mark.parametrize(
    ("name", "full"), [("nginx", "nginx.service"), ("a.timer", "a.timer"), ("dotted.name", "dotted.name.service")]
)
def test_unit_name(name: str, full: str) -> None:
    assert unit_name(name) == full
