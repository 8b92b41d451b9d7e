# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One revision of a model for all hosts, or none."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import revisions
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.revisions import plan_revisions

OLD, NEW = "tiny@" + "a" * 16, "tiny@" + "b" * 16
AGREED = {"a": {"models": {"tiny": OLD}}, "b": {"models": {"tiny": OLD, "other": "other@" + "c" * 16}}}
TORN = {"a": {"models": {"tiny": OLD}}, "b": {"models": {"tiny": NEW}}, "c": {}}


def test_what_the_run_brings_is_planned_for_all_hosts() -> None:
    assert plan_revisions(AGREED, {"tiny": NEW}, ["tiny"]) == ({"tiny": NEW}, [])
    assert plan_revisions(TORN, {"tiny": NEW}, ["tiny"]) == ({"tiny": NEW}, [])


def test_until_the_controller_has_it_the_hosts_own_is_planned() -> None:
    assert plan_revisions(AGREED, {}, ["tiny"]) == ({"tiny": OLD}, [])
    assert plan_revisions(TORN, {}, ["tiny"]) == ({}, []), "the run brings one, and then there is one plan"


def test_a_run_that_brings_no_models_serves_what_all_hosts_have() -> None:
    assert plan_revisions(AGREED, None, ["tiny"]) == ({"tiny": OLD}, [])
    assert plan_revisions({"a": {}, "b": {"models": {}}}, None, ["tiny"]) == ({}, []), "folders of an earlier version"


def test_and_stops_where_they_have_different_ones() -> None:
    _found, [finding] = plan_revisions(TORN, None, ["tiny"])
    for part in ("model_store_models: 'tiny'", f"a {OLD}, b {NEW}, c none", "run site.yml without --tags"):
        assert part in str(finding)
    assert plan_revisions(TORN, None, ["other"]) == ({}, []), "nobody serves it"


def test_a_model_of_the_head_alone_is_asked_of_nobody_else() -> None:
    cluster = {"hosts": ["one", "two"], "head": "one"}
    assert revisions.holders(cluster) == ["one", "two"]
    assert revisions.holders({**cluster, "serving": {"model": "m"}}) == ["one", "two"]
    assert revisions.holders({**cluster, "serving": {"everywhere": False}}) == ["one"]
