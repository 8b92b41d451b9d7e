# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real recipes on a Spark that two serving groups share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.beside import Beside
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import beside, sharing
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.beside import PINNED, UTILIZATION, Share
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import ServingError, plan_whole

from tests.unit import planned_cluster
from tests.unit.gguf_files import small_model

GIB = 2**30
MEMORY = int(121.69 * GIB)
HOSTS = ["a", "b", "c"]
BIG = {"vllm_serve_recipe": "qwen3.5-397b-a17b-nvfp4"}
EMBED = {"vllm_serve_recipe": "qwen3-embedding-0.6b", "vllm_serve_max_model_len": 8192}


def nodes(available: int = 0) -> dict[str, dict[str, Any]]:
    return {host: {"mem_total_bytes": MEMORY, "mem_available_bytes": available} for host in HOSTS}


def cluster(group: str, hosts: list[str], **more: Any) -> dict[str, Any]:
    return {
        **{"group": group, "hosts": hosts, "head": hosts[0], "workers": hosts[1:], "topology": "switch"},
        **{
            "kinds": dict.fromkeys(hosts, "spark"),
            "gpus": dict.fromkeys(hosts, 1),
            "world": len(hosts),
            "profile": "roce",
        },
        **more,
    }


def own(variables: dict[str, Any]) -> dict[str, Any]:
    found = cluster("big", HOSTS)
    found["serving"] = plan_whole(variables, found, nodes())
    return {**found, "runtime": "container", "image": "img"}


def planned(given: dict[str, Any], variables: dict[str, Any] | None = None) -> tuple[dict[str, Any], Share]:
    found = cluster("embed", ["a"])
    variables = BIG if variables is None else variables
    share = sharing.plan_beside(found, given, own(variables), variables, nodes())
    return found, share


def test_a_small_model_gets_what_it_needs_and_no_more() -> None:
    found, share = planned(EMBED)
    args = found["serving"]["args"]
    # 8192 tokens of 114,688 bytes, and a quarter more
    assert args[PINNED] == share.cache == 1152 * 2**20
    assert share.total <= args[UTILIZATION] * MEMORY < share.total + 0.001 * MEMORY
    assert share.total < 6 * GIB
    assert (found["serving"]["max_model_len"], found["runtime"], found["image"]) == (8192, "container", "img")
    assert found["given"] == EMBED


def test_the_inventory_may_say_how_much_cache() -> None:
    found, share = planned({**EMBED, "vllm_serve_args": {"kv_cache_memory_bytes": 2 * GIB}})
    assert found["serving"]["args"][PINNED] == share.cache == 2 * GIB
    found, share = planned({**EMBED, "vllm_serve_args": {UTILIZATION: 0.1}})
    assert found["serving"]["args"][UTILIZATION] == 0.1
    assert 0.099 * MEMORY < share.total <= 0.1 * MEMORY


def test_the_large_model_gets_the_rest() -> None:
    large = own(BIG)
    assert large["serving"]["args"][UTILIZATION] == 0.85
    _found, share = planned(EMBED)
    serving, problems, line = sharing.plan_own(large, [share], BIG, nodes())
    assert problems == []
    taken = serving["args"][UTILIZATION] * MEMORY + share.total
    assert 0.849 * MEMORY < taken <= 0.85 * MEMORY
    # the plan of its cache is that of the smaller share
    assert serving["memory"]["gpu_memory_utilization"] == serving["args"][UTILIZATION]
    assert line.startswith("memory of a: 103.4 GiB of 121.7 GiB planned: big 98.4 GiB (weights 74.2 GiB,")
    assert f"embed {share.total / GIB:.1f} GiB" in line


def test_what_the_inventory_says_of_the_large_model_stands_or_is_refused() -> None:
    variables = {**BIG, "vllm_serve_args": {UTILIZATION: 0.8}}
    serving, problems, _line = sharing.plan_own(own(variables), [Share("embed", 5 * GIB)], variables, nodes())
    assert (serving["args"][UTILIZATION], problems) == (0.8, [])
    _serving, [problem], _line = sharing.plan_own(own(variables), [Share("embed", 20 * GIB)], variables, nodes())
    assert "host a: its serving groups need 117.4 GiB together and 109.5 GiB may be taken" in str(problem)


def test_a_large_model_that_no_longer_fits_is_refused_with_what_it_shares_with() -> None:
    with pytest.raises(ServingError) as refused:
        sharing.plan_own(own(BIG), [Share("embed", 40 * GIB, 30 * GIB, 4 * GIB)], BIG, nodes())
    for words in ("does not fit", "a: ", "It shares a with embed 40.0 GiB (weights 30.0 GiB", "host of its own"):
        assert words in str(refused.value)


