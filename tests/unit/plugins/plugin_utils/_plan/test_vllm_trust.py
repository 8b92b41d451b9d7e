# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes vLLM run code, read files or ask hosts is the inventory's to want, however a recipe writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sparkrun import translate_sparkrun
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve

from .minimal_recipe import MINIMAL

CONNECTOR = {"kv_connector": "X", "kv_role": "kv_both", "kv_connector_module_path": "evil.module"}
#: arguments, and what the inventory would have to acknowledge
CODE: list[tuple[dict[str, Any], str]] = [
    ({"trust-remote-code": True}, "trust-remote-code"),
    ({"--trust_remote_code": True}, "trust-remote-code"),
    ({"no-trust-remote-code": False}, "trust-remote-code"),
    ({"trust-remote": True}, "trust-remote-code"),
    ({"tool-parser-plugin": "/x.py"}, "tool-parser-plugin"),
    ({"tool_parser_plugi": "/x.py"}, "tool-parser-plugin"),
    ({"reasoning-parser-plugin": "/x.py"}, "reasoning-parser-plugin"),
    (
        {"structured-outputs-config": {"reasoning_parser_plugin": "/x.py"}},
        "structured-outputs-config.reasoning_parser_plugin",
    ),
    ({"worker-cls": "evil.W"}, "worker-cls"),
    ({"worker-extension-cls": "evil.W"}, "worker-extension-cls"),
    ({"scheduler_cls": "evil.S"}, "scheduler-cls"),
    ({"middleware": "evil.m"}, "middleware"),
    ({"middlew": ["evil.m"]}, "middleware"),
    ({"logits-processors": ["evil.p"]}, "logits-processors"),
    ({"io-processor-plugin": "evil"}, "io-processor-plugin"),
    ({"model-class-overrides": {"A": "evil:B"}}, "model-class-overrides"),
    ({"log-config-file": "/x.json"}, "log-config-file"),
    ({"logging-config": {"pylogging_config_file": "/x"}}, "logging-config.pylogging_config_file"),
    ({"kv-transfer-config": CONNECTOR}, "kv-transfer-config.kv_connector_module_path"),
    ({"kv-transfer-config": json.dumps(CONNECTOR)}, "kv-transfer-config.kv_connector_module_path"),
    ({"kv_transfer_config": f" {CONNECTOR}"}, "kv-transfer-config.kv_connector_module_path"),
    ({"kv-transfer-config.kv_connector_module_path": "evil"}, "kv-transfer-config.kv_connector_module_path"),
    ({"kv_transfer_config.kv-connector-module-path": "evil"}, "kv-transfer-config.kv_connector_module_path"),
    (
        {"kv-transfer-config.kv_connector_extra_config": {"spec_module_path": "evil"}},
        "kv-transfer-config.kv_connector_extra_config.spec_module_path",
    ),
    ({"ec-transfer-config.ec_connector_module_path": "evil"}, "ec-transfer-config.ec_connector_module_path"),
    ({"compilation-config": {"backend": "evil.compile"}}, "compilation-config.backend"),
    ({"cc.backend": "evil.compile"}, "compilation-config.backend"),
    ({"compilation-config.inductor_passes": {"a": "evil.f"}}, "compilation-config.inductor_passes"),
    ({"compilation-config": {"cache_dir": "/var/lib/models/x"}}, "compilation-config.cache_dir"),
    (
        {"compilation-config.inductor_compile_config": {"cpp.cxx": ["/x/cc"]}},
        "compilation-config.inductor_compile_config.cpp.cxx",
    ),
    # of versions that nobody here knows
    ({"executor-class": "evil.E"}, "executor-class"),
    ({"new-config": [{"deep": {"loader_cls": "evil.L"}}]}, "new-config.deep.loader_cls"),
    ({"some-plugins": ["evil"]}, "some-plugins"),
    # files and hosts
    ({"allowed-local-media-path": "/"}, "allowed-local-media-path"),
    ({"tool-server": "evil.example:80"}, "tool-server"),
    ({"otlp-traces-endpoint": "http://evil.example"}, "otlp-traces-endpoint"),
    (
        {"kv-transfer-config": {"kv_connector_extra_config": {"remote_url": "x:1"}}},
        "kv-transfer-config.kv_connector_extra_config.remote_url",
    ),
    ({"data-parallel-address": "10.0.0.9"}, "data-parallel-address"),
    (
        {"kv-transfer-config.kv_connector_extra_config": {"servers": ["x:1"]}},
        "kv-transfer-config.kv_connector_extra_config.servers",
    ),
    ({"tokenizer": "s3://evil/x"}, "tokenizer"),
    ({"lora-modules": ["a=s3://evil/x"]}, "lora-modules"),
    ({"profiler-config.torch_profiler_dir": "gs://evil/x"}, "profiler-config.torch_profiler_dir"),
    # a class that is named as a model
    ({"speculative-config": {"method": "custom_class", "model": "evil.P"}}, "speculative-config.method"),
    ({"speculative-config.method": "custom_class", "speculative-config.model": "evil.P"}, "speculative-config.method"),
    # a template is a part of each prompt, and so is a secret that is taken for one
    ({"chat-template": "/run/credentials/sparkthor-vllm.service/hf_token"}, "chat-template"),
    ({"chat-template": "//var/run/x"}, "chat-template"),
    ({"chat_template": "../../../../proc/self/environ"}, "chat-template"),
    # what clients send is run, or obeyed
    ({"enable-prompt-embeds": True}, "enable-prompt-embeds"),
    ({"no-enable-mm-embeds": False}, "enable-mm-embeds"),
    ({"trust-request-chat-template": True}, "trust-request-chat-template"),
    ({"trust_request_mm_kwargs": True}, "trust-request-mm-kwargs"),
    ({"grpc": True}, "grpc"),
]


