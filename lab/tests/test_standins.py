# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from sparklab.identity import ONHOST, STANDINS, meminfo
from sparklab.infiniband import default_gid, gid, tree

UP = {
    "ifname": "enp1s0f0np0",
    "address": "02:ab:12:00:00:01",
    "flags": ["BROADCAST", "UP", "LOWER_UP"],
    "addr_info": [{"family": "inet", "local": "10.1.2.3"}, {"family": "inet6", "local": "fd00::1"}],
}
DOWN = {"ifname": "enP2p1s0f1np1", "address": "02:ab:12:00:00:04", "flags": ["BROADCAST"], "addr_info": []}
OTHER = {"ifname": "enP7s7", "address": "02:ab:12:00:00:00", "flags": ["UP", "LOWER_UP"], "addr_info": []}


# --- /sys/class/infiniband -------------------------------------------------------------------------------------------


def test_gids():
    assert gid("10.1.2.3") == "0000:0000:0000:0000:0000:ffff:0a01:0203"
    assert gid("fd00::1") == "fd00:0000:0000:0000:0000:0000:0000:0001"
    assert default_gid("02:ab:12:00:00:01") == "fe80:0000:0000:0000:00ab:12ff:fe00:0001"


def test_a_port_with_carrier():
    files = tree([UP, OTHER])
    port = "rocep1s0f0/ports/1"
    assert files[f"{port}/state"] == "4: ACTIVE"
    assert files[f"{port}/phys_state"] == "5: LinkUp"
    assert files[f"{port}/link_layer"] == "Ethernet"
    assert files[f"{port}/rate"] == "200 Gb/sec (4X HDR)"
    assert files[f"{port}/gids/3"] == gid("10.1.2.3")
    assert files[f"{port}/gid_attrs/types/2"] == "IB/RoCE v1"
    assert files[f"{port}/gid_attrs/types/3"] == "RoCE v2"
    assert files[f"{port}/gid_attrs/ndevs/3"] == "enp1s0f0np0"
    assert files[f"{port}/gids/5"] == gid("fd00::1")
    assert files[f"{port}/gids/6"] == gid("::")
    assert f"{port}/gid_attrs/types/6" not in files
    assert {path.split("/")[0] for path in files} == {"rocep1s0f0"}


def test_a_port_without_carrier():
    files = tree([DOWN])
    assert files["roceP2p1s0f1/ports/1/state"] == "1: DOWN"
    assert files["roceP2p1s0f1/ports/1/phys_state"] == "3: Disabled"
    assert "roceP2p1s0f1/device/net/enP2p1s0f1np1/address" in files


def test_a_host_without_connectx_has_no_tree():
    assert tree([OTHER, {"ifname": "mgbe0_0", "flags": []}]) == {}


