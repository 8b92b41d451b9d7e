# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster that serves nobody writes into its journals."""

from __future__ import annotations

import json
import time
from collections import Counter

from tests.integration.conftest import Cluster

SECONDS = 180
#: of one host, with all fields of each line
BYTES_A_DAY = 50_000_000


def test_an_idle_cluster_writes_little(cluster: Cluster) -> None:
    time.sleep(SECONDS)
    for host in cluster.hosts:
        found = cluster.run(host, f"journalctl --no-pager --all -o json --since='-{SECONDS}s'")
        lines: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for line in found.splitlines():
            unit = str(json.loads(line).get("_SYSTEMD_UNIT", "kernel"))
            lines[unit] += 1
            size[unit] += len(line.encode())
        for unit in sorted(size):
            a_minute = f"{lines[unit] * 60 / SECONDS:.1f} lines and {size[unit] * 60 / SECONDS:.0f} bytes a minute"
            print(f"\n{host} {unit}: {a_minute}", end="")
        ours = sum(count for unit, count in size.items() if unit.startswith("sparkthor"))
        print(f"\n{host}: ours {ours * 86400 / SECONDS / 1e6:.1f} MB a day")
        assert ours * 86400 / SECONDS < BYTES_A_DAY, size
