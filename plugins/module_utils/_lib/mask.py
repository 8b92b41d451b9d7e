# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace what looks like a secret in text that leaves a host."""

from __future__ import annotations

import base64
import re
import typing as t
import urllib.parse
from collections.abc import Iterable, Sequence

#: shorter ones would hide words that are none
SHORTEST: t.Final = 8
_HIDDEN: t.Final = "********"
_WORDS: t.Final = (
    r"api[_-]?keys?|hf_token|hugging_?face\w{0,40}token|ray_auth_token|auth_token|access_token|passw(?:or)?d|psk|secret"
)
# what is quoted has a limit: without one a text of open quotes would be read to its end from each of them
_SECRETS: t.Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # 'api_key': ['…'] of the engine's own line of arguments, api-key: …, API_KEY=…, HF_TOKEN=…, password: …
    (
        re.compile(
            rf"(?i)((?:{_WORDS})[\"']?\s*[=:](?:\s*-\s+|[ \t]*))"
            r"(\[[^\]]{0,4000}\]|\"[^\"]{0,4000}\"|'[^']{0,4000}'|(?!/)[^\s,;)}]+)"
        ),
        r"\1********",
    ),
    # names of an environment: AWS_SECRET_ACCESS_KEY=…, GITHUB_TOKEN: …, but not where a file lies that holds one
    (
        re.compile(
            r"\b([A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|_KEY)[\"']?\s*[=:]"
            r"(?:\s*-\s+|[ \t]*))(?!/(?:dev|etc|home|mnt|opt|proc|root|run|srv|tmp|usr|var)/)"
            r"(\"[^\"]{0,4000}\"|'[^']{0,4000}'|[^\s\"',;)}\]]+)"
        ),
        r"\1********",
    ),
    (re.compile(r"(?i)(--(?:api-key|hf-token)[= ]+)(?!-)\S+"), r"\1********"),
    (re.compile(r"(?i)((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"), r"\1********"),
    (re.compile(r"\b(hf_|sk-|nvapi-|ghp_|tskey-)[A-Za-z0-9_-]{16,}"), r"\1********"),
    # token: … of files and logs, but neither a count of tokens nor where a file lies that holds one
    (re.compile(r"(?i)(\btoken[\"']?\s*[=:]\s*[\"']?)(?!/|[\d.]+\b)[A-Za-z0-9._~+/=-]{8,}"), r"\1********"),
    # PEM: the lines of a log may begin with anything
    (
        re.compile(r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----).*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        r"\1********\2",
    ),
    (re.compile(r"(?i)(https?://[^/\s:@]+:)[^@\s/]+@"), r"\1********@"),
)
#: a list of YAML below such a key, with more items than the one that the expressions above see
_ITEM: t.Final = (
    r"(?!/(?:dev|etc|home|mnt|opt|proc|root|run|srv|tmp|usr|var)/)(?:\"[^\"\n]{0,4000}\"|'[^'\n]{0,4000}'|[^\s,;)}]+)"
)
_LIST: t.Final = re.compile(
    rf"((?:(?i:{_WORDS})"
    r"|\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|_KEY))[\"']?\s*[=:])"
    rf"(\s*-\s+{_ITEM}(?:[ \t\r]*\n[ \t]*-[ \t]+{_ITEM})+)"
)
_OF_LIST: t.Final = re.compile(rf"((?:^|\s)-\s+){_ITEM}")
#: names of fields and options whose value is a secret
_NAMES: t.Final = re.compile(
    rf"(?:(?i:{_WORDS}|hf-token|\btoken)|\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|_KEY))$"
)


def forms(secrets: Iterable[str]) -> list[str]:
    """The texts by which a secret shows: as it is, in URLs, and within base64 of something longer; longest first."""
    spellings: set[str] = set()
    for secret in secrets:
        if len(secret) < SHORTEST:
            continue
        spellings |= {secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)}
        for before in range(3):
            # three bytes are four characters: those that the neighbours' bits are part of are left out
            coded = base64.b64encode(b"\0" * before + secret.encode()).decode().rstrip("=")
            whole = coded[(0, 2, 3)[before] : len(coded) - (1 if (before + len(secret.encode())) % 3 else 0)]
            spellings |= {whole, whole.replace("+", "-").replace("/", "_")}
    return sorted(spellings, key=len, reverse=True)


def mask(text: str, known: Sequence[str] = ()) -> str:
    """The text with ``known`` secrets (see :func:`forms`), and whatever looks like one, replaced."""
    for secret in known:
        text = text.replace(secret, _HIDDEN)
    text = _LIST.sub(lambda found: found[1] + _OF_LIST.sub(r"\1********", found[2]), text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def masked(value: t.Any, known: Sequence[str] = (), name: str = "") -> t.Any:
    """Plain data with all its texts masked, keys as well; ``name`` is that of the field or option that has the value.

    Of a list of words, as of a command, all that follows such an option is hidden up to the next one.
    """
    if isinstance(value, str):
        hidden = len(value) >= SHORTEST and not value.startswith("/") and _NAMES.search(name)
        return _HIDDEN if hidden else mask(value, known)
    if isinstance(value, dict):
        return {masked(key, known): masked(item, known, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        found, option = [], ""
        for item in value:
            if isinstance(item, str) and item.startswith("-"):
                option = item
            found.append(masked(item, known, name if _NAMES.search(name) else "" if item is option else option))
        return found
    return value