def test_memory_that_others_hold_is_not_there_twice() -> None:
    _found, share = planned(EMBED)
    with pytest.raises(ServingError, match="is available now"):
        sharing.plan_own(own(BIG), [share], BIG, nodes(available=int(0.82 * MEMORY)))


def test_a_pinned_cache_of_the_large_model_is_left_and_its_share_is_told_to_vllm() -> None:
    """vLLM asks for its share of the memory at the start, whatever its cache."""
    variables = {**BIG, "vllm_serve_args": {PINNED: 10 * GIB}}
    serving, problems, _line = sharing.plan_own(own(variables), [Share("embed", 5 * GIB)], variables, nodes())
    assert (serving["args"][PINNED], problems) == (10 * GIB, [])
    assert 0.7 < serving["args"][UTILIZATION] < 0.8


@pytest.mark.parametrize(
    ("given", "variables", "words"),
    [
        ({"vllm_serve_recipe": "qwen3.5-397b-a17b-nvfp4"}, BIG, ["group embed on a", "3 hosts"]),
        ({"vllm_serve_model": "org/unknown"}, BIG, ["group embed on a", "not known", "kv-cache-memory-bytes"]),
        (
            {"vllm_serve_model": "org/unknown", "vllm_serve_args": {PINNED: GIB}},
            BIG,
            ["group embed on a", "size of its model is not known", "host of its own"],
        ),
        (
            EMBED,
            {**BIG, "model_store_models": [{"name": "Qwen3.5-397B-A17B-NVFP4", "source": "nvidia/x"}]},
            ["model_store_models lacks its model Qwen3-Embedding-0.6B", "add it"],
        ),
    ],
)
def test_what_cannot_be_served_beside_says_which_group(
    given: dict[str, Any], variables: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ServingError) as refused:
        planned(given, variables)
    assert [word for word in words if word not in str(refused.value)] == [], refused.value


def test_hosts_that_cannot_be_shared() -> None:
    assert sharing.refused(own(BIG), ["embed"], BIG) == []
    [several] = sharing.refused({**own(BIG), "gpus": {"a": 2}}, ["embed"], BIG)
    assert "host a: it has 2 GPUs, and embed beside big needs a host with one" in str(several)
    [smaller] = sharing.refused(own(BIG), ["embed"], {**BIG, "vllm_serve_degraded_after": "60"})
    assert "vllm_serve_degraded_after" in str(smaller)
    assert "embed" in str(smaller)


def test_the_model_store_brings_all_models_once() -> None:
    large, small = own(BIG)["serving"], planned(EMBED)[0]["serving"]
    found = sharing.with_models(large, [small, small])
    assert [model["name"] for model in found["models"]] == ["Qwen3.5-397B-A17B-NVFP4", "Qwen3-Embedding-0.6B"]
    assert found["beside"] == ["Qwen3-Embedding-0.6B"] * 2
    assert beside.UTILIZATION in small["args"]


def test_the_model_store_brings_what_another_group_serves_in_its_form() -> None:
    large, small = own(BIG)["serving"], planned(EMBED)[0]["serving"]
    listed = {"name": "small", "source": "owner/small"}
    large = {**large, "models": [*large["models"], listed]}
    found = sharing.with_models(large, [{**small, "model": "small", "models": [{**listed, "pattern": "*.gguf"}]}])
    assert [model.get("pattern") for model in found["models"]] == [None, "*.gguf"]


POLICY = {"idle_minutes": 30, "every_minutes": 10, "not_between": ""}


def together(*others: Beside, runtime: str = "container", **more: Any) -> sharing.Together:
    variables = {**BIG, **more}
    first, large, fabric, facts = planned_cluster.planned(HOSTS, **variables)
    facts = {host: {**node, **nodes()[host]} for host, node in facts.items()}
    return sharing.plan_together(
        {**large, **own(BIG), "runtime": runtime}, others, variables, dict.fromkeys(HOSTS, first), facts, fabric, None
    )


def test_all_groups_of_a_host_are_planned_together() -> None:
    found = together(Beside("embed", "a", EMBED), Beside("rank", "a", {**EMBED, "vllm_serve_max_model_len": 4096}))
    assert found.problems == []
    assert [(name, plan["group"], plan["hosts"]) for name, plan in found.beside.items()] == [
        ("embed", "embed", ["a"]),
        ("rank", "rank", ["a"]),
    ]
    taken = [plan["args"][UTILIZATION] for plan in (found.serving, *(one["serving"] for one in found.beside.values()))]
    assert 0.84 < sum(taken) < 0.86
    assert found.serving["beside"] == ["Qwen3-Embedding-0.6B"] * 2
    assert [word in found.line for word in ("memory of a: ", "big ", "embed ", "rank ")] == [True] * 4
    assert found.warnings == [line for plan in found.beside.values() for line in plan["serving"]["warnings"]]


