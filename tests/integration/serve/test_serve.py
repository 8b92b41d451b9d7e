# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Splits, executors, changes, failures and secrets of the serving group, on real Ray and real vLLM.

The tests build on each other: the group goes from one configuration to the next.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import TOP
from tests.integration.serve.conftest import FIRST, MODEL, PROMPTS, Serving, reference
from tools import leaks

GATE = "/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host ray-gate"

RAY_PP = {"vllm_serve_pipeline_parallel_size": 3, "vllm_serve_tensor_parallel_size": 1}
MP_TP = {"vllm_serve_executor": "mp", "vllm_serve_tensor_parallel_size": 3, "vllm_serve_pipeline_parallel_size": 1}
MP_PP = {"vllm_serve_executor": "mp", **RAY_PP}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


# -- TP=3 over Ray ----------------------------------------------------------------------------------------------------


def test_tp3_over_ray_answers_as_one_host(serving: Serving) -> None:
    assert "tensor-parallel-size: 3" in serving.cluster.run(serving.cluster.head, "cat /etc/sparkthor/vllm.yaml")
    serving.assert_answers_as_one_host()


def test_the_reasoning_parser_fills_its_field(serving: Serving) -> None:
    message = serving.chat(PROMPTS[0]).choices[0].message
    # the model never closes its thought, so all of it is one
    assert message.content is None
    assert message.reasoning == reference(PROMPTS[0])["content"]


def test_a_tool_call_comes_as_one(serving: Serving) -> None:
    # A model of random weights calls no tool by itself: the name is forced, the arguments follow the schema, and the
    # white space that JSON allows without end is made unlikely.
    vocabulary = json.loads((TOP / ".lab/engine/model/tokenizer.json").read_text())["model"]["vocab"]
    blanks = {str(vocabulary[byte]): -100 for byte in ("\u0109", "\u010a", "\u010d", "\u0120")}
    reply = serving.api.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "weather"}],
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        logit_bias=blanks,
        max_tokens=60,
        temperature=0.0,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    [call] = reply.choices[0].message.tool_calls
    assert call.type == "function"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_models_completions_and_streams(serving: Serving) -> None:
    assert [model.id for model in serving.api.models.list().data] == [MODEL]
    plain = serving.api.completions.create(model=MODEL, prompt="hello", max_tokens=4, temperature=0.0)
    assert plain.usage.completion_tokens == 4
    whole = serving.api.completions.create(model=MODEL, prompt="hello", max_tokens=12, temperature=0.0).choices[0].text
    stream = serving.api.completions.create(model=MODEL, prompt="hello", max_tokens=12, temperature=0.0, stream=True)
    parts = [part.choices[0].text for part in stream if part.choices]
    assert len(parts) > 3
    assert "".join(parts) == whole


# -- no change, a change, a failing change ----------------------------------------------------------------------------


def test_without_a_change_nothing_restarts(serving: Serving) -> None:
    before = serving.units()
    outcome = serving.site(whole=True, **FIRST)
    assert set(outcome.changed.values()) == {0}, outcome.changed
    assert serving.units() == before


def test_a_changed_argument_restarts_the_group_once_and_ray_never(serving: Serving) -> None:
    units, starts = serving.units(), serving.starts()
    changed = {**FIRST, "vllm_serve_args": {**FIRST["vllm_serve_args"], "max-num-seqs": 3}}
    outcome = serving.site(**changed)
    assert outcome.changed[serving.cluster.head] == 2, outcome.output  # the file, and the start
    assert serving.starts() == starts + 1
    for host in serving.cluster.hosts[1:]:
        assert serving.units()[host] == units[host]
    ray = "systemctl show -p MainPID sparkthor-ray.service"
    assert serving.cluster.run(serving.cluster.head, ray).strip() in units[serving.cluster.head]
    serving.assert_answers_as_one_host()


