# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace what looks like a secret in text that leaves a host."""

from __future__ import annotations

import re
import typing as t

_SECRETS: t.Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # 'api_key': ['…'] of vLLM's own line of arguments, api-key: …, VLLM_API_KEY=…, HF_TOKEN=…, password: …
    (
        re.compile(
            r"(?i)((?:api[_-]?keys?|hf_token|hugging_?face\w*token|ray_auth_token|auth_token|access_token|passw(?:or)?d|"
            r"psk|secret)[\"']?\s*[=:](?:\s*-\s+|[ \t]*))(\[[^\]]*\]|\"[^\"]*\"|'[^']*'|(?!/)[^\s,;)}]+)"
        ),
        r"\1********",
    ),
    # names of an environment: AWS_SECRET_ACCESS_KEY=…, GITHUB_TOKEN: …, but not where a file lies that holds one
    (
        re.compile(
            r"\b([A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|_KEY)[\"']?\s*[=:]"
            r"(?:\s*-\s+|[ \t]*))(?!/(?:dev|etc|home|mnt|opt|proc|root|run|srv|tmp|usr|var)/)"
            r"(\"[^\"]*\"|'[^']*'|[^\s\"',;)}\]]+)"
        ),
        r"\1********",
    ),
    (re.compile(r"(?i)(--(?:api-key|hf-token)[= ]+)(?!-)\S+"), r"\1********"),
    (re.compile(r"(?i)((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"), r"\1********"),
    (re.compile(r"\b(hf_|sk-|nvapi-|ghp_)[A-Za-z0-9_-]{16,}"), r"\1********"),
    (re.compile(r"(?i)(https?://[^/\s:@]+:)[^@\s/]+@"), r"\1********@"),
)
#: a list of YAML below such a key, with more items than the one that the expressions above see
_ITEM: t.Final = r"(?!/(?:dev|etc|home|mnt|opt|proc|root|run|srv|tmp|usr|var)/)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;)}]+)"
_LIST: t.Final = re.compile(
    r"((?:(?i:api[_-]?keys?|hf_token|hugging_?face\w*token|ray_auth_token|auth_token|access_token|passw(?:or)?d|psk|secret)"
    r"|\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|_KEY))[\"']?\s*[=:])"
    rf"(\s*-\s+{_ITEM}(?:[ \t\r]*\n[ \t]*-[ \t]+{_ITEM})+)"
)
_OF_LIST: t.Final = re.compile(rf"((?:^|\s)-\s+){_ITEM}")


def mask(text: str) -> str:
    """The text with whatever looks like a secret replaced."""
    text = _LIST.sub(lambda found: found[1] + _OF_LIST.sub(r"\1********", found[2]), text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
