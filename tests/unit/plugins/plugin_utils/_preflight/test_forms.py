# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A text of the inventory becomes one value of a file and nothing else, or is refused before a host is asked.

Every variable of every role that takes texts is given each kind of text that ends a word, a line or a value somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import values

from tests.unit.role_state import ROLES

HOSTILE = {
    "a line": "\nExecStartPre=+/bin/sh",
    "a line of old": "\rX=1",
    "a line of Unicode": "\u2028X=1",
    "a line of Latin 1": "\x85X=1",
    "nothing": "\0",
    "an escape": "\x1b]52;c;eA==\x07",
    "a quote": '"; }; X "y',
    "another quote": "' X='y",
    "a specifier": "%n",
    "a variable": "${HOME}",
    "a template": "{{ 1 + 1 }}",
    "a comment": " # x",
    "an end": "; X y;",
    "a brace": " } X {",
    "a backslash": "\\",
    "a comma": ",readonly=false",
    "much": "y" * 100_000,
}
#: variables that take some of these, and why that harms nobody
FREE = {
    **dict.fromkeys(
        (
            *("engine_requirements", "engine_image_requirements", "engine_wheel_dir", "engine_image_archive"),
            *("engine_build_dir", "engine_programs"),
            *("sparkthor_secrets_dir", "vllm_serve_recipe", "vllm_serve_degraded_recipe"),
        ),
        "names a file of the controller, which opens it and tells no host",
    ),
    **dict.fromkeys(
        (
            *("vllm_serve_acknowledged", "engine_build_acknowledged", "model_store_keep"),
            *("vllm_serve_hf_token", "vllm_serve_peer_secret", "ray_node_token"),
        ),
        "is compared, or is the whole of a file",
    ),
    **dict.fromkeys(
        ("model_store_models", "model_store_hub_caches", "engine_container_options"),
        "reaches modules as data",
    ),
    **dict.fromkeys(("vllm_serve_tls_certificate", "vllm_serve_tls_key"), "is the whole of a file"),
    **dict.fromkeys(
        ("switch_bridge", "switch_export", "switch_links", "switch_ports", "switch_uplinks"),
        "reaches no host: the role switch shows commands, and refuses what is no name of RouterOS",
    ),
    **dict.fromkeys(
        ("serving_groups", "serving_beside"), "is checked with the groups (test_groups.py, test_beside.py)"
    ),
    "vllm_serve_api_key": "one that is too short is refused by its length (test_inventory.py)",
    "vllm_serve_served_model_name": "the plan refuses it with the variable's name (test_served_names.py)",
    **dict.fromkeys(
        ("vllm_serve_args", "vllm_serve_draft_config"), "is written by an emitter (test_hostile_values.py)"
    ),
    **dict.fromkeys(("vllm_serve_env", "engine_extra_env", "ray_node_env"), "is quoted (test_hostile_values.py)"),
    **dict.fromkeys(
        ("nccl_conf_settings", "os_hardening_updates_excluded"), "is one line of its file (test_hostile_values.py)"
    ),
    "os_hardening_hold_packages": "is one word of its line (test_hostile_values.py)",
    **dict.fromkeys(("os_hardening_updates_masked_units", "os_hardening_time_sync_units"), "units escape by \\"),
    **dict.fromkeys(
        ("model_store_root", "engine_cache_dir", "engine_venv_path", "engine_container_mounts"),
        "Ansible itself replaces ${HOME} in the type path",
    ),
}


@cache
def described() -> dict[str, dict[str, Any]]:
    """Every variable of the roles that takes texts of any kind, as it is described."""
    found: dict[str, dict[str, Any]] = {}
    for path in ROLES.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found |= entry.get("options") or {}
    numbers = ("bool", "int", "float")
    return {
        name: option
        for name, option in found.items()
        if option.get("type", "str") not in numbers
        and option.get("elements") not in numbers
        and "choices" not in option
        # those of the fabric are numbers, addresses and words of a list (test_fabric_inventory.py)
        and (not name.startswith("fabric_") or name == "fabric_lan_nic")
    }


def texts(option: dict[str, Any], default: Any, hostile: str) -> Iterator[Any]:
    """Values of this form with the hostile text in them, and with a sound beginning where there is a default."""
    kind = option.get("type", "str")
    sound = default if isinstance(default, str) and "{{" not in default else "/srv/x" if kind == "path" else "x"
    if kind in ("str", "path", "raw"):
        yield from (sound + hostile, hostile)
    elif kind == "dict":
        yield from ({"X_A": f"v{hostile}"}, {f"X_A{hostile}": "1"})
    elif option.get("elements") == "dict":
        inner = {
            name: "k" * 20 if name == "key" else "m" for name in option["options"] if name in ("name", "key", "source")
        }
        yield from ([{**inner, name: inner[name] + hostile}] for name in inner)
    else:
        yield [f"{default[0] if default else '/srv/x' if option.get('elements') == 'path' else 'x'}{hostile}"]


def refusals(name: str, value: Any) -> list[str]:
    """What the checks before the first host say against it."""
    given = {"a": {name: value}}
    return [str(one) for one in (*role_specs.of_collection().problems(given), *values.value_problems(given))]


@pytest.mark.parametrize("name", sorted(described()))
def test_a_hostile_text_is_refused_with_variable_host_and_fix(name: str) -> None:
    taken = []
    for what, hostile in HOSTILE.items():
        for value in texts(described()[name], role_specs.defaults().get(name), hostile):
            said = refusals(name, value)
            assert all(name in one and "; " in one and len(one) < 6000 for one in said), said
            assert all("on a]" in one or "host a" in one for one in said), said
            assert not any(sign in one for one in said for sign in "\n\r\x1b\0\u2028\x85"), said
            taken += [] if said else [what]
    assert (name in FREE) == bool(taken), taken


def test_what_is_free_is_known() -> None:
    assert set(FREE) <= set(described())
