# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read from a cluster that serves and is well; faults are the scenarios ``verify`` and ``doctor``."""

from __future__ import annotations

from tests.integration.asking import SECONDS, ask
from tests.integration.conftest import Cluster
from tests.integration.verify.test_verify import failing, status, verify
from tools.playbooks import run_playbook


def test_status_shows_a_cluster_that_serves(cluster: Cluster, tmp_path) -> None:
    document, outcome = status(cluster, tmp_path)
    print(f"status: {outcome.seconds:.1f} s")
    assert document["problems"] == []
    assert document["ok"] is True
    assert document["serving"]["state"] == "serving"
    assert document["ray"]["present_nodes"] == len(cluster.hosts)


def test_verify_passes(cluster: Cluster, tmp_path) -> None:
    outcome, document = verify(cluster, tmp_path, "links,collective,ray,serving")
    print(f"verify: {outcome.seconds:.1f} s")
    assert outcome.rc == 0, outcome.failures
    assert failing(document) == []
    assert len(document["lines"]) > 20


def test_report_is_one_page_about_every_host(cluster: Cluster, tmp_path) -> None:
    path = tmp_path / "report.html"
    variables = {"report_path": str(path), "verify_folder": str(tmp_path)}
    outcome = run_playbook(
        "playbooks/report.yml", cluster.inventories, extra_vars=variables, name="report", say=lambda line: None
    )
    print(f"report: {outcome.seconds:.1f} s")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}
    page = path.read_text()
    assert all(host in page for host in cluster.hosts)


def test_doctor_finds_nothing(cluster: Cluster, tmp_path) -> None:
    answer = ask(cluster.inventories, tmp_path)
    print(f"doctor: {answer.seconds:.1f} s")
    assert answer.rc == 0, answer.output
    assert answer.doctor["findings"] == [], answer.output
    assert answer.changed == {"0"}
    assert answer.seconds < SECONDS
