# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose name somebody changed is named by status, doctor and drift."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_name

NODE = {"hostname": "kitchen", "declared": {"head": "a", "hostname": "spark-02"}}


def test_a_changed_name_is_told_with_the_former_one() -> None:
    assert host_name.told(NODE) == "its host name is kitchen; it was spark-02 when site.yml last set the host up"
    assert "hostnamectl set-hostname spark-02" in host_name.fix(NODE)


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"hostname": "spark-02"},
        {"hostname": "spark-02", "declared": {}},
        {"hostname": "spark-02", "declared": {"hostname": "spark-02"}},
        {"hostname": "", "declared": {"hostname": "spark-02"}},
    ],
)
def test_a_host_that_was_never_set_up_or_has_its_name_says_nothing(node: dict[str, Any]) -> None:
    assert host_name.told(node) == ""
