# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the hub's own client left on a host is copied into the store, and only if it is what is wanted."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import hub_caches
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store

WEIGHTS = b"w" * 3_000_000
SHA = hashlib.sha256(WEIGHTS).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The cache of one of two users."""
    blobs = tmp_path / "home/ada/.cache/huggingface/hub/models--owner--tiny/blobs"
    blobs.mkdir(parents=True)
    (blobs / SHA).write_bytes(WEIGHTS)
    (blobs / ("0" * 64 + ".1a2b3c4d.incomplete")).write_bytes(b"half")
    (blobs / ("1" * 40)).write_text("{}")
    (tmp_path / "home/bob").mkdir()
    return blobs


def need(sha256: str = SHA, size: int = len(WEIGHTS)) -> dict[str, Any]:
    return {"sha256": sha256, "size": size, "have": 0}


def patterns(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "home/*/.cache/huggingface/hub"), str(tmp_path / "root/.cache/huggingface/hub")]


def test_large_files_are_known_by_their_names_and_half_ones_are_not(tmp_path: Path, cache: Path) -> None:
    assert hub_caches.blobs(patterns(tmp_path)) == {SHA: str(cache / SHA)}
    assert hub_caches.blobs([]) == {}


def test_models_are_named_with_their_bytes(tmp_path: Path, cache: Path) -> None:
    (cache / ("2" * 64)).write_bytes(b"another shard")
    assert hub_caches.sizes(patterns(tmp_path)) == {"owner/tiny": len(WEIGHTS) + 13}


def test_no_folder_of_anybody_s_gets_a_name_that_nobody_can_read_or_costs_every_run_its_time(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_caches, "_MODELS", 2, raising=False)
    for name in (b"a--\xff", b"a--\x1b[2J", b"a--" + b"b" * 240, b"z--1", b"z--2"):
        folder = os.path.join(os.fsencode(cache.parent.parent), b"models--" + name, b"blobs")
        os.makedirs(folder)
        (Path(os.fsdecode(folder)) / SHA).write_bytes(b"x")
    assert hub_caches.sizes(patterns(tmp_path)) == {"owner/tiny": len(WEIGHTS), "z/1": 1}


def test_a_home_that_does_not_answer_is_left_out(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away, real = threading.Event(), hub_caches.glob.glob

    def listed(pattern: str) -> list[str]:
        return real(pattern) if "/home/" in pattern else [str(away.wait())]

    monkeypatch.setattr(hub_caches.glob, "glob", listed)
    monkeypatch.setattr(hub_caches, "LIMIT", 1.0)
    assert hub_caches.blobs(patterns(tmp_path)) == {SHA: str(cache / SHA)}
    away.set()


def test_what_a_cache_has_need_not_be_sent_and_stays_its_users(tmp_path: Path, cache: Path, store: Store) -> None:
    before = os.stat(cache / SHA)
    taken = hub_caches.take(store.incoming, [need(), need("2" * 64, 5)], hub_caches.blobs(patterns(tmp_path)))
    assert taken == ({SHA}, len(WEIGHTS), [str(cache.parent.parent)])
    entries = [Entry("model.safetensors", len(WEIGHTS), SHA)]
    plan = store.plan("tiny", entries)
    assert plan.need == []
    store.commit("tiny", entries, plan.wrong)
    (cache / SHA).write_bytes(b"its user changes it")
    assert Path(store.folder("tiny"), "model.safetensors").read_bytes() == WEIGHTS
    assert (before.st_nlink, os.stat(cache / SHA).st_nlink) == (1, 1)


def test_room_that_a_broken_fan_out_took_is_given_back_first(tmp_path: Path, cache: Path, store: Store) -> None:
    for end in ("part", "have"):
        Path(store.incoming, f"{SHA}.{end}").write_bytes(b"x")
    hub_caches.take(store.incoming, [need()], hub_caches.blobs(patterns(tmp_path)))
    assert os.listdir(store.incoming) == [SHA]


@pytest.mark.parametrize("fault", ["other bytes", "other size", "link", "folder", "pipe", "not readable"])
def test_what_is_not_the_content_is_left_alone_and_has_to_be_sent(
    tmp_path: Path, cache: Path, store: Store, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = cache / SHA
    if fault == "other bytes":
        blob.write_bytes(b"v" * len(WEIGHTS))
    elif fault == "other size":
        blob.write_bytes(WEIGHTS + b"w")
    elif fault == "not readable":
        # root reads everything; over NFS it may not
        def refused(*_given: Any) -> int:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(hub_caches.files, "open_of_owner", refused)
    else:
        blob.unlink()
        if fault == "link":
            blob.symlink_to(tmp_path / "nowhere")
        elif fault == "folder":
            blob.mkdir()
        else:
            os.mkfifo(blob)
    taken = hub_caches.take(store.incoming, [need()], hub_caches.blobs(patterns(tmp_path)))
    assert taken == (set(), 0, [])
    assert os.listdir(store.incoming) == []
    assert [item["sha256"] for item in store.plan("tiny", [Entry("w", len(WEIGHTS), SHA)]).need] == [SHA]
