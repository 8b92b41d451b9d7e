# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_config as s


def test_config_of_the_head_under_ray() -> None:
    config = s.serve_config(
        {"dtype": "float32", "max_num_seqs": 4},
        model="/m",
        served_model_name=["tiny"],
        max_model_len=512,
        pipeline_parallel_size=3,
        socket="/run/s.sock",
        hosts=3,
    )
    assert config == {
        "model": "/m",
        "served-model-name": "tiny",
        "max-model-len": 512,
        "tensor-parallel-size": 1,
        "pipeline-parallel-size": 3,
        "distributed-executor-backend": "ray",
        "allowed-media-domains": [s.NO_DOMAIN],
        "uds": "/run/s.sock",
        "disable-uvicorn-access-log": True,
        "dtype": "float32",
        "max-num-seqs": 4,
    }


def test_config_of_a_rank_without_ray() -> None:
    config = s.serve_config({}, model="/m", executor="mp", socket="/x", hosts=3, rank=2, master_address="10.0.0.1")
    assert "uds" not in config
    assert (config["headless"], config["nnodes"], config["node-rank"]) == (True, 3, 2)
    assert (config["master-addr"], config["master-port"]) == ("10.0.0.1", 29501)
    alone = s.serve_config({}, model="/m", executor="mp", socket="/x")
    assert "nnodes" not in alone
    assert alone["uds"] == "/x"


@pytest.mark.parametrize(
    ("args", "written"),
    [
        ({}, {"disable-uvicorn-access-log": True}),
        ({"disable_uvicorn_access_log": False}, {"no-disable-uvicorn-access-log": True}),
        ({"disable-uvicorn-access-log": None}, {}),
        ({"enable-uvicorn-access-log": True}, {"enable-uvicorn-access-log": True}),
    ],
)
def test_vllm_s_own_access_log_is_off_unless_asked_for(args: dict, written: dict) -> None:
    config = s.serve_config(args, model="/m", socket="/x")
    assert {key: value for key, value in config.items() if "access-log" in key} == written


def test_values_that_the_file_reader_would_lose() -> None:
    rendered = s.render_args(
        {
            "--enable-prefix-caching": False,
            "no-async-scheduling": False,
            "compilation_config": {"mode": 2},
            "compilation_config.level": 1,
            "speculative-config.enforce_eager": False,
            "--kv-transfer_config.kv_connector_extra_config.x": True,
            "kv-transfer-config.y+": "a,b",
            "profiler-config.x": None,
            "stop": -1,
            "limit-mm-per-prompt": [{"image": 1}],
            "allowed-origins": ["*"],
            "lora-modules": ["a=b", "c=d"],
            "seed": None,
        }
    )
    assert rendered == {
        "no-enable-prefix-caching": True,
        "async-scheduling": True,
        "compilation-config": '{"level": 1, "mode": 2}',
        "speculative-config": '{"enforce_eager": false}',
        "kv-transfer-config": '{"kv_connector_extra_config": {"x": true}, "y": ["a", "b"]}',
        "stop": -1,
        "limit-mm-per-prompt": '[{"image": 1}]',
        "allowed-origins": '["*"]',
        "lora-modules": ["a=b", "c=d"],
    }


