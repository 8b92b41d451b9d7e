# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However an argument is written, the same is planned and served."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import newest_table
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_spelling import canonical, layered

from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL
from tests.unit.published_models import model

NEW = newest_table()
MTP = {"method": "mtp", "num_speculative_tokens": 2}
NGRAM = {"speculative-config": {"method": "ngram"}}


def planned(args: dict[str, Any], given: dict[str, Any] | None = None, **known: Any) -> dict[str, Any]:
    data = {**MINIMAL, "args": args, "config": model("qwen3.6-35b-a3b"), "max_model_len": 32768}
    overrides = {"args": given or {}, **known.pop("overrides", {})}
    return resolve(data, ["a"], memory_bytes=120 << 30, overrides=overrides, **{"version": "0.33.0", **known})


SPELLINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"no-enable-chunked-prefill": True}, {"enable-chunked-prefill": False}),
    ({"disable_chunked_prefill": True}, {"enable-chunked-prefill": False}),
    ({"no-disable-chunked-prefill": False}, {"enable-chunked-prefill": False}),
    ({"no-enable-prefix-caching": True}, {"enable-prefix-caching": False}),
    ({"device-memory-utilization": 0.6}, {"gpu-memory-utilization": 0.6}),
    ({"speculative-config.method": "mtp", "speculative-config.num_speculative_tokens": 2}, {"speculative-config": MTP}),
    ({"spec-method": "mtp", "spec-tokens": 2}, {"speculative-config": MTP}),
    ({"speculative-config": {"method": "mtp"}, "spec_tokens": 2}, {"speculative-config": MTP}),
    ({"speculative-config": '{"method": "mtp", "num_speculative_tokens": 2}'}, {"speculative-config": MTP}),
]


@pytest.mark.parametrize(("written", "meant"), SPELLINGS, ids=[" ".join(written) for written, _meant in SPELLINGS])
@pytest.mark.parametrize("version", ["0.33.0", None])
def test_every_spelling_is_planned_and_served(
    written: dict[str, Any], meant: dict[str, Any], version: str | None
) -> None:
    wanted = planned(meant, version=version)
    for found in (planned(written, version=version), planned({}, written, version=version)):
        assert [found[part] for part in ("args", "sizing", "memory")] == [
            wanted[part] for part in ("args", "sizing", "memory")
        ]
    assert wanted["memory"] != planned({}, version=version)["memory"]


@pytest.mark.parametrize(
    ("theirs", "own", "served"),
    [
        ({"gpu-memory-utilization": 0.8}, {"device-memory-utilization": 0.6}, {"gpu-memory-utilization": 0.6}),
        ({"enable-chunked-prefill": True}, {"disable-chunked-prefill": True}, {"enable-chunked-prefill": False}),
        ({"disable-prefix-caching": True}, {"no-enable-prefix-caching": None}, {}),
        ({"speculative-config": MTP}, {"spec-tokens": 1}, {"speculative-config": {**MTP, "num_speculative_tokens": 1}}),
        (
            {"spec-method": "mtp"},
            {"speculative-config": {"method": "ngram"}},
            {"speculative-config": {"method": "ngram"}},
        ),
        ({"speculative-config.method": "mtp"}, {"speculative-config": None}, {}),
        ({"a-fork-knows": True, "seed": 1}, {"no-a-fork-knows": True}, {"seed": 1, "no-a-fork-knows": True}),
        ({}, {"compilation-config.splitting_ops+": "a,b"}, {"compilation-config": {"splitting_ops": ["a", "b"]}}),
    ],
)
def test_the_last_layer_wins_whichever_spelling_each_has(
    theirs: dict[str, Any], own: dict[str, Any], served: dict[str, Any]
) -> None:
    assert layered(NEW, canonical(theirs, NEW), canonical(own, NEW)) == served


def test_a_drafter_of_the_users_own_spelling_is_kept_on_two_stages() -> None:
    data = {**MINIMAL, "hosts": 2, "args": {"spec-method": "mtp"}, "config": model("qwen3.6-35b-a3b")}
    split = {"tensor_parallel": 1, "pipeline_parallel": 2}
    found = [
        resolve(data, ["a", "b"], version="0.33.0", overrides={**split, "args": args})["args"]
        for args in ({}, {"spec-method": "mtp"})
    ]
    assert ["speculative-config" in args for args in found] == [False, True]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"gpu-memory-utilization": 0.7, "device-memory-utilization": 0.6}, "is the same option as"),
        ({"spec-method": "mtp", "speculative-config": MTP}, "spec-method: 'mtp': is the same as method of"),
        ({"no-enable-prefix-caching": 3}, "no-enable-prefix-caching: 3: is a switch"),
        ({"spec-method": "mpt"}, "speculative-config.method: 'mpt': vLLM 0.33.0 does not know it"),
        ({"seed.more": 1}, "seed takes no fields"),
        ({"speculative-config": "a-file.json", "speculative-config.num_speculative_tokens": 2}, "keep one of the two"),
    ],
)
def test_what_is_given_twice_or_cannot_be_is_refused_by_its_name(args: dict[str, Any], text: str) -> None:
    with pytest.raises(RecipeError) as stopped:
        planned({}, args)
    assert text in str(stopped.value)
