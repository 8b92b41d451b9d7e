# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A value means the same whichever way it was written: every file of every host, rendered from both."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.unit.playbooks.test_render import files, render

#: as YAML gives it, and as the command line does
VALUES = {
    "firewall_tcp_ports": ([9100, 9101], "9100,9101"),
    "firewall_ssh_sources": (["192.168.1.0/24"], "192.168.1.0/24"),
    "firewall_mdns": (True, "yes"),
    "os_hardening_swap": (False, "false"),
    "os_hardening_swap_swappiness": (5, "5"),
    "os_hardening_headless": (False, "off"),
    "os_hardening_updates_excluded": (["nvidia-", "linux-"], "nvidia-,linux-"),
    "nccl_conf_settings": ({"NCCL_DEBUG": "INFO"}, "NCCL_DEBUG=INFO"),
    "nccl_conf_remove": (["NCCL_ALGO", "NCCL_PROTO"], "NCCL_ALGO,NCCL_PROTO"),
    "engine_offline": (False, "no"),
    "ray_node_num_gpus": (1, "1"),
    "ray_node_num_cpus": (8, "8"),
    "ray_node_worker_port_max": (21999, "21999"),
    "vllm_serve_api_port": (8001, "8001"),
    "vllm_serve_tls": ("self_signed", "self_signed"),
    "vllm_serve_front_access_log": (True, "on"),
    "vllm_serve_front_read_timeout": ("1800", "1800"),
    "vllm_serve_prefix_caching": (False, "false"),
    "vllm_serve_watchdog_interval": (7, "7"),
}
#: names of hosts that no certificate and no DNS can have
HOSTS = ("spark_01", "küche")


def inventory(folder: Path) -> Path:
    path = folder / "hosts.yml"
    first, second = ({host: {"ansible_host": f"192.168.1.1{number}"}} for number, host in enumerate(HOSTS))
    variables = {"fabric_topology": "direct", "fabric_cidr": "10.100.0.0/24", "vllm_serve_recipe": "tiny-qwen3"}
    groups = {"ray_head": {"hosts": first}, "ray_workers": {"hosts": second}}
    path.write_text(yaml.safe_dump({"cluster": {"children": groups, "vars": variables}}, allow_unicode=True))
    return path


def test_what_is_written_does_not_depend_on_how_a_value_was_given(tmp_path: Path) -> None:
    hosts = inventory(tmp_path)
    typed = {name: value for name, (value, _text) in VALUES.items()}
    done = render(tmp_path / "typed", hosts, "-e", json.dumps(typed))
    assert done.returncode == 0, done.stdout + done.stderr
    words = [word for name, (_value, text) in VALUES.items() for word in ("-e", f"{name}={text}")]
    done = render(tmp_path / "text", hosts, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    expected, found = files(tmp_path / "typed"), files(tmp_path / "text")
    assert {path.split("/", 1)[0] for path in expected if "/" in path} == set(HOSTS)
    assert found == expected
    # the values are among what was written
    head = {path.partition("/")[2]: text for path, text in expected.items() if path.startswith(HOSTS[0])}
    assert "tcp dport { 9100, 9101 } accept" in head["etc/sparkthor/firewall.nft"]
    assert "NCCL_DEBUG=INFO" in head["etc/nccl.conf"]
    assert "listen 0.0.0.0:8001" in head["etc/sparkthor/front/nginx.conf"]
    assert head["etc/sparkthor/front/self-signed"] == "IP:10.100.0.1,IP:192.168.1.10\n"
    assert not [path for path in head if "sysctl" in path]