def test_another_split_and_another_name_restart_it_once(serving: Serving) -> None:
    starts = serving.starts()
    serving.site(**RAY_PP)
    assert serving.starts() == starts + 1
    serving.assert_answers_as_one_host()
    assert serving.chat(PROMPTS[0]).choices[0].message.content == reference(PROMPTS[0])["content"]


def test_a_failing_configuration_says_why_and_is_taken_back(serving: Serving) -> None:
    good = serving.cluster.run(serving.cluster.head, "cat /etc/sparkthor/vllm.yaml")
    # right by every table, and refused by the engine when it comes to it
    bad = {**RAY_PP, "vllm_serve_args": {"hf-overrides": {"architectures": ["NoSuchModel"]}}}
    begun = time.monotonic()
    outcome = serving.play("site.yml", ["--tags", "ray,vllm_serve"], **bad)
    assert outcome.rc != 0
    [message] = [line for line in outcome.failures if "vLLM" in line]
    print(f"refused after {time.monotonic() - begun:.0f} s: {message}")
    assert "journalctl" in message
    assert "timeout" not in message.lower()
    assert "NoSuchModel" in message
    assert "Fix: " in message
    back = serving.play("playbooks/rollback.yml")
    assert back.rc == 0, back.failures
    assert serving.cluster.run(serving.cluster.head, "cat /etc/sparkthor/vllm.yaml") == good
    serving.assert_answers_as_one_host()
    again = serving.play("playbooks/rollback.yml")
    assert again.rc == 0, again.failures
    assert set(again.changed.values()) == {0}, again.changed


# -- bad input: nothing is stopped, nothing is written ----------------------------------------------------------------

BIG = "qwen3.5-397b-a17b-nvfp4"
BAD = [
    ("TP=3 with 32 heads", {"vllm_serve_recipe": BIG, "vllm_serve_tensor_parallel_size": 3}, ["32 attention heads"]),
    (
        "TP x PP",
        {"vllm_serve_tensor_parallel_size": 2, "vllm_serve_pipeline_parallel_size": 2},
        ["2 × pipeline parallel 2", "needs 4 GPUs"],
    ),
    ("context", {"vllm_serve_max_model_len": 1000000}, ["1000000", "longer than the model's own"]),
    ("unknown recipe", {"vllm_serve_recipe": "qwen3.5-397b-a17b-nvfp5"}, ["unknown", BIG]),
    ("four hosts on three", {"vllm_serve_recipe": "qwen3.5-397b-a17b-fp8"}, ["is for 4 hosts", "has 3"]),
    ("unknown argument", {"vllm_serve_args": {"max-num-seq": 4}}, ["max-num-seq", "did you mean max-num-seqs"]),
    ("removed argument", {"vllm_serve_args": {"swap-space": 4}}, ["swap-space", "no such option any more"]),
    ("wrong value", {"vllm_serve_args": {"quantization": "nvfp4"}}, ["KV-cache dtype"]),
    ("danger", {"vllm_serve_args": {"gpu-memory-utilization": 0.95}}, ["acknowledge gpu-memory-utilization"]),
    ("danger", {"vllm_serve_args": {"trust-remote-code": True}}, ["acknowledge trust-remote-code"]),
    ("companion", {"vllm_serve_args": {"enable-auto-tool-choice": False}}, ["add enable-auto-tool-choice"]),
    (
        "FP8 blocks",
        {"vllm_serve_recipe": "{block_fp8}", "vllm_serve_tensor_parallel_size": 3},
        ["576/3 = 192", "FP8 block 128", "enable-expert-parallel"],
    ),
    ("GPUs", {"ray_node_num_gpus": 4}, ["ray_node_num_gpus: 4", "a Spark has one GPU"]),
    (
        "too big",
        {"vllm_serve_recipe": "{too_big}"},
        ["does not fit", "GiB", "GPUs of"],
    ),
]


