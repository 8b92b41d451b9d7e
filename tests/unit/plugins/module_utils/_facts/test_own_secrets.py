# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import own_secrets
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front

API_KEY = "an-API.key~with+signs/and=="
FORMER = "the-key-before-the-last-rotation"
FILES = {
    "/etc/sparkthor/secrets/api_key": f"{API_KEY}\n",
    "/etc/sparkthor/secrets/ray_token": "a-token-of-some-length\n",
    "/etc/sparkthor/front/keys.conf": front.key_map(
        [front.NamedKey("default", API_KEY), front.NamedKey("previous", FORMER)]
    ),
    "/etc/sparkthor/front/tls.key": "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n",
}


def test_every_secret_of_a_host_is_known_and_no_word_of_its_files() -> None:
    found = own_secrets.values(FILES.get)
    assert {API_KEY, FORMER, "a-token-of-some-length", "MIGHAgEAMBMGByqGSM49"} <= set(found)
    assert not [value for value in found if value in ("sparkthor.cluster", "Authorization") or "PRIVATE" in value]


def test_a_host_without_secrets_has_none() -> None:
    assert own_secrets.values({}.get) == []
    assert own_secrets.described({}.get, "key") == {}


def test_a_fingerprint_tells_equal_from_different_within_one_run_alone() -> None:
    first, other = (own_secrets.described(FILES.get, key) for key in ("first-run", "second-run"))
    assert first == own_secrets.described(dict(FILES).get, "first-run")
    changed = {**FILES, "/etc/sparkthor/secrets/ray_token": "another-token-of-length\n"}
    assert first["ray_token"] != own_secrets.described(changed.get, "first-run")["ray_token"]
    assert first["ray_token"]["fingerprint"] != other["ray_token"]["fingerprint"]
    # nobody can compare it with a list of digests
    assert hashlib.sha256(b"a-token-of-some-length").hexdigest() not in str([first, other])
    assert own_secrets.described(FILES.get, "")["ray_token"] == {"characters": 22, "fingerprint": ""}
