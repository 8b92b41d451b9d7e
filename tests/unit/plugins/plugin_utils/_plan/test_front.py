# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the front proxy's configuration is made of: keys, addresses, durations, sizes, names, TLS."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front as f

KEY = "abcDEF0123456789._~+/-=="
OTHER = "second-key-0123456789"


def test_keys_are_anchored_and_compared_with_regard_to_case() -> None:
    text = f.key_map([f.NamedKey("default", KEY), f.NamedKey("ci", OTHER), f.NamedKey("late", KEY)])
    found = dict(re.findall(r'^"~(.*)" (.*);$', text, re.M))
    assert list(found.values()) == ["default", "ci"]
    pattern = next(iter(found))
    assert re.search(pattern, KEY)
    for wrong in (KEY.lower(), f"{KEY}x", f"x{KEY}", "", KEY.replace(".", "x")):
        assert not any(re.search(one, wrong) for one in found)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "shorter than 16"),
        ("tiny-key", "shorter than 16"),
        (None, "shorter than 16"),
        (1234567890123456789, "shorter than 16"),
        ('0123456789abcdef" 1; "~.', "character"),
        ("0123456789abcdef\n", "character"),
        ("0123456789 abcdef", "character"),
    ],
)
def test_bad_keys_are_refused_without_being_shown(key: Any, words: str) -> None:
    for refuse in (lambda: f.checked_key(key, "there"), lambda: f.named_keys([{"name": "there", "key": key}])):
        with pytest.raises(f.FrontPlanError, match=words) as error:
            refuse()
        assert "there" in str(error.value)
        assert not key or str(key) not in str(error.value)


def test_a_front_proxy_without_a_key_is_refused() -> None:
    with pytest.raises(f.FrontPlanError, match="there is no open server"):
        f.key_map([])


def test_limits_of_tokens_are_of_the_keys_that_have_one() -> None:
    keys = f.named_keys(
        [
            {"name": "ci", "key": KEY, "tokens_per_minute": "60"},
            {"name": "web", "key": OTHER, "tokens_per_minute": 0},
            {"name": "both", "key": KEY[1:], "tokens_per_minute": 5, "tokens_per_month": 10**12},
        ]
    )
    assert f.token_limits(keys) == {"ci": {"minute": 60}, "both": {"minute": 5, "month": 10**12}}


def test_named_keys() -> None:
    keys = f.named_keys(
        [
            {"name": "ci", "key": KEY, "requests_per_minute": "60"},
            {"name": "web_1", "key": OTHER},
            {"name": "batch", "key": KEY[1:], "requests_per_minute": 60},
            {"name": "b-2", "key": KEY[2:], "requests_per_minute": 5},
        ]
    )
    assert [key.name for key in keys] == ["ci", "web_1", "batch", "b-2"]
    assert f.key_rates(keys) == {60: ["ci", "batch"], 5: ["b-2"]}
    assert KEY not in repr(keys)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (KEY, "is not a mapping"),
        ({"key": KEY}, "the name '' cannot"),
        ({"name": "CI", "key": KEY}, "the name 'CI' cannot"),
        ({"name": "a b", "key": KEY}, "the name 'a b' cannot"),
        ({"name": "x" * 33, "key": KEY}, "cannot be used"),
        # what the access log calls the others
        ({"name": "default", "key": KEY}, "none of default, previous"),
        ({"name": "taken", "key": KEY}, "there already"),
        ({"name": "ci", "key": OTHER}, "ci has the key of taken"),
        ({"name": "ci", "key": KEY, "requests_per_minute": -1}, "not a whole number"),
        ({"name": "ci", "key": KEY, "requests_per_minute": 1.5}, "not a whole number"),
        ({"name": "ci", "key": KEY, "requests_per_minute": True}, "not a whole number"),
        ({"name": "ci", "key": KEY, "tokens_per_minute": "1k"}, r"\(ci\): tokens_per_minute '1k' is not a whole"),
        ({"name": "ci", "key": KEY, "tokens_per_month": -1}, r"\(ci\): tokens_per_month -1 is not a whole number"),
        ({"name": "ci", "key": KEY, "tokens_per_month": True}, "tokens_per_month True is not a whole number"),
    ],
)
def test_a_bad_named_key_is_named_by_its_place(entry: Any, words: str) -> None:
    with pytest.raises(f.FrontPlanError, match=f"vllm_serve_api_keys: entry number 2.*{words}") as error:
        f.named_keys([{"name": "taken", "key": OTHER}, entry])
    assert KEY not in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "topology", "effective", "warned"),
    [
        ("auto", "lan", "self_signed", False),
        ("auto", "ring", "self_signed", False),
        ("auto", "direct", "off", False),
        ("auto", "switch", "off", False),
        ("off", "lan", "off", True),
        ("off", "ring", "off", True),
        ("off", "switch", "off", False),
        ("given", "lan", "given", False),
        ("self_signed", "switch", "self_signed", False),
    ],
)
def test_tls_where_the_lan_is_shared(wanted: str, topology: str, effective: str, warned: bool) -> None:
    assert f.effective_tls(wanted, topology) == effective
    assert bool(f.clear_text(wanted, topology)) is warned


