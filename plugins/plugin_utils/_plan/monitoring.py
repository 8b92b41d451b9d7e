# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role ``monitoring`` puts on a host: the exporter, and on the head what Prometheus and Grafana read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sandbox import NETWORK, sandbox
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_config import DEFAULT_PORTS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front, onhost
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import (
    ROLES,
    File,
    HostState,
    directory,
    rendered,
    role_file,
    switched_off,
)

_CONFIG = "/etc/sparkthor/monitoring"
_EXPORTER = "sparkthor-exporter.service"
_PROMETHEUS = "sparkthor-prometheus.service"
#: nvidia-smi opens the driver's device nodes, and no others; where there are none, systemd passes them over
_EXPORTER_SANDBOX = "\n".join(
    [
        sandbox(families=NETWORK, without=["PrivateDevices"]),
        "DevicePolicy=closed",
        *(f"DeviceAllow=/dev/{name} rw" for name in ("nvidiactl", "nvidia0", "nvidia-uvm")),
    ]
)
#: where a Grafana of the distribution or of its makers reads what it is provided with
GRAFANA = "/etc/grafana/provisioning"
#: what earlier versions installed instead of the package
_FORMER = ["/usr/local/lib/sparkthor/sparkthor-exporter", "/usr/local/lib/sparkthor/_exporter.py"]


@dataclass(frozen=True)
class MonitoringSettings:
    """Variables of the role, and the ports of ``ray_node``."""

    monitoring_exporter_port: int
    monitoring_scrape_interval: str
    monitoring_prometheus: bool
    monitoring_prometheus_listen: str
    monitoring_prometheus_retention: str
    monitoring_grafana_provisioning: str = ""
    ray_node_ports: dict[str, Any] = field(default_factory=dict)


def plan_monitoring(
    settings: MonitoringSettings, cluster: Mapping[str, Any], fabric: Mapping[str, Mapping[str, Any]], host: str
) -> dict[str, Any]:
    """``state`` for host_state, and ``prometheus``: whether the server runs on this host."""
    is_head = host == cluster["head"]
    prometheus = is_head and settings.monitoring_prometheus

    def unit(name: str, **values: Any) -> File:
        return _templated(f"{name}.j2", f"/etc/systemd/system/{name}", settings, **values)

    # it changes with the exporter's code
    digest = onhost.program_digest("exporter")
    counter = front.COUNTER if is_head else ""
    files = [unit(_EXPORTER, digest=digest, own=fabric[host], sandbox=_EXPORTER_SANDBOX, counter=counter)]
    units = [{"name": _EXPORTER, "enabled": True, "state": "started", "restart_on": [files[0]["path"]]}]
    if is_head:
        scrape = f"{_CONFIG}/prometheus.yml"
        alerts = role_file("monitoring", "alerts.yml", f"{_CONFIG}/alerts.yml")
        ray_port = settings.ray_node_ports.get("metrics_export", DEFAULT_PORTS["metrics_export"])
        # one group is named as the inventory's group of all hosts
        groups = cluster.get("groups") or [{"group": "cluster", "head": host, "hosts": cluster["hosts"]}]
        files += [
            _templated("prometheus.yml.j2", scrape, settings, groups=groups, fabric=fabric, ray_port=ray_port),
            alerts,
            role_file("monitoring", "grafana-dashboard.json", f"{_CONFIG}/grafana-dashboard.json"),
            *_grafana_files(settings),
        ]
    if prometheus:
        # Go asks the kernel for its interfaces over netlink, and raises its limit of open files
        families, refused = (*NETWORK, "AF_NETLINK"), ["@privileged"]
        files.append(unit(_PROMETHEUS, sandbox=sandbox(families=families, refused=refused)))
        owed = {"restart_on": [files[-1]["path"]], "reload_on": [scrape, alerts["path"]]}
        units.append({"name": _PROMETHEUS, "enabled": True, "state": "started", **owed})
    else:
        units.append(switched_off(_PROMETHEUS))
    users, directories = [{"name": "sparkthor", "system": True}], [directory("/etc/sparkthor")]
    # the front proxy's group, to which the exporter's socket belongs
    of_api = [{"name": "sparkthor-api", "system": True}] if is_head else []
    # what was wanted once; an owner's own files of these names stay
    former = sorted(_grafana_paths(settings) - {file["path"] for file in files})
    state = HostState(of_api, users, directories, files, absent=_FORMER, restore=former, units=units)
    return {"state": state.arguments(), "prometheus": prometheus}


def _grafana_paths(settings: MonitoringSettings) -> set[str]:
    """Where files for Grafana may lie, wanted or not."""
    folders = {GRAFANA, settings.monitoring_grafana_provisioning.rstrip("/") or GRAFANA}
    return {f"{folder}/{kind}/sparkthor.yml" for folder in folders for kind in ("dashboards", "datasources")}


def _grafana_files(settings: MonitoringSettings) -> list[File]:
    """The dashboard, and the Prometheus of this host if it has one, for a Grafana that runs there."""
    folder = settings.monitoring_grafana_provisioning.rstrip("/")
    if not folder:
        return []
    found = [_templated("grafana-dashboards.yml.j2", f"{folder}/dashboards/sparkthor.yml", settings, folder=_CONFIG)]
    if settings.monitoring_prometheus:
        found.append(_templated("grafana-datasources.yml.j2", f"{folder}/datasources/sparkthor.yml", settings))
    return found


def _templated(template: str, path: str, settings: MonitoringSettings, **values: Any) -> File:
    text = rendered(ROLES / "monitoring" / "templates" / template, **vars(settings), **values)
    return {"path": path, "content": text}
