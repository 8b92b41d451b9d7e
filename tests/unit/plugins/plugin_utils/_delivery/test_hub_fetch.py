# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of the hub a host fetches, and where the hub says that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_fetch

from tests.unit.hub_stand_in import COMMIT, Models, hub_of

SMALL, LARGE = Entry("config.json", 2, "1" * 64), Entry("model.safetensors", 1000, "7" * 64)
MODEL = {"name": "tiny", "source": "owner/tiny", "commit": COMMIT}


def need(*entries: Entry) -> list[dict[str, Any]]:
    return [{"sha256": entry.sha256, "size": entry.size, "have": 0} for entry in entries]


@pytest.mark.parametrize(
    ("how", "free", "there"),
    [("auto", 1049, True), ("auto", 1051, False), ("host", 1 << 40, True), ("controller", 0, False)],
)
def test_who_fetches_what_is_nowhere_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, free: int, there: bool
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(hub_fetch, "free_bytes", lambda _folder: free)
    found = hub_fetch.files_for_host(how, [MODEL], {"tiny": (str(tmp_path), [SMALL, LARGE])}, need(SMALL, LARGE))
    # the small file is on the controller, and sent
    wanted = [hub_fetch.HubFile("owner/tiny", COMMIT, LARGE.path, LARGE.sha256, LARGE.size)]
    assert found == (wanted if there else [])


def test_a_folder_of_the_controller_is_never_the_hubs(tmp_path: Path) -> None:
    model = {"name": "tiny", "source": str(tmp_path), "commit": ""}
    assert hub_fetch.files_for_host("host", [model], {"tiny": (str(tmp_path), [LARGE])}, need(LARGE)) == []


def test_the_hub_says_where_a_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_of(Models({"owner/tiny": {"model.safetensors": b"w" * 1000}})) as url:
        named = huggingface_hub.hf_hub_url
        monkeypatch.setattr(huggingface_hub, "hf_hub_url", lambda *a, **k: named(*a, endpoint=url, **k))
        file = hub_fetch.HubFile("owner/tiny", COMMIT, LARGE.path, LARGE.sha256, LARGE.size)
        assert hub_fetch.address(file) == f"{url}/owner/tiny/resolve/{COMMIT}/model.safetensors"
        with pytest.raises(hub.HubError, match="has 1000 bytes on the hub, not 999: run again"):
            hub_fetch.address(file._replace(size=999))
