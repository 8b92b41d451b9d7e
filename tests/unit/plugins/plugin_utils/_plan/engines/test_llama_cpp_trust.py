# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of llama.cpp's arguments gets past the list of those that only choose kernels, sizes and samplers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.llama_cpp import LLAMA_CPP
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.llama_cpp import PlannedLlamaCpp
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

from tests.unit.plugins.plugin_utils._plan.engines.test_llama_cpp import served

#: options of llama.cpp 0c1e570, by what they do
ATTACKS: dict[str, Any] = {
    # programs are started
    **{"tools": "all", "tools-runtime": "x", "agent": True, "mcp-servers-json": '{"a": {"command": "sh"}}'},
    **{"mcp-servers-config": "/tmp/m.json", "video-ffmpeg-dir": "/tmp", "tools=all": True},
    # files are read, or handed to whoever asks
    **{"lora": "/tmp/a.gguf", "lora-scaled": "/tmp/a.gguf:1", "control-vector": "/x", "control-vector-scaled": "/x:1"},
    **{"path": "/", "media-path": "/etc", "mmproj": "/x", "grammar-file": "/etc/shadow", "json-schema-file": "/x"},
    **{"chat-template-file": "/proc/self/environ", "lookup-cache-static": "/x", "ui-config-file": "/x", "file": "/x"},
    **{"system-prompt-file": "/etc/shadow", "binary-file": "/x", "tts-speaker-file": "/x", "models-dir": "/"},
    **{"models-preset": "/x.ini", "spec-draft-model": "/x", "model-draft": "/x", "webui-config-file": "/x"},
    **{"api-key-file": "/etc/shadow", "ssl-key-file": "/etc/shadow", "ssl-cert-file": "/x", "image": "/etc/shadow"},
    # files are written, or what others asked and were answered
    **{"slot-save-path": "/srv", "log-file": "/srv/x", "log-prompts-dir": "/srv", "lookup-cache-dynamic": "/srv/x"},
    **{"prompt-cache": "/srv/x", "output-file": "/srv/x", "verbose": True, "log-verbosity": 5, "log-verbose": True},
    # hosts and ports
    **{"rpc": "h:1", "model-url": "http://h", "mmproj-url": "http://h", "hf-repo": "a/b", "hf-file": "x", "hfr": "a/b"},
    **{"docker-repo": "a/b", "spec-draft-hf": "a/b", "hf-repo-draft": "a/b", "gpt-oss-20b-default": True, "mtp": True},
    **{"fim-qwen-7b-spec": True, "vision-gemma-4b-default": True, "reuse-port": True, "server-base": "http://h"},
    **{"host": "0.0.0.0", "port": 1, "cors-origins": "*", "cors-credentials": True, "webui-mcp-proxy": True},
    **{"ui-mcp-proxy": True, "ui": True, "webui": True, "props": True, "models-autoload": True, "rpc-cache": True},
    # it would end at once, and one that nobody here knows
    **{"list-devices": True, "completion-bash": True, "usage": True, "an-option-of-tomorrow": True},
    # other spellings: short names, underscores, dashes, capitals
    **{"m": "/x", "mu": "http://h", "hf": "a/b", "hff": "x", "dr": "a/b", "mm": "/x", "mmu": "http://h", "md": "/x"},
    **{"lcd": "/srv/x", "jf": "/etc/shadow", "ag": True, "v": True, "o": "/srv/x", "bf": "/x", "hfd": "a/b", "f": "/x"},
    **{"log_file": "/srv/x", "--slot_save_path": "/srv", "-lora": "/x", "LORA": "/x", "--tools": "all"},
    # where the name is harmless and the word is not
    **{
        "chat-template": "/tmp/a.jinja",
        "numa": "../x",
        "samplers": "a b",
        "device": "http://h",
        "threads": "4 --tools",
    },
    **{"override-tensor": "/x=CPU", "cache-type-k-draft": "/x", "load-mode": "a\u2028tools: true", "pooling": "x\x85y"},
    # a value where a switch is, and a switch where a value is: the next word is read as something else
    **{"jinja": "tools", "xtc-threshold": True, "sampler-seq": True, "spec-type": True},
}
RECIPE: dict[str, Any] = {
    **{"name": "theirs", "engine": "llama_cpp", "model": "org/model-GGUF:Q4_K_M", "summary": "s", "runtime": "venv"},
    **{"hosts": [1, 2], "args": {}},
}


