# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which serving group of a host is asked."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.modules import cluster_verify


@pytest.mark.parametrize(
    ("group", "path"),
    [("", "/etc/sparkthor/serving.json"), ("embed", "/etc/sparkthor/beside/embed/serving.json")],
)
def test_the_api_of_a_group_is_measured_by_its_own_model(
    group: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cluster_verify.files, "read_json", lambda name: asked.append(name) or {})
    assert cluster_verify.serving({"group": group}) == {
        "error": f"{path} names no model: nothing is served here (run site.yml)"
    }
    assert asked == [path]
