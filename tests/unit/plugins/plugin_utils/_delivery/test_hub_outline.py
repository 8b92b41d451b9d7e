# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of which the controller fetches the small files alone, by the hub's own client against a small hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import tqdm
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_card, hub_outline, models
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import MODELS, Record
from huggingface_hub.hf_api import HfApi

from tests.unit.hub_stand_in import COMMIT, Models, hub_of

SHARDS = {f"model-0000{number}-of-00002.safetensors": b"%d" % number * 4096 for number in (1, 2)}
SMALL = {"config.json": b"{}", "1_Pooling/config.json": b'{"a":1}', ".gitattributes": b"x"}
FETCHED = ["owner/tiny/1_Pooling/config.json", "owner/tiny/config.json"]


@pytest.fixture
def asked() -> Models:
    return Models({"owner/tiny": {**SMALL, **SHARDS}, "owner/words": {"config.json": b"{}"}}, frozenset())


@pytest.fixture(autouse=True)
def client(asked: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # a thread of the client's progress bars
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "theirs"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    fetch, whole = huggingface_hub.hf_hub_download, huggingface_hub.snapshot_download
    with hub_of(asked) as url:
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda token=None: HfApi(endpoint=url, token=token))
        monkeypatch.setattr(
            huggingface_hub, "hf_hub_download", lambda *args, **kwargs: fetch(*args, endpoint=url, **kwargs)
        )
        monkeypatch.setattr(
            huggingface_hub, "snapshot_download", lambda *args, **kwargs: whole(*args, endpoint=url, **kwargs)
        )
        yield huggingface_hub


def away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("the hub was asked")

    for name in ("HfApi", "hf_hub_download"):
        monkeypatch.setattr(huggingface_hub, name, refuse)


def test_small_files_come_and_large_ones_are_known_by_the_hubs_digest(
    asked: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub_outline.outline("owner/tiny", "main", fetch=False) is None
    found = hub_outline.outline("owner/tiny", "main", fetch=True)
    assert found is not None
    assert (found.commit, Path(found.folder).name, found.untouched) == (COMMIT, COMMIT, True)
    assert found.absent == [(name, 4096, hashlib.sha256(data).hexdigest()) for name, data in SHARDS.items()]
    assert sorted(asked.sent) == FETCHED
    away(monkeypatch)
    assert hub_outline.outline("owner/tiny", COMMIT, fetch=True) == found
    # a file of which a download left nothing, and one that it brought
    Path(found.folder, "model-00001-of-00002.safetensors").write_bytes(b"1" * 4096)
    half = hub_outline.outline("owner/tiny", COMMIT, fetch=False)
    assert half is not None
    assert ([entry.path for entry in half.absent], half.untouched) == (["model-00002-of-00002.safetensors"], False)
    Path(found.folder, "config.json").unlink()
    assert hub_outline.outline("owner/tiny", COMMIT, fetch=False) is None


def test_a_model_without_large_files_is_fetched_whole(asked: Models) -> None:
    assert hub_outline.outline("owner/words", "main", fetch=True) is None
    assert hub_outline.outline("/srv/models/tiny", "", fetch=True) is None


def test_what_came_whole_needs_no_outline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "whole", lambda *_given: "/cache/snapshots/c")
    assert hub_outline.outline("owner/tiny", COMMIT, fetch=True) is None


def test_the_manifest_is_that_of_the_whole_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [{"name": "tiny", "source": "owner/tiny", "revision": COMMIT}]
    thin = models.declare(given, fetch=True, outlines=True)
    away(monkeypatch)
    assert models.declare(given, fetch=False).models == thin.models
    whole = tmp_path / "whole"
    for name, data in {**SMALL, **SHARDS}.items():
        (whole / name).parent.mkdir(parents=True, exist_ok=True)
        (whole / name).write_bytes(data)
    monkeypatch.setattr(hub, "snapshot", lambda *_args, **_kwargs: (str(whole), COMMIT))
    thick = models.declare(given, fetch=True)
    assert thick.models == thin.models
    assert [row[0] for row in thin.models[0]["manifest"]] == sorted([*SHARDS, "1_Pooling/config.json", "config.json"])
    some = [{**given[0], "files": ["config.json", "model-00001-of-00002.safetensors"]}]
    thin_some = models.declare(some, fetch=True, outlines=True).models
    assert [row[0] for row in thin_some[0]["manifest"]] == some[0]["files"]
    assert models.declare(some, fetch=True).models == thin_some


def test_a_run_after_hosts_had_it_announces_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [{"name": "tiny", "source": "owner/tiny"}]
    record = Record(str(tmp_path))
    (first,) = hub_card.models_of(given, record).downloads
    assert (first.name, first.size) == ("tiny", 8192 + 10)
    hub_outline.outline("owner/tiny", COMMIT, fetch=True)
    record.keep(MODELS, "owner/tiny", COMMIT)
    away(monkeypatch)
    found = hub_card.models_of(given, record)
    assert (found.downloads, found.sizes) == ([], {"tiny": 8192 + 9})