def block_fp8_config() -> dict[str, object]:
    """A model whose heads divide by three hosts and whose experts, in blocks of FP8, do not."""
    config = yaml.safe_load((TOP / "recipes" / "qwen3-30b-a3b-thinking-fp8.yml").read_text())["config"]
    heads = {"num_attention_heads": 24, "num_key_value_heads": 3, "head_dim": 128}
    return {**config, **heads, "moe_intermediate_size": 576}


@pytest.fixture(scope="module")
def own_recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Recipes by path, made from shipped ones."""
    folder = tmp_path_factory.mktemp("recipes")

    def write(name: str, shipped: str, **changes: object) -> str:
        data = yaml.safe_load((TOP / "recipes" / f"{shipped}.yml").read_text())
        path = folder / f"{name}.yml"
        path.write_text(yaml.safe_dump({**data, "hosts": "any", "topologies": [], "split": {}, **changes}))
        return str(path)

    return {
        "{block_fp8}": write("block_fp8", "qwen3-30b-a3b-thinking-fp8", config=block_fp8_config()),
        "{too_big}": write("too_big", "qwen3.5-397b-a17b-fp8"),
    }


@pytest.mark.parametrize(("case", "variables", "words"), BAD, ids=[row[0] for row in BAD])
def test_bad_input_touches_nothing(
    serving: Serving, own_recipes: dict[str, str], case: str, variables: dict, words: list[str]
) -> None:
    variables = {
        key: own_recipes.get(value, value) if isinstance(value, str) else value for key, value in variables.items()
    }
    if "vllm_serve_tensor_parallel_size" in variables and "vllm_serve_pipeline_parallel_size" not in variables:
        variables["vllm_serve_pipeline_parallel_size"] = 1
    if variables.get("vllm_serve_recipe") == own_recipes["{too_big}"]:
        variables.update(vllm_serve_tensor_parallel_size=1, vllm_serve_pipeline_parallel_size=3)
    before = serving.units(), serving.files()
    outcome = serving.play("site.yml", **variables)
    assert outcome.rc != 0
    assert sum(outcome.changed.values()) == 0, outcome.changed
    text = " ".join(outcome.failures)
    for word in words:
        assert word in text, text
    assert (serving.units(), serving.files()) == before


@pytest.mark.parametrize("fault", ["missing on one node", "half a set"])
def test_a_model_that_is_not_whole_on_every_node_touches_nothing(serving: Serving, fault: str) -> None:
    path, last = "/var/lib/sparkthor/elsewhere/tiny", serving.cluster.hosts[-1]
    for host in serving.cluster.hosts:
        serving.cluster.run(host, f"mkdir -p {path}; cp -rL /var/lib/sparkthor/models/{MODEL}/. {path}")
    spoil = {
        "missing on one node": f"rm -r {path}",
        "half a set": f"cd {path} && mv model.safetensors model-00001-of-00002.safetensors",
    }
    serving.cluster.run(last, spoil[fault])
    before = serving.units(), serving.files()
    try:
        outcome = serving.play("site.yml", vllm_serve_recipe="", vllm_serve_model=path, **RAY_PP)
    finally:
        for host in serving.cluster.hosts:
            serving.cluster.run(host, "rm -rf /var/lib/sparkthor/elsewhere")
    assert outcome.rc != 0
    [message] = [line for line in outcome.failures if line.startswith(last)]
    assert path in message
    assert ("is not a folder on this host" if "node" in fault else "model-00002-of-00002.safetensors") in message
    assert (serving.units(), serving.files()) == before


# -- secrets ----------------------------------------------------------------------------------------------------------


#: runs on the head; the token is read there and goes nowhere else
ASK_RAY = """
import urllib.error, urllib.request
token = open("/etc/sparkthor/secrets/ray_token").read().strip()
for path in ("nodes", "actors", "tasks", "workers", "placement_groups", "runtime_envs", "objects", "jobs"):
    url = f"http://127.0.0.1:8265/api/v0/{path}?detail=true&limit=1000"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        print(path, urllib.request.urlopen(request, timeout=60).read().decode())
    except urllib.error.HTTPError as error:
        print(path, error.code)
