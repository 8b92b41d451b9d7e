# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is served by recipe or by variables alone, and without one of the hosts."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import serving as _serving
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import SHIPPED
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import (
    READ_OF_HEAD,
    plan_degraded,
    plan_serving,
)

from tests.unit.planned_cluster import GIB, planned


def test_a_recipe_becomes_what_the_roles_serve():
    first, cluster, _fabric, nodes = planned(["a", "b", "c"], vllm_serve_recipe="qwen3.5-397b-a17b-nvfp4")
    serving = plan_serving(first, cluster, nodes, ".")
    assert (serving["tensor_parallel"], serving["pipeline_parallel"]) == (1, 3)
    assert serving["model"] == "Qwen3.5-397B-A17B-NVFP4"
    assert serving["models"] == [
        {"name": "Qwen3.5-397B-A17B-NVFP4", "source": "nvidia/Qwen3.5-397B-A17B-NVFP4", "revision": ""}
    ]
    assert serving["args"]["gpu-memory-utilization"] == 0.85
    assert serving["why"]


def test_ranks_of_two_pairs_follow_the_cables_of_a_ring_and_ray_is_refused_there():
    mine = {"vllm_serve_recipe": "minimax-m2.7-nvfp4", "vllm_serve_tensor_parallel_size": 2}
    first, cluster, _fabric, nodes = planned(["a", "b", "c", "d"], **mine)
    assert plan_serving(first, cluster, nodes, ".")["ranks"] == ["a", "b", "c", "d"]
    cluster = {**cluster, "topology": "ring"}
    with pytest.raises(RecipeError, match="vllm_serve_executor: ray gives ranks to hosts in an order of its own"):
        plan_serving({**first, "vllm_serve_executor": "ray"}, cluster, nodes, ".")
    assert plan_serving(first, cluster, nodes, ".")["executor"] == "mp"
    serving = plan_serving({**first, "vllm_serve_executor": "mp"}, cluster, nodes, ".")
    assert (serving["tensor_parallel"], serving["pipeline_parallel"]) == (2, 2)
    assert serving["ranks"] == ["a", "b", "d", "c"]
    assert serving["why"].count("each pair reduces in 2 steps over a cable of its own") == 1


def test_the_hardware_inventory_of_a_ring_of_four_can_be_served_and_says_what_its_split_costs():
    text = (Path(SHIPPED).parent / "inventories/4spark_ring/group_vars/cluster.yml").read_text()
    mine = {name: value for name, value in yaml.safe_load(text).items() if name.startswith("vllm_serve")}
    first, cluster, _fabric, nodes = planned(["a", "b", "c", "d"], **mine)
    serving = plan_serving(first, {**cluster, "topology": "ring"}, nodes, ".")
    assert (serving["tensor_parallel"], serving["ranks"]) == (4, ["a", "b", "c", "d"])
    assert serving["why"].endswith("every all-reduce takes 6 steps from host to host round the ring.")


def test_a_part_of_a_ring_is_a_pair_or_no_ring_at_all():
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe="llama-3.3-70b-nvfp4")
    part = {**cluster, "topology": "ring", "group": "one"}
    assert plan_serving(first, {**part, "profile": "roce"}, nodes, ".")["tensor_parallel"] == 2
    assert plan_serving(first, {**part, "profile": "tcp"}, nodes, ".")["pipeline_parallel"] == 2


def test_a_model_that_vllm_fetches_itself_keeps_its_whole_name_and_is_not_stored(tmp_path):
    # a folder of the same last name in the store is not what will be served
    entry = model_folder(tmp_path / "Qwen3-8B", max_position_embeddings=64)
    mine = {"vllm_serve_model": "Qwen/Qwen3-8B", "vllm_serve_tensor_parallel_size": 2, "vllm_serve_max_model_len": 4096}
    first, cluster, _fabric, nodes = planned(["a", "b"], **mine)
    assert plan_serving(first, cluster, nodes, ".")["model"] == "Qwen3-8B"
    for word in (True, "yes"):
        serving = plan_serving({**first, "vllm_serve_from_hub": word}, cluster, nodes, ".")
        assert serving["model"] == "Qwen/Qwen3-8B"
        assert serving["served_model_name"] == "Qwen3-8B"
        assert serving["models"] == []
    hub = {**first, "vllm_serve_from_hub": True, "model_store_models": [entry]}
    assert plan_serving(hub, cluster, nodes, ".")["memory"] is None
    assert plan_serving({**first, "vllm_serve_from_hub": "false"}, cluster, nodes, ".")["models"]


