# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts of files with secrets, by name; who needs none of a secret does not read it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import role_secrets
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.front import FrontPlanError

KNOWN = {
    "api_key": "main-key-0123456789",
    "api_key.previous": "former-key-0123456789",
    "ray_token": "t" * 20,
    "peer_secret": "p" * 20,
}


def secret(name: str, variables: dict[str, Any], **known: str) -> str:
    return role_secrets.secret(name, variables, {**KNOWN, **known}.__getitem__)


def test_a_secret_is_a_line(variables: dict[str, Any]) -> None:
    for name in ("api_key", "ray_token", "peer_secret"):
        assert secret(name, variables) == f"{KNOWN[name]}\n"
    given = {**variables, "vllm_serve_tls_key": " KEY\n", "vllm_serve_hf_token": "hf_0123456789"}
    assert (secret("tls_key", given), secret("hf_token", given)) == ("KEY\n", "hf_0123456789\n")
    with pytest.raises(ValueError, match="'vault' is not a secret that a role knows"):
        secret("vault", variables)


def test_a_key_of_the_front_proxy_is_checked_and_not_shown(variables: dict[str, Any]) -> None:
    with pytest.raises(FrontPlanError, match="vllm_serve_api_key: the key holds a character") as raised:
        secret("front_keys", variables, api_key="main key 0123456789")
    assert "0123456789" not in str(raised.value)


def test_key_and_certificate_belong_together_and_follow_from_the_secret(variables: dict[str, Any]) -> None:
    for kind, source in (("ray_tls", "ray_token"), ("peer", "peer_secret")):
        groups = {"groups": [{"head": "a"}, {"head": "b"}]}
        given = {**variables, "sparkthor_cluster": {**variables["sparkthor_cluster"], **groups}}
        key, certificate = (secret(f"{kind}_{part}", given) for part in ("key", "certificate"))
        assert key.startswith("-----BEGIN PRIVATE KEY")
        assert certificate.startswith("-----BEGIN CERTIFICATE")
        assert secret(f"{kind}_key", given, **{source: "o" * 20}) != key == secret(f"{kind}_key", given)