def test_an_unquoted_off_is_warned_of_as_well() -> None:
    [warning] = f.clear_text(False, "ring")
    assert "API keys, prompts and answers travel in clear text" in warning


def test_listen_addresses() -> None:
    assert f.listen_addresses(["0.0.0.0", "::", "10.0.0.1", "::"], 8000) == [
        "0.0.0.0:8000",
        "[::]:8000",
        "10.0.0.1:8000",
    ]
    for addresses, port in ((["spark-01"], 8000), ([], 8000), (["::"], 0), (["::"], True), (["::"], "8000")):
        with pytest.raises(f.FrontPlanError):
            f.listen_addresses(addresses, port)


def test_durations_sizes_names() -> None:
    assert f.checked_duration(30, "x") == "30"
    assert f.checked_duration("15m", "x") == "15m"
    assert f.checked_size("64m", "x") == "64m"
    assert f.subject_names(["spark-01", "10.0.0.1", "fd00::1", "spark-01"]) == "DNS:spark-01,IP:10.0.0.1,IP:fd00::1"
    with pytest.raises(f.FrontPlanError, match="vllm_serve_x"):
        f.checked_duration("1s; root /", "vllm_serve_x")
    with pytest.raises(f.FrontPlanError, match="vllm_serve_x"):
        f.checked_size("64 m", "vllm_serve_x")
    with pytest.raises(f.FrontPlanError, match="vllm_serve_tls_names"):
        f.subject_names(["a,DNS:b"])


def test_origins_of_web_pages() -> None:
    given = ["https://chat.example.org", "http://localhost:3000", "http://[::1]:80", "https://chat.example.org"]
    assert f.origins(given) == given[:3]
    for bad in ("*", "chat.example.org", "https://chat.example.org/", "https://A.b", 'http://x" $y;'):
        with pytest.raises(f.FrontPlanError, match=r"vllm_serve_cors_origins: .* is not the origin of a web page"):
            f.origins([bad])


def test_a_key_may_be_for_some_models_only():
    [narrow, wide] = f.named_keys(
        [{"name": "narrow", "key": "n" * 16, "models": ["a", "b"]}, {"name": "wide", "key": "w" * 16}]
    )
    assert (narrow.models, wide.models) == (("a", "b"), ())
    for models in ("a", [""], [1], {"a": 1}):
        with pytest.raises(f.FrontPlanError, match=r"entry number 1 .narrow.: models .* is not a list") as error:
            f.named_keys([{"name": "narrow", "key": "n" * 16, "models": models}])
        assert "nnnn" not in str(error.value)


@pytest.mark.parametrize(
    ("addresses", "management", "expected"),
    [
        (["0.0.0.0"], "192.168.1.11", ["0.0.0.0:8000"]),
        (["0.0.0.0"], "fd83:5ba1::11", ["0.0.0.0:8000", "[::]:8000"]),
        (["10.0.0.1"], "fd83:5ba1::11", ["10.0.0.1:8000"]),
    ],
)
def test_a_head_that_is_managed_by_ipv6_listens_there(
    addresses: list[str], management: str, expected: list[str]
) -> None:
    assert f.listen_addresses(addresses, 8000, management) == expected


def test_the_url_of_an_ipv6_address_has_brackets() -> None:
    assert f.api_url("fd83:5ba1::11", 8000, False) == "http://[fd83:5ba1::11]:8000/v1"
    assert f.api_url("spark-01.lan", 8443, True) == "https://spark-01.lan:8443/v1"