def test_a_hub_that_does_not_answer_is_why_no_split_can_be_chosen():
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_model="Qwen/Qwen3-8B")
    with pytest.raises(RecipeError, match="no model config to choose it by"):
        plan_serving(first, cluster, nodes, ".")  # nobody was asked
    with pytest.raises(_serving.ServingError) as caught:
        _serving.plan_whole(first, cluster, nodes, lambda *_model: None)
    assert str(caught.value) == (
        "vllm_serve_model: the hub did not answer, and without the config.json of Qwen/Qwen3-8B its split cannot be "
        "chosen. Connect this machine to the hub, set vllm_serve_recipe to a recipe that has it, or name a folder with "
        "the model as its source in model_store_models."
    )
    own = {**first, "vllm_serve_pipeline_parallel_size": 2}
    assert _serving.plan_whole(own, cluster, nodes, lambda *_model: None)["memory"] is None


def test_a_recipe_from_the_hub_brings_its_revision(tmp_path):
    recipe = {
        **{"name": "pinned", "summary": "one", "model": "a/pinned", "revision": "abc123", "runtime": "venv"},
        **{"hosts": "any", "args": {"max-num-seqs": 2}, "split": {"tensor_parallel": 2}},
    }
    (tmp_path / "pinned.yml").write_text(json.dumps(recipe))
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe="./pinned.yml", vllm_serve_from_hub=True)
    serving = plan_serving(first, cluster, nodes, str(tmp_path))
    assert (serving["model"], serving["args"]["revision"]) == ("a/pinned", "abc123")
    own = {**first, "vllm_serve_args": {"revision": "main"}}
    assert plan_serving(own, cluster, nodes, str(tmp_path))["args"]["revision"] == "main"
    store = plan_serving({**first, "vllm_serve_from_hub": False}, cluster, nodes, str(tmp_path))
    assert store["models"] == [{"name": "pinned", "source": "a/pinned", "revision": "abc123"}]
    assert "revision" not in store["args"]


def test_status_and_verify_gather_all_that_the_plan_reads():
    assert {"vllm_serve_from_hub", "vllm_serve_kv_cache_dtype", "vllm_serve_args"} <= set(READ_OF_HEAD)


def test_the_users_own_choice_wins_over_the_recipe():
    first, cluster, _fabric, nodes = planned(
        ["a", "b", "c"],
        vllm_serve_recipe="tiny-qwen3",
        vllm_serve_pipeline_parallel_size=3,
        vllm_serve_max_model_len=256,
    )
    serving = plan_serving(first, cluster, nodes, ".")
    assert serving["pipeline_parallel"] == 3
    assert serving["max_model_len"] == 256


def test_without_a_model_there_is_no_serving_plan():
    first, cluster, _fabric, nodes = planned(["a", "b"])
    assert plan_serving(first, cluster, nodes, ".") == {}


