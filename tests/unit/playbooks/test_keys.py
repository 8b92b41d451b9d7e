# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/keys.yml says who may ask for what, and never a key."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import front_config
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front

from tests.unit.plays import plays

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
KEYS: list[dict[str, Any]] = [
    {"name": "alice", "key": "a" * 20, "models": ["mini", "chat"], "requests_per_minute": 60},
    {"name": "web-1", "key": "b+" * 10},
    {"name": "new", "key": "c" * 20},
]


def task(name: str) -> dict[str, Any]:
    [play] = plays("keys")
    found: dict[str, Any] = next(item for item in play["tasks"] if item["name"] == name)
    return found


def shown(**given: Any) -> Any:
    show = task("Show the keys")
    variables = {**{name: trust_as_template(text) for name, text in show["vars"].items()}, **given}
    templar = Templar(loader=DataLoader(), variables=variables)
    return templar.template(trust_as_template(show["ansible.builtin.debug"]["msg"]))


def test_each_key_has_a_line_with_its_models_and_limit() -> None:
    assert shown(vllm_serve_api_keys=KEYS, __keys_found={"stdout_lines": ["default", "alice", "web-1", "old"]}) == [
        "alice: mini, chat, 60 requests a minute",
        "web-1: all models, no limit",
        "new: all models, no limit (not in use yet)",
        "default: all models, no limit",
        "old: not in the inventory",
    ]


def test_a_limit_of_tokens_is_shown_with_what_was_used() -> None:
    keys = [{"name": "alice", "key": "a" * 20, "tokens_per_minute": 100, "tokens_per_month": 5000}]
    found = {"stdout_lines": ["default", "alice"]}
    usage = {"alice": {"minute": 7, "month": 46, "unseen": 2, "limits": {}}}
    shows = shown(vllm_serve_api_keys=keys, __keys_found=found, __keys_usage={"stdout": json.dumps(usage)})
    assert shows[0] == (
        "alice: all models, no limit of requests, 7 of 100 tokens a minute, 46 of 5000 tokens a month "
        "(2 answers estimated)"
    )
    # nobody counted yet
    shows = shown(vllm_serve_api_keys=keys, __keys_found=found, __keys_usage={"stdout": ""})
    assert shows[0] == "alice: all models, no limit of requests, 0 of 100 tokens a minute, 0 of 5000 tokens a month"


@pytest.mark.parametrize(
    "said",
    [
        *("[]", "{", "[" * 100_000, '{"alice": 5}', '{"alice": {"unseen": "x"}}', '{"alice": {"minute": -1}}'),
        *('{"alice": {"month": NaN}}', '{"alice": {"minute": "\\u009b2J\\u202e"}}', '{"alice": {"month": 1e400}}'),
    ],
)
def test_what_a_head_says_was_used_is_numbers(said: str) -> None:
    keys = [{"name": "alice", "key": "a" * 20, "tokens_per_minute": 100, "tokens_per_month": 5000}]
    found = {"stdout_lines": ["alice"]}
    with pytest.raises(AnsibleError, match=r"usage\.json cannot be used: .*Restart sparkthor-tokens") as caught:
        shown(vllm_serve_api_keys=keys, __keys_found=found, __keys_usage={"stdout": said})
    assert str(caught.value).isprintable()


def test_a_key_that_is_blocked_is_said_to_be() -> None:
    found = {"stdout_lines": ["alice", "web-1"]}
    shows = shown(vllm_serve_api_keys=KEYS[:2], __keys_found=found, __keys_blocked={"stdout_lines": ["web-1"]})
    assert shows == ["alice: mini, chat, 60 requests a minute", "web-1: all models, no limit (blocked on the page)"]


def test_names_of_blocked_keys_are_read_on_a_head(tmp_path: Path) -> None:
    path = tmp_path / "blocked.conf"
    path.write_text(front_config.blocked_map(["alice", "web-1"]))
    *argv, file = task("Read which keys are blocked")["sparkthor.cluster.host_builtin"]["arguments"]["argv"]
    assert file == "/etc/sparkthor/front.good/blocked.conf"
    done = subprocess.run([*argv, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["alice", "web-1"]


def test_without_named_keys_there_is_the_main_one() -> None:
    assert shown(__keys_found={"stdout_lines": ["default"]}) == ["default: all models, no limit"]


def test_new_keys_bring_all_of_the_front_proxy_but_what_it_knows_of_engines_and_models() -> None:
    """A head whose engine or model is not the inventory's yet, or after a rollback, goes on leading to it."""
    role = TOP / "roles/vllm_serve"
    [only] = yaml.safe_load((role / "tasks/front.yml").read_text(encoding="utf-8"))
    brought = Templar(loader=DataLoader()).template(trust_as_template(only["vars"]["__vllm_serve_only"]))
    declared = role_tasks.arguments_of(role_tasks.declared(role) or {})["files"]
    known = {file["path"] for file in declared if file["path"].startswith(kept.FRONT)}
    left = {f"{kept.FRONT}engine.conf", kept.NAMES, kept.OTHERS}
    assert left < known
    assert {path for path in brought if path.startswith(kept.FRONT)} == known - left


def test_names_alone_are_read_on_a_head(tmp_path: Path) -> None:
    path = tmp_path / "keys.conf"
    named = [front.NamedKey(front.MAIN, "d/." * 10 + "=="), *front.named_keys(KEYS)]
    path.write_text(front.key_map(named))
    *argv, file = task("Read which keys are in use")["sparkthor.cluster.host_builtin"]["arguments"]["argv"]
    assert file == "/etc/sparkthor/front.good/keys.conf"
    done = subprocess.run([*argv, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["default", "alice", "web-1", "new"]
