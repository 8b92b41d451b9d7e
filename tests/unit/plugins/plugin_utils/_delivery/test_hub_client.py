# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's own client against a small hub on a loopback address: what it really raises, and what it really leaves."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import hub_caches
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store

from tests.unit.hub_stand_in import COMMIT, TOKEN, Models, hub_of

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 4096}
SHARDS = {
    "config.json": b"{}",
    "model-00001-of-00002.safetensors": b"1" * 4096,
    "model-00002-of-00002.safetensors": b"2" * 4096,
}
OTHERS = {"original/model.pth": b"p" * 99, "pytorch_model.bin": b"b" * 99, "1_Pooling/config.json": b"{}"}
#: settings of the client
CLIENT = {"HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "1", "HF_HUB_DISABLE_XET": "0"}
NOBODY = "http://127.0.0.1:9"
PROGRAM = """
import json, sys
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, push
repo, revision = sys.argv[1:]
said = []
try:
    folder, commit = hub.snapshot(repo, revision, "m", True, said.append)
except hub.HubError as error:
    print(json.dumps({"error": str(error), "said": said}))
    sys.exit()
files = {name: open(f"{folder}/{name}", "rb").read().decode() for name in push.folder_files(folder, "x")}
found = push.hub_folder(folder, "x")
print(json.dumps(
    {"folder": folder, "commit": commit, "files": files, "name": found.name, "links": found.links, "said": said}
))
"""


@pytest.fixture
def models() -> Models:
    return Models(
        {"owner/open": FILES, "owner/gated": FILES, "owner/shards": SHARDS, "owner/forms": {**FILES, **OTHERS}},
        frozenset({"owner/gated"}),
        xet=True,
    )


SHARED = "by chunks into the shared store"


@pytest.fixture(params=[SHARED, "each file by itself"])
def hub(models: Models, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With hf-xet as it comes with the client, and as it is where a user has switched it off."""
    monkeypatch.setitem(CLIENT, "HF_HUB_DISABLE_XET", str(int(request.param == "each file by itself")))
    with hub_of(models) as url:
        yield url


def settings(hub: str, tmp_path: Path, **environment: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HF_ENDPOINT": hub,
        "HF_HUB_DISABLE_TELEMETRY": "1", **CLIENT, **environment,
    }  # fmt: skip


def run(program: str, *words: str, **environment: str) -> str:
    # in a process of its own: the client reads its settings when it is imported
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(hub: str, tmp_path: Path, repo: str, revision: str = "main", **environment: str) -> dict:
    output = run(PROGRAM, repo, revision, **settings(hub, tmp_path, **environment))
    return json.loads(output.splitlines()[-1])


def test_a_model_comes_with_its_commit_and_in_the_hubs_layout(hub: str, tmp_path: Path) -> None:
    found = ask(hub, tmp_path, "owner/open")
    assert found["commit"] == COMMIT
    assert found["files"] == {name: data.decode() for name, data in FILES.items()}
    assert found["name"] == "models--owner--open"
    assert [path for path, _target in found["links"]] == [f"snapshots/{COMMIT}/{name}" for name in sorted(FILES)]
    # a commit that is here is used although nobody answers any more
    assert ask(NOBODY, tmp_path, "owner/open", COMMIT)["folder"] == found["folder"]


def test_progress_is_told_with_size_and_time(hub: str, tmp_path: Path) -> None:
    said = ask(hub, tmp_path, "owner/open")["said"]
    assert said[0] == "m from the hub: 4.0 KiB to fetch"
    assert said[-1].startswith("m from the hub: 4.0 KiB of 4.0 KiB, ")
    assert ask(hub, tmp_path, "owner/open", COMMIT)["said"] == []


def test_other_forms_of_the_weights_are_not_fetched(hub: str, tmp_path: Path) -> None:
    assert sorted(ask(hub, tmp_path, "owner/forms")["files"]) == ["1_Pooling/config.json", *sorted(FILES)]


def test_what_a_broken_download_left_is_completed(hub: str, tmp_path: Path) -> None:
    found = ask(hub, tmp_path, "owner/open", COMMIT)
    snapshot = Path(found["folder"])
    # as if the download had ended before the second file
    (snapshot / ".sparkthor-whole").unlink()
    (snapshot / "model.safetensors").resolve().unlink()
    (snapshot / "model.safetensors").unlink()
    error = ask(NOBODY, tmp_path, "owner/open", COMMIT)["error"]
    assert "owner/open could not be fetched: the hub http://127.0.0.1:9 does not answer" in error
    assert "HF_ENDPOINT" in error
    assert ask(hub, tmp_path, "owner/open", COMMIT)["files"] == found["files"]
    assert ask(NOBODY, tmp_path, "owner/open", COMMIT)["files"] == found["files"]


def test_a_download_that_is_cut_twice_goes_on(hub: str, models: Models, tmp_path: Path) -> None:
    """Once the line breaks, once the run is killed; the file that had come is not asked for again."""
    second = "model-00002-of-00002.safetensors"
    models.cut[second] = "break"
    first = ask(hub, tmp_path, "owner/shards")
    assert "owner/shards could not be fetched" in first["error"]
    assert first["error"].endswith("4.0 KiB of 8.0 KiB are kept: run again")
    blobs = tmp_path / "sparkthor/hub/models--owner--shards/blobs"
    kept = set(os.listdir(blobs))
    models.cut[second] = "hang"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "owner/shards", "main"],
        env=settings(hub, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        while not (half := set(os.listdir(blobs)) - kept) and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert half, "the run ended before it could be killed"
    models.cut.clear()
    models.sent.clear()
    assert ask(hub, tmp_path, "owner/shards")["files"] == {name: data.decode() for name, data in SHARDS.items()}
    assert [name for name in models.sent if name.endswith(".safetensors")] == [f"owner/shards/{second}"]
    # the half file of the killed run does not stay
    assert not [name for name in os.listdir(blobs) if name.endswith(".incomplete")]


def test_the_cache_of_the_hubs_own_tools_is_used(hub: str, models: Models, tmp_path: Path) -> None:
    home = tmp_path / "theirs"
    program = "import huggingface_hub, sys; print(huggingface_hub.snapshot_download(sys.argv[1]))"
    theirs = run(program, "owner/open", **settings(hub, tmp_path, HF_HOME=str(home))).strip()
    models.sent.clear()
    found = ask(hub, tmp_path, "owner/open", HF_HOME=str(home))
    assert (found["folder"], models.sent, found["said"]) == (theirs, [], [])
    # half of it is there: the rest comes to it
    half = run(program, "owner/shards", **settings(hub, tmp_path, HF_HOME=str(home))).strip()
    shard = Path(half, "model-00002-of-00002.safetensors")
    shard.resolve().unlink()
    shard.unlink()
    models.sent.clear()
    assert ask(hub, tmp_path, "owner/shards", HF_HOME=str(home))["folder"] == half
    assert models.sent == [f"owner/shards/{shard.name}"]


def test_a_gated_model_says_which_token_and_where(hub: str, tmp_path: Path) -> None:
    error = ask(hub, tmp_path, "owner/gated")["error"]
    assert "owner/gated is gated and no token was given: accept its conditions" in error
    assert "hf auth login, or the variable HF_TOKEN in the environment of ansible-playbook" in error
    other = ask(hub, tmp_path, "owner/gated", HF_TOKEN="hf_of_somebody")["error"]
    assert "the account of the token that was given has no access" in other
    assert "hf_of_somebody" not in other
    assert ask(hub, tmp_path, "owner/gated", HF_TOKEN=TOKEN)["commit"] == COMMIT


def test_unknown_revisions_and_models_are_named(hub: str, tmp_path: Path) -> None:
    assert ask(hub, tmp_path, "owner/open", "no-such-branch")["error"] == (
        "owner/open has no revision 'no-such-branch'"
    )
    assert (
        "the hub has no owner/none, or it is private and no token was given"
        in (ask(hub, tmp_path, "owner/none")["error"])
    )


def shares(hub_is: pytest.FixtureRequest) -> bool:
    return SHARED in hub_is.node.name


def test_a_model_whose_bytes_another_one_brought_needs_neither_line_nor_room(
    hub: str, models: Models, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ask(hub, tmp_path, "owner/open")
    models.sent.clear()
    found = ask(hub, tmp_path, "owner/forms")
    # two of its files are alike, and the client fetches one of them
    weights = [name for name in models.sent if name.endswith(".safetensors")]
    if shares(request):
        assert weights == []
        assert found["said"][0] in ("m from the hub: 4 B to fetch", "m from the hub: 2 B to fetch")
        # the bytes are neither in the snapshot nor in the model's own folder
        assert Path(found["folder"], "model.safetensors").resolve().parents[2] == tmp_path / "sparkthor/hub"
    else:
        assert weights == ["owner/forms/model.safetensors"]
    assert found["files"]["model.safetensors"] == "w" * 4096
    # in the hub's layout the model has its own copy
    assert found["links"][-1][1] == f"../../blobs/{hashlib.sha256(b'w' * 4096).hexdigest()}"


def test_weights_in_the_cache_of_a_hosts_user_are_taken(hub: str, tmp_path: Path) -> None:
    store = private_store(str(tmp_path / "store"))
    home = tmp_path / "theirs"
    program = "import huggingface_hub, sys; print(huggingface_hub.snapshot_download(sys.argv[1]))"
    for repo in ("owner/shards", "owner/open", "owner/forms"):
        run(program, repo, **settings(hub, tmp_path, HF_HOME=str(home)))
    cache = str(home / "hub")
    sizes = hub_caches.sizes([cache])
    assert (sizes["owner/shards"], sizes["owner/open"]) == (8192, 4096)
    need = [
        {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in {**SHARDS, **FILES}.items()
        if name.endswith(".safetensors")
    ]
    assert hub_caches.take(store.incoming, need, hub_caches.blobs([cache])) == (
        {item["sha256"] for item in need}, 3 * 4096, [cache],
    )  # fmt: skip


def test_a_disk_that_becomes_full_is_named(hub: str, models: Models, tmp_path: Path) -> None:
    """On a file system of 1 MiB; what is free is asked before, and others use the disk as well."""
    models.files = {"owner/open": {**FILES, "model.safetensors": os.urandom(3 << 20)}}
    place = tmp_path / "small"
    place.mkdir()
    mounted = f"mount -t tmpfs -o size=1M none {place}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mounted], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    believes = tmp_path / "program.py"
    believed = "said = []\nif sys.argv[3:]:\n    hub.free_bytes = lambda _path: 1 << 40\n"
    believes.write_text(PROGRAM.replace("said = []\n", believed).replace("sys.argv[1:]", "sys.argv[1:3]"))

    def error(*words: str) -> str:
        command = f"{mounted} && exec {sys.executable} {believes} owner/open main {' '.join(words)}"
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", command], env=settings(hub, tmp_path, XDG_CACHE_HOME=str(place)),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1])["error"]

    assert "owner/open needs 3.2 MiB more on the controller (5 % reserve included), and 1.0 MiB are free" in error()
    assert [name for name in models.sent if name.endswith(".safetensors")] == []
    assert "the controller's disk became full while owner/open was fetched: free some of it, or name" in error("roomy")
