# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing there, half of it there, logs of any kind: an answer in time, never a traceback."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.asking import SECONDS, TOP, ask

FIXTURES = TOP / "tests" / "fixtures" / "doctor"
LINES = {case["name"]: case for case in yaml.safe_load((FIXTURES / "logs.yml").read_text())}


def healthy(lines: int) -> str:
    start, again = (FIXTURES / "healthy.log").read_text().split("=== from here on again and again ===\n")
    return start + again * (lines // again.count("\n") + 1)


def sound(answer: Any) -> Any:
    assert not answer.traceback, answer.output
    assert answer.changed == {"0"}, answer.output
    assert answer.seconds < SECONDS
    assert answer.doctor, answer.output
    return answer


def test_no_cluster_at_all(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {}}\n")
    answer = ask([inventory], tmp_path)
    assert answer.rc != 0
    assert "Nothing was changed: " in answer.output
    assert answer.doctor == {}


def test_a_cluster_of_addresses_that_nobody_has(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    hosts = {f"spark-0{number}": {"ansible_host": f"192.0.2.{number}"} for number in (1, 2)}
    cluster = {"children": {"ray_head": {"hosts": {"spark-01": hosts["spark-01"]}}}}
    cluster["children"]["ray_workers"] = {"hosts": {"spark-02": hosts["spark-02"]}}
    variables = {"fabric_topology": "direct", "fabric_cidr": "10.100.0.0/16", "ansible_timeout": 10}
    inventory.write_text(yaml.safe_dump({"cluster": {**cluster, "vars": variables}}))
    answer = sound(ask([inventory], tmp_path))
    assert answer.places == [("host-unreachable", ("spark-01",)), ("host-unreachable", ("spark-02",))]
    print(f"\nnobody there: {answer.seconds:.1f} s")


def test_an_inventory_without_its_variables(tmp_path: Path, cluster: Any) -> None:
    overlay = yaml.safe_load(cluster.inventories[1].read_text())
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(cluster.inventories[0].joinpath("hosts.yml").read_text())
    other = tmp_path / "overlay.yml"
    other.write_text(yaml.safe_dump(overlay))
    answer = sound(ask([inventory, other], tmp_path))
    assert answer.rules == ["plan-contradicted"], answer.output


def logs_only(tmp_path: Path, folder: Path, *arguments: str) -> Any:
    """No inventory, and nobody to contact."""
    nobody = tmp_path / "nobody.yml"
    nobody.write_text("all: {hosts: {}}\n")
    return sound(ask([nobody], tmp_path, "--extra-vars", f"doctor_logs={folder}", *arguments))


def test_logs_that_somebody_sent(tmp_path: Path) -> None:
    folder = tmp_path / "sent"
    (folder / "box-2").mkdir(parents=True)
    (folder / "box-1.log").write_text(healthy(10_000))
    (folder / "box-2" / "vllm.log").write_text(healthy(10_000) + LINES["fp8_block"]["text"])
    with gzip.open(folder / "box-2" / "raylet.out.gz", "wt") as packed:
        packed.write(healthy(1000) + LINES["ray_memory_monitor"]["text"])
    answer = logs_only(tmp_path, folder)
    assert answer.places == [("fp8-block-indivisible", ("box-2",)), ("ray-memory-monitor", ("box-2",))]
    assert answer.doctor["mode"] == "logs"
    assert answer.doctor["summary"]["lines"] > 20_000
    print(f"\n{answer.doctor['summary']['lines']} lines: {answer.seconds:.1f} s")


def test_ten_thousand_lines_of_noise(tmp_path: Path) -> None:
    folder = tmp_path / "noise"
    folder.mkdir()
    (folder / "vllm.log").write_text(healthy(10_000))
    answer = logs_only(tmp_path, folder)
    assert answer.doctor["findings"] == [], answer.output
    print(f"\nnoise: {answer.seconds:.1f} s, of which judging {answer.doctor['summary']['seconds']} s")


def test_bytes_that_are_no_log(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "core.bin").write_bytes(os.urandom(1 << 20))
    (folder / "random.log").write_bytes(os.urandom(1 << 20))
    (folder / "broken.gz").write_bytes(b"\x1f\x8b" + os.urandom(1000))
    (folder / "latin.log").write_bytes("Gerät läuft\n".encode("latin-1") * 1000)
    (folder / "utf16.log").write_text(LINES["heads_indivisible"]["text"], encoding="utf-16")
    (folder / "empty.log").write_text("")
    (folder / "long.log").write_text("x" * 5_000_000)
    (folder / "loop").symlink_to(folder)
    (folder / "gone.log").symlink_to(tmp_path / "nowhere")
    answer = logs_only(tmp_path, folder)
    assert answer.rules == ["heads-indivisible"], answer.output
    notes = "\n".join(answer.doctor["notes"])
    assert "broken.gz cannot be read" in notes
    assert "gone.log is no plain file and was not read" in notes
    assert "random.log is not text" in notes


@pytest.mark.parametrize("make", ["nothing", "empty"])
def test_no_logs(tmp_path: Path, make: str) -> None:
    folder = tmp_path / "none"
    if make == "empty":
        folder.mkdir()
    answer = logs_only(tmp_path, folder)
    assert answer.doctor["findings"] == []
    assert len(answer.doctor["notes"]) == 1


def test_the_exit_status_is_for_ci_only_where_it_was_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "sent"
    folder.mkdir()
    (folder / "a.log").write_text(LINES["sockets_instead_of_rdma"]["text"])
    (folder / "b.log").write_text(LINES["plasma_in_tmp"]["text"])
    assert logs_only(tmp_path, folder).rc == 0
    assert logs_only(tmp_path, folder, "--extra-vars", "doctor_fail_on=error").rc == 2
    (folder / "a.log").unlink()
    assert logs_only(tmp_path, folder, "--extra-vars", "doctor_fail_on=error").rc == 0
    assert logs_only(tmp_path, folder, "--extra-vars", "doctor_fail_on=warning").rc == 2


def test_a_hundred_thousand_lines(tmp_path: Path) -> None:
    folder = tmp_path / "much"
    folder.mkdir()
    (folder / "vllm.log").write_text(healthy(100_000) + LINES["ptxas_sm_121a"]["text"])
    begun = time.monotonic()
    answer = logs_only(tmp_path, folder)
    assert answer.rules == ["ptxas-too-old"]
    print(f"\n100,000 lines: {time.monotonic() - begun:.1f} s, judging {answer.doctor['summary']['seconds']} s")
