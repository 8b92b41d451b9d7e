# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's plan by the role's name."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles


def test_what_a_plan_lacks_is_said() -> None:
    expected = "the plan of this run lacks 'a'; run the preflight role first, on all hosts"
    assert roles.explained(KeyError("a")) == expected
    assert roles.explained(ValueError("x: no")) == "x: no"


def test_a_role_without_a_plan_is_named() -> None:
    with pytest.raises(ValueError, match="'firewall' is not a role with a plan; choose one of engine"):
        roles.plan("firewall", {})
