# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    StoreError,
    parse_manifest,
    parse_store_links,
)

from tests.unit.stores import entries


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "a//b", "", ".", "a/.", "a\0b"])
def test_a_path_may_not_leave_its_folder(path: str) -> None:
    with pytest.raises(StoreError, match="does not stay inside"):
        parse_manifest([[path, 1, "0" * 64]])


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [["a", 1, "0" * 63]],
        [["a", -1, "0" * 64]],
        [["a", 1, "0" * 64]] * 2,
        [["a", 1, "0" * 64], ["a/b", 1, "1" * 64]],
    ],
)
def test_bad_manifests(rows: list[list[Any]]) -> None:
    with pytest.raises(StoreError):
        parse_manifest(rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["x", "/etc/passwd"], "not a file of the same folder"),
        (["x", "../other/y"], "not a file of the same folder"),
        (["x", "nowhere"], "not a file of the same folder"),
        (["../x", "config.json"], "does not stay inside"),
        (["/x", "config.json"], "does not stay inside"),
        (["config.json", "sub/weights-1"], "occurs twice"),
        (["config.json/x", "../config.json"], "both a file and a folder"),
    ],
)
def test_links_that_lead_elsewhere_are_refused(row: list[str], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        parse_store_links([row], entries())
