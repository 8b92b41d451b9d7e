# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import secret_fix, secret_name


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
