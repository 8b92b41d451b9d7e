# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form in which a listed model comes to a host follows the engine that serves it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import listed_models

MIXED, TINY = {"name": "mixed", "source": "owner/mixed"}, {"name": "tiny", "source": "owner/tiny"}
GGUF = {**MIXED, "pattern": "*.gguf"}


def plan(model: str, *models: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": model, "models": list(models), **more}


def test_what_an_engine_for_gguf_serves_is_fetched_in_gguf_and_nothing_else() -> None:
    assert listed_models.in_form([TINY, MIXED], "mixed", [], {"gguf"}) == [TINY, GGUF]
    assert listed_models.in_form([TINY, MIXED], "mixed", [], {"safetensors"}) == [TINY, MIXED]
    # a quantization that the model's name has
    own = [{"name": "mixed", "source": "owner/mixed", "pattern": "*Q4*.gguf"}]
    assert listed_models.in_form([MIXED], "mixed", own, {"gguf"}) == [{**MIXED, "pattern": "*Q4*.gguf"}]
    assert listed_models.in_form([], "mixed", own, {"gguf"}) == own


@pytest.mark.parametrize(
    "said",
    [{"pattern": "*Q8*"}, {"files": ["a.gguf"]}, {"layout": "hub"}, {"source": "https://x/m"}, {"source": "./m.gguf"}],
)
def test_who_says_what_is_meant_is_believed(said: dict[str, Any]) -> None:
    entry = {**MIXED, **said}
    assert listed_models.in_form([entry], "mixed", [], {"gguf"}) == [entry]
    assert listed_models.as_served(plan("tiny", entry), [plan("mixed", GGUF)]) == [entry]


def test_hosts_of_other_groups_have_it_in_the_same_form() -> None:
    clusters = [{"serving": plan("tiny", TINY, MIXED)}, {"serving": plan("mixed", TINY, GGUF)}, {}]
    listed_models.agree(clusters)
    assert [one["serving"]["models"] for one in clusters[:2]] == [[TINY, GGUF], [TINY, GGUF]]


def test_a_group_keeps_the_form_of_what_it_serves_itself() -> None:
    for own in (
        plan("mixed", MIXED),
        plan("tiny", MIXED, degraded={"model": "mixed"}),
        plan("tiny", MIXED, beside=["mixed"]),
    ):
        assert listed_models.as_served(own, [plan("mixed", GGUF)]) == [MIXED]
    # and another source under the same name is another model
    other = {**MIXED, "source": "owner/other"}
    assert listed_models.as_served(plan("tiny", other), [plan("mixed", GGUF)]) == [other]
