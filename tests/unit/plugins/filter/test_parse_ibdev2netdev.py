# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.filter.parse_ibdev2netdev import FilterModule

PARSE = FilterModule().filters()["parse_ibdev2netdev"]


def test_the_filter_returns_the_links() -> None:
    assert PARSE("rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)\n") == [
        {"device": "rocep1s0f0", "port": 1, "netdev": "enp1s0f0np0", "state": "up"}
    ]


def test_an_unreadable_line_is_a_filter_error_with_its_number() -> None:
    with pytest.raises(AnsibleFilterError, match="line 2 is not in a known form: 'nonsense'"):
        PARSE("rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)\nnonsense\n")


def test_something_other_than_text_is_a_filter_error() -> None:
    with pytest.raises(AnsibleFilterError, match="as text, not list"):
        PARSE([])