def test_a_model_without_a_recipe_is_checked_all_the_same():
    first, cluster, _fabric, nodes = planned(
        ["a", "b"],
        vllm_serve_model="/srv/models/mine",
        vllm_serve_tensor_parallel_size=2,
        vllm_serve_args={"max_num_seqs": 4, "no-enable-prefix-caching": True},
        engine_vllm_version="0.32.0",
    )
    serving = plan_serving(first, cluster, nodes, ".")
    assert serving["model"] == "/srv/models/mine"
    assert serving["served_model_name"] == "mine"
    assert serving["args"] == {
        "enable-prefix-caching": False,
        "gpu-memory-utilization": 0.85,
        "max-num-seqs": 4,
    }
    for args, words in [
        ({"swap-space": 4}, "no such option any more"),
        ({"quantization": "nvfp4"}, "KV-cache dtype"),
        ({"max-num-seq": 4}, "did you mean max-num-seqs"),
        ({"gpu-memory-utilization": 0.95}, "write vllm_serve_acknowledged: .gpu-memory-utilization."),
        ({"trust-remote-code": True}, "write vllm_serve_acknowledged: .trust-remote-code."),
        ({"tool-call-parser": "hermes"}, "add enable-auto-tool-choice: true"),
    ]:
        with pytest.raises(RecipeError, match=words):
            plan_serving({**first, "vllm_serve_args": args}, cluster, nodes, ".")
    meant = {**first, "vllm_serve_args": {"trust-remote-code": True}, "vllm_serve_acknowledged": ["trust-remote-code"]}
    assert plan_serving(meant, cluster, nodes, ".")["args"]["trust-remote-code"] is True


def test_arguments_with_variables_of_their_own():
    first, cluster, _fabric, nodes = planned(
        ["a", "b"],
        vllm_serve_model="/srv/models/mine",
        vllm_serve_tensor_parallel_size=2,
        vllm_serve_tool_call_parser="hermes",
        vllm_serve_reasoning_parser="qwen3",
        vllm_serve_prefix_caching=False,
        vllm_serve_kv_cache_dtype="fp8",
        vllm_serve_args={"reasoning-parser": "deepseek_r1"},
        engine_vllm_version="0.32.0",
    )
    assert plan_serving(first, cluster, nodes, ".")["args"] == {
        "enable-auto-tool-choice": True,
        "enable-prefix-caching": False,
        "gpu-memory-utilization": 0.85,
        "kv-cache-dtype": "fp8",
        "reasoning-parser": "deepseek_r1",
        "tool-call-parser": "hermes",
    }


@pytest.mark.parametrize(
    "more", [{"vllm_serve_replicas": 2}, {"vllm_serve_args": {"data-parallel-size": 2}}], ids=["variable", "argument"]
)
def test_several_replicas_are_refused_with_what_to_do(more):
    first, cluster, _fabric, nodes = planned(["a", "b", "c", "d"], vllm_serve_recipe="tiny-qwen3", **more)
    with pytest.raises(RecipeError, match="serving group of each replica"):
        plan_serving(first, cluster, nodes, ".")


def test_ranks_beside_those_of_the_split_are_refused_however_they_are_written():
    for name in ("prefill-context-parallel-size", "prefill_context_parallel_size"):
        first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe="tiny-qwen3", vllm_serve_args={name: 2})
        with pytest.raises(RecipeError, match=r"prefill-context-parallel-size=2: multiplies .* Leave it out"):
            plan_serving(first, cluster, nodes, ".")
    first["vllm_serve_args"] = {name: 1}
    assert plan_serving(first, cluster, nodes, ".")["args"]["prefill-context-parallel-size"] == 1


def test_parts_of_a_foreign_recipe_without_a_counterpart_are_named(tmp_path):
    path = tmp_path / "foreign.yaml"
    path.write_text(
        "recipe_version: 1\nmodel: some/model\nruntime: vllm\ncontainer: image:tag\nmods: [patch.sh]\n"
        "defaults: {tensor_parallel: 2, port: 8001}\n"
    )
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe=str(path), engine_vllm_version="0.32.0")
    warnings = " ".join(plan_serving(first, cluster, nodes, ".")["warnings"])
    assert "not translated: mods patch.sh (patches of the image, which are not applied)" in warnings
    assert "not translated: --port (decided by the roles)" in warnings


