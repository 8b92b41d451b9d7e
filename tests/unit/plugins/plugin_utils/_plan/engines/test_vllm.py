# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by


@pytest.mark.parametrize("engine", ["vllm", None])
def test_a_rank_without_ray_starts_it_with_its_file(variables: dict[str, Any], engine: str | None) -> None:
    found = files(plan(started_by(variables, "mp"), serving_engine=engine))
    group = json.loads(found["/etc/sparkthor/group.json"])
    assert group["command"][-4:] == ["/opt/sparkthor/venv/bin/vllm", "serve", "--config", "/etc/sparkthor/vllm.yaml"]
    assert "engine" not in group, "a group that has had no other one keeps its files"
