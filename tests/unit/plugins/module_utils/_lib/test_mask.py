# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.mask import mask


@pytest.mark.parametrize(
    "text",
    [
        "non-default args: {'api_key': ['S3CRETS3CRETS3CRET'], 'model': 'x'}",
        "vllm serve x --api-key S3CRETS3CRETS3CRET --port 8000",
        "VLLM_API_KEY=S3CRETS3CRETS3CRET",
        "HF_TOKEN: S3CRETS3CRETS3CRET",
        "Authorization: Bearer S3CRETS3CRETS3CRET",
        "https://user:S3CRETS3CRETS3CRET@proxy.example:3128",
        "using token hf_S3CRETS3CRETS3CRET",
        'psk="S3CRETS3CRETS3CRET"',
        "AWS_SECRET_ACCESS_KEY=S3CRET/abc",
        "AWS_SECRET_ACCESS_KEY=/S3CRET/abc",
        "'AWS_SESSION_TOKEN': 'S3CRET', 'PATH': '/bin'",
        'GITHUB_TOKEN: "S3CRET"',
        "Environment=MY_DB_PASSWORD=S3CRET",
        "api-key:\n  - S3CRET-of-a-list\n",
        "api-key:\n- S3CRET\n- 'S3CRET - S3CRET'\n- \"S3CRET\"\r\n- S3CRET",
        "GITHUB_TOKEN:\n  - S3CRET\n  - S3CRET\n",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    assert "S3CRET" not in mask(text)
    assert "********" in mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "RAY_AUTH_TOKEN_PATH=/run/credentials/ray_token",
        "max_tokens: 512",
        "token_path: /etc/sparkthor/x",
        "SSL_KEY=/etc/sparkthor/front/key.pem",
        "VLLM_API_KEY=\nNCCL_DEBUG=INFO",
        "GITHUB_TOKEN=\nNCCL_DEBUG=INFO",
        "NCCL INFO KEY=value",
        "secret:\n- /etc/sparkthor/a\n- /etc/sparkthor/b\n",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_what_comes_after_a_list_of_secrets_stays() -> None:
    text = "api-key:\n- abc\n- def\nport: 1\nargs:\n- one\n- two\n- password: x\n- three\n"
    shown = "api-key:\n- ********\n- ********\nport: 1\nargs:\n- one\n- two\n- password: ********\n- three\n"
    assert mask(text) == shown
