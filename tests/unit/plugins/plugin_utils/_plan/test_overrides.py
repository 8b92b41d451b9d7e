# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a recipe goes with the model, the image or the split that the user puts in its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import LOCK, plan_serving, plan_whole
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import find_table
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve

from tests.unit.planned_cluster import GIB, planned
from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL

ROOT = Path(__file__).resolve().parents[5]
NVIDIA_IMAGE = "nvcr.io/nvidia/vllm:26.10-py3"
PARTITION = "VLLM_PP_LAYER_PARTITION"
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
#: a recipe in which everything is said of one model, one image and one split
RECIPE: dict[str, Any] = {
    **MINIMAL,
    "name": "whole",
    "model": "org/base",
    "revision": "c" * 40,
    "served_model_name": "base",
    "image": "registry.example/vllm:1",
    "image_digest": "sha256:" + "d" * 64,
    "runtime": "container",
    "hosts": "any",
    "vllm": {"pinned": "0.31.0"},
    "config": LLAMA,
    "weights_bytes": 16 * 10**9,
    "active_bytes": 8 * 10**9,
    "args": {"max-num-seqs": 2, "tokenizer-revision": "e" * 40},
    "environment": {PARTITION: "12,10,10"},
    "split": {"tensor_parallel": 1, "pipeline_parallel": 3, "why": "x"},
}
HOSTS = ["a", "b", "c"]


def served(hosts: list[str] | None = None, **own: Any) -> dict[str, Any]:
    return resolve(RECIPE, hosts or HOSTS, overrides=own, memory_bytes=120 * GIB)


def test_a_recipe_alone_is_served_as_it_is() -> None:
    plan = served()
    assert (plan["revision"], plan["served_model_name"], plan["image_digest"]) == (
        *(RECIPE["revision"], "base", RECIPE["image_digest"]),
    )
    assert (plan["args"]["tokenizer-revision"], plan["environment"][PARTITION]) == ("e" * 40, "12,10,10")
    assert plan["warnings"] == []


def test_another_model_of_the_hub_has_none_of_what_was_said_of_the_recipes() -> None:
    plan = served(model="mine/tuned")
    assert (plan["model"], plan["revision"], plan["served_model_name"]) == ("mine/tuned", "", "tuned")
    assert plan["memory"] is None, "neither the config nor the bytes of another model are its own"
    assert "tokenizer-revision" not in plan["args"]
    assert PARTITION not in plan["environment"]
    assert any("mine/tuned is served instead of org/base, so without its revision" in line for line in plan["warnings"])
    # what the user says is the user's
    own = served(model="mine/tuned", served_model_name="x", args={"tokenizer-revision": "f" * 40})
    assert (own["served_model_name"], own["args"]["tokenizer-revision"]) == ("x", "f" * 40)


@pytest.mark.parametrize("model", ["/srv/models/base", "base"])
def test_the_recipes_model_at_another_place_keeps_its_shape_and_name(model: str) -> None:
    plan = served(model=model)
    assert (plan["revision"], plan["served_model_name"]) == ("", "base")
    assert plan["memory"]["weights_bytes"] == 16 * 10**9


def test_the_hub_is_asked_for_the_other_models_own_revision_and_shape(tmp_path: Path) -> None:
    (tmp_path / "whole.yml").write_text(json.dumps(RECIPE))
    given = {"vllm_serve_recipe": "./whole.yml", "vllm_serve_model": "mine/tuned"}
    first, cluster, _fabric, nodes = planned(HOSTS, **given)
    asked: list[tuple[str, str]] = []

    def ask(model: str, revision: str) -> tuple[dict[str, Any], int]:
        asked.append((model, revision))
        return {**LLAMA, "num_hidden_layers": 33}, 17 * 10**9

    for extra, revision in (({}, ""), ({"vllm_serve_from_hub": True}, None)):
        plan = plan_serving({**first, **extra}, cluster, nodes, str(tmp_path), ask)
        assert asked.pop() == ("mine/tuned", "")
        assert "revision" not in plan["args"]
        assert [model["revision"] for model in plan["models"]] == ([] if revision is None else [revision])
        # 33 layers do not divide as the recipe's 32 do
        assert PARTITION not in plan["environment"]
        assert any(f"{PARTITION}=12,10,10 of the recipe is left out" in line for line in plan["warnings"])


