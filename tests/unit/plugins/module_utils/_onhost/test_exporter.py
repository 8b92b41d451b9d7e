# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporter's page of a host that is a folder, and its two doors."""

from __future__ import annotations

import http.client
import http.server
import os
import re
import socketserver
import time

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import exporter, gpu_state, limits

from tests.unit.servers import serving


def fill(root, path, content):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)


@pytest.fixture
def host(tmp_path):
    fill(tmp_path, "proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:  400 kB\nHugePages_Total: 0\n")
    fill(tmp_path, "proc/loadavg", "0.25 0 0 1/2 3\n")
    fill(tmp_path, "proc/uptime", "12.5 1\n")
    fill(tmp_path, "var/lib/sparkthor/x", "")
    for name, carrier in (("enp1s0f1np1", "1"), ("enP7s7", "1"), ("lo", "1"), ("docker0", "0")):
        fill(tmp_path, f"sys/class/net/{name}/carrier", carrier + "\n")
        fill(tmp_path, f"sys/class/net/{name}/mtu", "9000\n")
        fill(tmp_path, f"sys/class/net/{name}/statistics/tx_bytes", "77\n")
    port = "sys/class/infiniband/rocep1s0f1/ports/1"
    fill(tmp_path, f"{port}/state", "4: ACTIVE\n")
    fill(tmp_path, f"{port}/rate", "100 Gb/sec (4X EDR)\n")
    fill(tmp_path, f"{port}/gid_attrs/ndevs/0", "enp1s0f1np1\n")
    fill(tmp_path, f"{port}/counters/port_xmit_data", "25\n")
    fill(tmp_path, f"{port}/counters/symbol_error", "N/A\n")
    fill(tmp_path, "run/sparkthor/watchdog/metrics.prom", "sparkthor_serving_healthy 1\n")
    return exporter.ExportedHost(str(tmp_path))


def test_gpus(tmp_path):
    def run(argv):
        return 0, "95.1, 88, 1650, 99, 0x40\n[N/A], 46, 208, [N/A], 0x1\n", ""

    fill(tmp_path, gpu_state.LIMIT_UNIT.lstrip("/"), "[Service]\nExecStart=nvidia-smi --lock-gpu-clocks=0,2000\n")
    page = exporter.ExportedHost(str(tmp_path), run).page([])
    for line in (
        'sparkthor_gpu_clock_limit_hertz{gpu="0"} 2000000000',
        'sparkthor_gpu_power_watts{gpu="0"} 95.1',
        'sparkthor_gpu_temperature_celsius{gpu="1"} 46',
        'sparkthor_gpu_clock_hertz{gpu="0"} 1650000000',
        'sparkthor_gpu_utilization_ratio{gpu="0"} 0.99',
        'sparkthor_gpu_slowed{gpu="0",reason="hw_thermal_slowdown"} 1',
        'sparkthor_gpu_slowed{gpu="1",reason="hw_thermal_slowdown"} 0',
    ):
        assert line in page.splitlines()
    assert 'sparkthor_gpu_power_watts{gpu="1"}' not in page


def test_a_clock_is_held_against_what_a_machine_of_its_kind_reaches(tmp_path):
    def run(_argv):
        return 0, "95.1, 88, 1650, 99, 0x0\n", ""

    assert "sparkthor_gpu_clock_limit_hertz" not in exporter.ExportedHost(str(tmp_path), run).page([])
    page = exporter.ExportedHost(str(tmp_path), run, kind="spark").page([])
    assert 'sparkthor_gpu_clock_limit_hertz{gpu="0"} 2400000000' in page


def test_planned_speeds_and_errors_of_pcie_devices(tmp_path):
    fill(tmp_path, "sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable", "RxErr 3\nTOTAL_ERR_COR 3\n")
    fill(tmp_path, "sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1\n")
    speeds = exporter.planned_speeds("enp1s0f1np1=100,x=nonsense,,y")
    assert speeds == {"enp1s0f1np1": 100.0}
    page = exporter.ExportedHost(str(tmp_path), lambda _argv: (127, "", ""), speeds=speeds).page([])
    for line in (
        'sparkthor_link_planned_bits{netdev="enp1s0f1np1"} 100000000000',
        'sparkthor_pcie_errors_total{device="0000:01:00.0",type="corrected"} 3',
        'sparkthor_pcie_errors_total{device="0000:01:00.0",type="uncorrected"} 1',
    ):
        assert line in page.splitlines()