"""


def ray_state(serving: Serving) -> str:
    """Everything that Ray's state API tells an authenticated client."""
    return serving.cluster.run(serving.cluster.head, f"python3 - <<'END'\n{ASK_RAY}\nEND", timeout=300)


def secrets_of(serving: Serving) -> dict[str, str]:
    return {name: serving.cluster.secret(name) for name in ("api_key", "ray_token")}


def test_no_secret_shows_on_any_host_or_in_rays_state(serving: Serving) -> None:
    state = ray_state(serving)
    for part in ("nodes", "actors", "workers", "placement_groups"):
        assert f"{part} {{" in state, state[:300]
    assert "ALIVE" in state
    # the workers' environment as Ray keeps it is among what was searched
    assert "RayWorker" in state
    assert leaks.shown(state, secrets_of(serving)) == []
    for name, secret in secrets_of(serving).items():
        for host in serving.cluster.hosts:
            assert leaks.places(serving.cluster.lab, host, secret) == [], (name, host)


@pytest.mark.parametrize("written", ["plain", "base64"])
def test_the_search_finds_what_is_there(serving: Serving, written: str) -> None:
    host = serving.cluster.hosts[-1]
    secret = "a-planted-secret-of-some-length"
    text = secret if written == "plain" else base64.b64encode(f"user:{secret}".encode()).decode()
    serving.cluster.run(host, f"systemd-run --quiet --unit=planted --setenv=PLANTED={text} sleep 60")
    try:
        assert any(place.endswith("environ") for place in leaks.places(serving.cluster.lab, host, secret))
    finally:
        serving.cluster.run(host, "systemctl stop planted")


def test_a_new_api_key_ends_the_old_one_without_a_restart(serving: Serving) -> None:
    old, before = serving.cluster.api_key, serving.units()
    outcome = serving.play("playbooks/rotate_api_key.yml", ["-vvv", "--diff"], sparkthor_keep_old=True)
    assert outcome.rc == 0, outcome.failures
    new = serving.cluster.api_key
    assert new != old
    for key in (old, new):
        assert serving.api.with_options(api_key=key).models.list().data
        assert leaks.shown(outcome.output, {"api_key": key}) == []
    dropped = serving.play("playbooks/rotate_api_key.yml", ["-vvv", "--diff"], sparkthor_drop_old=True)
    assert dropped.rc == 0, dropped.failures
    assert serving.cluster.api_key == new
    assert serving.api.models.list().data
    refused = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {old}",
         f"{serving.cluster.endpoint}/v1/models"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert refused.stdout == "401"
    for key in (old, new):
        assert key not in dropped.output
    assert serving.units() == before
    assert [path.name for path in serving.cluster.secrets.iterdir() if "previous" in path.name] == []


def test_a_new_ray_token_starts_everything_once(serving: Serving) -> None:
    former = secrets_of(serving)["ray_token"]
    ray = {host: serving.starts("sparkthor-ray.service", host) for host in serving.cluster.hosts}
    starts = serving.starts()
    outcome = serving.play("playbooks/rotate_ray_token.yml", ["-vvv", "--diff"], **RAY_PP)
    assert outcome.rc == 0, outcome.failures
    token = secrets_of(serving)["ray_token"]
    assert token != former
    assert leaks.shown(outcome.output, {"new": token, "former": former}) == []
    for host in serving.cluster.hosts:
        assert serving.starts("sparkthor-ray.service", host) == ray[host] + 1
        kept = serving.cluster.run(host, "sha256sum < /etc/sparkthor/secrets/ray_token")
        assert kept == serving.cluster.run(serving.cluster.head, "sha256sum < /etc/sparkthor/secrets/ray_token")
    assert serving.starts() == starts + 1
    assert set(serving.site(**RAY_PP).changed.values()) == {0}
    serving.assert_answers_as_one_host()