@pytest.mark.parametrize(("args", "name"), CODE)
@pytest.mark.parametrize("version", [None, "0.33.0"])
def test_a_recipe_cannot_bring_it(args: dict[str, Any], name: str, version: str | None) -> None:
    with pytest.raises(RecipeError, match="recipe n: ") as caught:
        resolve({**MINIMAL, "args": args}, ["a"], version=version)
    assert f"write vllm_serve_acknowledged: [{name}]" in str(caught.value)


@pytest.mark.parametrize(("args", "name"), CODE)
def test_the_inventory_can(args: dict[str, Any], name: str) -> None:
    assert vllm_args.check_trust(args, [name]) == []
    assert vllm_args.check_trust(args, [f"--{name.replace('-', '_')}"]) == []
    assert vllm_args.check_trust(args, ["other"]) != []
    assert name in vllm_args.to_acknowledge(args)


def test_it_needs_the_acknowledgement_in_the_inventory_s_own_arguments_as_well() -> None:
    own = {"args": {"middleware": "mine.m"}}
    with pytest.raises(RecipeError, match=r"vllm_serve_acknowledged: \[middleware\]"):
        resolve(MINIMAL, ["a"], overrides=own)
    assert resolve(MINIMAL, ["a"], overrides={**own, "acknowledged": ["middleware"]})["acknowledged"] == ["middleware"]


@pytest.mark.parametrize(
    "args",
    [
        {"trust-remote-code": False, "worker-cls": "auto", "scheduler-cls": None, "middleware": []},
        {"no-trust-remote-code": True},
        {"compilation-config": {"mode": 3, "backend": "inductor"}, "compilation-config.pass_config.fuse_norm": True},
        {"compilation-config": {"inductor_compile_config": {"combo_kernels": False, "max_tiles": 2}}},
        {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}},
        {"hf-overrides": {"text_config": {"norm_class": "rms"}, "architectures": ["A"]}},
        {
            "lora-modules": ["a=b"],
            "lora-target-modules": ["q"],
            "chat-template": "/t.jinja",
            "served-model-name": "cls",
            "allowed-origins": ["https://a.example"],
            "speculative-config": {"method": "eagle3", "model": "o/m"},
            "kv-transfer-config": {"kv_connector_extra_config": {"path": "/dev/shm/kv", "max_host_bytes": 5}},
        },
    ],
)
def test_what_serves_a_model_needs_none(args: dict[str, Any]) -> None:
    assert vllm_args.check_trust(args, []) == []