def test_mods_of_a_checkout_need_their_digest_and_a_container(tmp_path):
    (tmp_path / "fix").mkdir()
    (tmp_path / "fix/run.sh").write_text("echo fixed\n")
    path = tmp_path / "foreign.yaml"
    path.write_text(
        "recipe_version: 1\nmodel: some/model\nruntime: vllm\ncontainer: own/image:1\nmods: [fix]\n"
        "defaults: {tensor_parallel: 2}\n"
    )
    given = {"vllm_serve_recipe": str(path), "engine_vllm_version": "0.32.0"}
    first, cluster, _fabric, nodes = planned(["a", "b"], **given)
    with pytest.raises(RecipeError, match=r"mod fix \(sha256:[0-9a-f]{64}\) is acknowledged by nobody") as caught:
        plan_serving(first, cluster, nodes, ".")
    digest = str(caught.value).partition("(")[2].partition(")")[0]
    first, cluster, _fabric, nodes = planned(["a", "b"], **given, engine_build_acknowledged={"fix": digest})
    assert [step["name"] for step in plan_serving(first, cluster, nodes, ".")["build"]] == ["fix"]
    with pytest.raises(RecipeError, match="engine_runtime is venv"):
        plan_serving({**first, "engine_runtime": "venv"}, cluster, nodes, ".")
    first, cluster, _fabric, nodes = planned(["a", "b"], **given, engine_build_acknowledged={"fix": False})
    plan = plan_serving(first, cluster, nodes, ".")
    assert (plan["build"], [line for line in plan["warnings"] if "left out of its image" in line] == []) == ([], False)


def model_folder(path, **config):
    path.mkdir()
    shape = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 2,
        "vocab_size": 100,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
    }
    (path / "config.json").write_text(json.dumps({**shape, **config}))
    header = json.dumps({"model.norm.weight": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (path / "model-00001-of-00001.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    return {"name": path.name, "source": str(path)}


def test_the_models_own_files_on_the_controller_decide(tmp_path):
    entry = model_folder(tmp_path / "mine")
    first, cluster, _fabric, nodes = planned(
        ["a", "b", "c"], vllm_serve_model="mine", model_store_models=[entry], engine_vllm_version="0.32.0"
    )
    serving = plan_serving(first, cluster, nodes, ".")
    assert (serving["tensor_parallel"], serving["pipeline_parallel"]) == (1, 3)
    assert "32 attention heads do not divide by 3" in serving["why"]
    with pytest.raises(RecipeError, match="32 attention heads do not divide by 3"):
        plan_serving({**first, "vllm_serve_tensor_parallel_size": 3}, cluster, nodes, ".")
    with pytest.raises(RecipeError, match="longer than the model's own 2048"):
        plan_serving({**first, "vllm_serve_max_model_len": 4096}, cluster, nodes, ".")
    (tmp_path / "mine" / "model-00001-of-00001.safetensors").rename(
        tmp_path / "mine" / "model-00001-of-00002.safetensors"
    )
    with pytest.raises(SizingError, match="model-00002-of-00002"):
        plan_serving(first, cluster, nodes, ".")
    assert not any("index.json" in warning for warning in serving["warnings"])
    (tmp_path / "mine" / "model-00002-of-00002.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    missing = f"model_store_models: {tmp_path}/mine/model.safetensors.index.json is missing"
    assert any(warning.startswith(missing) for warning in plan_serving(first, cluster, nodes, ".")["warnings"])


def test_a_folder_on_the_controller_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    entry = model_folder(tmp_path / "mine")
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_model="mine", model_store_models=[entry])

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(_serving, "read_model_folder", refuse)
    with pytest.raises(RecipeError, match=r"mine cannot be read on the controller: /.*/mine: Permission denied"):
        plan_serving(first, cluster, nodes, ".")


def test_memory_that_others_hold_counts_and_our_own_engines_does_not():
    first, cluster, _fabric, nodes = planned(["a", "b", "c"], vllm_serve_recipe="qwen3.5-397b-a17b-nvfp4")
    for host in nodes:
        nodes[host]["mem_available_bytes"] = 60 * GIB
    with pytest.raises(RecipeError, match=r"a: 60\.0 GiB of memory is available now"):
        plan_serving(first, cluster, nodes, ".")
    nodes["a"]["serving"] = True
    assert plan_serving(first, cluster, nodes, ".")["memory"]["verdict"] == "fits"


@pytest.mark.parametrize(
    ("hosts", "recipe", "words"),
    [
        (["a", "b", "c"], "qwen3.5-397b-a17b-fp8", "4"),
        (["a", "b", "c"], "qwen3.5-397b-a17b-nvfp5", "qwen3.5-397b-a17b-nvfp4"),
    ],
)
def test_a_recipe_that_cannot_be_served_here_is_refused(hosts, recipe, words):
    first, cluster, _fabric, nodes = planned(hosts, vllm_serve_recipe=recipe)
    with pytest.raises((RecipeError, SizingError), match=words):
        plan_serving(first, cluster, nodes, ".")


TINY = {"vllm_serve_recipe": "tiny-qwen3", "vllm_serve_degraded_after": 300, "vllm_serve_degraded_recipe": "tiny-qwen3"}


def degraded(hosts, **variables):
    first, cluster, _fabric, nodes = planned(hosts, **variables)
    return plan_degraded(first, cluster, nodes, ".", plan_serving(first, cluster, nodes, "."))


def test_degraded_mode_is_off_unless_asked_for():
    assert degraded(["a", "b", "c"], vllm_serve_recipe="tiny-qwen3") == {}


def test_degraded_mode_is_planned_for_all_hosts_but_one():
    plan = degraded(["a", "b", "c"], **TINY)
    assert plan["hosts"] == 2
    assert plan["tensor_parallel"] * plan["pipeline_parallel"] == 2
    assert plan["model"] == "tiny-qwen3"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"vllm_serve_degraded_recipe, without b: .*write vllm_serve_acknowledged: \[trust-remote-code\]"),
        ({"vllm_serve_acknowledged": ["trust-remote-code"]}, ""),
    ],
)
def test_the_smaller_recipe_is_acknowledged_by_the_inventory_as_well(tmp_path, given, words):
    recipe = yaml.safe_load((Path(SHIPPED) / "tiny-qwen3.yml").read_text())
    recipe["args"]["trust-remote-code"] = True
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(recipe))
    variables = {**TINY, "vllm_serve_degraded_recipe": str(tmp_path / "mine.yml"), **given}
    if words:
        with pytest.raises(RecipeError, match=words):
            degraded(["a", "b", "c"], **variables)
    else:
        assert degraded(["a", "b", "c"], **variables)["args"]["trust-remote-code"] is True


