# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import machine
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node as _node

IP_ADDRESS = json.dumps(
    [
        {
            "ifname": "lo",
            "flags": ["LOOPBACK", "UP", "LOWER_UP"],
            "mtu": 65536,
            "operstate": "UNKNOWN",
            "address": "00:00:00:00:00:00",
            "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}],
        },
        {
            "ifname": "enP7s7",
            "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
            "mtu": 1500,
            "max_mtu": 9194,
            "operstate": "UP",
            "address": "4c:bb:47:00:00:01",
            "addr_info": [
                {"family": "inet", "local": "192.168.1.11", "prefixlen": 24, "scope": "global", "dynamic": True},
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
            ],
        },
        {
            "ifname": "enp1s0f1np1",
            "altnames": ["enxc0ffee000002"],
            "flags": ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"],
            "mtu": 9000,
            "operstate": "DOWN",
            "address": "4c:bb:47:00:00:02",
            "addr_info": [],
        },
        {},
    ]
)
IP_ROUTE = json.dumps(
    [
        {"dst": "default", "gateway": "192.168.1.1", "dev": "enP7s7", "protocol": "dhcp", "metric": 100},
        {"dst": "192.168.1.0/24", "dev": "enP7s7", "protocol": "kernel", "prefsrc": "192.168.1.11"},
    ]
)


def test_of_the_kernels_command_line_what_rules_know_is_read() -> None:
    text = "BOOT_IMAGE=/boot/vmlinuz root=UUID=0 ro quiet kho=on iommu.passthrough=1 kho=off token=x -- kho=init\n"
    assert _node.parse_cmdline(text) == {"kho": "off", "iommu.passthrough": "1"}
    assert _node.parse_cmdline("") == {}
    assert _node.parse_cmdline("ro pcie_aspm=off iommu.strict=0 quiet") == {"pcie_aspm": "off", "iommu.strict": "0"}


def test_meminfo_is_bytes():
    values = _node.parse_meminfo("MemTotal:       125526016 kB\nHugePages_Total:       0\nodd line\n")
    assert values == {"MemTotal": 125526016 * 1024, "HugePages_Total": 0}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("GPU 0: NVIDIA GB10 (UUID: GPU-0f1e)\n", ["NVIDIA GB10"]),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n", ["NVIDIA H200", "NVIDIA H200"]),
        ("No devices found.\n", []),
        ("", []),
    ],
)
def test_gpu_names(text, names):
    assert _node.parse_nvidia_smi_list(text) == names


def test_interfaces():
    loopback, management, fabric = _node.parse_ip_address(IP_ADDRESS)
    assert loopback["name"] == "lo"
    assert management["addresses"][0] == {
        "address": "192.168.1.11/24",
        "family": "inet",
        "scope": "global",
        "dynamic": True,
    }
    assert (management["carrier"], management["max_mtu"]) == (True, 9194)
    assert (fabric["up"], fabric["carrier"], fabric["mtu"], fabric["addresses"]) == (True, False, 9000, [])


def test_what_is_below_a_vlan():
    vlan = {"ifname": "vlan100", "link": "enP7s7", "linkinfo": {"info_kind": "vlan"}}
    veth = {"ifname": "veth1", "link": "eth0", "linkinfo": {"info_kind": "veth"}}
    assert [nic["lower"] for nic in _node.parse_ip_address(json.dumps([vlan, veth]))] == ["enP7s7", ""]