def test_another_split_takes_the_recipes_division_of_the_layers_along() -> None:
    plan = served(hosts=["a"], pipeline_parallel=1)
    assert PARTITION not in plan["environment"]
    assert plan["memory"]["ranks"]["layers"] == [32]
    assert served(pipeline_parallel=3)["environment"][PARTITION] == "12,10,10"
    own = served(hosts=["a", "b"], pipeline_parallel=2, environment={PARTITION: "20,12"})
    assert own["memory"]["ranks"]["layers"] == [20, 12]
    with pytest.raises(RecipeError, match=r"VLLM_PP_LAYER_PARTITION='20,12'.*does not name 3 stages with 32 layers"):
        served(environment={PARTITION: "20,12"})


def test_a_recipes_own_layers_do_not_draft_over_stages() -> None:
    drafts = {"method": "mtp", "num_speculative_tokens": 2}
    recipe = {**RECIPE, "args": {"speculative-config": drafts}, "environment": {}, "split": {}}
    ask: dict[str, Any] = {"memory_bytes": 120 * GIB}
    staged = resolve(recipe, ["a", "b"], overrides={"pipeline_parallel": 2}, **ask)
    assert "speculative-config" not in staged["args"]
    assert any("speculative-config (method mtp) is left out" in line for line in staged["warnings"])
    own = {"pipeline_parallel": 2, "args": {"speculative-config": drafts}}
    assert resolve(recipe, ["a", "b"], overrides=own, **ask)["args"]["speculative-config"] == drafts
    whole = resolve(recipe, ["a", "b"], overrides={"tensor_parallel": 2}, **ask)
    assert whole["args"]["speculative-config"] == drafts


def test_another_image_has_neither_the_digest_nor_the_version_of_the_recipes(tmp_path: Path) -> None:
    (tmp_path / "whole.yml").write_text(json.dumps(RECIPE))
    for own in ({"engine_image": "mine/vllm:2"}, {"engine_image_archive": "/x.tar"}):
        first, cluster, _fabric, nodes = planned(HOSTS, vllm_serve_recipe="./whole.yml", **own)
        plan = plan_serving(first, cluster, nodes, str(tmp_path))
        assert (plan["image_digest"], plan["engine_version"]) == ("", "")
    first, cluster, _fabric, nodes = planned(HOSTS, vllm_serve_recipe="./whole.yml", engine_image=RECIPE["image"])
    plan = plan_serving(first, cluster, nodes, str(tmp_path))
    assert (plan["image_digest"], plan["engine_version"]) == (RECIPE["image_digest"], "0.31.0")


def by_runtime(folder: Path, theirs: dict[str, Any], kind: str = "spark", **own: Any) -> dict[str, Any]:
    (folder / "whole.yml").write_text(json.dumps({**RECIPE, **theirs}))
    variables = {"vllm_serve_recipe": "./whole.yml", **own}
    first, cluster, _fabric, nodes = planned(HOSTS, kinds=dict.fromkeys(HOSTS, kind), **variables)
    return plan_serving(first, cluster, nodes, str(folder))


@pytest.mark.parametrize(("kind", "serves"), [("spark", "0.31.0"), ("thor", "")])
def test_a_container_has_not_the_version_of_a_recipe_for_a_venv(tmp_path: Path, kind: str, serves: str) -> None:
    theirs = {"runtime": "venv", "image": "", "image_digest": "", "vllm": {"pinned": "0.32.0"}}
    assert by_runtime(tmp_path, theirs, kind)["engine_version"] == "0.32.0"
    own = {"engine_runtime": "container"}
    assert by_runtime(tmp_path, theirs, kind, **own)["engine_version"] == serves
    if serves:
        needs = {**theirs, "vllm": {"pinned": "0.32.0", "minimum": "0.32"}}
        with pytest.raises(RecipeError, match=r"needs vLLM 0\.32 or later, and 0\.31\.0 will serve"):
            by_runtime(tmp_path, needs, kind, **own)


@pytest.mark.parametrize("own", [{"engine_runtime": "venv"}, {"engine_wheel_dir": "/wheels"}])
def test_a_venv_has_the_version_of_its_lock_not_of_the_recipes_image(tmp_path: Path, own: dict[str, Any]) -> None:
    locked = re.search(r"^vllm==(\S+)", Path(LOCK).read_text(), re.MULTILINE)
    assert locked
    assert by_runtime(tmp_path, {}, **own)["engine_version"] == locked[1]
    defaults = yaml.safe_load((ROOT / "roles" / "engine" / "defaults" / "main.yml").read_text())
    assert defaults["engine_requirements"].endswith(f"/requirements/engine/{Path(LOCK).name}")
    alone = resolve(RECIPE, HOSTS, overrides={"runtime": "venv"}, memory_bytes=120 * GIB)
    assert alone["engine_version"] == ""


