# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What llama.cpp gets on one host and on two: layers by the header, its file on each host, a guarded port."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.llama_cpp import LLAMA_CPP
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page

from tests.unit.gguf_files import small_model, split_model
from tests.unit.planned_cluster import planned
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by, with_serving

WANTED = {"serving_engine": "llama_cpp", "engine_programs": "/srv/llama"}


def served(model: str, hosts: int = 2, **given: Any) -> dict[str, Any]:
    names = [f"h{number}" for number in range(hosts)]
    first, cluster, _fabric, nodes = planned(names, "switch" if hosts > 1 else "lan")
    return plan_serving({**first, **WANTED, "vllm_serve_model": model, **given}, cluster, nodes, ".")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "small.gguf", layers=5)
    return "./small.gguf"


def test_layers_and_cache_are_planned_by_the_file_s_header(model: str) -> None:
    found = served(model, vllm_serve_max_model_len=1000, vllm_serve_args={"np": 2})
    assert (found["engine"], found["executor"], found["runtime"]) == ("llama_cpp", "mp", "venv")
    assert (found["tensor_parallel"], found["pipeline_parallel"]) == (1, 2)
    args = found["args"]
    # two slots of 1,024 tokens; the worker's layers before the head's, the output matrix with the last
    assert (args["ctx-size"], args["parallel"], args["cache-ram"], args["fit"]) == (2048, 2, 0, "off")
    head, worker = found["memory"]["ranks"]["layers"]
    assert head + worker == 5
    assert args["tensor-split"] == f"{worker},{head + 1}"
    assert "fits" in found["outlook"]
    assert (found["model"], found["everywhere"]) == ("small.gguf", False)
    assert found["models"] == [{"name": "small.gguf", "source": model, "revision": ""}]


def test_the_report_draws_the_memory_of_each_host(model: str) -> None:
    drawn = page.budgets({"hosts": {}}, served(model)["memory"])
    assert [row["host"] for row in drawn] == ["h0", "h1"]
    for row in drawn:
        assert row["weights"] + row["cache"] + row["overhead"] + row["reserve"] == row["total"]
        assert min(row["weights"], row["overhead"]) > 0


def test_one_host_keeps_prompts_and_splits_nothing(model: str) -> None:
    args = served(model, 1)["args"]
    assert args["cache-ram"] == 8192
    assert "tensor-split" not in args


def test_a_folder_s_one_model_is_found_by_its_pattern(tmp_path: Path, model: str) -> None:
    split_model(tmp_path, "big")
    listed = {"name": "mine", "source": str(tmp_path), "pattern": "big-*"}
    found = served("mine", model_store_models=[listed])
    assert found["memory"]["layers"] == 4
    with pytest.raises(SizingError, match=r"holds 2 models in GGUF"):
        served("mine", model_store_models=[{"name": "mine", "source": str(tmp_path)}])


@pytest.mark.parametrize("name", ["owner/mixed", "./mixed"])
def test_beside_weights_in_another_form_the_model_in_gguf_is_meant(tmp_path: Path, model: str, name: str) -> None:
    (tmp_path / "mixed").mkdir()
    small_model(tmp_path / "mixed/m.gguf")
    (tmp_path / "mixed/model.safetensors").touch()
    found = served(name, 1)
    assert found["models"] == [{"name": "mixed", "source": name, "revision": "", "pattern": "*.gguf"}]
    assert (found["memory"] is None) == name.startswith("owner")


def test_a_listed_model_comes_in_the_form_that_is_served() -> None:
    listed = [{"name": "mixed", "source": "owner/mixed"}, {"name": "tiny", "source": "owner/tiny"}]
    found = served("mixed", 1, model_store_models=listed)
    assert found["models"] == [{**listed[0], "pattern": "*.gguf"}, listed[1]]
    given = [{"name": "quants-Q4_K_M", "source": "owner/quants"}]
    found = served("owner/quants:Q4_K_M", 1, model_store_models=given)
    assert found["models"] == [{**given[0], "pattern": "*Q4_K_M*.gguf"}]
    assert served("mixed", 1, serving_engine="vllm", model_store_models=listed)["models"] == listed


