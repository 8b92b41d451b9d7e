# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import patience, rank_state


def test_old_news_of_the_head_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"updated": time.time() - 60, "ranks": {"127.0.0.1": "a"}}))
    assert rank_state.published(str(path)) == {}
    assert rank_state.ranks(str(path)) is None
    assert rank_state.ranks(str(tmp_path / "absent")) is None


def test_signs_of_life_by_host_whatever_a_host_sent(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert rank_state.signs(str(path)) == {}
    signs = {"a": {"cores": 0.5, "stopped": True}, "b": "odd"}
    path.write_text(json.dumps({"updated": time.time(), "signs": signs}))
    assert rank_state.signs(str(path)) == {"a": patience.Signs(0.5, True), "b": patience.Signs()}
    path.write_text(json.dumps({"updated": time.time(), "signs": ["odd"]}))
    assert rank_state.signs(str(path)) == {}


@pytest.mark.parametrize("updated", ["1" + "0" * 400, "null", "true", '"now"', "[]", "Infinity", "NaN"])
def test_a_time_that_is_none_is_long_ago(tmp_path: Path, updated: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(f'{{"updated": {updated}, "ranks": {{"127.0.0.1": "a"}}}}')
    assert rank_state.published(str(path)) == {}
