# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page brings along: unchanged, small, and asking nobody but its head."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    console_hands,
    console_service,
    front_config,
    last_checks,
    limits,
)

from tests.unit import planned_cluster, role_state

ROLE = Path(__file__).parents[3] / "roles" / "console"
PAGE = ROLE / "files" / "page"
_FIRST, CLUSTER, FABRIC, _NODES = planned_cluster.planned(["a", "b"], "direct")


def files() -> list[Path]:
    return sorted(path for path in PAGE.rglob("*") if path.is_file())


def test_every_file_of_the_page_is_put_on_the_head() -> None:
    (task,) = yaml.safe_load((ROLE / "tasks" / "configure.yml").read_text(encoding="utf-8"))
    listed = [file["src"] for file in task["sparkthor.cluster.host_state"]["files"] if "src" in file]
    assert sorted(listed) == [str(path.relative_to(ROLE / "files")) for path in files()]


def test_vendored_files_are_what_their_table_says() -> None:
    table = (PAGE / "vendor" / "LICENSES.txt").read_text(encoding="utf-8")
    digests = dict(re.findall(r"^(\w+\.js) .*?SHA-256 ([0-9a-f]{64})$", table, re.MULTILINE | re.DOTALL))
    assert sorted(digests) == ["preact.js", "smd.js"]
    for name, digest in digests.items():
        assert hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest() == digest
    for licence in ("MIT License", "Apache License", "Jason Miller", "Damian Tarnawski"):
        assert licence in table


def test_the_page_is_light() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in files() if path.suffix != ".txt"}
    assert sum(sizes.values()) < 60_000, sizes


def test_a_disk_is_full_where_status_and_the_doctor_say_so() -> None:
    text = (PAGE / "state.js").read_text(encoding="utf-8")
    match = re.search(r"export const LEFT = ([\d.]+), LITTLE = (\d+)$", text, re.MULTILINE)
    assert match
    assert (float(match[1]), int(match[2])) == (limits.DISK_LEFT, limits.DISK_BYTES)


def test_nothing_becomes_html_or_code_and_nothing_is_fetched_elsewhere() -> None:
    for path in files():
        if path.parent != PAGE:
            continue
        text = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, (path.name, word)
        assert not re.search(r"dangerouslySetInnerHTML|<script>|\son\w+=\"", text), path.name
        assert not re.findall(r"(?:src|href|from|import)\s*[=(]?\s*['\"]https?:", text), path.name
    assert not re.search(r"<style|style=", (PAGE / "index.html").read_text(encoding="utf-8"))


def test_a_page_that_is_not_wanted_is_removed() -> None:
    known = {"sparkthor_cluster": CLUSTER, "sparkthor_fabric": FABRIC, "inventory_hostname": "a"}
    known |= {"vllm_serve_api_port": 8000, "monitoring_exporter_port": 9835}
    wanted = role_state.state("console", **known)
    assert wanted["files"]
    for given in ({"console_enabled": False}, {"inventory_hostname": "b"}):
        assert role_state.state("console", **{**known, **given}) == {"files": []}
    (task,) = [
        one for one in yaml.safe_load((ROLE / "tasks" / "main.yml").read_text(encoding="utf-8")) if "when" in one
    ]
    removed = task["sparkthor.cluster.host_state"]
    assert task["when"] == "not __console_wanted"
    paths = [file["path"] for file in wanted["files"]]
    assert not [path for path in paths if not any(f"{path}/".startswith(f"{own}/") for own in removed["absent"])]
    assert [unit["name"] for unit in removed["units"]] == [unit["name"] for unit in wanted["units"]]
    # who was blocked is not let in again by that
    assert not [path for path in removed["absent"] if f"{front_config.BLOCKED}/".startswith(f"{path}/")]
    folder = Path(front_config.BLOCKED).parent
    kept = (
        console_hands.AUDIT,
        console_service.HISTORY,
        *(f"{folder}/{name}.json" for name in last_checks.read("/nowhere")),
    )
    assert set(kept) <= set(removed["absent"])
