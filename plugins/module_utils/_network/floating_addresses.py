# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of ours that go from host to host, such as that of the front proxies: on a host, yet in no file of it.

Whoever looks at a host's addresses has to ask here, or takes ours for a stranger's.
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import places


def known(given: Iterable[str], declared: str = places.DECLARED) -> set[str]:
    """Those that the inventory gives, and the one that the newest play set up here, all without a length."""
    here = str(read_json(declared).get("virtual_address") or "")
    return {str(address).partition("/")[0].strip() for address in (*given, here)} - {""}
