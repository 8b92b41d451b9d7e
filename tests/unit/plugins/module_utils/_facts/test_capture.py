# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host is captured, masked, and replayed: our readers find the same host again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import capture
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.node import NodeReader
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import mask
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.anonymous import Anonymous
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import rdma
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import gpu_state

from tests.unit.plugins.module_utils._facts.test_node import IP_ADDRESS, IP_ROUTE
from tests.unit.replay import Replay

CAPTURED = Path(__file__).parents[4] / "fixtures" / "captured"
SYSTEM = {"node": "spark-5c2d", "release": "6.17.0-1032-nvidia", "machine": "aarch64"}
SERIAL, TOKEN = "1234567890123", "correct-horse-battery"
UUID = "0f1e2d3c-1111-2222-3333-444455556666"


def spark(root: Path) -> None:
    """A Spark's tree, of what real ones print."""
    port = "sys/class/infiniband/rocep1s0f0/ports/1"
    texts = {
        "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.4 LTS"\n',
        "etc/dgx-release": f'DGX_SERIAL_NUMBER="{SERIAL}"\nDGX_OTA_VERSION="7.6.0"\n',
        "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 spark-5c2d\n",
        "etc/nccl.conf": f"HF_TOKEN={TOKEN}\nNCCL_DEBUG=INFO\n",
        "etc/netplan/90-wifi.yaml": "password: not-for-you\n",
        "etc/sparkthor/secrets/api_key": f"{TOKEN}\n",
        "proc/meminfo": (CAPTURED / "meminfo-gb10-cma.txt").read_text(),
        "proc/sys/kernel/random/boot_id": f"{UUID}\n",
        "sys/class/dmi/id/product_name": "Ascent GX10\n",
        "sys/class/dmi/id/product_serial": f"{SERIAL}\n",
        "sys/class/net/enp1s0f1np1/phys_port_name": "p1\n",
        "sys/bus/pci/devices/000f:01:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/000f:01:00.0/device": "0x2e12\n",
        "sys/devices/0000:01:00.0/uevent": "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:01:00.0\n",
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/phys_state": "5: LinkUp\n",
        f"{port}/link_layer": "Ethernet\n",
        f"{port}/rate": (CAPTURED / "sysfs-rate-4x-hdr.txt").read_text(),
        f"{port}/gids/3": "0000:0000:0000:0000:0000:ffff:c0a8:640a\n",
        f"{port}/gid_attrs/types/3": "RoCE v2\n",
        f"{port}/gid_attrs/ndevs/0": "enp1s0f0np0\n",
        "sys/class/infiniband/rocep1s0f0/fw_ver": "28.45.4028\n",
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    os.symlink(root / "sys/devices/0000:01:00.0", root / "sys/class/infiniband/rocep1s0f0/device")
    (root / "var/lib").mkdir(parents=True)


def run(argv: list[str]) -> tuple[int, str, str]:
    answers = {
        ("ip", "-j", "-d", "address", "show"): IP_ADDRESS,
        ("ip", "-j", "-4", "route", "show"): IP_ROUTE,
        ("nvidia-smi", "-L"): f"GPU 0: NVIDIA GB10 (UUID: GPU-{UUID})\n",
        ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"): "580.178.04\n",
        ("nvidia-smi", "-q"): f"    Serial Number        : {SERIAL}\n    Product Name : NVIDIA GB10\n",
        tuple(gpu_state.COMMAND): "10.4, 46, 208, 0, 0x01\n",
        ("ibdev2netdev",): (CAPTURED / "ibdev2netdev-oshlabs.txt").read_text(),
    }
    out = answers.get(tuple(argv))
    return (127, "", f"{argv[0]}: not installed") if out is None else (0, out, "")


@pytest.fixture
def bundle(tmp_path: Path) -> dict[str, Any]:
    spark(tmp_path / "host")
    found = capture.capture(run, Anonymous("key"), str(tmp_path / "host"), hidden=mask.forms([TOKEN]))
    found["platform"] = SYSTEM
    text = json.dumps(found)
    for told in (SERIAL, TOKEN, UUID, "not-for-you", "00:00:01", "product_serial"):
        assert told not in text
    return json.loads(text)


def test_a_captured_host_is_read_as_the_host_itself(bundle: dict[str, Any], tmp_path: Path) -> None:
    replay = Replay(bundle, tmp_path / "replayed")
    again, itself = replay.node(), NodeReader(run, str(tmp_path / "host"), SYSTEM).read()
    hide = Anonymous("key")
    # disks, programs and the process tree are those of the machine that reads
    machines_own = {"disk_free_bytes", "binaries", "cpus", "python", "glibc", "secrets"}
    for key in set(itself) - machines_own:
        assert again[key] == hide.data(itself[key]), key
    assert (again["kind"], again["hostname"], again["kernel"]) == ("spark", "spark-5c2d", "6.17.0-1032-nvidia")


def test_its_rdma_devices_are_read_from_the_tool_and_from_sysfs_alone(bundle: dict[str, Any], tmp_path: Path) -> None:
    replay = Replay(bundle, tmp_path / "replayed")
    links = rdma.read_links(replay.run, str(replay.root))
    assert links["source"] == "ibdev2netdev"
    (link,) = [item for item in links["links"] if item["device"] == "rocep1s0f0"]
    assert (link["pci"], link["rate"], link["firmware"], link["gid_index"]) == ("0000:01:00.0", 200, "28.45.4028", 3)
    (link,) = rdma.read_links(replay.run, str(replay.root), sources=["sysfs"])["links"]
    assert (link["netdev"], link["phys_state"]) == ("enp1s0f0np0", "LinkUp")


def test_what_is_not_installed_is_left_out_and_still_not_installed_in_the_replay(
    bundle: dict[str, Any], tmp_path: Path
) -> None:
    assert not any(item["argv"][0] == "lldpctl" for item in bundle["commands"])
    assert Replay(bundle, tmp_path / "replayed").run(["lldpctl", "-f", "json0"])[0] == 127
    assert gpu_state.read(Replay(bundle, tmp_path / "again").run)[0]["celsius"] == 46


def test_only_commands_that_read_are_run(tmp_path: Path) -> None:
    spark(tmp_path)
    asked: list[list[str]] = []

    def noting(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return run(argv)

    before = sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    capture.capture(noting, Anonymous("key"), str(tmp_path))
    assert before == sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    words = {" ".join(argv) for argv in asked}
    assert not any(re_word in words for re_word in ("set", "-s", "up", "down"))
    assert {argv[0] for argv in asked} <= {
        *("ip", "ibdev2netdev", "rdma", "nvidia-smi", "nvidia-spark-ota-check", "lldpctl", "nmcli", "nvpmodel"),
        *("apt-mark", "systemctl", "ethtool"),
    }