def test_what_a_host_says(host):
    page = host.page(["enp1s0f1np1", "enP2p1s0f1np1"])
    for line in (
        "sparkthor_node_memory_available_bytes 409600",
        "sparkthor_node_load1 0.25",
        'sparkthor_link_up{netdev="enp1s0f1np1",planned="yes"} 1',
        'sparkthor_link_up{netdev="enP7s7",planned="no"} 1',
        'sparkthor_link_up{netdev="enP2p1s0f1np1",planned="yes"} 0',
        'sparkthor_link_present{netdev="enP2p1s0f1np1"} 0',
        'sparkthor_link_present{netdev="enp1s0f1np1"} 1',
        'sparkthor_link_tx_bytes_total{netdev="enp1s0f1np1",planned="yes"} 77',
        'sparkthor_rdma_port_active{device="rocep1s0f1",port="1",netdev="enp1s0f1np1"} 1',
        'sparkthor_rdma_port_transmit_bytes_total{device="rocep1s0f1",port="1",netdev="enp1s0f1np1"} 100',
        "sparkthor_serving_healthy 1",
    ):
        assert line in page.splitlines()
    assert "docker0" not in page
    assert 'netdev="lo"' not in page
    assert "symbol_errors" not in page


def test_the_disk_is_the_one_that_holds_the_models(host, tmp_path):
    # another file system than that of the tests' files
    (tmp_path / "data").symlink_to("/dev/shm")
    (tmp_path / "etc/sparkthor").mkdir(parents=True, exist_ok=True)
    (tmp_path / "etc/sparkthor/cluster.json").write_text('{"folders": {"models": "/data"}}')
    found = os.statvfs("/dev/shm")
    assert f"sparkthor_node_disk_total_bytes {found.f_blocks * found.f_frsize}" in host.page([]).splitlines()


def test_whether_the_front_proxy_of_a_head_listens(host, tmp_path):
    head = "  1: 00000000000000000000000000000000:1F40 0:0 0A 0:0 00:0 0 0 0 77 1\n"
    assert "sparkthor_front_listens" not in host.page([])
    fill(tmp_path, "etc/sparkthor/cluster.json", '{"host": "a", "head": "b", "api_port": 8000}')
    assert "sparkthor_front_listens" not in host.page([])
    fill(tmp_path, "etc/sparkthor/cluster.json", '{"host": "a", "head": "a", "api_port": 8000}')
    assert "sparkthor_front_listens 0" in host.page([]).splitlines()
    fill(tmp_path, "proc/net/tcp6", f"  sl  local_address\n{head}")
    assert "sparkthor_front_listens 1" in host.page([]).splitlines()
    fill(tmp_path, "proc/net/tcp6", f"  sl  local_address\n{head.replace('1F40', '1F41')}")
    assert "sparkthor_front_listens 0" in host.page([]).splitlines()


@pytest.mark.parametrize("shift", [-limits.WATCHDOG_STALE - 1, limits.WATCHDOG_STALE + 1])
def test_the_last_word_of_a_watchdog_that_is_gone_is_no_longer_told(ask, host, tmp_path, shift):
    fill(tmp_path, "etc/sparkthor/beside/embed/serving.json", "{}")
    for group in ("", "beside/embed/"):
        fill(tmp_path, f"run/sparkthor/{group}watchdog/metrics.prom", "sparkthor_serving_healthy 1\n")
        then = time.time() + shift
        os.utime(tmp_path / f"run/sparkthor/{group}watchdog/metrics.prom", (then, then))
    assert "sparkthor_serving" not in ask("/metrics")[1]
    assert ask("/metrics/group/embed") == (200, "")


def test_the_format_is_prometheus_own(host):
    seen = set()
    current = ""
    for line in host.page(["enp1s0f1np1"]).splitlines():
        if line.startswith("# TYPE "):
            current = line.split()[2]
            assert current not in seen
            seen.add(current)
            assert (line.split()[3] == "counter") == current.endswith("_total")
        elif not line.startswith("#") and not line.startswith("sparkthor_serving"):
            match = re.fullmatch(r'([a-z0-9_]+)(\{([a-z]+="[^"]*",?)+\})? [-0-9.e+]+', line)
            assert match, line
            assert match[1] == current


def test_versions_are_told_and_read_seldom(tmp_path):
    fill(tmp_path, "proc/sys/kernel/osrelease", "6.14.0\n")
    asked = []

    def run(argv):
        asked.append(argv[0])
        return 1, "", ""

    host = exporter.ExportedHost(str(tmp_path), run)
    for _time in range(2):
        assert 'sparkthor_node_version{part="kernel",version="6.14.0"} 1' in host.page([]).splitlines()
        fill(tmp_path, "proc/sys/kernel/osrelease", "7.0\n")
    host._versions = host._versions[0], host._versions[1] - exporter.VERSIONS_FRESH - 1
    assert 'version="7.0"' in host.page([])


def test_a_host_without_anything(tmp_path):
    # nor does it have what this machine has
    assert exporter.ExportedHost(str(tmp_path), run=lambda argv: (127, "", f"{argv[0]}: not installed")).page([]) == ""


def test_labels_are_escaped():
    page = exporter.Page()
    page.add("m", "h", 1, label='a"b\\c\nd')
    assert page.text().splitlines()[-1] == 'm{label="a\\"b\\\\c\\nd"} 1'


