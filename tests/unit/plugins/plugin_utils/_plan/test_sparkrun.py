# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of sparkrun, translated: what becomes of each part, and what has no counterpart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.registry import ENGINES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import load, translated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sparkrun import filled, translate_sparkrun
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve

FIXTURES = Path(__file__).parents[4] / "fixtures"


def test_a_community_recipe_is_translated() -> None:
    path = str(FIXTURES / "recipes" / "sparkrun-v2.yaml")
    data = load(path)
    assert data["model"] == "Qwen/Qwen3-30B-A3B-Thinking-2507-FP8"
    assert (data["revision"], data["image"], data["hosts"]) == ("abc123", "example/vllm:1.2.3", [2])
    assert data["splits"] == {2: {"tensor_parallel": 2, "why": "as the recipe says."}}
    assert data["served_model_name"] == ["qwen", "thinking"]
    assert data["max_model_len"] == 65536
    assert data["args"] == {
        "gpu-memory-utilization": 0.8,
        "enable-auto-tool-choice": True,
        "tool-call-parser": "hermes",
        "override-generation-config": {"temperature": 0.7},
        "enable-prefix-caching": True,
    }
    assert data["environment"] == {"VLLM_USE_DEEP_GEMM": "0"}
    assert data["untranslated"] == [
        "executor_config (no counterpart)",
        "mods mods/fix-something (patches of the image, which are not applied)",
        "pre_exec echo prepare (commands before the start, which are not run)",
        "defaults.unused_thing (not used by the command)",
        "--distributed-executor-backend (decided by the roles)",
        "--host (decided by the roles)",
        "--port (decided by the roles)",
        "env.NCCL_IB_DISABLE (decided by the fabric plan or a secret)",
        "env.HF_TOKEN (decided by the fabric plan or a secret)",
    ]
    plan = resolve(path, ["a", "b"], topology="direct", version="0.33.0")
    assert (plan["tensor_parallel"], plan["options_checked"]) == (2, "0.33.0")
    assert plan["untranslated"] == data["untranslated"]
    with pytest.raises(RecipeError, match="for 2 hosts"):
        resolve(path, ["a", "b", "c"], version="0.33.0")


def test_a_community_recipe_without_a_command() -> None:
    data = load(str(FIXTURES / "recipes" / "sparkrun-defaults.yaml"))
    assert data["args"] == {"gpu-memory-utilization": 0.85}
    assert data["max_model_len"] == 8192
    assert data["hosts"] == 1
    assert data["untranslated"] == ["--port (decided by the roles)"]


FOREIGN: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "names no model"),
    ({"runtime": "atlas"}, "is for atlas. Only recipes for vLLM, SGLang and TensorRT-LLM"),
    ({"runtime": "trtllm", "command": "echo"}, "holds no `trtllm-serve`"),
    ({"runtime": "sglang", "command": "echo"}, "holds no `sglang serve`"),
    ({"runtime": "sglang", "command": "sglang serve m x"}, "the command has 'x', which belongs to no option"),
    ({"runtime": "sglang", "command": "sglang serve 'm"}, "cannot be read"),
    ({"runtime": "sglang", "command": "sglang serve --page-size $P"}, "takes '$P' from the original tool's shell"),
    ({"defaults": [1]}, "defaults is not a dictionary"),
    ({"command": "vllm serve {model} --port {port}"}, "uses {port}, which defaults lacks"),
    ({"command": "llama-server -m x"}, "is for llama-server"),
    ({"command": "echo"}, "holds no `vllm serve`"),
    ({"min_nodes": "two"}, "min_nodes='two' is not a number of hosts"),
    ({"min_nodes": 3, "max_nodes": 2}, "at least 3 and at most 2 hosts"),
    ({"command": "vllm serve m --revision ${TAG}"}, "takes '${TAG}' from the original tool's shell"),
    ({"command": "vllm serve m --gpu-memory-utilization-gb much"}, "is not a number of GiB"),
    ({"command": "vllm serve 'x"}, "cannot be read"),
]