def test_a_host_that_cannot_be_shared_is_told_before_anything_is_planned() -> None:
    unknown = Beside("embed", "a", {"vllm_serve_recipe": "no-such-recipe"})
    found = together(unknown, vllm_serve_degraded_after=60)
    assert ["vllm_serve_degraded_after" in str(problem) for problem in found.problems] == [True]
    assert (found.serving, found.beside) == ({}, {})
    with pytest.raises(ServingError, match=r"group embed on a: .*no-such-recipe"):
        together(unknown)


def test_groups_that_take_turns_share_no_memory() -> None:
    found = together(Beside("embed", "a", {**EMBED, "on_demand": POLICY}))
    assert found.problems == []
    # each has the usual share
    assert found.serving["args"][UTILIZATION] == 0.85
    args = found.beside["embed"]["serving"]["args"]
    assert (args[UTILIZATION], PINNED in args) == (0.85, False)
    assert "; on demand instead of big: embed 103.4 GiB" in found.line
    assert together(Beside("embed", "a", EMBED)).serving["args"][UTILIZATION] < 0.85
    # it shares with those that always serve
    always = Beside("rank", "a", {**EMBED, "vllm_serve_args": {PINNED: 10 * GIB}})
    beside_always = together(always, Beside("embed", "a", {**EMBED, "on_demand": POLICY}))
    assert beside_always.problems == []
    assert beside_always.beside["embed"]["serving"]["args"][UTILIZATION] < 0.75
    # what the inventory asks for is not changed, and has to fit
    much = {**EMBED, "on_demand": POLICY, "vllm_serve_args": {UTILIZATION: 0.85}}
    [problem] = together(always, Beside("embed", "a", much)).problems
    assert "need 1" in str(problem)
    assert "embed 103.4 GiB" in str(problem)


def gguf(model: str, **more: Any) -> Beside:
    given = {"serving_engine": "llama_cpp", "vllm_serve_model": model, "vllm_serve_max_model_len": 1000}
    return Beside("gguf", "a", {**given, "on_demand": POLICY, **more})


def test_programs_take_turns_with_the_engine_beside_which_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "small.gguf")
    found = together(gguf("./small.gguf"), runtime="venv", engine_programs="/srv/llama")
    assert found.problems == []
    # vLLM has all that it would have alone, and the other one no argument of vLLM's
    assert found.serving["args"][UTILIZATION] == 0.85
    plan = found.beside["gguf"]
    assert (plan["serving"]["engine"], plan["executor"], plan["runtime"]) == ("llama_cpp", "mp", "venv")
    assert {UTILIZATION, PINNED} & set(plan["serving"]["args"]) == set()
    assert plan["serving"]["args"]["ctx-size"] == 1024
    taken = sum(plan["serving"]["memory"]["ranks"]["budget_bytes"])
    assert f"; on demand instead of big: gguf {taken / GIB:.1f} GiB" in found.line
    assert [model["name"] for model in found.serving["models"]] == ["Qwen3.5-397B-A17B-NVFP4", "small.gguf"]
    # beside one that always serves, what each takes counts
    always = Beside("rank", "a", {**EMBED, "vllm_serve_args": {PINNED: 10 * GIB}})
    large = gguf("./small.gguf", vllm_serve_args={"cache-ram": 100_000})
    assert together(large, runtime="venv", engine_programs="/srv/llama").problems == []
    [problem] = together(always, large, runtime="venv", engine_programs="/srv/llama").problems
    assert "its serving groups need 11" in str(problem)


def test_a_model_whose_size_nobody_knows_takes_turns_and_the_run_says_so() -> None:
    found = together(gguf("owner/quants:Q4_K_M"), runtime="venv", engine_programs="/srv/llama")
    assert found.problems == []
    assert found.line.endswith("; on demand instead of big: gguf, whose memory is not planned")


@pytest.mark.parametrize(
    ("given", "runtime", "programs", "words"),
    [
        ({"on_demand": None}, "venv", "/srv/llama", "memory of llama.cpp is not planned beside big; add on_demand"),
        ({}, "container", "/srv/llama", "llama.cpp cannot do a container"),
        ({}, "venv", "", "no folder has them"),
        ({"serving_engine": "sglang"}, "venv", "/srv/llama", "serving_engine=sglang: the engine of a host is one"),
    ],
)
def test_another_engine_that_cannot_take_turns_is_refused(
    given: dict[str, Any], runtime: str, programs: str, words: str
) -> None:
    with pytest.raises(ServingError, match="group gguf on a") as refused:
        together(gguf("owner/quants:Q4_K_M", **given), runtime=runtime, engine_programs=programs)
    assert words in str(refused.value)
