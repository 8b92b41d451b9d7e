# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub

COMMIT = "c" * 40


class Client:
    """The hub's client: what is here already, and what the hub says when it is asked."""

    utils = SimpleNamespace(tqdm=object)

    def __init__(self, here: bool = False, error: Exception | None = None) -> None:
        self.here = here
        self.error = error
        self.asked: list[bool] = []

    def HfApi(self, token: str | None = None) -> Client:
        return self

    def model_info(self, repo: str, revision: str | None) -> Any:
        return SimpleNamespace(sha=COMMIT)

    def list_repo_tree(self, repo: str, revision: str, recursive: bool) -> list[Any]:
        if self.error:
            raise self.error
        sizes = {"config.json": 2, "model.safetensors": 4096}
        return [SimpleNamespace(path=name, size=size, lfs=None, blob_id=name) for name, size in sizes.items()]

    def try_to_load_from_cache(self, repo: str, name: str, cache_dir: str, revision: str | None) -> str | None:
        path = Path(cache_dir, "models--x/snapshots", COMMIT, name)
        return str(path) if path.exists() else None

    def snapshot_download(
        self,
        repo: str,
        revision: Any,
        cache_dir: str,
        ignore_patterns: tuple[str, ...],
        local_files_only: bool = False,
        dry_run: bool = False,
        token: str | None = None,
        tqdm_class: Any = None,
    ) -> Any:
        if dry_run:
            files = {"config.json": 2, "model.safetensors": 4096}
            here = {name: self.try_to_load_from_cache(repo, name, cache_dir, revision) for name in files}
            return [SimpleNamespace(file_size=files[name], will_download=not here[name]) for name in files]
        self.asked.append(local_files_only)
        if local_files_only and not self.here:
            raise FileNotFoundError(repo)
        folder = Path(cache_dir, "models--x/snapshots", COMMIT)
        folder.mkdir(parents=True, exist_ok=True)
        # a download that breaks off leaves its first file
        (folder / "config.json").touch()
        if not local_files_only:
            (folder / "model.safetensors").touch()
            self.here = True
        return str(folder)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_model_is_fetched_and_its_commit_is_known() -> None:
    folder, commit = hub.snapshot("owner/model", "main", "m", True, hub=Client())
    assert commit == COMMIT
    assert str(folder).endswith(COMMIT)


def test_a_commit_that_is_here_is_not_asked_for_again() -> None:
    client = Client()
    for _time in range(3):
        assert hub.snapshot("owner/model", COMMIT, "m", True, hub=client)[1] == COMMIT
    assert client.asked.count(False) == 1


def test_half_a_download_is_not_taken_for_the_model() -> None:
    """Clients differ: some give out any folder that is there when they must not ask."""
    broken = Client(here=True, error=ConnectionError("reset"))
    with pytest.raises(hub.HubError, match=r"could not be fetched: .*give that folder as the source"):
        hub.snapshot("owner/model", COMMIT, "m", True, hub=broken)
    assert hub.snapshot("owner/model", COMMIT, "m", False, hub=broken) == (None, "")
    client = Client(here=True)
    folder, _commit = hub.snapshot("owner/model", COMMIT, "m", True, hub=client)
    assert client.asked.count(False) == 1
    assert sorted(path.name for path in Path(str(folder)).iterdir() if not path.name.startswith(".")) == [
        "config.json",
        "model.safetensors",
    ]
    # a file of it was removed since: the client fetches it again
    Path(str(folder), "model.safetensors").unlink()
    hub.snapshot("owner/model", COMMIT, "m", True, hub=client)
    assert client.asked.count(False) == 2


def test_a_branch_is_resolved_again_because_it_may_have_moved() -> None:
    client = Client(here=True)
    hub.snapshot("owner/model", "main", "m", True, hub=client)
    assert client.asked.count(False) == 1


def test_without_the_hub_what_came_whole_before_will_do() -> None:
    client = Client()
    folder, _commit = hub.snapshot("owner/model", "main", "m", True, hub=client)
    client.error = type("ConnectError", (Exception,), {})("no route")
    assert hub.snapshot("owner/model", "main", "m", True, hub=client) == (folder, COMMIT)


def test_check_mode_fetches_nothing() -> None:
    client = Client()
    assert hub.snapshot("owner/model", "main", "m", False, hub=client) == (None, "")
    assert False not in client.asked


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("GatedRepoError", r"gated and no token was given: .*HF_TOKEN"),
        ("RevisionNotFoundError", "no revision 'main'"),
        ("RepositoryNotFoundError", "the hub has no owner/model"),
        ("OSError", "could not be fetched: OSError"),
    ],
)
def test_what_the_hub_refuses_is_explained(kind: str, message: str) -> None:
    error = type(kind, (Exception,), {})("no")
    with pytest.raises(hub.HubError, match=message):
        hub.snapshot("owner/model", "main", "m", True, hub=Client(error=error))


@pytest.mark.parametrize("source", ["model", "a/b/c", "../x", "owner/", "https://example.org/x"])
def test_what_is_neither_folder_nor_id(source: str) -> None:
    with pytest.raises(hub.HubError, match="neither a folder"):
        hub.snapshot(source, "", "m", True, hub=Client())


def test_a_controller_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(hub.importlib, "import_module", missing)
    with pytest.raises(hub.HubError, match="huggingface_hub on the controller"):
        hub.snapshot("owner/model", "main", "m", True)


def test_a_full_disk_is_told_before_a_byte_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "free_bytes", lambda _path: 4000)
    client = Client()
    with pytest.raises(hub.HubError, match=r"owner/model needs 4\.2 KiB more on the controller .* 3\.9 KiB are free"):
        hub.snapshot("owner/model", "main", "m", True, hub=client)
    assert False not in client.asked


def test_what_is_left_out_beside_safetensors() -> None:
    names = ["config.json", "model.safetensors", "original/x.pth", "consolidated.safetensors", "2_Dense/a.safetensors"]
    assert hub.wanted(names) == ["config.json", "model.safetensors", "2_Dense/a.safetensors"]
    assert hub.wanted(["config.json", "pytorch_model.bin"]) == ["config.json", "pytorch_model.bin"]
    # Mistral's own form is another form of the same weights, unless it is the only one
    own = ["params.json", "consolidated-00001-of-00001.safetensors", "consolidated.safetensors.index.json"]
    assert hub.wanted([*own, "consolidated.00.pth", "pytorch_model.bin"]) == own
    assert hub.wanted([*own, "model.safetensors"]) == ["params.json", "model.safetensors"]
