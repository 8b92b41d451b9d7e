# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What code that takes over a unit of ours finds: no way to more rights."""

from __future__ import annotations

from tests.integration.security.conftest import Target

#: per process: its unit, its name, and whether a set-uid program gives it nothing
NO_NEW_PRIVILEGES = r"""
for unit in $(systemctl list-units --plain --no-legend --state=active 'sparkthor-*.service' | awk '{print $1}'); do
  for pid in $(cat $(find /sys/fs/cgroup$(systemctl show -P ControlGroup $unit) -name cgroup.procs) 2>/dev/null); do
    echo $unit $(cat /proc/$pid/comm) $(awk '/^NoNewPrivs/ {print $2}' /proc/$pid/status)
  done
done
"""


def test_a_set_uid_program_gives_nobody_anything(target: Target) -> None:
    for host in target.hosts:
        rows = [line.split() for line in target.run(host, NO_NEW_PRIVILEGES).splitlines()]
        assert {"sparkthor-ray.service", "sparkthor-vllm.service"} & {row[0] for row in rows}
        assert [row for row in rows if row[-1] != "1"] == []
