# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter's example gives what it says, and a query that cannot be run says why."""

from __future__ import annotations

import re

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.filter import json_query


def test_the_example() -> None:
    (task,) = yaml.safe_load(json_query.EXAMPLES)
    (query,) = re.findall(r"sparkthor\.cluster\.json_query\('(.+)'\)", task["ansible.builtin.debug"]["msg"])
    (json_filter,) = json_query.FilterModule().filters().values()
    assert json_filter(task["vars"]["ray"], query) == ["10.10.0.1", "10.10.0.2"]


def test_what_cannot_be_asked() -> None:
    with pytest.raises(AnsibleFilterError, match=r"json_query: 'a\[': .*jmespath\.org"):
        json_query.json_query({}, "a[")
    with pytest.raises(AnsibleFilterError, match="not JSON serializable"):
        json_query.json_query({"a": object()}, "a")
