# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A text of the inventory that is taken becomes one value of a file, and nothing else (which: test_forms.py)."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file

from tests.unit import rendered_hosts

#: more signs in one value than any reader needs to lose its way
ODD = "v\"'`%n${HOME}$(id){{ 1 + 1 }}\\ # x; Y } Z"
BASE: dict[str, Any] = {
    "fabric_topology": "switch",
    "fabric_cidr": "10.100.0.0/24",
    "vllm_serve_recipe": "tiny-qwen3",
    "os_hardening_earlyoom": True,
    "os_hardening_hold": True,
}


#: those that write such values
ROLES_WITH_TEXTS = ("os_hardening", "nccl_conf", "engine", "ray_node", "vllm_serve")


def test_a_text_that_is_taken_is_one_value_of_its_file() -> None:
    """Read by what reads the file: the value is whole, and nothing else than before is in it."""
    plain = {
        "os_hardening_updates_excluded": ["x"],
        "os_hardening_hold_packages": ["x"],
        "vllm_serve_env": {"X_A": "x"},
    }
    before = rendered_hosts.files({**BASE, **plain}, ROLES_WITH_TEXTS)
    word, excluded = ODD.replace(" ", "").replace("#", ""), ODD.replace('"', "")
    given = {
        **{name: {"X_A": ODD} for name in ("engine_extra_env", "ray_node_env", "vllm_serve_env")},
        "nccl_conf_settings": {"NCCL_X": ODD},
        "os_hardening_updates_excluded": [excluded],
        "os_hardening_hold_packages": [word],
        "vllm_serve_args": {"override-generation-config": {ODD: ODD}},
        "vllm_serve_hf_token": word,
        "vllm_serve_tls_key": ODD,
        "engine_container_options": [ODD],
    }
    after = rendered_hosts.files({**BASE, **given}, ROLES_WITH_TEXTS)
    different = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    environments = {f"/etc/sparkthor/{name}.env" for name in ("engine", "ray", "vllm")}
    for path in environments:
        assert environment_file.parse(after[path]) == {**environment_file.parse(before[path]), "X_A": ODD}
    config = yaml.safe_load(after["/etc/sparkthor/vllm.yaml"])
    assert json.loads(config.pop("override-generation-config")) == {ODD: ODD}
    assert config == yaml.safe_load(before["/etc/sparkthor/vllm.yaml"])
    assert after["/etc/nccl.conf"].splitlines() == [environment_file.MARKER, f"NCCL_X={ODD}"]
    apt = "/etc/apt/apt.conf.d/60sparkthor"
    assert after[apt] == before[apt].replace('\n  "x";\n', f'\n  "{excluded}";\n')
    assert re.findall(r'^  "([^"]*)";$', after[apt], re.MULTILINE) == [excluded]
    hold = "/etc/apt/preferences.d/60-sparkthor"
    assert after[hold] == before[hold].replace("Package: x\n", f"Package: {word}\n")
    assert different == {*environments, "/etc/sparkthor/vllm.yaml", "/etc/nccl.conf", apt, hold}
