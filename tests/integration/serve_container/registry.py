# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry of one image on a loopback address, which no other host can reach: what docker save wrote, with a label.

    python3 registry.py ARCHIVE FOLDER PORT

The label makes it another image, so nobody has it yet. Standard library only: it runs on a simulated host.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import sys
import tarfile
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return f"sha256:{found.hexdigest()}"


def unpack(archive: str, folder: Path) -> tuple[bytes, dict[str, Path]]:
    """The image's manifest, and its blobs by digest."""
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    row = json.loads((folder / "manifest.json").read_text())[0]
    config = json.loads((folder / row["Config"]).read_text())
    config["config"]["Labels"] = {**(config["config"].get("Labels") or {}), "lab.registry": "1"}
    (folder / "config.json").write_text(json.dumps(config))
    blobs = {_digest(path): path for path in (folder / "config.json", *(folder / name for name in row["Layers"]))}

    def described(digest: str, kind: str) -> dict[str, object]:
        return {
            "mediaType": f"application/vnd.oci.image.{kind}",
            "digest": digest,
            "size": blobs[digest].stat().st_size,
        }

    first, *layers = (_digest(path) for path in (folder / "config.json", *(folder / name for name in row["Layers"])))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(first, "config.v1+json"),
        "layers": [described(digest, "layer.v1.tar") for digest in layers],
    }
    return json.dumps(manifest).encode(), blobs


class Registry(http.server.BaseHTTPRequestHandler):
    manifest = b""
    blobs: dict[str, Path] = {}

    def do_GET(self) -> None:
        what, _slash, name = self.path.rpartition("/")
        if self.path == "/v2/":
            self._answer(b"{}", "application/json")
        elif what.endswith("/manifests"):
            self._answer(self.manifest, MANIFEST)
        elif what.endswith("/blobs") and name in self.blobs:
            self.send_response(200)
            self.send_header("Content-Length", str(self.blobs[name].stat().st_size))
            self.send_header("Docker-Content-Digest", name)
            self.end_headers()
            if self.command == "GET":
                with self.blobs[name].open("rb") as file:
                    shutil.copyfileobj(file, self.wfile)
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


if __name__ == "__main__":
    Registry.manifest, Registry.blobs = unpack(sys.argv[1], Path(sys.argv[2]))
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Registry).serve_forever()
