# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray of a former head stays down until it is declared head again, so that comes between Ray's checks and its start."""

from __future__ import annotations

from tests.unit.plays import plays


def test_the_head_is_declared_after_the_checks_and_before_ray_starts() -> None:
    steps = []
    for play in plays("site"):
        for task in play["tasks"]:
            told = task.get("ansible.builtin.import_role", {})
            steps.append(
                (told.get("name", "").rpartition(".")[2], told.get("tasks_from", "main.yml"), task.get("tags"))
            )
    order = [(role, file) for role, file, _tags in steps]
    declared = order.index(("vllm_serve", "declare.yml"))
    assert order.index(("ray_node", "prepare.yml")) < declared < order.index(("ray_node", "main.yml"))
    # whoever runs Ray alone starts a former head as well
    assert {"ray", "ray_head", "ray_worker"} <= set(steps[declared][2])
