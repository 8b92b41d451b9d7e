# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets of a host: what must not leave it, and what may be told of them."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from typing import Any, Optional

#: text of a file, None where there is none
# evaluated when the module is loaded, and sanity loads module_utils on every Python that modules may meet
Read = Callable[[str], Optional[str]]  # noqa: UP045

FOLDER = "/etc/sparkthor"
#: secrets that several hosts or the controller share
NAMES = ("api_key", "ray_token", "peer_secret")
_FILES = (
    *(f"secrets/{name}" for name in NAMES),
    "secrets/hf_token",
    "secrets/ray_tls.key",
    "front/keys.conf",
    "front/tls.key",
)
#: what stands around a key in the front proxy's list of them
_BETWEEN = re.compile(r"[\s\"$;^]+")
#: shorter words in these files are nginx's own
_SHORTEST = 12


def values(read: Read) -> list[str]:
    """All secrets in our files on this host, those of files with many lines word by word."""
    secrets: dict[str, None] = {}
    for name in _FILES:
        for line in (read(f"{FOLDER}/{name}") or "").splitlines():
            if line.startswith(("#", "-----")):
                continue
            # the front proxy's list has the keys as expressions
            words = [line.strip(), *_BETWEEN.split(line.replace("\\", ""))]
            secrets.update(dict.fromkeys(word for word in words if len(word) >= _SHORTEST))
    return list(secrets)


def described(read: Read, key: str) -> dict[str, dict[str, Any]]:
    """Of each secret its length and, by the key of this one call, a fingerprint that shows which hosts have the same.

    Nobody keeps the key, so a fingerprint is no help in guessing. Without a key there is none.
    """
    descriptions: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        text = read(f"{FOLDER}/secrets/{name}")
        if text is None:
            continue
        value = text.strip()
        digest = hmac.new(key.encode(), value.encode(), "sha256").hexdigest() if value and key else ""
        descriptions[name] = {"characters": len(value), "fingerprint": digest}
    return descriptions
