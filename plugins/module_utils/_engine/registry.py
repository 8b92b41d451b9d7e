# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# asks a registry, with a limit for all of it:
# pylint: disable=ansible-bad-function
"""What an image's digest stands for, in its registry's own documents: they prove an image where Docker has lost them.

Docker's classic store keeps an image's configuration and forgets the manifest that the registry's digest is of. Whoever
has the manifest can tell by hashing alone whether a configuration belongs to a digest; that is asked for here, and is
as good from anybody.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign, peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json

#: bytes of a manifest, at most, as registries have it
MOST = 4 << 20
#: manifests of one index for one architecture, at most
MOST_MANIFESTS = 8
#: seconds for one question
SECONDS = 20.0
KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def digest_of(document: bytes) -> str:
    return f"sha256:{hashlib.sha256(document).hexdigest()}"


def _digests(rows: Any) -> list[str]:
    found = (row.get("digest") for row in rows if isinstance(row, Mapping)) if isinstance(rows, list) else ()
    return [text for text in found if isinstance(text, str) and _DIGEST.fullmatch(text)]


def _read(document: bytes) -> dict[str, Any]:
    try:
        return foreign.parse_object(document, MOST)
    except foreign.ForeignError:
        return {}


def names_others(document: bytes) -> bool:
    """Whether it is an index or a manifest."""
    data = _read(document)
    return bool(_digests(data.get("manifests")) or _digests([data.get("config")]))


def proven(digest: str, documents: Iterable[bytes]) -> set[str]:
    """All that a digest leads to: an index's manifests, and of each manifest its configuration.

    A document counts for nothing until something that counts names its hash, so it may come from anybody.
    """
    by_digest = {digest_of(document): document for document in documents}
    layers: set[str] = set()
    todo = [digest]
    while todo:
        name = todo.pop()
        if name not in layers:
            layers.add(name)
            data = _read(by_digest.get(name, b""))
            todo += [*_digests(data.get("manifests")), *_digests([data.get("config")])]
    return layers


def proves(image: str, digest: str, documents: Iterable[bytes]) -> bool:
    """Whether an image, as a Docker names it, is the one of a registry's digest.

    Containerd's store may name it by a manifest that another host's Docker wrote; then its configuration counts, which
    says what is in each layer.
    """
    documents = list(documents)
    known = proven(digest, documents)
    own = next((document for document in documents if digest_of(document) == image), b"")
    return not known.isdisjoint([image, *_digests([_read(own).get("config")])])


def documents_of(name: str, digest: str, architecture: str, home: str = "~") -> list[bytes]:
    """The manifest of a digest as its registry has it, and of an index those for one architecture.

    Empty where the registry gives no answer: whoever needs them has other ways. ``home`` holds Docker's passwords.
    """
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        return _documents(_Registry(name, home), digest, architecture)
    return []


def digest_of_tag(name: str, tag: str, home: str = "~") -> tuple[str, str]:
    """What a tag means to its registry now, or else why nobody here can tell: one of both is empty."""
    try:
        return digest_of(_Registry(name, home).manifest(tag)), ""
    except (OSError, http.client.HTTPException, ValueError) as error:
        return "", str(error) or type(error).__name__


def _documents(registry: _Registry, digest: str, architecture: str) -> list[bytes]:
    whole = registry.manifest(digest)
    listed = _read(whole).get("manifests")
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    wanted = [row for row in rows if {"architecture": architecture}.items() <= _platform(row).items()]
    return [whole, *(registry.manifest(one) for one in _digests(wanted)[:MOST_MANIFESTS])]


def _platform(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found = row.get("platform")
    return {"architecture": found.get("architecture")} if isinstance(found, Mapping) else {}


def registry_place_of(name: str) -> tuple[str, str]:
    """The registry's address, and what it calls the image: ``org/image`` is Docker's own ``registry-1.docker.io``."""
    first, _slash, rest = name.partition("/")
    if rest and ("." in first or ":" in first or first == "localhost"):
        return ("registry-1.docker.io" if first == "docker.io" else first), rest
    return "registry-1.docker.io", name if rest else f"library/{name}"


def on_each_host(name: str) -> bool:
    """Whether a registry's address means another machine to everybody who asks."""
    address = name.partition("/")[0].partition(":")[0]
    return address == "localhost" or address.startswith("127.")


class _Registry:
    def __init__(self, name: str, home: str) -> None:
        self._place, self._repository = registry_place_of(name)
        self._home = home
        self._authorization = ""

    def manifest(self, reference: str) -> bytes:
        """The document of a digest or a tag. Raises OSError, HTTPException or ValueError for anything else."""
        # as Docker does: what does not leave this host may be in clear text
        scheme = "http" if on_each_host(self._place) else "https"
        url = f"{scheme}://{self._place}/v2/{self._repository}/manifests/{reference}"
        status, headers, body = self._get(url, self._authorization)
        if status == 401 and not self._authorization:
            self._authorization = self._ask_for_token(str(headers.get("WWW-Authenticate") or ""), scheme)
            status, _headers, body = self._get(url, self._authorization)
        if status != 200 or not (names_others(body) if ":" not in reference else digest_of(body) == reference):
            raise ValueError(f"{url} answers {status} and no document of this name")
        return body

    def _password(self) -> str:
        """What ``docker login`` left for this registry, where it stands in Docker's own file."""
        names = ("https://index.docker.io/v1/",) if self._place == "registry-1.docker.io" else ()
        kept = read_json(os.path.join(os.path.expanduser(self._home), ".docker/config.json")).get("auths")
        rows = [kept.get(name) for name in (self._place, *names)] if isinstance(kept, Mapping) else []
        found = next((str(row["auth"]) for row in rows if isinstance(row, Mapping) and row.get("auth")), "")
        return f"Basic {found}" if found else ""

    def _ask_for_token(self, challenge: str, scheme: str) -> str:
        kind, _space, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            return self._password()
        words = dict(_CHALLENGE.findall(rest))
        realm = words.pop("realm", "")
        if urlsplit(realm).scheme != scheme:
            raise ValueError("a registry that asks for a token elsewhere")
        asked = urlencode({key: words[key] for key in ("service", "scope") if key in words})
        status, _headers, body = self._get(f"{realm}{'&' if '?' in realm else '?'}{asked}", self._password())
        answer = foreign.parse_object(body, MOST) if status == 200 else {}
        return f"Bearer {foreign.text_of(answer.get('token') or answer.get('access_token'), 65536)}"

    @staticmethod
    def _get(url: str, authorization: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        connect = peer.tcp(parts.hostname or "", parts.port or (443 if secure else 80), secure, verified=True)
        headers = {"Host": parts.netloc, "Accept": ", ".join(KINDS)}
        if authorization:
            headers["Authorization"] = authorization
        with contextlib.closing(peer.opened(connect, SECONDS)) as exchange:
            exchange.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=headers)
            answer = exchange.getresponse()
            body = answer.read(MOST + 1)
        if len(body) > MOST:
            raise ValueError("more than a manifest")
        return answer.status, answer.headers, body
