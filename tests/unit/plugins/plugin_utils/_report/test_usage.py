# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import shlex

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import usage

ALL = ["0.0.0.0"]


@pytest.mark.parametrize(
    ("tls", "names", "listen", "url"),
    [
        ("off", [], ALL, "http://192.168.1.11:8000/v1"),
        ("self_signed", [], ALL, "https://192.168.1.11:8000/v1"),
        ("given", ["*.lan", "api.lan"], ALL, "https://api.lan:8000/v1"),
        ("off", ["api.lan"], ["10.0.0.5"], "http://10.0.0.5:8000/v1"),
        ("off", [], ["fd00::5"], "http://[fd00::5]:8000/v1"),
    ],
)
def test_the_endpoint(tls: str, names: list[str], listen: list[str], url: str) -> None:
    assert usage.endpoint("192.168.1.11", 8000, tls, names, listen) == url


def test_the_lines_hold_a_command_that_a_shell_takes() -> None:
    lines = usage.lines(usage.Api("http://h:8000/v1", ("m",), "/inv/.secrets/api_key", "off"))
    assert lines[:2] == [
        "The API is at http://h:8000/v1, and the model is called m.",
        "Its key is in /inv/.secrets/api_key.",
    ]
    words = shlex.split(lines[2].removeprefix("Try it: "))
    assert words[:2] == ["curl", "http://h:8000/v1/chat/completions"]
    assert "Authorization: Bearer $(cat /inv/.secrets/api_key)" in words
    assert json.loads(words[-1])["model"] == "m"


def test_a_model_with_several_names_is_asked_for_by_one_of_them() -> None:
    lines = usage.lines(usage.Api("http://h:8000/v1", ("small", "default"), "/k", "off"))
    assert lines[0] == "The API is at http://h:8000/v1, and the model is called small or default."
    assert json.loads(shlex.split(lines[2].removeprefix("Try it: "))[-1])["model"] == "small"


def test_a_certificate_of_the_heads_own_is_fetched_first() -> None:
    lines = usage.lines(usage.Api("https://h:8000/v1", ("m",), "", "self_signed"))
    assert "openssl s_client -connect h:8000" in lines[2]
    assert "curl --cacert head.pem https://h:8000/v1/chat/completions" in lines[3]
    assert "vllm_serve_api_key" in lines[1]
    assert "Bearer $KEY" in lines[3]


def test_a_pooling_model_is_asked_for_a_vector() -> None:
    assert usage.pools({"runner": "pooling"})
    assert usage.pools({"convert": "embed"})
    assert not usage.pools({})
    line = usage.lines(usage.Api("http://h:8000/v1", ("m",), "/k", "off", pooling=True))[2]
    assert "/v1/embeddings" in line
    assert '"input": "hello"' in line


def test_models_of_other_groups_are_told_with_who_serves_them():
    groups = [
        {"group": "big", "head": "a", "names": ["chat"]},
        {"group": "embed", "head": "d", "names": ["vectors", "v"]},
    ]
    [line] = usage.other_models(groups, "big")
    assert "vectors (by embed on d)" in line
    assert "chat" not in line
    assert usage.other_models((), "") == []


def test_one_address_of_several_heads_wants_the_certificates_of_all() -> None:
    api = usage.Api("https://192.168.1.100:8000/v1", ("m",), "", "self_signed", heads=("192.168.1.11", "192.168.1.12"))
    lines = usage.lines(api)
    assert "takes it over: 192.168.1.11, 192.168.1.12" in lines[2]
    assert "for head in 192.168.1.11 192.168.1.12; do openssl s_client -connect $head:8000" in lines[3]
    assert "--cacert head.pem https://192.168.1.100:8000/v1" in lines[4]
    assert "certificate" not in " ".join(usage.lines(api._replace(tls="off")))


def test_the_page_is_told_where_there_is_one() -> None:
    api = usage.Api("https://h:8000/v1", ("m",), "/k", "self_signed", page=True)
    assert "In a browser, with that key: https://h:8000/console/ shows the cluster, and has a chat." in usage.lines(api)
    assert "browser" not in " ".join(usage.lines(api._replace(page=False)))
