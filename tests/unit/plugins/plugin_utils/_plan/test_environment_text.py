# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import environment_text


def test_environment_is_sorted_and_quoted_as_systemd_reads_it() -> None:
    text = environment_text.environment_text({"b": 'x"y', "A": "$h `c` \\n", "c": 3})
    assert text.splitlines() == [environment_text.MARKER, 'A="\\$h \\`c\\` \\\\n"', 'b="x\\"y"', 'c="3"']
    assert text.endswith("\n")
