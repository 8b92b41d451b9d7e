# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry on the loopback, and documents that are whatever somebody made of them."""

from __future__ import annotations

import base64
import http.server
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import registry

from tests.unit import trickle
from tests.unit.servers import serving

CONFIG = "sha256:" + "c" * 64
OTHER = "sha256:" + "d" * 64


def document(**values: Any) -> bytes:
    return json.dumps(values).encode()


MANIFEST = document(config={"digest": CONFIG}, layers=[{"digest": "sha256:" + "1" * 64}])
FOREIGN = document(config={"digest": OTHER})
INDEX = document(
    manifests=[
        {"digest": registry.digest_of(MANIFEST), "platform": {"architecture": "arm64"}},
        {"digest": registry.digest_of(FOREIGN), "platform": {"architecture": "amd64"}},
        {"digest": registry.digest_of(b"{}"), "platform": 5},
    ]
)
DIGEST = registry.digest_of(INDEX)


def test_a_digest_leads_to_its_images() -> None:
    known = registry.proven(DIGEST, [FOREIGN, MANIFEST, INDEX])
    assert {DIGEST, registry.digest_of(MANIFEST), CONFIG, OTHER} <= known
    # a layer is no image
    assert "sha256:" + "1" * 64 not in known
    assert registry.proven(DIGEST, [MANIFEST]) == {DIGEST}
    assert registry.proven(registry.digest_of(MANIFEST), [MANIFEST]) == {registry.digest_of(MANIFEST), CONFIG}


def test_an_image_is_proved_by_whatever_its_docker_calls_it() -> None:
    for image in (DIGEST, registry.digest_of(MANIFEST), CONFIG):
        assert registry.proves(image, DIGEST, [INDEX, MANIFEST])
    # a manifest that another host's Docker wrote, of the same configuration
    own = document(config={"digest": CONFIG}, layers=[])
    assert registry.proves(registry.digest_of(own), DIGEST, [INDEX, MANIFEST, own])
    assert not registry.proves(registry.digest_of(own), DIGEST, [INDEX, MANIFEST])


@pytest.mark.parametrize(
    "documents",
    [
        [],
        [MANIFEST],
        [INDEX],
        [INDEX, MANIFEST.replace(b"layers", b"Layers")],
        [INDEX + b" ", MANIFEST],
        [INDEX, document(config={"digest": "sha256:" + "e" * 64})],
        [b"[" * 100_000],
        [b""],
    ],
)
def test_nothing_else_proves_anything(documents: list[bytes]) -> None:
    image = "sha256:" + "e" * 64
    assert not registry.proves(image, DIGEST, documents)
    assert not registry.proves(CONFIG, DIGEST, documents)


def test_what_names_other_documents() -> None:
    assert [registry.names_others(one) for one in (INDEX, MANIFEST, b"{}", b"[]", document(config={}))] == [
        *(True, True, False, False, False)
    ]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("vllm/vllm-openai", ("registry-1.docker.io", "vllm/vllm-openai")),
        ("ubuntu", ("registry-1.docker.io", "library/ubuntu")),
        ("docker.io/vllm/vllm", ("registry-1.docker.io", "vllm/vllm")),
        ("registry.example/nvidia/vllm", ("registry.example", "nvidia/vllm")),
        ("127.0.0.1:5000/vllm", ("127.0.0.1:5000", "vllm")),
        ("localhost/vllm", ("localhost", "vllm")),
    ],
)
def test_where_an_image_is_asked_for(name: str, place: tuple[str, str]) -> None:
    assert registry.registry_place_of(name) == place


class Handler(http.server.BaseHTTPRequestHandler):
    asked: list[tuple[str, str]] = []

    def do_GET(self) -> None:
        given = self.headers.get("Authorization") or ""
        self.asked.append((self.path.rpartition("/")[2][:20], given))
        host = self.headers["Host"]
        body = {f"/v2/own/vllm/manifests/{registry.digest_of(one)}": one for one in (INDEX, MANIFEST)}.get(self.path)
        body = {"/v2/own/vllm/manifests/1": INDEX, "/v2/own/vllm/manifests/2": b"{}"}.get(self.path, body)
        if self.path.startswith("/token?"):
            assert self.path == "/token?service=here&scope=repository%3Aown%2Fvllm%3Apull"
            self.answer(200, document(token="t"))
        elif given != "Bearer t":
            asked = f'Bearer realm="http://{host}/token",service="here",scope="repository:own/vllm:pull"'
            self.answer(401, b"{}", asked)
        else:
            self.answer(200 if body else 404, body or b"{}")

    def answer(self, status: int, body: bytes, asked: str = "") -> None:
        self.send_response(status)
        if asked:
            self.send_header("WWW-Authenticate", asked)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def name() -> Iterator[str]:
    Handler.asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"127.0.0.1:{server.server_address[1]}/own/vllm"


def test_a_registry_gives_what_belongs_to_one_machine(name: str, tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    password = base64.b64encode(b"me:secret").decode()
    place = name.partition("/")[0]
    (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {place: {"auth": password}}}))
    found = registry.documents_of(name, DIGEST, "arm64", str(tmp_path))
    assert found == [INDEX, MANIFEST]
    # asked once for a token, and with the password for that alone
    assert [given for _path, given in Handler.asked] == ["", f"Basic {password}", "Bearer t", "Bearer t"]
    assert registry.proves(CONFIG, DIGEST, found)


def test_what_a_tag_means_is_asked_and_hashed(name: str, tmp_path: Path) -> None:
    assert registry.digest_of_tag(name, "1", str(tmp_path)) == (DIGEST, "")
    # a page that is no manifest, a tag that is not there, nobody
    for asked, tag, why in ((name, "2", " 200 "), (name, "3", " 404 "), ("127.0.0.1:1/own/vllm", "1", "refused")):
        digest, said = registry.digest_of_tag(asked, tag, str(tmp_path))
        assert (digest, why in said) == ("", True), said


def test_a_registry_that_has_it_not_or_is_away(name: str, tmp_path: Path) -> None:
    assert registry.documents_of(name, OTHER, "arm64", str(tmp_path)) == []
    # its manifest for this machine is away
    assert registry.documents_of(name, DIGEST, "amd64", str(tmp_path)) == []
    assert registry.documents_of("127.0.0.1:1/own/vllm", DIGEST, "arm64", str(tmp_path)) == []


@pytest.mark.parametrize("body", [b"{}", INDEX + b" ", b"[" * 100_000])
def test_a_document_of_another_digest_is_none(body: bytes, tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with trickle.server(lambda sock: sock.sendall(head + body)) as port:
        assert registry.documents_of(f"127.0.0.1:{port}/own/vllm", DIGEST, "arm64", str(tmp_path)) == []


def test_a_slow_registry_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SECONDS", 0.5)
    with trickle.server(trickle.slowly(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n")) as port:
        assert registry.documents_of(f"127.0.0.1:{port}/own/vllm", DIGEST, "arm64", str(tmp_path)) == []
