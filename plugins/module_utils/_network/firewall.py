# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rulesets around the cluster's own nftables table: the way back, and the way in.

Only the table ``inet sparkthor`` is ours, and only what is addressed to the host itself is judged in it.  Forwarding
(Docker's business) and every other table stay as they are.
"""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_watch import TABLE


class FirewallError(ValueError):
    """The ruleset cannot be loaded or kept; the message says why, and the fix."""


def restore_text(listing: str) -> str:
    """A ruleset that brings our table back to a listing taken before, or takes it away if there was none."""
    return f"table inet {TABLE}\ndelete table inet {TABLE}\n{listing}"


# Judges nothing.  While it is loaded the kernel starts to follow the connections that are already there.
WARM_UP = f"""table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
\tchain input {{
\t\ttype filter hook input priority filter; policy accept;
\t\tct state new accept
\t}}
}}
"""