@pytest.mark.parametrize(("change", "text"), FOREIGN)
def test_foreign_recipes_that_cannot_be_served(change: dict[str, Any], text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        translate_sparkrun({"recipe_version": "2", "model": "m", **change}, "f")
    assert text in str(caught.value)


def test_what_surrounds_the_command_is_named() -> None:
    data = translate_sparkrun(
        {"recipe_version": "1", "model": "m", "command": "export A=1 && vllm serve m --seed -1 --x '[1' && echo done"},
        "f",
    )
    assert data["args"] == {"seed": -1, "x": "[1"}
    assert data["executor"] == "mp"
    assert data["untranslated"] == [
        "command before vllm serve (export A=1 '&&')",
        "command after vllm serve ('&&' echo done)",
    ]
    assert data["hosts"] == "any"


def args(command: str, version: str = "2", **fields: Any) -> dict[str, Any]:
    data = translate_sparkrun({"recipe_version": version, "model": "o/m", "command": command, **fields}, "f")
    return dict(data["args"])


@pytest.mark.parametrize(
    ("version", "command", "want"),
    [
        ("1", """vllm serve m --sc '{{"a":{{"n":{n}}}}}'""", {"sc": {"a": {"n": 5}}}),
        ("1", """vllm serve m --sc '{{"n":{n}}}'""", {"sc": {"n": 5}}),
        ("2", """vllm serve m --sc '{"a": {"n": {n}}}'""", {"sc": {"a": {"n": 5}}}),
        ("2", """vllm serve m --sc '{{"n": {n}}}'""", {"sc": {"n": 5}}),
        ("2", "vllm serve m --sc '{outer}'", {"sc": {"n": 5}}),
        # written for sparkrun, whatever version it names: format() would refuse these braces
        ("1", """vllm serve m --seed {n} --sc '{"a": {"b": {"n": 5}}}'""", {"seed": 5, "sc": {"a": {"b": {"n": 5}}}}),
    ],
)
def test_templates_are_filled_as_their_tools_do(version: str, command: str, want: dict[str, Any]) -> None:
    assert args(command, version, defaults={"n": 5, "outer": '{"n": {n}}'}) == want


def test_a_shell_variable_is_no_placeholder() -> None:
    data = translate_sparkrun(
        {
            "recipe_version": "1",
            "model": "o/m",
            "command": "vllm serve o/m --master-addr ${NODE_IP} --port 1",
            "env": {"HOME_OF": "$HOME", "MAX_JOBS": 1},
        },
        "f",
    )
    assert data["args"] == {}
    assert data["environment"] == {"MAX_JOBS": "1"}
    assert "--master-addr (decided by the roles)" in data["untranslated"]
    assert "env.HOME_OF (from the original tool's shell)" in data["untranslated"]


def test_the_model_of_the_command_counts() -> None:
    def read(command: str) -> tuple[str, str]:
        data = translate_sparkrun({"recipe_version": "1", "model": "o/m", "command": command}, "f")
        return data["model"], " ".join(data["untranslated"])

    assert read("vllm serve o/m")[0] == "o/m"
    assert read("vllm serve o/other --seed 1")[0] == "o/other"
    assert "model o/m (only downloaded by the original tool" in read("vllm serve o/other")[1]
    assert read("vllm serve --model o/third")[0] == "o/third"
    model, notes = read("vllm serve /models/m")
    assert model == "o/m"
    assert "vllm serve /models/m (a path of the original container" in notes


@pytest.mark.parametrize(
    ("fields", "hosts", "splits"),
    [
        ({}, "any", {}),
        ({"cluster_only": True}, list(range(2, 17)), {}),
        ({"solo_only": True}, 1, {}),
        ({"mode": "solo"}, 1, {}),
        ({"mode": "cluster", "max_nodes": 3}, [2, 3], {}),
        ({"max_nodes": 1}, 1, {}),
        ({"defaults": {"tensor_parallel": 2}}, "any", {2: {"tensor_parallel": 2, "why": "as the recipe says."}}),
    ],
)
def test_numbers_of_hosts(fields: dict[str, Any], hosts: Any, splits: dict[int, Any]) -> None:
    data = translate_sparkrun({"recipe_version": "2", "model": "o/m", **fields}, "f")
    assert (data["hosts"], data["splits"]) == (hosts, splits)


def test_defaults_alone_are_what_the_original_passes_on() -> None:
    defaults = {"enforce_eager": "false", "trust_remote_code": "yes", "enable_prefix_caching": False, "top_k": 1}
    data = translate_sparkrun({"recipe_version": "2", "model": "o/m", "defaults": defaults}, "f")
    # false leaves a switch out, and does not turn vLLM's own default off
    assert data["args"] == {"trust-remote-code": True}
    assert "defaults.top_k (the original tool does not pass it on without a command)" in data["untranslated"]


def test_memory_in_gib_is_a_share_of_the_smallest_host() -> None:
    for option in ("--gpu-memory-utilization-gb 108", "--gpu-memory-utilization 108"):
        data = translate_sparkrun({"recipe_version": "1", "model": "o/m", "command": f"vllm serve o/m {option}"}, "f")
        assert (data["gpu_memory_gib"], data["args"]) == (108.0, {})
        memory = {"a": 2**30 * 128, "b": 2**30 * 120}
        split = {"tensor_parallel": 2}
        plan = resolve(data, ["a", "b"], memory_bytes=memory, version="0.33.0", overrides=split)
        assert plan["args"]["gpu-memory-utilization"] == 0.9
        plan = resolve(data, ["a", "b"], version="0.33.0", overrides=split)
        assert plan["args"]["gpu-memory-utilization"] == 0.85
        assert plan["warnings"] == ["gpu_memory_gib=108: without the hosts' memory 0.85 of it is planned"]


def test_placeholders_that_the_original_tool_fills_itself() -> None:
    command = (
        "vllm serve {resolved_model_path} --revision {model_revision} -tp {tensor_parallel} "
        "--chat-template {resolved_model_path}/chat_template.jinja"
    )
    given = {"recipe_version": "2", "model": "org/m", "container": "x/y:1", "defaults": {"tensor_parallel": 2}}
    for revision in ({}, {"model_revision": "abc"}):
        data = translate_sparkrun({**given, **revision, "command": command}, "f")
        assert (data["model"], data["revision"]) == ("org/m", revision.get("model_revision", "main"))
        assert data["args"] == {"chat-template": "/var/lib/sparkthor/models/m/chat_template.jinja"}
        assert (data["untranslated"], data["executor"]) == ([], "mp")


def test_a_recipe_without_a_container_is_one_of_its_tool() -> None:
    """By its runtime, which is none of ours."""
    engine = {"model": "/models/a.gguf", "runtime": "llama-cpp", "defaults": {"n_gpu_layers": 999}}
    with pytest.raises(RecipeError, match="is for llama-cpp"):
        translated(engine, "f", "f")
    data = translated({"model": "org/m", "runtime": "vllm", "defaults": {"tensor_parallel": 1}}, "f", "f")
    assert (data["model"], data["image"], data["source"]) == ("org/m", "", "sparkrun")


SGLANG: dict[str, Any] = {
    **{"recipe_version": "2", "model": "org/m", "runtime": "sglang", "container": "example/sglang:1", "min_nodes": 2},
    "defaults": {"port": 30000, "tensor_parallel": 2, "gpu_memory_utilization": 0.8, "max_model_len": 32768},
    "env": {"NCCL_CUMEM_ENABLE": "0", "SGLANG_HOST_IP": "10.0.0.1", "SGLANG_PP_LAYER_PARTITION": "3,3"},
}


@pytest.mark.parametrize(
    "program", ["python3 -m sglang.launch_server", "python -m sglang.launch_server", "sglang serve"]
)
def test_a_recipe_for_sglang_is_translated(program: str) -> None:
    command = (
        f"export A=1 && {program} --model-path {{model}} --port {{port}} --tp-size {{tensor_parallel}} \\\n"
        "  --mem-fraction-static {gpu_memory_utilization} --context-length={max_model_len} --disable_radix_cache "
        "--cuda-graph-bs-decode 1 2 4 --served-model-name mini --nnodes 2 --dist-init-addr h:1 | tee log"
    )
    data = translate_sparkrun({**SGLANG, "command": command}, "f")
    assert (data["engine"], data["executor"], data["model"], data["image"]) == (
        *("sglang", "", "org/m", "example/sglang:1"),
    )
    assert (data["served_model_name"], data["max_model_len"]) == ("mini", 32768)
    assert data["splits"] == {2: {"tensor_parallel": 2, "why": "as the recipe says."}}
    assert data["args"] == {
        **{"mem-fraction-static": 0.8, "disable-radix-cache": True, "cuda-graph-bs-decode": [1, 2, 4]},
    }
    assert data["environment"] == {"SGLANG_PP_LAYER_PARTITION": "3,3"}
    assert data["untranslated"] == [
        "command before sglang (export A=1 '&&')",
        "command after sglang ('|' tee log)",
        "--dist-init-addr (decided by the roles)",
        "--nnodes (decided by the roles)",
        "--port (decided by the roles)",
        "env.NCCL_CUMEM_ENABLE (decided by the fabric plan or a secret)",
        "env.SGLANG_HOST_IP (decided by the fabric plan or a secret)",
    ]
    # its command says which engine it is, where the recipe does not
    without = {key: value for key, value in SGLANG.items() if key != "runtime"}
    assert translate_sparkrun({**without, "command": command.partition("&& ")[2]}, "f")["engine"] == "sglang"


def test_a_recipe_for_sglang_without_a_command() -> None:
    defaults = {**SGLANG["defaults"], "max_num_seqs": 8, "trust_remote_code": False, "mamba_ssm_dtype": "bfloat16"}
    data = translate_sparkrun({**SGLANG, "defaults": {**defaults, "flux": 1}}, "f")
    assert data["args"] == {
        **{"mem-fraction-static": 0.8, "max-running-requests": 8, "mamba-ssm-dtype": "bfloat16"},
    }
    assert data["max_model_len"] == 32768
    assert "defaults.flux (the original tool does not pass it on without a command)" in data["untranslated"]


def test_a_recipe_for_sglang_is_planned_for_it() -> None:
    data = translate_sparkrun({**SGLANG, "env": {}}, "f")
    plan = ENGINES["sglang"].plan(data, ["a", "b"], topology="switch")
    assert (plan["tensor_parallel"], plan["max_model_len"]) == (2, 32768)
    assert plan["command"][:4] == ["sglang", "serve", "--model-path", "org/m"]
    with pytest.raises(RecipeError, match="is for sglang, whose arguments vLLM does not know"):
        resolve(data, ["a", "b"])


@pytest.mark.parametrize("version", ["1", "2"])
def test_placeholders_do_not_grow_without_end(version: str) -> None:
    values = {"a": "{b}" * 1000, "b": "{c}" * 1000, "c": "{d}" * 1000, "d": "x" * 1000}
    with pytest.raises(RecipeError, match="make a command of more than 100000 characters"):
        filled("vllm serve " + "{a}" * 100, values, version, "x")


@pytest.mark.parametrize("word", ["nvfp4", "fp4", "NVFP4"])
def test_a_packing_is_no_quantization_and_changes_nothing(word: str) -> None:
    command = f"vllm serve o/m --quantization {word} --seed 1"
    data = translate_sparkrun({"recipe_version": "2", "model": "o/m", "command": command}, "f")
    assert data["args"] == {"seed": 1}
    assert data["untranslated"] == [f"--quantization {word} (no method of vLLM, which takes the checkpoint's own)"]
    assert args("vllm serve o/m -q modelopt_fp4") == {"quantization": "modelopt_fp4"}


def test_defaults_do_not_blow_an_environment_up() -> None:
    env = {"A": "{config.long}" * 20}
    with pytest.raises(RecipeError, match="make an environment of more than 100000 characters"):
        translate_sparkrun(
            {"recipe_version": "2", "model": "o/m", "container": "o/i:1", "defaults": {"long": "x" * 9000}, "env": env},
            "f",
        )


def test_variables_name_defaults_and_what_the_tool_alone_knows() -> None:
    env = {
        **{"OMP_NUM_THREADS": "{config.threads}", "VLLM_CACHE_ROOT": "{launch.runtime_cache_dir}/state"},
        "VLLM_LOGGING_LEVEL": "{config.missing}",
    }
    data = translate_sparkrun(
        {"recipe_version": "2", "model": "o/m", "container": "o/i:1", "defaults": {"threads": 9}, "env": env}, "f"
    )
    assert data["environment"] == {"OMP_NUM_THREADS": "9"}
    assert [note for note in data["untranslated"] if note.startswith("env.")] == [
        "env.VLLM_CACHE_ROOT ({launch.runtime_cache_dir} is filled by the original tool)",
        "env.VLLM_LOGGING_LEVEL ({config.missing} is filled by the original tool)",
    ]