# -- the other executor -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [MP_TP, MP_PP], ids=["TP=3", "PP=3"])
def test_mp_serves_without_ray(serving: Serving, split: dict) -> None:
    head = serving.cluster.head
    starts = serving.starts()
    serving.site(**split)
    assert serving.starts() == starts + 1
    for host in serving.cluster.hosts:
        shown = serving.cluster.run(host, "systemctl is-active sparkthor-ray sparkthor-vllm; true").split()
        assert shown == ["inactive", "active"], host
    serving.assert_answers_as_one_host()
    state = json.loads(serving.cluster.run(head, "cat /run/sparkthor/vllm/group.json"))
    assert len(state["ranks"]) == 3
    # the head's rank is there before any worker's starts
    command = "journalctl --no-pager -o short-unix -u sparkthor-vllm | grep -F '{}' | tail -1 | cut -d. -f1"
    all_here = int(serving.cluster.run(head, command.format("hosts are here")))
    for host in serving.cluster.hosts[1:]:
        assert int(serving.cluster.run(host, command.format("starting the rank"))) >= all_here


def test_mp_without_a_change_restarts_nothing(serving: Serving) -> None:
    before = serving.units()
    outcome = serving.site(**MP_PP)
    assert set(outcome.changed.values()) == {0}, outcome.changed
    assert serving.units() == before


def test_mp_with_a_change_is_one_restart_of_every_rank(serving: Serving) -> None:
    generation = json.loads(serving.cluster.run(serving.cluster.head, "cat /run/sparkthor/vllm/group.json"))[
        "generation"
    ]
    starts = serving.starts()
    serving.site(**MP_PP, vllm_serve_args={"max-num-seqs": 3})
    state = json.loads(serving.cluster.run(serving.cluster.head, "cat /run/sparkthor/vllm/group.json"))
    assert state["generation"] == generation + 1
    assert state["stale"] == {}
    assert serving.starts() == starts + 1
    serving.assert_answers_as_one_host()


def test_mp_shows_no_secret_either(serving: Serving) -> None:
    for name, secret in secrets_of(serving).items():
        for host in serving.cluster.hosts:
            assert leaks.places(serving.cluster.lab, host, secret) == [], (name, host)


# -- two of the three hosts -------------------------------------------------------------------------------------------


def test_tp2_over_two_of_three_hosts(serving: Serving, tmp_path: Path) -> None:
    *two, third = serving.cluster.hosts
    listed = yaml.safe_load(serving.cluster.inventories[1].read_text())["all"]["hosts"]
    groups = {"ray_head": {"hosts": {two[0]: listed[two[0]]}}, "ray_workers": {"hosts": {two[1]: listed[two[1]]}}}
    inventory = tmp_path / "two"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"cluster": {"children": groups}}))
    lab = serving.cluster.inventories[0]
    (inventory / "group_vars").mkdir()
    text = (lab / "group_vars" / "cluster.yml").read_text().replace("{{ inventory_dir }}", str(lab))
    (inventory / "group_vars" / "cluster.yml").write_text(text)
    # who leaves a cluster is stopped
    serving.cluster.run(third, "systemctl disable --now sparkthor-vllm sparkthor-ray; systemctl reset-failed; true")
    small = Serving(serving.cluster, [inventory])
    folder = {"sparkthor_secrets_dir": str(serving.cluster.secrets), "lab_name": serving.cluster.lab.name}
    outcome = small.play("site.yml", **folder, vllm_serve_tensor_parallel_size=2, vllm_serve_pipeline_parallel_size=1)
    assert outcome.rc == 0, outcome.failures
    serving.assert_answers_as_one_host()
    gate = json.loads(serving.cluster.run(two[0], f"{GATE} --json"))
    assert len(gate["alive"]) == 2
