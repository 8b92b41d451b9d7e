# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import play_roles

from tests.unit.plays import task


def test_the_roles_of_a_run_are_those_that_its_tags_select() -> None:
    first, second = task("a"), task("a")
    block = SimpleNamespace(block=[first, second], rescue=[task("b", selected=False)], always=[task("c")])
    play = SimpleNamespace(tasks=[block, task(""), task("d", implicit=True)], only_tags=["x"], skip_tags=[])
    found = play_roles.role_tasks(play, {})
    assert list(found) == ["a", "c"]
    assert found["a"] is first
    assert play_roles.in_play(play) == {"a", "b", "c"}
