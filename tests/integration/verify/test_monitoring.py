# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The monitoring role: figures from every host, files that promtool accepts, rules that fire, nothing left behind."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import httpx
import pytest
import yaml

from tests.integration.conftest import TOP, Cluster
from tests.integration.sites import within
from tools.playbooks import run_playbook

FILES = TOP / "roles/monitoring/files"
PORT = 9835


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    """Debian's promtool. It is one file, and to install its package would start a server here."""
    if found := shutil.which("promtool"):
        return found
    folder = tmp_path_factory.mktemp("prometheus")
    fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", "prometheus"]
    if subprocess.run(fetch, cwd=folder, timeout=600, check=False).returncode:
        subprocess.run(["apt-get", "-q", "update"], timeout=600, check=True)
        subprocess.run(fetch, cwd=folder, timeout=600, check=True)
    [package] = folder.glob("*.deb")
    subprocess.run(["dpkg", "-x", package, folder], timeout=120, check=True)
    return str(folder / "usr/bin/promtool")


@pytest.fixture(scope="module")
def promtool(binary):
    def run(*arguments, cwd=FILES):
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, cwd=cwd, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def play(cluster: Cluster, playbook="playbooks/monitoring.yml", tags=(), **variables):
    outcome = run_playbook(
        playbook,
        cluster.inventories,
        extra_vars=variables,
        arguments=["--tags", ",".join(tags)] if tags else (),
        name="monitoring",
        say=lambda line: None,
    )
    assert outcome.rc == 0, outcome.failures
    return outcome


def test_the_rules_hold_and_fire(promtool):
    promtool("check", "rules", "alerts.yml")
    promtool(
        "test", "rules", str(TOP / "tests/fixtures/monitoring/alerts_test.yml"), cwd=TOP / "tests/fixtures/monitoring"
    )


def test_prometheus_understands_what_the_dashboard_asks(promtool, tmp_path):
    panels = json.loads((FILES / "grafana-dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    # what Grafana puts in
    for variable, value in {"$__rate_interval": "5m", "$group": ".*", "$key": ".*"}.items():
        asked = [expression.replace(variable, value) for expression in asked]
    rules = [{"record": f"asked:{number}", "expr": expression} for number, expression in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", "asked.yml", cwd=tmp_path)


def test_by_default_hosts_have_the_exporters_alone_which_the_page_reads(cluster):
    assert sum(play(cluster).changed.values()) == 0
    for host in cluster.hosts:
        assert cluster.run(host, "systemctl is-active sparkthor-exporter").strip() == "active"
        assert cluster.run(host, "ls -d /etc/sparkthor/monitoring", check=False) == ""


@pytest.fixture(scope="module")
def watched(cluster):
    outcome = play(cluster, monitoring_enabled=True)
    assert outcome.changed == {host: int(host == cluster.head) for host in cluster.hosts}
    return cluster


def test_every_host_has_figures(watched):
    for index, host in enumerate(watched.hosts, 1):
        text = watched.run(
            watched.head, f"curl -sf --retry 10 --retry-connrefused http://10.100.0.{index}:{PORT}/metrics"
        )
        assert 'sparkthor_link_up{netdev="enp1s0f1np1",planned="yes"} 1' in text
        assert "sparkthor_rdma_port_transmit_bytes_total" in text
        assert ("sparkthor_serving_healthy 1" in text) == (host == watched.head)
    engine = watched.run(watched.head, f"curl -sf http://127.0.0.1:{PORT}/metrics/engine")
    assert "vllm:num_requests_running" in engine


def test_promtool_likes_what_is_exported(watched, binary):
    text = watched.run(watched.head, f"curl -sf http://127.0.0.1:{PORT}/metrics")
    done = subprocess.run([binary, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr  # 3: lint remarks, of which none may be about the format
    assert "error" not in done.stderr.lower().replace("_errors", "")


def test_the_scrape_configuration_names_every_host(watched, promtool, tmp_path):
    folder = "/etc/sparkthor/monitoring"
    for name in ("prometheus.yml", "alerts.yml", "grafana-dashboard.json"):
        (tmp_path / name).write_text(watched.run(watched.head, f"cat {folder}/{name}"))
    promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    jobs = {job["job_name"]: job for job in yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]}
    assert set(jobs) == {"sparkthor", "vllm", "ray"}
    for name in ("sparkthor", "ray"):
        assert [entry["labels"]["host"] for entry in jobs[name]["static_configs"]] == watched.hosts
    for job in jobs.values():
        for entry in job["static_configs"]:
            path = job.get("metrics_path", "/metrics")
            watched.run(watched.head, f"curl -sf -o /dev/null http://{entry['targets'][0]}{path}")


def test_who_asked_is_counted(watched):
    """By the name of the key, from the first request on, without a reload of the front proxy."""

    def counted(key: str, status: int) -> bool:
        text = watched.run(watched.head, f"curl -sf http://127.0.0.1:{PORT}/metrics")
        assert watched.api_key not in text
        return (
            re.search(rf'^sparkthor_front_requests_total{{key="{key}",.*status="{status}"}} 1$', text, re.M) is not None
        )

    for key, name, status in ((watched.api_key, "default", 200), ("no-key-of-this-cluster", "-", 401)):
        answer = httpx.get(f"{watched.endpoint}/v1/models", headers={"Authorization": f"Bearer {key}"}, timeout=60.0)
        assert answer.status_code == status
        within(30, lambda name=name, status=status: counted(name, status))


def test_the_dashboard_asks_for_metrics_that_exist(watched):
    head = watched.run(watched.head, f"curl -sf http://127.0.0.1:{PORT}/metrics")
    known = head + watched.run(watched.head, f"curl -sf http://127.0.0.1:{PORT}/metrics/engine")
    dashboard = json.loads((FILES / "grafana-dashboard.json").read_text())
    # hw_counters and GPUs are the hardware's; nobody counts tokens here
    hardware = ("sparkthor_rdma_port_ack_timeouts_total", "sparkthor_gpu_", "sparkthor_front_")
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            for name in re.findall(r"\bsparkthor_[a-z0-9_]+", target["expr"]):
                assert name in known or name.startswith(hardware), name


def test_strangers_are_kept_out(watched):
    """The management network is not the fabric: the exporter listens elsewhere."""
    for index, host in enumerate(watched.hosts, 1):
        rows = watched.run(host, f"ss -Hltn sport = :{PORT}").splitlines()
        assert sorted(row.split()[3] for row in rows) == [f"10.100.0.{index}:{PORT}", f"127.0.0.1:{PORT}"]


def test_a_second_run_changes_nothing(watched):
    assert sum(play(watched, monitoring_enabled=True).changed.values()) == 0


def test_teardown_leaves_nothing(watched):
    play(watched, "playbooks/teardown.yml", teardown_parts="monitoring", teardown_acknowledged=True)
    for host in watched.hosts:
        assert (
            watched.run(host, "ls -d /etc/sparkthor/monitoring /usr/local/lib/sparkthor/*exporter*", check=False) == ""
        )
        assert watched.run(host, f"ss -Hltn sport = :{PORT}") == ""
    assert (
        sum(
            play(
                watched, "playbooks/teardown.yml", teardown_parts="monitoring", teardown_acknowledged=True
            ).changed.values()
        )
        == 0
    )
