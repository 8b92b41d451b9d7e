# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What TensorRT-LLM gets on its one host: a cache that is pinned, its file and its command, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError

from tests.unit.planned_cluster import planned
from tests.unit.plugins.plugin_utils._plan.engines.test_sglang import CONFIG
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by, with_serving

WANTED = {
    **{"serving_engine": "tensorrt_llm", "vllm_serve_model": "org/model", "engine_image": "own/release:1.3.0rc13"},
    **{"engine_image_digest": "sha256:" + "0" * 64},
}


def served(hosts: int = 1, config: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    first, cluster, _fabric, nodes = planned(
        [f"h{number}" for number in range(hosts)], topology="lan" if hosts == 1 else "switch"
    )
    asked = (CONFIG if config is None else config, 16 << 30)
    return plan_serving({**first, **WANTED, **given}, cluster, nodes, ".", lambda *_asked: asked)


def test_the_cache_is_as_large_as_the_plan_says() -> None:
    found = served()
    assert (found["engine"], found["executor"], found["runtime"]) == ("tensorrt_llm", "mp", "container")
    tokens = found["memory"]["kv_cache_tokens"] // 32 * 32
    assert found["args"] == {
        **{"enable-chunked-prefill": True, "kv-cache-config.max_tokens": tokens},
        **{"max-batch-size": 64, "max-num-tokens": 8192},
    }
    assert tokens > 100_000
    own = served(vllm_serve_args={"kv_cache_config": {"max_tokens": 4096, "free_gpu_memory_fraction": 0.5}})["args"]
    assert (own["kv-cache-config.max_tokens"], own["kv-cache-config.free_gpu_memory_fraction"]) == (4096, 0.5)


def test_what_it_keeps_in_host_memory_is_the_same_memory() -> None:
    found = served(vllm_serve_args={"kv_cache_config": {"host_cache_size": 4 << 30}})
    assert found["memory"]["host_memory_parts"] == {"host cache (host_cache_size)": 4 << 30}
    with pytest.raises(
        RecipeError, match=r"does not fit these hosts\. .*host cache \(host_cache_size\) 64\.0 GiB in host memory"
    ):
        served(vllm_serve_args={"kv_cache_config": {"host_cache_size": 64 << 30}})


def test_the_role_s_variables_are_its_options() -> None:
    given = {"vllm_serve_reasoning_parser": "deepseek_r1", "vllm_serve_tool_call_parser": "qwen3"}
    found = served(vllm_serve_kv_cache_dtype="fp8", vllm_serve_prefix_caching=False, **given)
    args = found["args"]
    assert (args["reasoning-parser"], args["tool-parser"]) == ("deepseek-r1", "qwen3")
    assert (args["kv-cache-config.dtype"], args["kv-cache-config.enable_block_reuse"]) == ("fp8", False)
    half = found["memory"]["kv_cache_tokens"] / served()["memory"]["kv_cache_tokens"]
    assert 1.9 < half < 2.1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine_runtime": "venv"}, "TensorRT-LLM cannot do a venv; set serving_engine to vllm"),
        ({"vllm_serve_executor": "ray"}, "TensorRT-LLM cannot do ray as executor; set serving_engine to vllm"),
        ({"vllm_serve_model": "org/a.gguf"}, "TensorRT-LLM cannot do gguf models; set serving_engine to llama_cpp"),
        ({"engine_image": ""}, "engine_image is not set, and there is no image of TensorRT-LLM"),
        ({"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_model": ""}, "is for vllm, whose arguments TensorRT-LLM"),
        ({"vllm_serve_args": {"trust_remote_code": True}}, "trust-remote-code=True may run code"),
        ({"vllm_serve_args": {"load_format": "remote"}}, "load-format='remote' may run code"),
        ({"vllm_serve_args": {"kv_cache_config": {"connector": "x"}}}, "kv-cache-config.connector='x' may run code"),
        ({"vllm_serve_args": {"tp_size": 2}}, "tp_size is decided by the role; set nothing: it serves on one GPU"),
        ({"vllm_serve_args": {"max_seq_len": 5}}, "set vllm_serve_max_model_len instead"),
        ({"vllm_serve_args": {"kv_cache_dtype": "fp8", "kv_cache_config": {"dtype": "fp8"}}}, "is given twice"),
        ({"vllm_serve_args": {"tool_parser": "--port=1"}}, "begins with a dash"),
        ({"vllm_serve_kv_cache_dtype": "fp8_e5m2"}, "kv-cache-config.dtype='fp8_e5m2' is not planned here"),
        ({"config": {**CONFIG, "vision_config": {"depth": 2}}}, "reads whatever file or URL a request names"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_the_plan(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        served(**given)
    assert words in str(caught.value)


def test_two_hosts_are_refused_with_the_reason_and_the_engines_that_can() -> None:
    with pytest.raises(RecipeError) as caught:
        served(2)
    assert (
        "TensorRT-LLM cannot do 2 hosts (MPI starts the other ranks by ssh, as root and without a password, and "
        "nothing here sets that up); set serving_engine to vllm or sglang"
    ) in str(caught.value)


@pytest.fixture
def trt(variables: dict[str, Any]) -> dict[str, Any]:
    found = {
        **{"engine": "tensorrt_llm", "model": "m", "models": [{"name": "m"}], "served_model_name": "name"},
        **{"environment": {"A": "1"}, "max_model_len": 2048},
        "args": {"kv-cache-config.max_tokens": 4096, "max-batch-size": 8, "tool-parser": "qwen3"},
    }
    return {**started_by(with_serving(variables, **found), "mp"), "serving_engine": "tensorrt_llm"}


def test_its_host_has_its_file_and_command(trt: dict[str, Any]) -> None:
    found = files(plan(trt))
    config = yaml.safe_load(found["/etc/sparkthor/trtllm.yaml"])
    assert config.pop("model").endswith("/m")
    assert config == {
        **{"max_seq_len": 2048, "return_perf_metrics": True, "enable_iter_perf_stats": True, "max_batch_size": 8},
        "kv_cache_config": {"max_tokens": 4096},
    }
    group = json.loads(found["/etc/sparkthor/group.json"])
    assert group["engine"] == "tensorrt_llm"
    assert group["command"][-9:] == [
        *("serve", "--host", "127.0.0.1", "--port", "30000", "--tool_parser", "qwen3"),
        *("--config", "/etc/sparkthor/trtllm.yaml"),
    ]
    environment = found["/etc/sparkthor/vllm.env"]
    assert 'TRTLLM_NO_USAGE_STATS="1"' in environment
    assert 'A="1"' in environment


def test_a_null_takes_a_variable_of_the_role_away(trt: dict[str, Any]) -> None:
    trt["sparkthor_cluster"]["serving"]["environment"] = served(vllm_serve_env={"DO_NOT_TRACK": None})["environment"]
    assert "DO_NOT_TRACK" not in files(plan(trt))["/etc/sparkthor/vllm.env"]


def test_its_page_of_metrics_is_not_the_one_that_is_read_once(trt: dict[str, Any]) -> None:
    found = files(plan(trt, vllm_serve_metrics_listen="127.0.0.1:9000"))
    assert "proxy_pass http://sparkthor_vllm$sparkthor_metrics;" in found["/etc/sparkthor/front/nginx.conf"]
    assert "$sparkthor_metrics {\n  default /prometheus/metrics;\n" in found["/etc/sparkthor/front/engine.conf"]


def test_only_those_who_must_reach_its_port(trt: dict[str, Any]) -> None:
    found = files(plan(trt))
    rules = found["/etc/sparkthor/engine-port.nft"]
    assert 'oifname "lo" tcp dport 30000 meta skuid != { "root", "sparkthor", "sparkthor-front"' in rules
    assert "server 127.0.0.1:30000 max_fails=0;" in found["/etc/sparkthor/front/engine.conf"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"vllm_serve_api_keys": [{"name": "a", "key": "k" * 40, "tokens_per_minute": 5}]}, "has a limit of tokens"),
        ({"vllm_serve_from_hub": True}, "serves from the model store here"),
        ({"vllm_serve_media_domains": ["a.example"]}, "reads also whatever file a request names"),
    ],
)
def test_what_the_front_could_not_keep_is_refused(trt: dict[str, Any], given: dict[str, Any], words: str) -> None:
    with pytest.raises(ServeConfigError, match=words):
        plan(trt, **given)