FREE: dict[str, Any] = {
    **{"threads": 8, "ubatch-size": "512", "flash-attn": "on", "jinja": True, "no-mmap": True, "mlock": True},
    **{
        "top-k": -1,
        "temp": 0.7,
        "samplers": "top_k;temperature",
        "rope-scaling": "yarn",
        "parallel": 4,
        "no-slots": True,
    },
    **{"chat-template": "llama3", "chat-template-kwargs": '{"enable_thinking": false}', "embeddings": True},
    **{
        "override-tensor": r"\.ffn_(up|down)_exps\.=CPU",
        "n-cpu-moe": 4,
        "cache-type-k": "q8_0",
        "spec-type": "ngram-mod",
    },
    **{"reasoning-format": "deepseek", "reasoning-budget": 0, "tools": False, "log-verbose": False, "pooling": "mean"},
}


def of_recipe(args: dict[str, Any], acknowledged: list[str] | None = None, **given: Any) -> dict[str, Any]:
    plan = PlannedLlamaCpp().plan
    found: dict[str, Any] = plan(
        {**RECIPE, "args": args, **given}, ["h0"], overrides={"acknowledged": acknowledged or [], "max_model_len": 4096}
    )
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_no_recipe_leads_it_to_programs_files_or_hosts(name: str) -> None:
    with pytest.raises(RecipeError) as caught:
        of_recipe({name: ATTACKS[name]})
    assert str(caught.value).startswith("recipe theirs: args: ")
    assert name.lstrip("-").replace("_", "-") in str(caught.value).replace("_", "-")


@pytest.mark.parametrize("name", ["lora", "slot_save_path", "--log-file", "grammar-file"])
def test_the_inventory_s_own_word_lets_it_through(name: str) -> None:
    plain = name.lstrip("-").replace("_", "-")
    with pytest.raises(RecipeError, match=rf"vllm_serve_acknowledged: \[{plain}\]"):
        of_recipe({name: "/srv/x"}, ["another", "threads"])
    assert of_recipe({name: "/srv/x"}, [name])["args"][plain] == "/srv/x"
    assert PlannedLlamaCpp().to_acknowledge({name: "/srv/x", "threads": 4}) == [plain]


def test_a_recipe_acknowledges_nothing_itself() -> None:
    with pytest.raises(RecipeError, match="acknowledged"):
        PlannedLlamaCpp().plan({**RECIPE, "args": {"lora": "/x"}, "acknowledged": ["lora"]}, ["h0"])


def test_what_chooses_kernels_sizes_and_samplers_is_free() -> None:
    assert PlannedLlamaCpp().to_acknowledge(FREE) == []


def test_a_secret_is_refused_whoever_means_it() -> None:
    with pytest.raises(RecipeError, match="is a secret") as caught:
        of_recipe({"hf-token": "hush"}, ["hf-token"])
    assert "hush" not in str(caught.value)


def test_the_refusal_names_the_inventory_where_it_is_its_own() -> None:
    with pytest.raises(RecipeError, match=r"^vllm_serve_args: mcp-servers-json="):
        served("owner/quants:Q4_K_M", 1, vllm_serve_max_model_len=4096, vllm_serve_args={"mcp-servers-json": "{}"})


VARIABLES = (
    *("LLAMA_ARG_TOOLS", "LLAMA_ARG_RPC", "LLAMA_ARG_NO_OFFLINE", "LLAMA_CACHE", "LLAMA_LOG_FILE", "MODEL_ENDPOINT"),
    *("GGML_BACKEND_PATH", "GGML_RPC_DEBUG", "GGML_CUDA_P2P", "HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "XDG_CONFIG_HOME"),
)


@pytest.mark.parametrize("name", VARIABLES)
def test_no_recipe_leads_it_to_files_or_hosts_by_its_environment(name: str) -> None:
    with pytest.raises(RecipeError, match=f"{name} is (?:not set by a recipe|a secret)"):
        of_recipe({}, environment={name: "1x"})


def test_a_value_with_a_foreign_end_of_line_stays_one_value() -> None:
    text = 'grammar: "a\u2028tools: true\x85b"\nthreads: 4\n'
    words = LLAMA_CPP.spell(["llama-server", "--config", "/f"], text)
    assert words == ["llama-server", "--grammar", "a\u2028tools: true\x85b", "--threads", "4"]
