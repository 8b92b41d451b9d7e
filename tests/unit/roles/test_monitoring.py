# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import answers
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_config import DEFAULT_PORTS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import onhost

from tests.unit import planned_cluster, role_state

HOSTS = ["a", "b"]
_FIRST, CLUSTER, FABRIC, _NODES = planned_cluster.planned(HOSTS, "direct")
UNITS = "/etc/systemd/system"


def planned(host: str = "a", **given: Any) -> dict[str, Any]:
    known = {"sparkthor_cluster": CLUSTER, "sparkthor_fabric": FABRIC, "monitoring_enabled": True}
    state = role_state.state("monitoring", **{**known, "inventory_hostname": host, **given})
    Wanted.parse(state)
    return state


def texts(state: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in state["files"]}


def test_a_worker_has_its_exporter_and_no_server() -> None:
    plan = planned("b", monitoring_prometheus="yes")
    (unit,) = texts(plan).values()
    assert f"is a change of this unit: {onhost.program_digest('exporter')}\n" in unit
    assert "--listen 127.0.0.1:9835" in unit
    assert [item["name"] for item in plan["units"]] == [
        "sparkthor-exporter.service",
        "sparkthor-prometheus.service",
    ]
    assert plan["units"][1] == {
        **{"name": "sparkthor-prometheus.service", "enabled": False, "state": "stopped", "optional": True}
    }


def test_off_means_not_managed() -> None:
    assert planned(monitoring_enabled="false", console_enabled=False) == {"files": []}


def test_the_page_alone_needs_the_exporter_and_leaves_a_prometheus_of_before_alone() -> None:
    plan = planned(monitoring_enabled=False)
    assert list(texts(plan)) == [f"{UNITS}/sparkthor-exporter.service"]
    assert [unit["name"] for unit in plan["units"]] == ["sparkthor-exporter.service"]
    assert not plan.get("restore")


def test_the_teardown_takes_all_of_it_back() -> None:
    folder = "/srv/grafana"
    wanted = planned(monitoring_prometheus=True, monitoring_grafana_provisioning=folder)
    undo = role_state.undone("monitoring", monitoring_grafana_provisioning=folder)
    gone = [path for path in texts(wanted) if path.startswith(tuple(f"{own}/" for own in undo["absent"]))]
    assert set(texts(wanted)) - set(gone) <= set(undo["restore"])
    assert {unit["name"] for unit in wanted["units"]} == {unit["name"] for unit in undo["units"]}
    assert all((unit["enabled"], unit["state"]) == (False, "stopped") for unit in undo["units"])


def test_the_exporter_listens_on_the_control_address_of_its_host() -> None:
    for host in HOSTS:
        unit = texts(planned(host, monitoring_exporter_port="9000"))[f"{UNITS}/sparkthor-exporter.service"]
        assert f"--listen {FABRIC[host]['control_address']}:9000" in unit
        assert "--planned " + ",".join(link["netdev"] for link in FABRIC[host]["links"]) in unit
        assert "  --kind spark \\\n  --speeds enp1s0f1np1=200,enP2p1s0f1np1=200 \\\n  --planned " in unit


def test_the_head_knows_every_host() -> None:
    plan = planned(ray_node_ports={"metrics_export": 7000}, monitoring_scrape_interval="5s")
    found = texts(plan)
    assert set(found) == {
        f"{UNITS}/sparkthor-exporter.service",
        *(f"/etc/sparkthor/monitoring/{name}" for name in ("prometheus.yml", "alerts.yml", "grafana-dashboard.json")),
    }
    config = yaml.safe_load(found["/etc/sparkthor/monitoring/prometheus.yml"])
    assert config["global"]["scrape_interval"] == "5s"
    jobs = {job["job_name"]: job["static_configs"] for job in config["scrape_configs"]}
    assert [item["targets"] for item in jobs["ray"]] == [[f"{FABRIC[host]['control_address']}:7000"] for host in HOSTS]
    assert [item["labels"]["host"] for item in jobs["sparkthor"]] == HOSTS
    assert jobs["vllm"][0]["targets"] == [f"{CLUSTER['head_address']}:9835"]


def test_one_group_is_named_as_all_hosts_are() -> None:
    config = yaml.safe_load(texts(planned())["/etc/sparkthor/monitoring/prometheus.yml"])
    found = [item["labels"]["group"] for job in config["scrape_configs"] for item in job["static_configs"]]
    assert set(found) == {"cluster"}


