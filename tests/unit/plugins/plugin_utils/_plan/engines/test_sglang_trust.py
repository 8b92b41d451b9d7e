# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of SGLang's arguments gets past the list of those that only choose kernels and sizes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import free_options
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.sglang_trust import free_in_sglang
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

from tests.unit.plugins.plugin_utils._plan.engines.test_sglang import served

#: options of 0.5.6 and 0.5.23, by what they do
ATTACKS: dict[str, Any] = {
    # code
    **{"trust-remote-code": True, "forward-hooks": '[{"hook_factory": "os:system"}]', "custom-weight-loader": "a.b"},
    **{"sidecar": "touch", "sidecar-args": "/tmp/x", "trace-modules": "os", "warmups": "x", "model-config-parser": "x"},
    **{"lora-paths": "a=/tmp/a", "enable-lora": True, "tokenizer-path": "/tmp/t", "uno-lora-path": "/tmp/a"},
    **{"speculative-token-map": "/tmp/a.pt", "speculative-draft-model-path": "/tmp/m", "enable-lmcache": True},
    # a request brings code, templates or tensors
    **{"enable-custom-logit-processor": True, "trust-request-chat-template": True, "trust-mm-content-hashes": True},
    # files
    **{
        "json-model-override-args": '{"a": 1}',
        "quantization-param-path": "/etc/shadow",
        "delete-ckpt-after-loading": 1,
    },
    **{
        "init-expert-location": "/etc/shadow",
        "decrypted-config-file": "/x",
        "download-dir": "/",
        "file-storage-path": "/",
    },
    **{"crash-dump-folder": "/srv", "export-metrics-to-file-dir": "/srv", "debug-tensor-dump-output-folder": "/srv"},
    **{"pdmux-config-path": "/x", "ds-channel-config-path": "/x", "kt-weight-path": "/x", "mm-process-config": "{}"},
    # what others asked and were answered
    **{"log-requests": True, "enable-response-store": True, "enable-return-hidden-states": True},
    # hosts and ports
    **{"tool-server": "h:1", "otlp-traces-endpoint": "h:1", "enable-trace": True, "kv-events-config": "{}"},
    **{"grpc-mode": True, "smg-grpc-mode": True, "grpc-port": 1, "nccl-port": 1, "encoder-urls": ["http://h"]},
    **{"disaggregation-mode": "prefill", "disaggregation-bootstrap-port": 1, "hicache-storage-backend": "mooncake"},
    **{"remote-instance-weight-loader-seed-instance-ip": "h", "limit-mm-data-per-request": '{"image": 9}'},
    **{"use-ray": True, "load-publish-endpoint": "tcp://h:1", "allowed-media-domains": ["h"]},
    # a beginning that SGLang takes for the whole name, and a name that nobody here knows
    **{"trust-r": True, "enable-custom-logit": True, "chat-templ": "/x", "an-option-of-tomorrow": True},
    # where the name is harmless and the word is not
    **{"chat-template": "/tmp/a.jinja", "load-format": "remote", "attention-backend": "../x", "log-level": "x y"},
    **{"model-impl": "mine", "cuda-graph-bs": ["1", "/x"], "quantization": "http://h"},
}

RECIPE: dict[str, Any] = {
    **{"name": "theirs", "engine": "sglang", "model": "org/model", "summary": "s", "runtime": "container"},
    **{"hosts": [1, 2], "args": {}},
}


def dangers(args: dict[str, Any], acknowledged: list[str]) -> list[str]:
    return free_options.dangers(args, acknowledged, free_in_sglang, "SGLang")


@pytest.mark.parametrize("name", ATTACKS)
def test_what_may_lead_to_code_files_or_hosts_wants_the_inventory_s_word(name: str) -> None:
    [told] = dangers({name: ATTACKS[name]}, ["another", "page-size"])
    assert told.startswith(f"{name}=")
    assert told.endswith(f"vllm_serve_acknowledged: [{name}]")
    assert not dangers({name: ATTACKS[name]}, [f"--{name.replace('-', '_')}"])


def test_what_chooses_kernels_and_sizes_is_free() -> None:
    free: dict[str, Any] = {
        **{"attention-backend": "flashinfer", "prefill-attention-backend": "fa3", "moe-runner-backend": "triton"},
        **{"mem-fraction-static": 0.85, "chunked-prefill-size": "8k", "cuda-graph-bs-decode": [1, 2], "page-size": 64},
        **{"cuda-graph-backend-decode": "disabled", "kv-cache-dtype": "fp8_e4m3", "quantization": "w8a8_fp8"},
        **{"schedule-policy": "lpm", "disable-radix-cache": True, "tool-call-parser": "qwen3_coder", "dp-size": 1},
        **{"reasoning-parser": "deepseek-r1", "chat-template": "llama-2", "speculative-num-steps": 3, "ep-size": 2},
        **{"log-requests": False, "trust-remote-code": False, "disable-cuda-graph": True, "load-format": "auto"},
    }
    assert not dangers(free, [])


def test_a_secret_is_refused_whoever_means_it() -> None:
    [told] = dangers({"ssl-keyfile-password": "hush"}, ["ssl-keyfile-password"])
    assert "is a secret" in told
    assert "hush" not in told


@pytest.mark.parametrize("where", ["recipe", "inventory"])
def test_the_refusal_names_its_source(where: str) -> None:
    args = {"forward-hooks": '[{"hook_factory": "os:system"}]'}
    recipe = {**RECIPE, "args": args}
    given = {"vllm_serve_recipe": recipe, "vllm_serve_model": ""} if where == "recipe" else {"vllm_serve_args": args}
    with pytest.raises(RecipeError) as caught:
        served(**given)
    assert str(caught.value).startswith("recipe theirs: args: " if where == "recipe" else "vllm_serve_args: ")
    assert "forward-hooks=" in str(caught.value)


@pytest.mark.parametrize("name", ["SGLANG_EXTERNAL_MODEL_PACKAGE", "SGLANG_PLUGINS", "SGLANG_CACHE_DIR", "LD_PRELOAD"])
def test_no_recipe_leads_it_to_code_by_its_environment(name: str) -> None:
    recipe = {**RECIPE, "environment": {name: "a"}}
    with pytest.raises(RecipeError, match=f"{name} is not set by a recipe"):
        served(vllm_serve_recipe=recipe, vllm_serve_model="")
