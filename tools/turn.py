# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the scenarios that CI runs besides its own at this commit: one line of ``TURNS`` after the other."""

from __future__ import annotations

from tools import test_full

#: by the count of commits; each line takes at most 15 minutes on two cores, and there are at most twelve
TURNS: tuple[tuple[str, ...], ...] = (
    ("switch4", "direct"),
    ("verify",),
    ("model_store_short",),
    ("border",),
    ("border_serve",),
    ("nm",),
    ("lifecycle_cables",),
    ("engines_trt",),
    ("ray_container",),
    ("doctor",),
)
#: what takes longer than 15 minutes on two cores, or was not measured yet: the nightly workflow alone runs these
NIGHTLY: tuple[str, ...] = (
    *("doctor_serving", "engines", "examples", "faults", "groups", "groups_beside", "groups_demand", "host_faults"),
    *("lifecycle", "lifecycle_hosts", "lifecycle_models", "model_store", "page", "ray", "readme", "rings"),
    *("rings_serve", "security", "serve", "serve_container", "sglang", "spark_containers", "tune"),
)


def turn(commits: int) -> tuple[str, ...]:
    """The scenarios in turn after so many commits."""
    return TURNS[commits % len(TURNS)]


if __name__ == "__main__":
    print(*turn(int(test_full.git("rev-list", "--count", "HEAD"))))