def test_every_head_knows_the_hosts_of_all_groups() -> None:
    groups = [{"group": "big", "head": "a", "hosts": ["a"]}, {"group": "small", "head": "b", "hosts": ["b"]}]
    for head in HOSTS:
        cluster = {**CLUSTER, "head": head, "hosts": [head], "groups": groups}
        found = texts(planned(head, sparkthor_cluster=cluster))
        config = yaml.safe_load(found["/etc/sparkthor/monitoring/prometheus.yml"])
        wanted = [
            {"targets": [f"{FABRIC[host]['control_address']}:9835"], "labels": {"host": host, "group": group}}
            for host, group in (("a", "big"), ("b", "small"))
        ]
        assert [job["static_configs"] for job in config["scrape_configs"][:2]] == [wanted, wanted]


def test_only_the_head_is_told_who_asked_for_what() -> None:
    unit = texts(planned("a"))[f"{UNITS}/sparkthor-exporter.service"]
    assert " --front /run/sparkthor-exporter/front.sock\n" in unit
    # the socket is for the group of the front proxy, in a folder that systemd makes
    assert "\nGroup=sparkthor-api\nRuntimeDirectory=sparkthor-exporter\n" in unit
    assert planned("a")["groups"] == [{"name": "sparkthor-api", "system": True}]
    assert "front" not in texts(planned("b"))[f"{UNITS}/sparkthor-exporter.service"]
    assert planned("b")["groups"] == []


def test_a_grafana_on_the_head_is_provided_if_it_is_named() -> None:
    folder = "/srv/grafana/provisioning"
    plan = planned(monitoring_grafana_provisioning=f"{folder}/", monitoring_prometheus=True)
    provider = yaml.safe_load(texts(plan)[f"{folder}/dashboards/sparkthor.yml"])["providers"][0]
    # Grafana reads every *.json there
    assert f"{provider['options']['path']}/grafana-dashboard.json" in texts(plan)
    source = yaml.safe_load(texts(plan)[f"{folder}/datasources/sparkthor.yml"])["datasources"][0]
    assert source["url"] == "http://127.0.0.1:9090"
    # without a Prometheus of ours the owner has a source of their own
    alone = planned(monitoring_grafana_provisioning=folder)
    assert f"{folder}/dashboards/sparkthor.yml" in texts(alone)
    assert f"{folder}/datasources/sparkthor.yml" in alone["restore"]
    assert not [path for path in texts(planned("b", monitoring_grafana_provisioning=folder)) if "grafana" in path]


def test_without_a_grafana_what_was_written_for_one_goes() -> None:
    restored = [f"/etc/grafana/provisioning/{kind}/sparkthor.yml" for kind in ("dashboards", "datasources")]
    assert planned()["restore"] == restored
    assert planned("b")["restore"] == restored


def test_prometheus_runs_on_the_head_if_it_is_asked_for() -> None:
    plan = planned(monitoring_prometheus="true", monitoring_prometheus_listen="10.0.0.1:9091")
    assert "--web.listen-address=10.0.0.1:9091" in texts(plan)[f"{UNITS}/sparkthor-prometheus.service"]
    unit = plan["units"][1]
    assert (unit["state"], unit["restart_on"]) == ("started", [f"{UNITS}/sparkthor-prometheus.service"])
    assert set(unit["reload_on"]) <= set(texts(plan))


def test_all_agree_on_what_nonsense_is() -> None:
    alerts = (role_state.ROLES / "monitoring/files/alerts.yml").read_text(encoding="utf-8")
    assert f"sparkthor_serving_answers_right < {answers.SENSE} * sparkthor_serving_answers_asked" in alerts
    upgrade = (role_state.ROLES.parent / "playbooks/upgrade.yml").read_text(encoding="utf-8")
    assert f"< [{answers.SENSE} * (__upgrade_found.answers" in upgrade


def test_the_defaults_that_the_role_repeats_are_rays_and_the_front_proxys() -> None:
    unit = texts(planned())[f"{UNITS}/sparkthor-exporter.service"]
    proxy = (role_state.ROLES / "vllm_serve/templates/nginx.conf.j2").read_text(encoding="utf-8")
    assert "access_log syslog:server=unix:/run/sparkthor-exporter/front.sock," in proxy
    assert "--front /run/sparkthor-exporter/front.sock\n" in unit
    assert "RuntimeDirectory=sparkthor-exporter\n" in unit
    config = texts(planned())["/etc/sparkthor/monitoring/prometheus.yml"]
    assert f"{FABRIC['a']['control_address']}:{DEFAULT_PORTS['metrics_export']}" in config