class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"vllm:num_requests_running 1\n" if self.path == "/metrics" else b"wrong")

    def address_string(self):
        return ""

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def ask(host, tmp_path):
    path = str(tmp_path / "s")
    engine = socketserver.ThreadingUnixStreamServer(path, Engine)
    server = exporter.Server(("127.0.0.1", 0), exporter.handler(host, [], path))

    def question(target, method="GET"):
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    with serving(engine), serving(server):
        yield question


def test_two_doors_and_no_other(ask):
    assert ask("/metrics")[1].startswith("# HELP sparkthor_node_memory_total_bytes")
    assert ask("/metrics/engine") == (200, "vllm:num_requests_running 1\nsparkthor_engine_requests_running 1\n")
    assert ask("/")[0] == ask("/metrics/../../etc/passwd")[0] == 404
    assert ask("/metrics", "POST")[0] == 501


def test_groups_beside_the_hosts_own_one_have_pages_of_their_own(ask, host, tmp_path):
    assert ask("/metrics/group/embed")[0] == ask("/metrics/engine/embed")[0] == 404
    fill(tmp_path, "etc/sparkthor/beside/embed/serving.json", "{}")
    fill(tmp_path, "run/sparkthor/beside/embed/watchdog/metrics.prom", "sparkthor_serving_healthy 1\n")
    assert ask("/metrics/group/embed") == (200, "sparkthor_serving_healthy 1\n")
    # its engine is away, and the one of the other group is not taken for it
    assert ask("/metrics/engine/embed")[0] == 503
    assert ask("/metrics/group/")[0] == ask("/metrics/engine/../embed")[0] == 404


def test_who_answers_as_prometheus_asks_is_alive(host, tmp_path):
    server = exporter.Server(("127.0.0.1", 0), exporter.handler(host, [], str(tmp_path / "s")))
    address = server.server_address[:2]
    with serving(server):
        assert exporter.answers(address)
    assert not exporter.answers(address, 0.2)


def test_an_engine_that_is_away_is_503(tmp_path):
    status, body = exporter.engine(str(tmp_path / "nothing"))
    assert status == 503
    assert b"does not answer" in body


def test_an_address_that_is_not_there_ends_with_a_status_to_try_again(capsys):
    assert exporter.main(["--listen", "192.0.2.1:9835"]) == 75
    assert "192.0.2.1:9835" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "closed"),
    [
        ('{"closed": true, "reloads": 2, "updated": %(now)f}', 1),
        ('{"closed": false, "reloads": 2, "updated": %(now)f}', 0),
        # the watch is dead, never was, or said what nobody understands
        ('{"closed": true, "reloads": 2, "updated": 1}', 0),
        ("", 0),
        ("[]", 0),
    ],
)
def test_the_firewall_counts_as_closed_only_while_its_watch_says_so(tmp_path, state, closed):
    assert "sparkthor_firewall" not in exporter.ExportedHost(str(tmp_path)).page([])
    fill(tmp_path, exporter.FIREWALL_RULES.lstrip("/"), "")
    if state:
        fill(tmp_path, exporter.FIREWALL_STATE.lstrip("/"), state % {"now": time.time()} if "%" in state else state)
    page = exporter.ExportedHost(str(tmp_path)).page([])
    assert f"\nsparkthor_firewall_closed {closed}\n" in page
    assert ("\nsparkthor_firewall_reloads_total 2\n" in page) == ("reloads" in state)


@pytest.mark.parametrize(
    "said",
    [
        *(
            "[]",
            "[" * 100_000,
            '{"ci": 5}',
            '{"ci": {"minute": 7, "month": 46, "unseen": "x"}}',
            '{"ci": {"minute": 7}}',
        ),
        '{"ci": {"minute": 1e400, "month": 46, "unseen": 2}}',
        '{"ci": {"minute": 7, "month": 46, "unseen": 2, "limits": ["month"]}}',
        '{"ci": {"minute": 7, "month": 46, "unseen": 2, "limits": {"month": "5"}}}',
    ],
)
def test_what_the_front_proxys_user_wrote_ends_no_page(tmp_path, said):
    fill(tmp_path, exporter.TOKENS_USED.lstrip("/"), said)
    assert "sparkthor_front_key_" not in exporter.ExportedHost(str(tmp_path)).page([])


def test_what_keys_used_is_there_where_one_has_a_limit(tmp_path):
    path = tmp_path / exporter.TOKENS_USED.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text('{"ci": {"minute": 7, "month": 46, "unseen": 2, "limits": {"month": 5000}}}')
    lines = exporter.ExportedHost(str(tmp_path)).page([]).splitlines()
    assert 'sparkthor_front_key_tokens{key="ci",period="minute"} 7' in lines
    assert 'sparkthor_front_key_tokens{key="ci",period="month"} 46' in lines
    assert 'sparkthor_front_key_tokens_limit{key="ci",period="month"} 5000' in lines
    assert 'sparkthor_front_key_unseen_answers{key="ci"} 2' in lines
    assert not [line for line in lines if line.startswith('sparkthor_front_key_tokens_limit{key="ci",period="minute"')]