def test_the_smaller_recipe_is_checked_by_what_serves_the_whole_one(tmp_path: Path) -> None:
    (tmp_path / "whole.yml").write_text(json.dumps({**RECIPE, "environment": {}, "image": NVIDIA_IMAGE}))
    split = {"tensor_parallel": 1, "pipeline_parallel": 2, "why": "x"}
    smaller = {"name": "two", "environment": {}, "split": split, "runtime": "venv", "image": "", "image_digest": ""}
    versions = {"pinned": "0.32.0", "minimum": "0.32"}
    (tmp_path / "two.yml").write_text(json.dumps({**RECIPE, **smaller, "vllm": versions}))
    given = {"vllm_serve_recipe": "./whole.yml", "vllm_serve_degraded_recipe": "./two.yml"}
    given |= {"vllm_serve_degraded_after": 300, "vllm_serve_executor": "ray", "inventory_dir": str(tmp_path)}
    first, cluster, _fabric, nodes = planned(HOSTS, **given)
    with pytest.raises(ValueError, match=r"needs vLLM 0\.32 or later, and 0\.31\.0 will serve"):
        plan_whole(first, cluster, nodes)
    in_venv = {**first, "engine_runtime": "venv"}
    assert plan_whole(in_venv, cluster, nodes)["degraded"]["pipeline_parallel"] == 2


@pytest.mark.parametrize(
    ("partition", "refused"), [("12,10,10", "has 2 pipeline stages, and VLLM_PP_LAYER_PARTITION=12,10,10"), ("", "")]
)
def test_the_smaller_recipe_is_not_started_with_the_whole_ones_division(
    tmp_path: Path, partition: str, refused: str
) -> None:
    environment = {PARTITION: partition} if partition else {}
    (tmp_path / "whole.yml").write_text(json.dumps({**RECIPE, "environment": environment}))
    split = {"tensor_parallel": 1, "pipeline_parallel": 2, "why": "x"}
    (tmp_path / "two.yml").write_text(json.dumps({**RECIPE, "name": "two", "environment": {}, "split": split}))
    first, cluster, _fabric, nodes = planned(
        HOSTS,
        vllm_serve_recipe="./whole.yml",
        vllm_serve_degraded_recipe="./two.yml",
        vllm_serve_degraded_after=300,
        vllm_serve_executor="ray",
        inventory_dir=str(tmp_path),
    )
    if refused:
        with pytest.raises(ValueError, match=refused):
            plan_whole(first, cluster, nodes)
    else:
        assert plan_whole(first, cluster, nodes)["degraded"]["pipeline_parallel"] == 2


@pytest.mark.parametrize(
    ("smaller", "own", "told"), [({}, {}, ["MAX_JOBS"]), ({"MAX_JOBS": "4"}, {}, []), ({}, {"MAX_JOBS": "4"}, [])]
)
def test_what_the_smaller_recipe_starts_with_and_does_not_set_is_told(
    tmp_path: Path, smaller: dict[str, str], own: dict[str, str], told: list[str]
) -> None:
    (tmp_path / "whole.yml").write_text(json.dumps({**RECIPE, "environment": {"MAX_JOBS": "4"}}))
    split = {"tensor_parallel": 1, "pipeline_parallel": 2, "why": "x"}
    (tmp_path / "two.yml").write_text(json.dumps({**RECIPE, "name": "two", "environment": smaller, "split": split}))
    first, cluster, _fabric, nodes = planned(
        HOSTS,
        vllm_serve_recipe="./whole.yml",
        vllm_serve_env=own,
        vllm_serve_degraded_recipe="./two.yml",
        vllm_serve_degraded_after=300,
        vllm_serve_executor="ray",
        inventory_dir=str(tmp_path),
    )
    serving = plan_whole(first, cluster, nodes)
    found = [line for line in serving["warnings"] if line.startswith("vllm_serve_degraded_recipe is started with")]
    assert [line.split()[4] for line in found] == told
    assert "warnings" not in serving["degraded"]


def test_an_option_of_an_image_of_others_is_unknown_here_and_kept() -> None:
    args = {**RECIPE["args"], "gdn-decode-kernel": "b12x", "moe-backend": "theirs", "speculative-config.odd": False}
    plan = resolve({**RECIPE, "args": args}, HOSTS, memory_bytes=120 * GIB)
    assert {key: plan["args"][key] for key in ("gdn-decode-kernel", "moe-backend")} == {
        "gdn-decode-kernel": "b12x",
        "moe-backend": "theirs",
    }
    assert plan["args"]["speculative-config"] == {"odd": False}
    said = [line for line in plan["warnings"] if line.startswith("Unknown here:")]
    assert [line.split()[2] for line in said] == ["gdn-decode-kernel:", "moe-backend:", "speculative-config.odd:"]


