# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import ranks

SECRET = "S3CRET-S3CRET-S3CRET"


def test_half_a_secret_at_the_cut_of_a_long_line_does_not_leave() -> None:
    text = "x" * 50 + SECRET + " " + "y" * 90
    for limit in range(80, 120):
        assert not set(ranks.newest(text, limit)) - {"y"}
    assert ranks.newest("z" * 500, 100) == ""


def test_the_end_of_a_long_text_begins_with_a_line() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    cut = ranks.newest(text, 100)
    assert len(cut) <= 100
    assert cut.startswith("line ")
    assert cut.endswith("line 999\n")


def process(root: Path, pid: int, command: str, environment: str = "", conf: str | None = None) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "cmdline").write_text(command)
    (folder / "environ").write_text(environment)
    (folder / "status").write_text(f"Name:\tx\nUid:\t{os.getuid()}\t{os.getuid()}\n")
    (folder / "limits").write_text("Max locked memory         unlimited            65536    bytes\n")
    if conf is not None:
        (folder / "root/etc").mkdir(parents=True)
        (folder / "root/etc/nccl.conf").write_text(conf)


def test_a_rank_is_told_with_its_network_and_the_file_that_it_sees(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text("NCCL_DEBUG=WARN\n")
    process(tmp_path, 7, "/opt/x/raylet\0--x\0", f"NCCL_IB_HCA=a\0HF_TOKEN={SECRET}\0", "NCCL_DEBUG=WARN\n")
    process(tmp_path, 8, "ray::Worker\0", "", "NCCL_IB_DISABLE=1\n")
    process(tmp_path, 9, "/bin/bash\0")
    seen = ranks.RankReader(str(tmp_path)).processes()
    assert [(one["pid"], one["program"], one["memlock"]) for one in seen] == [(7, "raylet", -1), (8, "worker", -1)]
    assert seen[0]["env"] == {"NCCL_IB_HCA": "a"}
    assert "nccl_conf" not in seen[0]
    assert seen[1]["nccl_conf"] == {"NCCL_IB_DISABLE": "1"}
    assert SECRET not in str(seen)


@pytest.mark.parametrize(("capabilities", "memlock"), [("00000000a80425fb", 65536), ("00000000a80465fb", -1)])
def test_a_process_that_may_lock_all_memory_has_no_limit(tmp_path: Path, capabilities: str, memlock: int) -> None:
    """The capabilities of a container of Docker's, without and with --cap-add IPC_LOCK."""
    process(tmp_path, 8, "ray::Worker\0")
    (tmp_path / "proc/8/limits").write_text("Max locked memory         65536                65536    bytes\n")
    (tmp_path / "proc/8/status").write_text(f"Uid:\t0\t0\nCapEff:\t{capabilities}\n")
    assert [one["memlock"] for one in ranks.RankReader(str(tmp_path)).processes()] == [memlock]


def test_nccls_files_of_the_host_are_read_where_they_are(tmp_path: Path) -> None:
    assert ranks.RankReader(str(tmp_path)).nccl() == {}
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text("NCCL_DEBUG=WARN\n NCCL_IB_DISABLE=1\n")
    found = ranks.RankReader(str(tmp_path)).nccl()
    assert found["/etc/nccl.conf"]["settings"]["NCCL_DEBUG"] == "WARN"


def test_a_part_that_breaks_is_an_error_and_no_end(tmp_path: Path) -> None:
    reader = ranks.RankReader(str(tmp_path))
    assert reader.part("odd", lambda: 1 // 0, {}) == {}
    assert reader.errors == ["odd: ZeroDivisionError: integer division or modulo by zero"]