@pytest.mark.parametrize(
    ("hosts", "variables", "words"),
    [
        (["a", "b", "c"], {"vllm_serve_degraded_after": 5}, "vllm_serve_degraded_after=5: a reboot takes longer"),
        (["a", "b", "c"], {"vllm_serve_degraded_recipe": ""}, "needs vllm_serve_degraded_recipe"),
        (["a", "b", "c"], {"vllm_serve_recipe": ""}, "needs vllm_serve_recipe"),
        (["a", "b", "c"], {"vllm_serve_executor": "mp"}, "needs vllm_serve_executor=ray"),
        (["a"], {"topology": "lan"}, "needs a worker"),
        (["a", "b", "c"], {"vllm_serve_from_hub": True}, "Leave vllm_serve_from_hub out"),
        (
            ["a", "b", "c"],
            {"vllm_serve_degraded_recipe": "qwen3.5-397b-a17b-nvfp4"},
            "vllm_serve_degraded_recipe, without b: recipe qwen3.5-397b-a17b-nvfp4 is for 3 hosts",
        ),
        (
            ["a", "b", "c"],
            {"vllm_serve_degraded_recipe": "llama-3.1-405b-int4"},
            "vllm_serve_degraded_recipe, without b:",
        ),
    ],
)
def test_degraded_mode_that_cannot_work_is_refused_before_any_change(hosts, variables, words):
    with pytest.raises(RecipeError, match=words):
        degraded(hosts, **{**TINY, **variables})
