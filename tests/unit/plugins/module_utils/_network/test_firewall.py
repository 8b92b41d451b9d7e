# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall import restore_text


def test_restore() -> None:
    assert restore_text("").splitlines() == ["table inet sparkthor", "delete table inet sparkthor"]
    assert restore_text("table inet sparkthor {\n}\n").endswith("table inet sparkthor {\n}\n")