@pytest.mark.parametrize("image", ["vllm/vllm-openai:v0.33.0", "nvcr.io/nvidia/vllm:26.10-py3"])
def test_an_option_that_a_known_image_lacks_is_refused(image: str) -> None:
    recipe = {**RECIPE, "image": image, "args": {"gdn-decode-kernel": "b12x"}}
    with pytest.raises(RecipeError, match="has no such option"):
        resolve(recipe, HOSTS, memory_bytes=120 * GIB)
    # and by the table of the image itself also for an image of others
    table, _exact = find_table("0.33.0")
    with pytest.raises(RecipeError, match="has no such option"):
        resolve({**recipe, "image": RECIPE["image"]}, HOSTS, memory_bytes=120 * GIB, table=table)


@pytest.mark.parametrize("args", [{"max-num-seqs": 0}, {"quantization": "nvfp4"}, {"swap-space": 4}])
def test_what_no_image_would_take_is_refused_of_an_image_of_others(args: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        resolve({**RECIPE, "args": args}, HOSTS, memory_bytes=120 * GIB)


PADDED: dict[str, Any] = {"environment": {}, "split": {}, "args": {"max-num-seqs": 2}}


def test_heads_that_an_image_pads_are_taken_where_the_user_says_so() -> None:
    recipe = {**RECIPE, **PADDED}
    with pytest.raises(RecipeError, match=r"vllm_serve_acknowledged: \[padded-heads\]"):
        resolve(recipe, HOSTS, memory_bytes=120 * GIB, overrides={"tensor_parallel": 3})
    meant = {"tensor_parallel": 3, "acknowledged": ["padded-heads"]}
    plan = resolve(recipe, HOSTS, memory_bytes=120 * GIB, overrides=meant)
    assert (plan["tensor_parallel"], plan["sizing"]["padded_heads"]) == (3, True)
    assert "padded by the engine: 32 attention heads do not divide by 3" in plan["why"]
    # 8 KV heads on three ranks: three on the fullest, as on none of four
    four = resolve(recipe, [*HOSTS, "d"], memory_bytes=120 * GIB, overrides={"tensor_parallel": 4})
    assert plan["memory"]["kv_bytes_per_token_per_rank"] * 2 == four["memory"]["kv_bytes_per_token_per_rank"] * 3
    assert plan["memory"]["weights_bytes_per_rank"] > RECIPE["weights_bytes"] / 3
    # no image of the vLLM project pads any
    with pytest.raises(RecipeError, match="do not divide by 3"):
        resolve({**recipe, "image": "vllm/vllm-openai:v0.31.0"}, HOSTS, memory_bytes=120 * GIB, overrides=meant)


SGLANG_PARTITION = "SGLANG_PP_LAYER_PARTITION"


@pytest.mark.parametrize("engine", registry.ENGINES)
def test_no_engine_demands_of_another_model_what_was_said_of_the_recipes(engine: str) -> None:
    own = "mine/tuned.gguf" if engine == "llama_cpp" else "mine/tuned"
    recipe = {**MINIMAL, "engine": engine, "model": "org/base", "revision": "c" * 40, "served_model_name": "base"}
    recipe |= {"runtime": "container", "image": "registry.example/one:1"} if engine == "sglang" else {}
    plan = registry.ENGINES[engine].plan(recipe, ["a"], topology="lan", overrides={"model": own})
    assert (plan["model"], plan["revision"], plan["served_model_name"]) == (own, "", own.partition("/")[2])
    assert any(f"{own} is served instead of org/base, so without its revision" in line for line in plan["warnings"])


def by_sglang(hosts: list[str], **own: Any) -> dict[str, Any]:
    recipe = {**RECIPE, "engine": "sglang", "args": {}, "environment": {SGLANG_PARTITION: "12,10,10"}, "vllm": {}}
    return registry.ENGINES["sglang"].plan(recipe, hosts, topology="switch", overrides=own)


def test_sglangs_division_of_the_layers_is_of_the_recipes_split_alone() -> None:
    assert by_sglang(HOSTS)["environment"][SGLANG_PARTITION] == "12,10,10"
    plan = by_sglang(HOSTS[:2], tensor_parallel=1, pipeline_parallel=2)
    divided = [int(layers) for layers in plan["environment"][SGLANG_PARTITION].split(",")]
    assert (len(divided), sum(divided)) == (2, LLAMA["num_hidden_layers"])
    assert any(f"{SGLANG_PARTITION}=12,10,10 of the recipe is left out" in line for line in plan["warnings"])
    with pytest.raises(RecipeError, match="SGLang does not start with it"):
        by_sglang(HOSTS, environment={SGLANG_PARTITION: "16,16"})