def test_management_is_where_the_controller_came_in_else_the_default_route():
    interfaces, routes = _node.parse_ip_address(IP_ADDRESS), _node.parse_ip_route(IP_ROUTE)
    expected = {"netdev": "enP7s7", "address": "192.168.1.11", "cidr": "192.168.1.11/24"}
    assert _node.management_of("192.168.1.11", interfaces, routes) == expected
    assert _node.management_of("", interfaces, routes) == expected
    assert _node.management_of("", interfaces, [])["netdev"] == ""
    # the first address of the NIC may be the front proxies', which another head has the next moment
    nic = next(link for link in interfaces if link["name"] == "enP7s7")
    nic["addresses"].insert(0, {"address": "192.168.1.100/24", "family": "inet", "scope": "global", "dynamic": False})
    assert _node.management_of("", interfaces, routes, "192.168.1.100") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1 localhost\n127.0.1.1 spark-01 # set by the installer\n", True),
        ("127.0.0.1 localhost\n192.168.1.11 spark-01\n", False),
        ("# 127.0.1.1 spark-01\n", False),
    ],
)
def test_hostname_on_loopback(text, expected):
    assert _node.hostname_on_loopback(text, "spark-01") is expected


def test_a_captured_machine(tmp_path):
    files = {
        "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n',
        "proc/meminfo": "MemTotal: 125526016 kB\nMemAvailable: 120000000 kB\nSwapTotal: 0 kB\n",
        "sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n",
        "sys/class/net/enp1s0f1np1/phys_port_name": "p1\n",
        "sys/class/net/enp1s0f1np1/device/uevent": "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:01:00.1\n",
        "etc/sparkthor/cluster.json": '{"host": "spark-02", "head": "spark-01", "generation": 2, "cluster": "one", '
        '"topology": "direct", "executor": "mp", "peers": {"spark-02": "192.168.1.12", "spark-01": "192.168.1.11"}, '
        '"machines": {"spark-01": "m1"}}',
        "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
        "var/lib/sparkthor/superseded.json": '{"name": "spark-02", "generation": 4}',
        "etc/sparkthor/secrets/api_key": "a-key-of-thirty-two-characters-00\n",
        "etc/hosts": "127.0.0.1 localhost\n",
        "usr/bin/nvidia-smi": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "usr/bin/nvidia-smi").chmod(0o755)
    (tmp_path / "var/lib").mkdir(parents=True, exist_ok=True)

    def run(argv):
        if argv[0] == "ip":
            return 0, IP_ADDRESS if "address" in argv else IP_ROUTE, ""
        if argv == ["nvidia-smi", "-L"]:
            return 0, "GPU 0: NVIDIA GB10 (UUID: GPU-0)\n", ""
        if argv[0] == "nvidia-smi":
            return 0, "580.95.05\n", ""
        return 127, "", "not installed"

    store = tmp_path / "var/lib/sparkthor/models"
    for name in ("tiny@0123456789abcdef", "plain"):
        (store / name).mkdir(parents=True)
    (store / "tiny").symlink_to("tiny@0123456789abcdef")
    (store / "elsewhere").symlink_to("/srv/elsewhere")
    node = _node.NodeReader(run, str(tmp_path)).read()
    assert node["kind"] == "spark"
    assert node["models"] == {"tiny": "tiny@0123456789abcdef"}
    assert node["gpus"] == 1
    assert node["driver"] == "580.95.05"
    assert node["mem_total_bytes"] == 125526016 * 1024
    assert node["management"]["netdev"] == "enP7s7"
    assert node["binaries"]["nvidia-smi"] == str(tmp_path / "usr/bin/nvidia-smi")
    assert node["binaries"]["docker"] == ""
    nics = {link["name"]: link for link in node["interfaces"]}
    assert nics["enp1s0f1np1"]["phys_port_name"] == "p1"
    assert (nics["enp1s0f1np1"]["pci"], nics["enp1s0f1np1"]["altnames"]) == ("0000:01:00.1", ["enxc0ffee000002"])
    assert (nics["enP7s7"]["pci"], nics["enP7s7"]["altnames"]) == ("", [])
    assert node["declared"] == {
        **{"host": "spark-02", "head": "spark-01", "generation": 2, "seen": 4, "cluster": "one"},
        **{"hosts": ["spark-01", "spark-02"], "topology": "direct", "executor": "mp", "virtual": ""},
        "machines": {"spark-01": "m1"},
        "hostname": "",
    }
    assert node["machine"] == "33753e6e4afb60069a02f8cc5de1a580"
    # what others know a machine by is nobody else's business
    assert "0123456789abcdef0123456789abcdef" not in json.dumps(node)
    assert node["secrets"] == ["api_key"]
    assert "a-key-of" not in json.dumps(node)