@pytest.mark.parametrize("key", ["compilation-config.pass_config.fuse_norm_quant", "--compilation_config.x"])
def test_a_field_that_is_off_is_no_option_of_its_own(key: str) -> None:
    """Also where no table of options says which there are: vLLM knows no --no-x.y, and serving had stopped by then."""
    rendered = s.render_args({key: False, "compilation-config.mode": 3})
    assert list(rendered) == ["compilation-config"]
    given = json.loads(rendered["compilation-config"])
    assert given.pop("mode") == 3
    assert "false" in json.dumps(given)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"port": 80}, "vllm_serve_api_port"),
        ({"--api_key": "x"}, "vllm_serve_api_key"),
        ({"tp": 2}, "vllm_serve_tensor_parallel_size"),
        ({"max-num-seqs": 1, "max_num_seqs": 2}, "twice"),
        ({"enable-x": True, "no-enable-x": True}, "both"),
        # argparse takes the beginning of a name for the whole
        ({"api-k": "x"}, "api-k is short for api-key, which is decided by the role"),
        ({"conf": "/x.yaml"}, "is short for config,"),
        ({"no-headl": True}, "vllm_serve_executor"),
        ({"served_model_name.x": 1}, "vllm_serve_served_model_name"),
        ({"hf-token": "x"}, "vllm_serve_hf_token"),
        ({"allowed_media_domains": ["x"]}, "vllm_serve_media_domains"),
        # words that would become other options
        ({"middleware=evil.x": True}, "not the name of an option"),
        ({"seed --middleware": "evil.x"}, "not the name of an option"),
        ({"": 1}, "not the name of an option"),
        ({"lora-modules": ["a=b", "--middleware=evil.x"]}, "begins with a dash"),
        ({"chat-template": "--middleware"}, "begins with a dash"),
        # what has no meaning
        ({"lora-modules": []}, "lora-modules is an empty list"),
        ({"lora-modules": ["a", None]}, "holds null in a list"),
        ({"lora-modules": [True]}, "holds true in a list"),
        ({"compilation-config.x": 1, "compilation-config": 3}, "a value that is no dictionary"),
    ],
)
def test_arguments_that_contradict_the_role(args: dict[str, object], words: str) -> None:
    with pytest.raises(s.ServeConfigError, match=words):
        s.render_args(args)


def test_unknown_executor_and_no_model() -> None:
    with pytest.raises(s.ServeConfigError, match="ray or mp"):
        s.serve_config({}, model="/m", executor="dask")
    with pytest.raises(s.ServeConfigError, match="vllm_serve_model"):
        s.serve_config({}, model="")
    with pytest.raises(s.ServeConfigError, match="control address"):
        s.serve_config({}, model="/m", executor="mp", hosts=2)


def test_streams_say_their_tokens_where_a_key_has_a_limit() -> None:
    assert s.serve_config({}, model="/m", says_usage=True)["enable-force-include-usage"] is True
    assert "enable-force-include-usage" not in s.serve_config({}, model="/m", says_usage=True, executor="mp", rank=1)
    for off in ({"enable-force-include-usage": False}, {"disable_force_include_usage": True}):
        with pytest.raises(s.ServeConfigError, match="remove the argument, or the limits"):
            s.serve_config(off, model="/m", says_usage=True)


@pytest.mark.parametrize(
    "words", [{"model": "--middleware=evil.x"}, {"served_model_name": ["a", "--middleware=evil.x"]}]
)
def test_a_name_of_a_model_cannot_be_an_option(words: dict[str, Any]) -> None:
    with pytest.raises(s.ServeConfigError, match="begins with a dash"):
        s.serve_config({}, **{"model": "/m", **words})


def test_by_default_no_url_of_media_is_fetched() -> None:
    """vLLM compares a URL's host with the list, and an empty list means all hosts."""
    config = s.serve_config({}, model="/m", socket="/x")
    allowed = config["allowed-media-domains"]
    assert len(allowed) == 1
    hosts = (
        "127.0.0.1",
        "localhost",
        "[::1]",
        "10.0.0.1",
        "no domain",
        "NO DOMAIN",
        "NO%20DOMAIN",
        "user@NO DOMAIN",
        "",
    )
    for host in hosts:
        for url in (f"http://{host}/x", f"https://{host}:8000/x", f"HTTP://{host}"):
            assert urlsplit(url).hostname not in allowed, url
    worker = s.serve_config({}, model="/m", executor="mp", socket="/x", hosts=2, rank=1, master_address="10.0.0.1")
    assert worker["allowed-media-domains"] == allowed


def test_domains_of_media_are_the_owner_s() -> None:
    domains = ["images.example.org", "10.0.0.9"]
    assert s.serve_config({}, model="/m", domains=domains)["allowed-media-domains"] == domains
    for wrong in ("https://example.org", "*.example.org", "Example.org", "example.org:80", "", "-x.org", "a\n"):
        with pytest.raises(s.ServeConfigError, match=r"vllm_serve_media_domains: .*images\.example\.org"):
            s.media_domains([wrong])
