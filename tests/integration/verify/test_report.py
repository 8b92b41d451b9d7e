# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report in a real headless browser: of this lab, and of three captured shapes of cluster."""

from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page as _report

from tests.integration.conftest import TOP, Cluster
from tools import browser
from tools.playbooks import run_playbook

SHAPES = ("3spark_ring", "4spark", "2spark_2thor")


def sound(page, width, dark):
    seen = browser.inspect(page, width, dark)
    probe = seen.probe
    assert seen.console == []
    assert probe["requests"] == []
    assert probe["dark"] is dark
    assert probe["width"] == width
    assert probe["page"] <= width
    assert len(probe["texts"]) > 30
    assert [item for item in probe["texts"] if item["ratio"] < 4.5] == []
    return probe


def overlaps(labels):
    """Pairs of words in the drawing that lie on each other."""
    found = []
    for index, label in enumerate(labels):
        for other in labels[index + 1 :]:
            apart = (
                label["x"] + label["w"] <= other["x"]
                or other["x"] + other["w"] <= label["x"]
                or label["y"] + label["h"] <= other["y"] + 2
                or other["y"] + other["h"] <= label["y"] + 2
            )
            if not apart:
                found.append((label["text"], other["text"]))
    return found


@pytest.fixture(scope="module", params=SHAPES)
def page(request, tmp_path_factory):
    data = json.loads((TOP / f"tests/fixtures/report/{request.param}.json").read_text())
    path = tmp_path_factory.mktemp("report") / f"{request.param}.html"
    path.write_text(_report.page(data["status"], data["runs"], data["doctor"], data["memory"], data["why"]))
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_a_captured_shape_reads_well(page, width, dark):
    probe = sound(page, width, dark)
    assert overlaps(probe["labels"]) == []


def test_a_captured_shape_prints(page, tmp_path):
    target = tmp_path / "page.pdf"
    browser.printed(page, target)
    assert target.read_bytes().startswith(b"%PDF")
    assert target.stat().st_size > 20000


def report(cluster: Cluster, folder, **more):
    return run_playbook(
        "playbooks/report.yml",
        cluster.inventories,
        extra_vars={"report_path": str(folder / "report.html"), "verify_folder": str(folder), **more},
        name="report",
        say=lambda line: None,
    )


def test_this_lab(cluster, tmp_path):
    outcome = report(cluster, tmp_path)
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}
    path = tmp_path / "report.html"
    probe = sound(path, 1200, False)
    words = " ".join(item["text"] for item in probe["texts"])
    for host in cluster.hosts:
        assert host in words
    assert "KV cache" in words
    assert 'class="broken"' not in path.read_text()
    print(f"report: {outcome.seconds:.1f} s")


def test_a_cut_half_is_red(cluster, tmp_path):
    second = cluster.hosts[1]
    cluster.lab.cut(second, "enP2p1s0f1np1")
    try:
        outcome = report(cluster, tmp_path)
    finally:
        cluster.lab.fix(second, "enP2p1s0f1np1")
    assert outcome.rc == 0, outcome.failures
    text = (tmp_path / "report.html").read_text()
    assert text.count('class="broken"') == 1
    assert "half 1: no carrier" in text


@pytest.mark.parametrize("content", ["{torn", "[]", None])
def test_a_diagnosis_that_is_none_is_named(cluster, tmp_path, content):
    path = tmp_path / "doctor.json"
    if content is not None:
        path.write_text(content)
    outcome = report(cluster, tmp_path, report_doctor=str(path))
    assert outcome.rc != 0
    assert "report_doctor" in " ".join(outcome.failures)
    assert "Traceback" not in outcome.output