def test_broken_tools_are_no_traceback(tmp_path):
    (tmp_path / "var/lib").mkdir(parents=True)
    node = _node.NodeReader(lambda argv: (0, "not json", ""), str(tmp_path)).read()
    assert node["interfaces"] == []
    assert node["gpus"] == 0
    assert node["kind"] == "generic"


def test_the_serial_number_of_a_machine_stays_there(tmp_path):
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    release = 'DGX_NAME="DGX Spark"\nDGX_SERIAL_NUMBER="1234567890123"\nDGX_OTA_VERSION="7.5.0"\n'
    (tmp_path / "etc/dgx-release").write_text(release)
    node = _node.NodeReader(lambda argv: (127, "", ""), str(tmp_path)).read()
    assert node["os"]["dgx"] == 'DGX_NAME="DGX Spark"\nDGX_OTA_VERSION="7.5.0"'
    assert "1234567890123" not in json.dumps(node)


def test_the_newest_of_many_updates_is_kept(tmp_path):
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    updates = [f'\nDGX_OTA_VERSION="7.{n}.0"\nDGX_OTA_DATE="Fri Oct 2 0{n % 10}:00:00 UTC 2026"\n' for n in range(400)]
    release = 'DGX_SERIAL_NUMBER="1234567890123"\nDGX_SWBUILD_VERSION="7.0.0"\n' + "".join(updates)
    (tmp_path / "etc/dgx-release").write_text(release)
    node = _node.NodeReader(lambda argv: (127, "", ""), str(tmp_path)).read()
    assert machine.dgx_version(node["os"]["dgx"]) == "7.399.0"
    assert len(node["os"]["dgx"]) <= 2000
    assert "1234567890123" not in json.dumps(node)


@pytest.mark.parametrize(
    ("required", "installed", "said"),
    [
        (None, "", ""),
        ("", "", "an update"),
        ("linux-image-6.17\nlibc6\nlibc6\n", "", "libc6, linux-image-6.17"),
        (None, "6.17.0", ""),
        (None, "6.18.0", "kernel 6.18.0 is installed, 6.17.0 runs"),
        # a link that leads to a kernel that was removed
        (None, "gone", ""),
    ],
)
def test_why_a_host_asks_for_a_reboot(tmp_path, required, installed, said):
    for folder in ("run", "boot", "lib/modules/6.17.0", "lib/modules/6.18.0"):
        (tmp_path / folder).mkdir(parents=True)
    if required is not None:
        (tmp_path / "run/reboot-required").touch()
        (tmp_path / "run/reboot-required.pkgs").write_text(required)
    if installed:
        (tmp_path / "boot/vmlinuz").symlink_to(f"vmlinuz-{installed}")
    reader = _node.NodeReader(lambda argv: (127, "", ""), str(tmp_path), {"release": "6.17.0"})
    assert reader.reboot() == said


def test_the_port_of_ssh_by_which_the_controller_came_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interfaces = [{"name": "lan", "addresses": [{"address": "192.168.1.11/24", "family": "inet"}]}]
    reader = _node.NodeReader(lambda argv: (127, "", ""), str(tmp_path))
    assert reader.way_in(interfaces, [], "")["ssh_port"] == 0
    came_in = ["192.168.1.2", "50000", "192.168.1.11", "2222"]
    monkeypatch.setattr(_node.ssh, "connection", lambda proc: came_in if proc == str(tmp_path / "proc") else [])
    found = reader.way_in(interfaces, [], "")
    assert (found["ssh_port"], found["management"]["netdev"]) == (2222, "lan")
