# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's own client against a small hub on a loopback address: what it really raises, and what it really leaves."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.servers import serving

COMMIT = "c" * 40
FILES = {"config.json": b"{}", "model.safetensors": b"w" * 4096}
TOKEN = "hf_sesame"
PROGRAM = """
import json, sys
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, push
repo, revision, layout = sys.argv[1:]
try:
    folder, commit = hub.snapshot(repo, revision, "m", True)
except hub.HubError as error:
    print(json.dumps({"error": str(error)}))
    sys.exit()
files = {name: open(f"{folder}/{name}", "rb").read().decode() for name in push.folder_files(folder, "x")}
found = push.hub_folder(folder, "x")
print(json.dumps({"folder": folder, "commit": commit, "files": files, "name": found.name, "links": found.links}))
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """owner/open is for everyone, owner/gated for the bearer of the token; both have one commit, which main names."""

    protocol_version = "HTTP/1.1"

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if "/none" in path:
            return self.answer(404, X_Error_Code="RepoNotFound")
        if "/gated" in path and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(403, X_Error_Code="GatedRepo")
        if not any(path.find(f"/{revision}") > 0 for revision in (COMMIT, "main")):
            return self.answer(404, X_Error_Code="RevisionNotFound")
        if "/tree/" in path:
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in FILES.items()
            ]
            return self.answer(200, json.dumps(tree).encode(), Content_Type="application/json")
        if path.startswith("/api/models/"):
            info = {"id": path.split("/")[3], "sha": COMMIT, "siblings": [{"rfilename": name} for name in FILES]}
            return self.answer(200, json.dumps(info).encode(), Content_Type="application/json")
        data = FILES.get(path.rsplit("/", 1)[-1])
        if data is None:
            return self.answer(404, X_Error_Code="EntryNotFound")
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        return self.answer(200, data, ETag=etag, X_Repo_Commit=COMMIT, X_Linked_Size=str(len(data)))

    do_HEAD = do_GET

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


def ask(hub: str, tmp_path: Path, repo: str, revision: str = "main", **environment: str) -> dict:
    # in a process of its own: the client reads its settings when it is imported
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, repo, revision, "flat"],
        env={
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HF_ENDPOINT": hub,
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **environment,
        },
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_model_comes_with_its_commit_and_in_the_hubs_layout(hub: str, tmp_path: Path) -> None:
    found = ask(hub, tmp_path, "owner/open")
    assert found["commit"] == COMMIT
    assert found["files"] == {name: data.decode() for name, data in FILES.items()}
    assert found["name"] == "models--owner--open"
    assert [path for path, _target in found["links"]] == [f"snapshots/{COMMIT}/{name}" for name in sorted(FILES)]
    # a commit that is here is used although nobody answers any more
    assert ask("http://127.0.0.1:9", tmp_path, "owner/open", COMMIT)["folder"] == found["folder"]


def test_what_a_broken_download_left_is_completed(hub: str, tmp_path: Path) -> None:
    found = ask(hub, tmp_path, "owner/open", COMMIT)
    snapshot = Path(found["folder"])
    # as if the download had ended before the second file
    (snapshot / ".sparkthor-whole").unlink()
    (snapshot / "model.safetensors").resolve().unlink()
    (snapshot / "model.safetensors").unlink()
    error = ask("http://127.0.0.1:9", tmp_path, "owner/open", COMMIT)["error"]
    assert "owner/open could not be fetched" in error
    assert ask(hub, tmp_path, "owner/open", COMMIT)["files"] == found["files"]
    assert ask("http://127.0.0.1:9", tmp_path, "owner/open", COMMIT)["files"] == found["files"]


def test_a_gated_model_says_which_token_and_where(hub: str, tmp_path: Path) -> None:
    error = ask(hub, tmp_path, "owner/gated")["error"]
    assert "owner/gated is gated" in error
    assert "hf auth login, or the variable HF_TOKEN in the environment of ansible-playbook" in error
    assert ask(hub, tmp_path, "owner/gated", HF_TOKEN=TOKEN)["commit"] == COMMIT


def test_unknown_revisions_and_models_are_named(hub: str, tmp_path: Path) -> None:
    assert ask(hub, tmp_path, "owner/open", "no-such-branch")["error"] == (
        "owner/open has no revision 'no-such-branch'"
    )
    assert "the hub has no owner/none" in ask(hub, tmp_path, "owner/none")["error"]
