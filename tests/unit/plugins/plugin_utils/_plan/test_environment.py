# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import (
    merged,
    not_of_recipe,
    problem,
    secret_fix,
    secret_name,
)


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MY_SECRET", "github_token"]
)
def test_secrets_are_told_by_their_names(name: str) -> None:
    assert secret_name(name, "something-of-length")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("SOME_TOKEN", True),
        ("LAST_TOKEN", 151643),
        ("TOKENIZERS_PARALLELISM", "something-of-length"),
        ("HF_TOKEN_PATH", "/run/credentials/hf_token"),
        ("KEYBOARD", "something-of-length"),
        ("VLLM_API_KEY", ""),
    ],
)
def test_switches_numbers_and_places_are_none(name: str, value: object) -> None:
    assert not secret_name(name, value)


def test_the_fix_names_the_variable_that_takes_it() -> None:
    assert "vllm_serve_hf_token" in secret_fix("HF_TOKEN")
    assert "vllm_serve_api_key" in secret_fix("VLLM_API_KEY")
    assert "ray_node_token" in secret_fix("RAY_AUTH_TOKEN")
    assert "MY_SECRET_FILE" in secret_fix("MY_SECRET")


#: what would make the engine, or a program of root's, load or ask something: each is the inventory's alone
LEADS_SOMEWHERE = (
    *("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "OPENSSL_CONF", "OPENSSL_MODULES", "PATH", "HOME"),
    *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "PYTHONWARNINGS"),
    *("BASH_ENV", "ENV", "IFS", "GCONV_PATH", "LOCPATH", "TMPDIR", "GIT_SSH_COMMAND", "http_proxy", "HTTPS_PROXY"),
    *("VLLM_LOGGING_CONFIG_PATH", "VLLM_NCCL_SO_PATH", "VLLM_CUDART_SO_PATH", "VLLM_PLUGINS", "VLLM_CACHE_ROOT"),
    *("VLLM_CONFIG_ROOT", "VLLM_RUST_FRONTEND_PATH", "VLLM_USE_RUST_FRONTEND", "VLLM_MODEL_REDIRECT_PATH"),
    *("VLLM_TUNED_CONFIG_FOLDER", "VLLM_USE_MODELSCOPE", "VLLM_HOST_IP", "VLLM_RPC_BASE_PATH", "VLLM_MEDIA_CONNECTOR"),
    *("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_SERVER_DEV_MODE", "VLLM_API_KEY"),
    *(
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_LORA_RESOLVER_CACHE_DIR",
        "VLLM_USAGE_STATS_SERVER",
        "VLLM_DEBUG_DUMP_PATH",
    ),
    *("VLLM_RAY_EXTRA_ENV_VARS_TO_COPY", "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY", "VLLM_CUDA_COMPATIBILITY_PATH"),
    *("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"),
    *("VLLM_NO_USAGE_STATS", "HF_ENDPOINT", "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_CACHE", "TRITON_CACHE_DIR"),
    *("TRITON_PTXAS_PATH", "CUDA_HOME", "CC", "CXX", "NVCC_PREPEND_FLAGS", "NCCL_NET_PLUGIN", "NCCL_CONF_FILE"),
    *(
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "RAY_ADDRESS",
        "RAY_RUNTIME_ENV_HOOK",
        "NVIDIA_VISIBLE_DEVICES",
    ),
    *("FLASHINFER_WORKSPACE_BASE", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"),
)


@pytest.mark.parametrize("name", LEADS_SOMEWHERE)
def test_what_leads_somewhere_is_not_a_recipe_s(name: str) -> None:
    for value in ("/tmp/x", "1", "evil", "evil.example:80", ""):
        assert not_of_recipe(name, value) is not None
        assert problem(name, value) is None or secret_name(name, value)


def test_a_recipe_chooses_kernels_and_sizes() -> None:
    for name, value in (
        ("VLLM_USE_FLASHINFER_MOE_FP4", "1"),
        ("VLLM_USE_DEEP_GEMM", 0),
        ("VLLM_USE_B12X_MOE", "1"),
        ("VLLM_USE_V2_MODEL_RUNNER", "1"),
        ("VLLM_MARLIN_USE_ATOMIC_ADD", 1),
        ("VLLM_FLASHINFER_MOE_BACKEND", "latency"),
        ("VLLM_PP_LAYER_PARTITION", "40,8"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128"),
        ("CUTE_DSL_ARCH", "sm_121a"),
        ("OMP_NUM_THREADS", ""),
    ):
        assert not_of_recipe(name, value) is None, name
    # a kernel's number is a number
    for value in ("/tmp/x", "evil", "1 2", "1\n2", ["1"], {"a": 1}, True, "9" * 40):
        assert not_of_recipe("VLLM_USE_FLASHINFER_MOE_FP4", value) is not None


@pytest.mark.parametrize("name", ["A B", "1A", "", "A=B", "A\nLD_PRELOAD", "A-B"])
def test_what_is_no_name(name: str) -> None:
    assert "is not the name" in (problem(name, "1") or ("",))[0]
    assert not_of_recipe(name, "1") is not None


def test_layers_of_an_environment() -> None:
    assert merged({"A": 1, "B": 2}, {"B": None, "C": 3}, {"C": 4}) == {"A": 1, "C": 4}
    assert merged({"A": None}, {"A": 0}) == {"A": 0}
    assert problem("A", None) is None
    assert not secret_name("HF_TOKEN", None)
