# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the front proxy's configuration is made of: keys, addresses, durations, sizes, names."""

from __future__ import annotations

import re

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front as f

KEY = "abcDEF0123456789._~+/-=="


def test_keys_are_anchored_and_compared_with_regard_to_case() -> None:
    text = f.key_map([KEY, "second-key-0123456789", KEY])
    patterns = re.findall(r'^"~(.*)" 1;$', text, re.M)
    assert len(patterns) == 2
    assert re.search(patterns[0], f"Bearer {KEY}")
    for wrong in (f"Bearer {KEY.lower()}", f"Bearer {KEY}x", f"xBearer {KEY}", KEY, "Bearer ", f"Bearer  {KEY}"):
        assert not any(re.search(pattern, wrong) for pattern in patterns)
    # a dot of the key is a dot, not any character
    assert not re.search(patterns[0], "Bearer " + KEY.replace(".", "x"))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([], "at least one key"),
        ([""], "shorter than 16"),
        (["tiny-key"], "shorter than 16"),
        ([KEY, None], "number 2"),
        (['0123456789abcdef" 1; "~.'], "character"),
        (["0123456789abcdef\n"], "character"),
    ],
)
def test_bad_keys_are_refused_without_being_shown(keys: list[object], words: str) -> None:
    with pytest.raises(f.FrontError, match=words) as error:
        f.key_map(keys)
    assert all(not key or str(key) not in str(error.value) for key in keys)


def test_listen_addresses() -> None:
    assert f.listen_addresses(["0.0.0.0", "::", "10.0.0.1", "::"], 8000) == [
        "0.0.0.0:8000",
        "[::]:8000",
        "10.0.0.1:8000",
    ]
    for addresses, port in ((["spark-01"], 8000), ([], 8000), (["::"], 0), (["::"], True), (["::"], "8000")):
        with pytest.raises(f.FrontError):
            f.listen_addresses(addresses, port)


def test_durations_sizes_names() -> None:
    assert f.checked_duration(30, "x") == "30"
    assert f.checked_duration("15m", "x") == "15m"
    assert f.checked_size("64m", "x") == "64m"
    assert f.subject_names(["spark-01", "10.0.0.1", "fd00::1", "spark-01"]) == "DNS:spark-01,IP:10.0.0.1,IP:fd00::1"
    with pytest.raises(f.FrontError, match="vllm_serve_x"):
        f.checked_duration("1s; root /", "vllm_serve_x")
    with pytest.raises(f.FrontError, match="vllm_serve_x"):
        f.checked_size("64 m", "vllm_serve_x")
    with pytest.raises(f.FrontError, match="vllm_serve_tls_names"):
        f.subject_names(["a,DNS:b"])
