# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from sparklab import gpu, inventory, own
from sparklab.plan import Host, Plan, allot
from sparklab.plan import Wish as Wanted
from sparklab.system import LabError


def machine(folder: Path, cards: int, driver: bool = True) -> dict[str, Path]:
    """A /dev and a bus with this many GPUs."""
    dev, pci = folder / "dev", folder / "pci"
    for path in (dev, pci):
        path.mkdir(parents=True)
    for number in range(cards):
        device = pci / f"0000:00:0{number}.0"
        device.mkdir()
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
        if driver:
            (dev / f"nvidia{number}").touch()
    if driver:
        for name in ("nvidiactl", "nvidia-uvm"):
            (dev / name).touch()
    return {"dev": dev, "pci": pci}


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvidia-smi that answers."""
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tool


def test_each_host_gets_the_next_free_gpu(tmp_path: Path, smi: Path) -> None:
    assert gpu.allot(2, (), **machine(tmp_path / "m", 4)) == (0, 1)
    assert gpu.allot(2, (0, 2), **machine(tmp_path / "n", 4)) == (1, 3)


@pytest.mark.parametrize(
    ("cards", "driver", "hosts", "taken", "message"),
    [
        (0, False, 1, (), "has no NVIDIA GPU: take lab_gpu out"),
        (2, False, 1, (), "no working driver: install the driver"),
        (1, True, 2, (), "2 hosts, and this machine has 1 GPUs: take fewer hosts"),
        (2, True, 2, (0,), "has 2 GPUs, 1 of them in use by other labs"),
    ],
)
def test_one_line_says_why_not(
    tmp_path: Path, smi: Path, cards: int, driver: bool, hosts: int, taken: tuple[int, ...], message: str
) -> None:
    with pytest.raises(LabError, match=message) as caught:
        gpu.allot(hosts, taken, **machine(tmp_path / "m", cards, driver))
    assert "\n" not in str(caught.value)


def test_a_driver_that_does_not_answer_is_quoted(tmp_path: Path, smi: Path) -> None:
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n")
    with pytest.raises(LabError, match="version mismatch"):
        gpu.allot(1, (), **machine(tmp_path / "m", 1))


def test_a_lab_keeps_its_gpus_and_others_stay_away(tmp_path: Path, smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = machine(tmp_path / "m", 4)
    allot = gpu.allot
    monkeypatch.setattr(gpu, "allot", lambda hosts, taken, named: allot(hosts, taken, named=named, **rooms))
    registry, first, second = tmp_path / "run", tmp_path / "a", tmp_path / "b"
    for folder in (registry, first, second):
        folder.mkdir()
    (first / "lab.json").write_text(json.dumps({"gpus": [0, 1]}))
    (registry / "a.lab").write_text(json.dumps({"folder": str(first)}))
    assert gpu.of_lab(second, registry, 2) == (2, 3)
    assert gpu.of_lab(first, registry, 2) == (0, 1)
    assert gpu.of_lab(second, registry, 2, (1, 2)) == (1, 2)


def test_a_host_sees_its_own_node_and_cannot_make_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev = machine(tmp_path, 2)["dev"]
    assert gpu.nodes(1, dev) == [f"{dev}/nvidia1", f"{dev}/nvidiactl", f"{dev}/nvidia-uvm"]
    assert gpu.binds(0)[0] == "--drop-capability=CAP_MKNOD"


def test_containers_get_the_gpu_and_the_drivers_libraries(tmp_path: Path) -> None:
    dev = machine(tmp_path, 2)["dev"]
    text = gpu.container_device(1, ["/usr/lib/libcuda.so.1"], ["/usr/bin/nvidia-smi"], dev)
    document = json.loads(text)
    nodes = [node["path"] for node in document["devices"][1]["containerEdits"]["deviceNodes"]]
    assert document["devices"][1]["name"] == "all"
    assert nodes == [f"{dev}/nvidia1", f"{dev}/nvidiactl", f"{dev}/nvidia-uvm"]
    mounts = [mount["hostPath"] for mount in document["containerEdits"]["mounts"]]
    assert mounts == ["/usr/lib/libcuda.so.1", "/usr/bin/nvidia-smi"]


def test_hosts_with_gpus_are_generic_and_stand_on_the_machine() -> None:
    data = {
        "cluster": {"hosts": ["a", "b"]},
        "_meta": {"hostvars": {name: {"lab_gpu": True, "lab_name": "g"} for name in "ab"}},
    }
    request = inventory.interpret(data)
    assert request.gpu
    assert [wish.kind for wish in request.wishes] == ["generic", "generic"]
    hosts = allot([Wanted("a", "generic")], "10.77.0.0/24")
    assert hosts[0].nics == ("eno1",)
    plan = Plan("g", "abcd", "10.77.0.0/24", "bookworm", "1G", (), hosts, gpus=(3,))
    assert plan.gpu(hosts[0]) == 3
    assert Plan.from_data(json.loads(json.dumps(plan.to_data()))) == plan
    with pytest.raises(LabError, match="lab_suite bookworm: hosts with lab_gpu stand on this machine's own system"):
        own.trees(plan)


def test_a_record_from_before_gpus_is_read() -> None:
    plan = Plan("g", "abcd", "10.77.0.0/24", "bookworm", "1G", (), (Host("a", 0, "spark", "10.77.0.11"),))
    data = plan.to_data()
    del data["gpus"]
    assert Plan.from_data(data).gpus == ()


def test_file_systems_of_a_driver_are_found() -> None:
    text = (
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "29 22 254:16 / /usr/local/nvidia ro - squashfs /dev/vdb ro\n"
        "30 22 0:3 / /opt/with\\040space ro - tmpfs none ro\n"
        "31 22 0:5 / /home rw - ext4 /dev/vdc rw\n"
    )
    assert own.mounts(text) == ["/opt/with space", "/usr/local/nvidia"]


def test_missing_packages_and_ordinary_users() -> None:
    assert own.missing("systemd\nudev\n", ["systemd", "openssh-server"]) == ["openssh-server"]
    passwd = "root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh\nnobody:x:65534:1::/:/bin/false\n"
    assert own.ordinary_users(passwd) == ["ubuntu"]


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes and overlay marks need root")
def test_what_is_the_machines_own_is_hidden(tmp_path: Path) -> None:
    root, upper = tmp_path / "root", tmp_path / "upper"
    for name in ("home/me", "etc/ssh", "usr/bin", "secret", "var/tmp"):
        (root / name).mkdir(parents=True)
    (root / "root").mkdir(mode=0o700)
    upper.mkdir()
    own.hide(upper, root)
    hidden = (upper / "secret").stat()
    assert stat.S_ISCHR(hidden.st_mode)
    assert hidden.st_rdev == 0
    assert os.getxattr(upper / "home", "trusted.overlay.opaque") == b"y"
    assert stat.S_IMODE((upper / "root").stat().st_mode) == 0o700
    assert not (upper / "usr").exists()
