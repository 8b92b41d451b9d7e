# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang gets on two hosts: memory that is pinned, its file for each rank, and who may reach its port."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError

from tests.unit.planned_cluster import planned
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by, with_serving
from tests.unit.published_models import model

#: a dense model of 36 layers
CONFIG = {
    **{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "vocab_size": 151936},
    **{"intermediate_size": 12288, "num_hidden_layers": 35, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"head_dim": 128, "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": False},
}
WANTED = {
    **{"serving_engine": "sglang", "vllm_serve_model": "org/model", "engine_image": "own/sglang:1"},
    **{"engine_image_digest": "sha256:" + "0" * 64},
}


#: 256 experts whose width two ranks divide, and four do not
EXPERTS = model("qwen3.6-35b-a3b")
EXPERTS = {**EXPERTS, "text_config": {**EXPERTS["text_config"], "moe_intermediate_size": 510}}


def served(hosts: int = 2, config: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    first, cluster, _fabric, nodes = planned([f"h{number}" for number in range(hosts)])
    return plan_serving({**first, **WANTED, **given}, cluster, nodes, ".", lambda *_asked: (config or CONFIG, 16 << 30))


def test_the_cache_is_as_large_as_the_plan_says() -> None:
    found = served()
    args = found["args"]
    assert (found["engine"], found["executor"], found["runtime"]) == ("sglang", "mp", "container")
    assert args["max-total-tokens"] == found["memory"]["kv_cache_tokens"] // 64 * 64 > 100_000
    assert args["mem-fraction-static"] == found["memory"]["gpu_memory_utilization"]
    own = served(vllm_serve_args={"max-total-tokens": 4096, "mem-fraction-static": 0.5})["args"]
    assert (own["max-total-tokens"], own["mem-fraction-static"]) == (4096, 0.5)


def test_layers_are_divided_by_our_rule() -> None:
    found = served(vllm_serve_tensor_parallel_size=1, vllm_serve_pipeline_parallel_size=2)
    assert found["environment"]["SGLANG_PP_LAYER_PARTITION"] == ",".join(map(str, found["memory"]["ranks"]["layers"]))
    assert "SGLANG_PP_LAYER_PARTITION" not in served()["environment"]


def test_what_it_keeps_in_host_memory_is_the_same_memory() -> None:
    sized = {"enable-hierarchical-cache": True, "hicache-size": 4, "cpu-offload-gb": 2}
    memory = served(vllm_serve_args=sized)["memory"]
    assert memory["host_memory_parts"] == {"hierarchical cache (hicache-ratio, hicache-size)": 4 * 10**9}
    assert "cpu-offload-gb moves weights within one memory here" in " ".join(memory["reasons"])
    with pytest.raises(RecipeError, match=r"does not fit these hosts\. .*hierarchical cache .* in host memory"):
        served(vllm_serve_args={"enable-hicache": True})


@pytest.mark.parametrize(
    ("args", "split", "experts"),
    [
        # with whole experts on each rank, since their widths do not divide
        ({}, (4, 1), 4),
        ({"ep-size": 2}, (4, 1), 2),
        ({"ep": "4"}, (4, 1), 4),
        ({"expert_parallel_size": 1}, (2, 2), 1),
    ],
)
def test_the_user_s_number_of_groups_of_experts_is_kept(
    args: dict[str, Any], split: tuple[int, int], experts: int
) -> None:
    found = served(4, EXPERTS, vllm_serve_args=args)
    assert (found["tensor_parallel"], found["pipeline_parallel"]) == split
    assert (found["args"]["ep-size"], found["sizing"]["enable_expert_parallel"]) == (experts, experts > 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("two", "ep-size='two': is not an integer. Give a whole number of at least 1."),
        (3, "ep-size=3: does not divide TP=4. Give 4 or a number that divides it, or leave it out."),
        (2, "ep-size=2: the MoE intermediate size 509 does not divide by 2. Give 4, which keeps experts whole."),
    ],
)
def test_groups_of_experts_that_cannot_be_are_refused(value: Any, words: str) -> None:
    config = {**EXPERTS, "text_config": {**EXPERTS["text_config"], "moe_intermediate_size": 509}}
    with pytest.raises(RecipeError) as caught:
        served(4, config, vllm_serve_args={"ep-size": value})
    assert str(caught.value).endswith(words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine_runtime": "venv"}, "SGLang cannot do a venv; set serving_engine to vllm"),
        ({"vllm_serve_executor": "ray"}, "SGLang cannot do ray as executor; set serving_engine to vllm"),
        ({"engine_image": ""}, "engine_image is not set, and there is no image of SGLang"),
        ({"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_model": ""}, "is for vllm, whose arguments SGLang does not"),
        ({"vllm_serve_args": {"trust-remote-code": True}}, "vllm_serve_args: trust-remote-code=True may run code"),
        ({"vllm_serve_args": {"dp-size": 2}}, "makes several replicas"),
    ],
)
def test_what_cannot_be_is_refused_by_the_plan(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        served(**{"engine_runtime": "container", **given})
    assert words in str(caught.value)


@pytest.fixture
def sglang(variables: dict[str, Any]) -> dict[str, Any]:
    found = {
        **{"engine": "sglang", "model": "m", "models": [{"name": "m"}], "served_model_name": "name"},
        **{"args": {"max-total-tokens": 4096, "disable-radix-cache": True}, "environment": {"A": "1"}},
        "max_model_len": 2048,
    }
    return {**started_by(with_serving(variables, **found), "mp"), "serving_engine": "sglang"}


def test_each_rank_has_its_file(sglang: dict[str, Any]) -> None:
    found = files(plan(sglang))
    config = yaml.safe_load(found["/etc/sparkthor/sglang.yaml"])
    assert config["model-path"].endswith("/m")
    assert {key: config[key] for key in ("host", "port", "enable-metrics", "sleep-on-idle", "context-length")} == {
        **{"host": "127.0.0.1", "port": 30000, "enable-metrics": True, "sleep-on-idle": True, "context-length": 2048},
    }
    assert config["nnodes"] == len(sglang["sparkthor_cluster"]["hosts"])
    assert config["node-rank"] == 0
    assert config["dist-init-addr"].endswith(":29501")
    # a request's image is no file and no port of this host
    assert json.loads(config["limit-mm-data-per-request"]) == {"image": 0, "video": 0, "audio": 0}
    assert (config["max-total-tokens"], config["disable-radix-cache"]) == (4096, True)
    group = json.loads(found["/etc/sparkthor/group.json"])
    assert group["engine"] == "sglang"
    assert group["command"][-3:] == ["serve", "--config", "/etc/sparkthor/sglang.yaml"]
    environment = found["/etc/sparkthor/vllm.env"]
    assert 'SGLANG_HOST_IP="' in environment
    assert 'A="1"' in environment
    assert "VLLM_" not in environment


def test_a_null_takes_a_variable_of_the_role_away(sglang: dict[str, Any]) -> None:
    found = served(vllm_serve_env={"DO_NOT_TRACK": None})["environment"]
    assert found == {"DO_NOT_TRACK": None}
    sglang["sparkthor_cluster"]["serving"]["environment"] = found
    assert "DO_NOT_TRACK" not in files(plan(sglang))["/etc/sparkthor/vllm.env"]
    # but not the layers of the stages, by which the memory is planned
    asked = {"vllm_serve_tensor_parallel_size": 1, "vllm_serve_env": {"SGLANG_PP_LAYER_PARTITION": None}}
    assert served(**asked)["environment"] == {"SGLANG_PP_LAYER_PARTITION": "18,17"}


def test_only_those_who_must_reach_its_port(sglang: dict[str, Any]) -> None:
    found = files(plan(sglang))
    rules = found["/etc/sparkthor/engine-port.nft"]
    assert 'oifname "lo" tcp dport 30000 meta skuid != { "root", "sparkthor", "sparkthor-front"' in rules
    unit = found["/etc/systemd/system/sparkthor-vllm.service"]
    assert unit.index("nft --file /etc/sparkthor/engine-port.nft") < unit.index("sparkthor_host rank")
    assert "server 127.0.0.1:30000 max_fails=0;" in found["/etc/sparkthor/front/engine.conf"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"vllm_serve_api_keys": [{"name": "a", "key": "k" * 40, "tokens_per_minute": 5}]}, "has a limit of tokens"),
        ({"vllm_serve_from_hub": True}, "serves from the model store here"),
        ({"vllm_serve_media_domains": ["a.example"]}, "reads also whatever file a request names"),
    ],
)
def test_what_the_front_could_not_keep_is_refused(sglang: dict[str, Any], given: dict[str, Any], words: str) -> None:
    with pytest.raises(ServeConfigError, match=words):
        plan(sglang, **given)


def test_another_engine_s_files_go(variables: dict[str, Any], sglang: dict[str, Any]) -> None:
    assert "/etc/sparkthor/vllm.yaml" in plan(sglang)["state"]["restore"]
    state = plan(variables)["state"]
    assert "/etc/sparkthor/sglang.yaml" in state["restore"]
    assert "/etc/sparkthor/engine-port.nft" in state["absent"]