# --- the tools on the host -------------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path):
    """A host's /sys and /etc, and a way to call its tools there."""
    for nic, index in ((UP, 3), (DOWN, 6)):
        folder = tmp_path / "sys/class/net" / nic["ifname"]
        folder.mkdir(parents=True)
        (folder / "carrier").write_text("1\n" if "LOWER_UP" in nic["flags"] else "0\n")
        (folder / "ifindex").write_text(f"{index}\n")
    for path, text in tree([UP, DOWN]).items():
        target = tmp_path / "sys/class/infiniband" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "bin").mkdir()
    for name in {name for names in STANDINS.values() for name in names}:
        (tmp_path / "bin" / name).symlink_to(ONHOST / "standin")
    places = {name: str(tmp_path / name.lower()) for name in ("SYS", "ETC", "STATE")}

    def call(name: str, *args: str, status: int = 0) -> str:
        done = subprocess.run(
            ["python3", tmp_path / "bin" / name, *args],
            env={**os.environ, **{f"SPARKLAB_{key}": value for key, value in places.items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    call.folder = tmp_path
    return call


def test_ibdev2netdev(host):
    assert host("ibdev2netdev").splitlines() == [
        "roceP2p1s0f1 port 1 ==> enP2p1s0f1np1 (Down)",
        "rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)",
    ]


def test_ibdev2netdev_verbose(host):
    lines = host("ibdev2netdev", "-v").splitlines()
    assert lines[0].startswith("0002:01:00.1 roceP2p1s0f1 (MT4129 - ")
    assert lines[0].endswith(" fw 28.45.4028 port 1 (DOWN  ) ==> enP2p1s0f1np1 (Down)")
    assert lines[1].startswith("0000:01:00.0 rocep1s0f0 (")
    assert lines[1].endswith(" port 1 (ACTIVE) ==> enp1s0f0np0 (Up)")
    host("ibdev2netdev", "--help", status=1)


def test_ibdev2netdev_asks_the_nic_not_the_tree(host):
    (host.folder / "sys/class/net/enp1s0f0np0/carrier").write_text("0\n")
    assert "rocep1s0f0 port 1 ==> enp1s0f0np0 (Down)" in host("ibdev2netdev")


def test_rdma_link_as_json(host):
    assert json.loads(host("rdma", "-j", "link", "show")) == [
        {
            "ifindex": 0,
            "ifname": "roceP2p1s0f1",
            "port": 1,
            "state": "DOWN",
            "physical_state": "DISABLED",
            "netdev": "enP2p1s0f1np1",
            "netdev_index": 6,
        },
        {
            "ifindex": 1,
            "ifname": "rocep1s0f0",
            "port": 1,
            "state": "ACTIVE",
            "physical_state": "LINK_UP",
            "netdev": "enp1s0f0np0",
            "netdev_index": 3,
        },
    ]


def test_rdma_link_as_text(host):
    lines = host("rdma", "link", "show").splitlines()
    assert lines[1] == "link rocep1s0f0/1 state ACTIVE physical_state LINK_UP netdev enp1s0f0np0 "
    assert host("rdma", "link", "show", "rocep1s0f0/1").splitlines() == [lines[1]]
    host("rdma", "link", "show", "mlx5_0", status=1)
    host("rdma", "resource", status=1)
    host("rdma", "--nonsense", "link", status=1)


def test_nvidia_smi(host):
    listed = host("nvidia-smi", "-L")
    assert listed.startswith("GPU 0: NVIDIA GB10 (UUID: GPU-")
    assert "Driver Version: 580.95.05" in host("nvidia-smi")
    query = "--query-gpu=name,memory.total,compute_cap,driver_version"
    assert host("nvidia-smi", query, "--format=csv,noheader") == "NVIDIA GB10, [N/A], 12.1, 580.95.05\n"
    assert host("nvidia-smi", query, "--format=csv").splitlines()[0] == (
        "name, memory.total [MiB], compute_cap, driver_version"
    )
    assert host("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits") == "0\n"
    assert host("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader") == ""
    assert 'Field "colour" is not a valid field' in host("nvidia-smi", "--query-gpu=colour", "--format=csv", status=2)
    host("nvidia-smi", "-i", "1", "--query-gpu=name", "--format=csv", status=6)
    host("nvidia-smi", "--reset", status=2)


def test_a_gpu_keeps_its_uuid_and_differs_between_hosts(host):
    first = host("nvidia-smi", "-L")
    assert host("nvidia-smi", "-L") == first
    (host.folder / "etc/machine-id").write_text("f" * 32 + "\n")
    assert host("nvidia-smi", "-L") != first


def test_thor_tools(host):
    (host.folder / "etc/nv_tegra_release").write_text("# R38\n")
    assert "NVIDIA Thor" in host("nvidia-smi", "-L")
    assert host("nvpmodel", "-q") == "NV Power Mode: 120W\n1\n"
    host("nvpmodel", "-m", "0")
    assert host("nvpmodel", "-q") == "NV Power Mode: MAXN\n0\n"
    host("nvpmodel", "-m", "9", status=255)


def test_meminfo_is_that_of_a_spark():
    rows = {line.split(":")[0]: int(line.split()[1]) for line in meminfo().splitlines()}
    assert rows["MemTotal"] == 122584 * 1024
    assert rows["MemFree"] <= rows["MemAvailable"] < rows["MemTotal"]
    short = {line.split(":")[0]: int(line.split()[1]) for line in meminfo(1000).splitlines()}
    assert short["MemAvailable"] == 1000 * 1024
    assert 0 <= short["MemFree"] <= short["MemAvailable"]