def test_a_quantization_of_the_hub_is_fetched_by_its_name() -> None:
    found = served("owner/quants:Q4_K_M", vllm_serve_max_model_len=4096)
    assert found["models"] == [
        {"name": "quants-Q4_K_M", "source": "owner/quants", "revision": "", "pattern": "*Q4_K_M*.gguf"}
    ]
    assert found["model"] == "quants-Q4_K_M"
    assert found["args"] == {"cache-ram": 0, "ctx-size": 4096, "gpu-layers": 999, "parallel": 1}
    assert "its memory is not planned" in found["warnings"][0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"vllm_serve_model": "m", "vllm_serve_tensor_parallel_size": 2}, "cannot do TP=2; set serving_engine to vllm"),
        ({"vllm_serve_model": "m", "vllm_serve_reasoning_parser": "qwen3"}, "cannot do parsers, which it takes"),
        ({"vllm_serve_tool_call_parser": "hermes"}, "change vllm_serve_tool_call_parser: no engine here can"),
        (
            {"vllm_serve_model": "m", "vllm_serve_args": {"enable-lora": True}},
            "cannot do LoRA adapters here; set serving_engine to vllm",
        ),
        ({"engine_runtime": "container"}, "llama.cpp cannot do a container"),
        ({"vllm_serve_executor": "ray"}, "cannot do ray as executor"),
        ({"engine_programs": ""}, "no folder has them"),
        ({"vllm_serve_pipeline_parallel_size": 3}, "one on each of 2 hosts"),
        ({"vllm_serve_args": {"cache-ram": 100}}, "issue 26529"),
        ({"vllm_serve_args": {"tools": "all"}}, "vllm_serve_acknowledged: [tools]"),
        ({"vllm_serve_args": {"fit": "on"}}, "is decided by the role"),
        ({"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_model": ""}, "is for vllm, whose arguments llama.cpp does"),
        ({"vllm_serve_max_model_len": 10**6}, "4096"),
    ],
)
def test_what_cannot_be_is_refused_by_the_plan(model: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        served(**{"model": model, **given})
    assert words in str(caught.value)


def test_a_model_that_does_not_fit_is_refused_with_numbers(tmp_path: Path, model: str) -> None:
    small_model(tmp_path / "huge.gguf", layers=5, llama__context_length=2**30)
    with pytest.raises(RecipeError, match=r"does not fit these hosts\. h0: weights .* exceed 0\.90 of 121\.7 GiB"):
        served("./huge.gguf")


@pytest.fixture
def llama(variables: dict[str, Any]) -> dict[str, Any]:
    found = {
        **{"engine": "llama_cpp", "model": "m", "models": [{"name": "m"}], "served_model_name": ["name", "other"]},
        **{"args": {"ctx-size": 2048, "fit": "off"}, "environment": {"A": "1"}, "everywhere": False},
    }
    return {**started_by(with_serving(variables, **found), "mp"), **WANTED}


def worker_of(variables: dict[str, Any]) -> dict[str, Any]:
    return {**variables, "inventory_hostname": variables["sparkthor_cluster"]["hosts"][1]}


def test_the_head_s_file_has_the_workers(llama: dict[str, Any]) -> None:
    planned_role = plan(llama)
    found = files(planned_role)
    config = yaml.safe_load(found["/etc/sparkthor/llama.yaml"])
    assert config["model"].endswith("/m")
    assert (config["alias"], config["metrics"], config["host"]) == ("name,other", True, "/run/sparkthor/vllm/vllm.sock")
    cluster, fabric = llama["sparkthor_cluster"], llama["sparkthor_fabric"]
    workers = [fabric[host]["control_address"] for host in cluster["hosts"][1:]]
    assert config["rpc"] == ",".join(f"{address}:50052" for address in workers)
    assert (config["ctx-size"], config["fit"]) == (2048, "off")
    group = json.loads(found["/etc/sparkthor/group.json"])
    assert (group["engine"], "listen" in group) == ("llama_cpp", False)
    assert group["command"][-3:] == ["/opt/sparkthor/venv/bin/llama-server", "--config", "/etc/sparkthor/llama.yaml"]
    words = LLAMA_CPP.spell(group["command"], found["/etc/sparkthor/llama.yaml"])
    assert words[words.index("--rpc") + 1] == config["rpc"]
    assert "--metrics" in words
    assert "--config" not in words
    assert planned_role["trials"][0][-1] == "--version"
    assert "--metrics" in planned_role["trials"][0]
    # the program connects while it reads its options
    assert "--rpc" not in planned_role["trials"][0]
    environment = found["/etc/sparkthor/vllm.env"]
    assert 'GGML_NO_BACKTRACE="1"' in environment
    assert 'A="1"' in environment


def test_a_null_takes_a_variable_of_the_role_away(model: str, llama: dict[str, Any]) -> None:
    found = served(model, vllm_serve_env={"GGML_NO_BACKTRACE": None})["environment"]
    llama["sparkthor_cluster"]["serving"]["environment"] = {**found, "LLAMA_ARG_RPC": None}
    planned_role = plan(llama)
    assert "GGML_NO_BACKTRACE" not in files(planned_role)["/etc/sparkthor/vllm.env"]
    assert not any("GGML_NO_BACKTRACE" in word for word in planned_role["trials"][0])


def test_no_file_of_options_is_read_that_nobody_here_wrote(llama: dict[str, Any]) -> None:
    """Its programs read ``llama.cpp/config.ini`` below ``/etc`` and ``$XDG_CONFIG_HOME`` before our words."""
    found = files(plan(llama))
    assert 'XDG_CONFIG_HOME="/etc/sparkthor"' in found["/etc/sparkthor/vllm.env"].splitlines()
    assert "InaccessiblePaths=-/etc/llama.cpp" in found["/etc/systemd/system/sparkthor-vllm.service"].splitlines()


def test_its_options_are_tried_as_the_unit_has_them_without_a_secret_on_the_command_line(llama: dict[str, Any]) -> None:
    given = {"HF_TOKEN": "hf_secret", "LLAMA_CACHE": "/srv/two words $5"}
    llama["sparkthor_cluster"]["serving"]["environment"] = given
    found = files(plan(llama))
    tried = plan(llama)["trials"][0]
    run, asked = tried[: tried.index("--")], tried[tried.index("--") + 1 :]
    assert run[0] == "systemd-run"
    hidden = [line for line in found["/etc/systemd/system/sparkthor-vllm.service"].splitlines() if "Inaccess" in line]
    assert [word.removeprefix("--property=") for word in run if "Inaccess" in word] == hidden
    assert "--uid=sparkthor" in run
    for path in ("/etc/sparkthor/fabric.env", "/etc/sparkthor/engine.env"):
        assert f"--property=EnvironmentFile=-{path}" in run
    program = next(number for number, word in enumerate(asked) if word.endswith("/llama-server"))
    assert asked[0] == "/usr/bin/env"
    # systemd takes one dollar sign of two
    variables = dict(word.replace("$$", "$").split("=", 1) for word in asked[1:program])
    unit = environment_file.parse(found["/etc/sparkthor/vllm.env"])
    assert variables == {name: value for name, value in unit.items() if name != "HF_TOKEN"}
    assert (variables["XDG_CONFIG_HOME"], variables["LLAMA_CACHE"]) == ("/etc/sparkthor", given["LLAMA_CACHE"])


def test_a_worker_s_file_knows_no_model(llama: dict[str, Any]) -> None:
    given = worker_of(llama)
    planned_role = plan(given)
    found = files(planned_role)
    address = llama["sparkthor_fabric"][given["inventory_hostname"]]["control_address"]
    assert yaml.safe_load(found["/etc/sparkthor/llama.yaml"]) == {"host": address, "port": 50052}
    group = json.loads(found["/etc/sparkthor/group.json"])
    assert group["listen"] == f"{address}:50052"
    assert group["command"][-3].endswith("/bin/ggml-rpc-server")
    assert planned_role["trials"] == []
    assert planned_role["model_links"] == []
    assert planned_role["model_elsewhere"] is False


def test_only_the_head_s_engine_reaches_a_worker_s_port(llama: dict[str, Any]) -> None:
    cluster, fabric = llama["sparkthor_cluster"], llama["sparkthor_fabric"]
    rules = files(plan(worker_of(llama)))["/etc/sparkthor/engine-port.nft"]
    accepted = [line for line in rules.splitlines() if line.endswith("accept") and "dport 50052" in line]
    assert len(accepted) == 1
    assert fabric[cluster["head"]]["control_address"] in accepted[0]
    for host in cluster["hosts"][1:]:
        assert fabric[host]["control_address"] not in accepted[0]
    assert "\t\ttcp dport 50052 reject with tcp reset\n" in rules
    rules = files(plan(llama))["/etc/sparkthor/engine-port.nft"]
    assert "ip daddr { " in rules
    assert 'tcp dport 50052 meta skuid != { "root", "sparkthor" } reject' in rules
    for host in cluster["hosts"][1:]:
        assert fabric[host]["control_address"] in rules


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"vllm_serve_api_keys": [{"name": "a", "key": "k" * 40, "tokens_per_minute": 5}]}, "has a limit of tokens"),
        ({"vllm_serve_from_hub": True}, "serves from the model store here"),
        ({"vllm_serve_media_domains": ["example.org"]}, "takes no media here"),
    ],
)
def test_what_the_front_could_not_keep_is_refused(llama: dict[str, Any], given: dict[str, Any], words: str) -> None:
    with pytest.raises(ServeConfigError, match=words):
        plan(llama, **given)


def test_options_are_not_hidden_in_the_environment(llama: dict[str, Any]) -> None:
    hidden = with_serving(llama, **{**llama["sparkthor_cluster"]["serving"], "environment": {"LLAMA_ARG_HOST": "x"}})
    with pytest.raises(ServeConfigError, match=r"LLAMA_ARG_HOST sets an option"):
        plan(started_by(hidden, "mp"))