def test_a_command_of_another_tool_cannot_bring_it() -> None:
    command = (
        "vllm serve o/m --trust-remote-code --middleware evil.m -cc.backend=evil.x "
        "--kv-transfer-config.kv_connector_module_path evil.y"
    )
    recipe = translate_sparkrun({"recipe_version": "1", "model": "o/m", "container": "a/b", "command": command}, "f")
    with pytest.raises(RecipeError) as caught:
        resolve(recipe, ["a"])
    for name in ("trust-remote-code", "middleware", "compilation-config.backend"):
        assert f"vllm_serve_acknowledged: [{name}]" in str(caught.value)
    assert "[kv-transfer-config.kv_connector_module_path]" in str(caught.value)


def test_a_secret_is_in_no_file_of_arguments() -> None:
    args = {"model-loader-extra-config": {"s3": {"secret_access_key": "S3CRET"}}, "x-config.hf_token": "S3CRET"}
    found = vllm_args.check_trust(args, ["model-loader-extra-config.s3.secret_access_key"])
    assert [one.where for one in found] == ["model-loader-extra-config.s3.secret_access_key", "x-config.hf_token"]
    assert "S3CRET" not in str(found)
    assert vllm_args.check_trust({"hf-overrides": {"image_token": "<image>"}}, []) == []


@pytest.mark.parametrize(
    "name", ['x"; proxy_pass http://evil; #', "x\n  server {}", "$http_authorization", "x\\", "'x'", "x;y", "{x}", " x"]
)
def test_a_name_is_a_name_for_the_front_proxy(name: str) -> None:
    """It stands between quotes and in a comment of the doors' configuration."""
    for given, own in (({"served_model_name": name}, {}), ({}, {"served_model_name": ["good", name]})):
        with pytest.raises(RecipeError, match="is no name for clients"):
            resolve({**MINIMAL, **given}, ["a"], overrides=own)
    for good in ("o/m", "Model 7B (fast)", "qwen3:32b@latest", "模型"):
        assert resolve({**MINIMAL, "served_model_name": good}, ["a"])["served_model_name"] == good


@pytest.mark.parametrize(
    "model", ["~/.config/gcloud", "../../etc", "./x", "http://evil.example/x.tar", "s3://evil/x", "file:///etc"]
)
def test_a_recipe_names_nothing_of_the_controllers(model: str) -> None:
    """The model store would pack the folder, and send it to all hosts."""
    with pytest.raises(RecipeError, match=r"model=.* is no recipe's to say.*vllm_serve_model"):
        resolve({**MINIMAL, "model": model}, ["a"])
    assert resolve(MINIMAL, ["a"], overrides={"model": model})["model"] == model


@pytest.mark.parametrize("revision", ["../../x", "a b", "x\ny", "x?y", "-x"])
def test_a_revision_is_one(revision: str) -> None:
    with pytest.raises(RecipeError, match="revision"):
        resolve({**MINIMAL, "revision": revision}, ["a"])


@pytest.mark.parametrize("named", [[None], ["a", ["b"]], {"a": 1}, True, ["a", ""]])
def test_a_name_is_a_text(named: Any) -> None:
    with pytest.raises(RecipeError, match=r"served_model_name=.* is no name. Give a name or a list of names"):
        resolve({**MINIMAL, "served_model_name": named}, ["a"], topology="lan")
    with pytest.raises(RecipeError, match="is no name"):
        resolve(MINIMAL, ["a"], topology="lan", overrides={"served_model_name": named})


@pytest.mark.parametrize("field", ["model", "revision", "served_model_name"])
def test_no_field_of_a_recipe_becomes_an_option(field: str) -> None:
    with pytest.raises(RecipeError, match=f"recipe n: {field}='--middleware=evil' begins with a dash"):
        resolve({**MINIMAL, field: "--middleware=evil"}, ["a"])
    with pytest.raises(RecipeError, match=r"recipe n: args: lora-modules='--middleware=evil\.x' begins with a dash"):
        resolve({**MINIMAL, "args": {"lora-modules": ["a=b", "--middleware=evil.x"]}}, ["a"])


def test_a_bottomless_text_is_read_to_an_end() -> None:
    deep = "[" * 100_000
    assert vllm_args.check_trust({"x-config": deep}, []) == []
    assert [one.where for one in vllm_args.check_trust({"x-config": f"{deep} {{worker_cls: x"}, [])] == [
        "x-config.worker_cls"
    ]
