# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the dashboard and the alert rules ask for is what hosts and vLLM say, by name and by label."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    engine_figures,
    exporter,
    watchdog_report,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry

TOP = Path(__file__).resolve().parents[3]
FILES = TOP / "roles/monitoring/files"
DASHBOARD = json.loads((FILES / "grafana-dashboard.json").read_text(encoding="utf-8"))
#: labels that the scrape configuration gives
TARGET = {"host", "group", "job"}
_SERIES = re.compile(r"\b(sparkthor_[a-z0-9_]+)(?:\{([^}]*)\})?")
STATE = {
    **{"state": "serving", "healthy": True, "since": 0.0, "restarts": {}, "answers": {"asked": 4, "right": 4}},
    **{"completion": {"latency": 0.2, "seconds_ago": 1.0}, "stall": {"seconds": 0.0, "allowed": 60.0}},
    "ranks": {"expected": {"10.0.0.1": "a"}},
}


def vllm_names() -> Iterator[str]:
    text = (TOP / "tests/fixtures/monitoring/vllm_metrics.txt").read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        name, kind = line.split()
        ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[kind]
        yield from (name + end for end in ends)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels by the name of each metric, of a head with everything that a host can have."""
    root = tmp_path_factory.mktemp("root")
    port = "sys/class/infiniband/rocep1s0f1/ports/1"
    for path, text in {
        "proc/meminfo": "MemTotal: 1 kB\nMemAvailable: 1 kB\nCached: 1 kB\nSwapTotal: 1 kB\nSwapFree: 1 kB\n",
        "proc/loadavg": "0.25 0 0 1/2 3\n",
        "proc/uptime": "12.5 1\n",
        "var/lib/sparkthor/x": "",
        "sys/class/net/p0/mtu": "9000\n",
        **{f"sys/class/net/p0/statistics/{way}_bytes": "7\n" for way in ("rx", "tx")},
        "sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable": "TOTAL_ERR_COR 4\n",
        f"{port}/rate": "200 Gb/sec (4X HDR)\n",
        f"{port}/state": "4: ACTIVE\n",
        **{f"{port}/{counter}": "1\n" for counter in exporter.PORT_COUNTERS},
        exporter.FIREWALL_RULES.lstrip("/"): "",
        exporter.places.DECLARED.lstrip("/"): '{"host": "a", "head": "a", "api_port": 8000}',
        exporter.gpu_state.LIMIT_UNIT.lstrip("/"): "ExecStart=nvidia-smi --lock-gpu-clocks=0,2000\n",
        exporter.places.OWN.metrics.lstrip("/"): watchdog_report.metrics_text(STATE, 1.0),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    host = exporter.ExportedHost(str(root), lambda argv: (0, "95.1, 88, 1650, 99, 0x40\n", ""), speeds={"p0": 200})
    host.front.take(b"<190>Nov 22 23:00:00 sparkthor_front: alice mini 200 0.100 5 6")
    engine = engine_figures.common_text("".join(f"{name} 1\n" for name in vllm_names()), registry.DEFAULT.metrics)
    found: dict[str, set[str]] = {line.split()[0]: {"le"} for line in engine.splitlines()}
    for line in host.page(["p0"]).splitlines():
        match = _SERIES.match(line)
        if match:
            found.setdefault(match[1], set()).update(re.findall(r'([a-z]+)="', match[2] or ""))
    return found


def asked() -> list[str]:
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    variables = [item["query"]["query"] for item in DASHBOARD["templating"]["list"] if item["type"] == "query"]
    rules = yaml.safe_load((FILES / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [*expressions, *variables, *(rule["expr"] for group in rules for rule in group["rules"])]


@pytest.mark.parametrize("expression", asked())
def test_it_asks_for_what_there_is(known: dict[str, set[str]], expression: str) -> None:
    series = _SERIES.findall(expression)
    assert series or expression.startswith(("up{", "label_values(up{")), expression
    labels = set(TARGET)
    for name, selected in series:
        assert name in known, name
        labels |= known[name]
        for label in re.findall(r"([a-z]+)(?:=~?|!=)", selected):
            assert label in known[name] | TARGET, f"{name} has no label {label}"
    for grouped in re.findall(r"\b(?:by|on) ?\(([a-z, ]+)\)", expression):
        assert set(grouped.split(", ")) <= labels, expression


def test_no_series_has_a_label_of_its_target(known: dict[str, set[str]]) -> None:
    """Prometheus would rename it, and alerts would name the host that was asked."""
    assert {name: labels & TARGET for name, labels in known.items() if labels & TARGET} == {}


def test_every_panel_has_a_place_and_heeds_what_was_chosen() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            selectors = [selected for _name, selected in _SERIES.findall(target["expr"])]
            assert all('group=~"$group"' in selected for selected in selectors), panel["title"]
            if "sparkthor_front_" in target["expr"]:
                assert all('key=~"$key"' in selected for selected in selectors), panel["title"]
