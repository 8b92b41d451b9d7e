# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small hub on a loopback address: what the hub's own client asks it for, and nothing more."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.unit.servers import serving

COMMIT = "c" * 40
TOKEN = "hf_sesame"
_CHUNK = 65536
_LARGE = (".safetensors", ".bin", ".gguf", ".pth")


@dataclass
class Models:
    """What the hub has. A file is its bytes, or a number where nobody will fetch it."""

    files: Mapping[str, Mapping[str, bytes | int]]
    gated: frozenset[str] = frozenset()
    #: by path of a file: "break" sends half of it once and an error from then on, "hang" half and nothing more
    cut: dict[str, str] = field(default_factory=dict)
    #: whether large files come in chunks from a content-addressed store, as on the real hub
    xet: bool = False
    #: repository and path of each file whose content was asked for
    sent: list[str] = field(default_factory=list)


class _Hub(http.server.BaseHTTPRequestHandler):
    """All models have one commit, which main names. As on the real hub, the list of a gated model is open."""

    protocol_version = "HTTP/1.1"
    models: Models

    def answer(self, code: int, body: bytes = b"", size: int | None = None, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if size is None else size))
        # a connection that is kept would keep its thread
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/cas/"):
            return self.chunks(path)
        found = re.fullmatch(r"(?P<api>/api/models)?/(?P<repo>[^/]+/[^/]+)(?:/(?P<verb>[\w-]+)/(?P<rest>.+))?", path)
        if found is None or found["repo"] not in self.models.files:
            return self.answer(404, X_Error_Code="RepoNotFound")
        repo, (revision, _slash, name) = found["repo"], (found["rest"] or "main").partition("/")
        files = self.models.files[repo]
        if revision not in (COMMIT, "main"):
            return self.answer(404, X_Error_Code="RevisionNotFound")
        if found["verb"] == "xet-read-token":
            return self.answer(200, **_pass(self.cas))
        if found["verb"] == "tree":
            return self.answer(200, json.dumps(_tree(files, self.models.xet)).encode(), Content_Type="application/json")
        if found["api"]:
            info = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            return self.answer(200, json.dumps(info).encode(), Content_Type="application/json")
        if repo in self.models.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(403, X_Error_Code="GatedRepo")
        if name not in files:
            return self.answer(404, X_Error_Code="EntryNotFound")
        return self.file(repo, name, files[name])

    do_HEAD = do_GET

    def file(self, repo: str, name: str, data: bytes | int) -> None:
        content = data if isinstance(data, bytes) else b""
        headers = {"ETag": f'"{_blob(name, data)}"', "X_Repo_Commit": COMMIT, "X_Linked_Size": str(_size(data))}
        if self.models.xet and name.endswith(_LARGE):
            headers["X_Xet_Hash"] = _xet(content)
            headers["X_Xet_Refresh_Route"] = f"{self.url}/api/models/{repo}/xet-read-token/{COMMIT}"
        self.content(repo, name, content, **headers)

    def content(self, repo: str, name: str, content: bytes, **headers: str) -> None:
        if self.command == "GET":
            self.models.sent.append(f"{repo}/{name}")
        how = self.models.cut.get(name) if self.command == "GET" else None
        if how == "error":
            return self.answer(503)
        if how:
            self.answer(200, content[: len(content) // 2], len(content), **headers)
            self.wfile.flush()
            if how == "hang":
                self.rfile.read(1)  # until the other side is gone
            else:
                self.models.cut[name] = "error"
            return
        self.answer(200, content, **headers)

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.server.server_address[:2])

    @property
    def cas(self) -> str:
        return f"{self.url}/cas"

    def chunks(self, path: str) -> None:
        """What a file is made of, and the chunks themselves: one xorb for each file."""
        _cas, _slash, asked = path.lstrip("/").partition("/")
        found = {
            _xet(data): (repo, name, data)
            for repo, files in self.models.files.items()
            for name, data in files.items()
            if isinstance(data, bytes)
        }.get(asked.rpartition("/")[2])
        if found is None or asked.startswith("v2/"):
            return self.answer(404)
        repo, name, data = found
        packed, number = _xorb(data)
        if asked.startswith("v1/reconstructions/"):
            whole = {"start": 0, "end": number}
            place = {"range": whole, "url": f"{self.cas}/xorbs/{_xet(data)}", "url_range": _span(packed)}
            term = {"hash": _xet(data), "unpacked_length": len(data), "range": whole}
            plan = {"offset_into_first_range": 0, "terms": [term], "fetch_info": {_xet(data): [place]}}
            return self.answer(200, json.dumps(plan).encode(), Content_Type="application/json")
        self.content(repo, name, packed)

    def log_message(self, *_arguments: object) -> None:
        pass


def _size(data: bytes | int) -> int:
    return data if isinstance(data, int) else len(data)


def _blob(name: str, data: bytes | int) -> str:
    content = data if isinstance(data, bytes) else str(data).encode()
    return (hashlib.sha256 if name.endswith(_LARGE) else hashlib.sha1)(content).hexdigest()


def _xet(data: bytes | int) -> str:
    """The name of a content in the store of chunks, which is not its SHA-256."""
    content = data if isinstance(data, bytes) else str(data).encode()
    return hashlib.sha256(b"chunks of " + content).hexdigest()


def _xorb(data: bytes) -> tuple[bytes, int]:
    """A content in chunks, not compressed, and their number."""
    packed, chunks = b"", [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    for chunk in chunks:
        size = len(chunk).to_bytes(3, "little")
        packed += b"\0" + size + b"\0" + size + chunk
    return packed, len(chunks)


def _span(packed: bytes) -> dict[str, int]:
    return {"start": 0, "end": len(packed) - 1}


def _pass(cas: str) -> dict[str, str]:
    """What the store of chunks is asked with, in headers as the hub's client reads it."""
    return {"X_Xet_Cas_Url": cas, "X_Xet_Access_Token": "of-chunks", "X_Xet_Token_Expiration": "4102444800"}


def _tree(files: Mapping[str, bytes | int], xet: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, data in files.items():
        row: dict[str, object] = {"type": "file", "path": name, "size": _size(data), "oid": _blob(name, data)[:40]}
        if name.endswith(_LARGE):
            row["lfs"] = {"oid": _blob(name, data), "size": _size(data), "pointerSize": 134}
            row |= {"xetHash": _xet(data)} if xet else {}
        rows.append(row)
    return rows


@contextlib.contextmanager
def hub_of(models: Models) -> Iterator[str]:
    """The URL of a hub that has these models, for HF_ENDPOINT."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (_Hub,), {"models": models}))
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
