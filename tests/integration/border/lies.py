# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts lie about, in folders and on the lab."""

from __future__ import annotations

import re
from typing import Any

#: the clipboard, the other screen, eight-bit sequences, text that runs backwards
HOSTILE = "\x1b]52;c;eA==\x07\x1b[?1049h\x9b2J\u202e\x08"
ACTED_ON = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")

#: what a host would like to decide
FORGED: dict[str, Any] = {
    "model_store_models": ["/root/.ssh"],
    "firewall_sources": ["0.0.0.0/0"],
    "inventory_dir": "/forged",
    "inventory_hostname": "forged",
    "sparkthor_secrets_dir": "/forged",
    "sparkthor_cluster": {"head": "forged"},
    "sparkthor_fabric": {"forged": {}},
    "serving_groups": ["forged"],
    "engine_requirements": "/forged",
}
LIE: dict[str, Any] = {
    "ansible_facts": FORGED,
    "add_host": {"host_name": "forged", "groups": ["cluster"], "host_vars": FORGED},
    "add_group": "forged",
    "ansible_stats": {"data": {"forged": 1}, "per_host": False, "aggregate": False},
}
#: under which a later step reads what hosts said
NAMES = ("status", "evidence", "capture", "configurations", "need", "models", "results", "converged", "drift", "probe")
#: answers that are no answers to what was asked
SHAPES: tuple[Any, ...] = ({HOSTILE: {HOSTILE: HOSTILE}}, HOSTILE, [HOSTILE])
