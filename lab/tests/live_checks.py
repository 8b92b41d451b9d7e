# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab tool on real simulated hosts. Needs root; not part of the unit tests: pytest lab/tests/live_checks.py"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from sparklab import Lab, LabError

SUBNET = os.environ.get("SPARKLAB_TEST_SUBNET", "10.98.7.0/24")
SUITE = os.environ.get("SPARKLAB_TEST_SUITE", "trixie")
HOSTS = ("spark-01", "spark-02", "spark-03")
P0, P1 = "enp1s0f0np0", "enp1s0f1np1"
pytestmark = pytest.mark.lab


def inventory(folder: Path, topology: str, hosts: tuple[str, ...] = HOSTS, thors: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    groups = {
        "cluster": {
            "children": {
                "ray_head": {"hosts": {hosts[0]: {}}},
                "ray_workers": {"hosts": {host: {} for host in hosts[1:]}},
            },
            "vars": {"fabric_topology": topology, "lab_suite": SUITE, "lab_subnet": SUBNET, "lab_disk": "1G"},
        }
    }
    if thors:
        groups["thors"] = {"hosts": {host: {} for host in thors}}
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"children": groups}}))
    return path


def traces(tag: str) -> list[str]:
    """Everything on this machine that carries the lab's tag."""
    left = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    left += os.listdir("/sys/class/net")
    left += [
        name
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
        if os.path.isdir(root)
        for name in os.listdir(root)
    ]
    left += os.listdir("/run/sparklab") if os.path.isdir("/run/sparklab") else []
    return [name for name in left if tag in name]


@pytest.fixture(scope="module")
def switch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    lab = Lab.create([inventory(folder / "sw", "switch")], home=folder / "home", name="sw")
    yield lab
    lab.destroy()
    assert traces(lab.plan.tag) == []
    assert not (folder / "home" / "sw").exists()
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert str(folder) not in subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout


def out(lab: Lab, host: str, *command: str) -> str:
    return lab.exec(host, command).stdout


def reaches(lab: Lab, host: str, address: str, size: int = 56) -> bool:
    command = ["ping", "-M", "do", "-c", "2", "-i", "0.2", "-W", "1", "-s", str(size), address]
    return lab.exec(host, command, check=False).returncode == 0


def carrier(lab: Lab, host: str, nic: str) -> bool:
    return "LOWER_UP" in out(lab, host, "ip", "-br", "link", "show", "dev", nic)


def soon(condition, seconds: float = 3.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def address_fabric(lab: Lab) -> None:
    for number, host in enumerate(HOSTS, 1):
        out(lab, host, "sh", "-c", f"ip link set dev {P1} mtu 9000 up; ip addr replace 10.98.200.{number}/24 dev {P1}")


def test_hosts_run_without_failed_units(switch):
    for host in HOSTS:
        assert soon(
            lambda host=host: out(switch, host, "sh", "-c", "systemctl is-system-running || :").strip() == "running", 20
        )


def test_identity(switch):
    text = out(
        switch,
        "spark-01",
        "sh",
        "-c",
        ". /etc/os-release; echo $ID $VERSION_CODENAME; cat /sys/class/dmi/id/product_name",
    )
    assert text.split() == ["ubuntu", "noble", "NVIDIA_DGX_Spark"]
    assert "MemTotal:       125526016 kB" in out(switch, "spark-01", "cat", "/proc/meminfo")
    switch.memory("spark-01", 1000)
    assert re.search(r"MemAvailable: +1024000 kB", out(switch, "spark-01", "cat", "/proc/meminfo"))


def test_separate_shm_and_tmp(switch):
    out(switch, "spark-01", "sh", "-c", "echo a >/dev/shm/mine; echo a >/tmp/mine")
    assert switch.exec("spark-02", ["ls", "/dev/shm/mine"], check=False).returncode
    assert switch.exec("spark-02", ["ls", "/tmp/mine"], check=False).returncode
    kinds = {os.readlink(f"/proc/{switch.machine(host).leader()}/ns/ipc") for host in HOSTS}
    assert len(kinds) == 3


def test_credentials_and_sandboxes_work_in_units(switch):
    limits = ("LoadCredential=x:/etc/hostname", "User=nvidia", "PrivateTmp=yes", "ProtectSystem=strict")
    run = ["systemd-run", "--wait", "--pipe", "-q", *(word for limit in limits for word in ("-p", limit))]
    assert out(switch, "spark-02", *run, "sh", "-c", "cat $CREDENTIALS_DIRECTORY/x").strip() == "spark-02"


def test_sysctls_are_the_hosts_own(switch):
    before = Path("/proc/sys/vm/swappiness").read_text()
    out(switch, "spark-01", "sysctl", "-w", "vm.swappiness=7")
    assert out(switch, "spark-01", "cat", "/proc/sys/vm/swappiness").strip() == "7"
    assert out(switch, "spark-02", "cat", "/proc/sys/vm/swappiness").strip() == "60"
    assert Path("/proc/sys/vm/swappiness").read_text() == before


def test_rdma_tree_follows_the_nics(switch):
    address_fabric(switch)
    state = "/sys/class/infiniband/rocep1s0f1/ports/1/state"
    assert soon(lambda: out(switch, "spark-01", "cat", state) == "4: ACTIVE\n")
    assert soon(
        lambda: "ffff:0a62:c801" in out(switch, "spark-01", "cat", "/sys/class/infiniband/rocep1s0f1/ports/1/gids/3")
    )
    assert f"rocep1s0f1 port 1 ==> {P1} (Up)" in out(switch, "spark-01", "ibdev2netdev")
    assert f"rocep1s0f0 port 1 ==> {P0} (Down)" in out(switch, "spark-01", "ibdev2netdev")
    links = {link["ifname"]: link for link in json.loads(out(switch, "spark-01", "rdma", "-j", "link", "show"))}
    assert links["rocep1s0f1"]["state"] == "ACTIVE"
    assert links["rocep1s0f1"]["netdev"] == P1


def test_uncabled_nics_have_no_carrier(switch):
    out(switch, "spark-01", "ip", "link", "set", "dev", P0, "up")
    assert not carrier(switch, "spark-01", P0)


def test_cut_and_fix(switch):
    address_fabric(switch)
    assert reaches(switch, "spark-01", "10.98.200.3", 8972)
    switch.cut("spark-03", P1)
    assert soon(lambda: not carrier(switch, "spark-03", P1))
    assert carrier(switch, "spark-01", P1)
    assert not reaches(switch, "spark-01", "10.98.200.3")
    switch.fix("spark-03")
    assert soon(lambda: reaches(switch, "spark-01", "10.98.200.3"))


def test_silent_cut_keeps_the_carrier(switch):
    address_fabric(switch)
    switch.cut("spark-03", P1, silent=True)
    assert carrier(switch, "spark-03", P1)
    assert not reaches(switch, "spark-01", "10.98.200.3")
    assert reaches(switch, "spark-01", "10.98.200.2")
    switch.fix("spark-03", P1)
    assert reaches(switch, "spark-01", "10.98.200.3")


def test_loss(switch):
    address_fabric(switch)
    switch.loss("spark-02", 50, P1)
    ping = switch.exec(
        "spark-01", ["ping", "-c", "100", "-i", "0.01", "-W", "1", "-q", "10.98.200.2"], check=False
    ).stdout
    switch.loss("spark-02", 0, P1)
    lost = float(re.search(r"([0-9.]+)% packet loss", ping)[1])
    assert 50 < lost < 95  # each direction loses half: 75 % of the answers are missing
    assert reaches(switch, "spark-01", "10.98.200.2")


def test_oneway(switch):
    address_fabric(switch)
    out(switch, "spark-02", "ping", "-c", "1", "-W", "1", "10.98.200.1")
    switch.oneway("spark-01", "spark-02")
    assert not reaches(switch, "spark-01", "10.98.200.2")
    rx = f"/sys/class/net/{P1}/statistics/rx_packets"
    before = int(out(switch, "spark-01", "cat", rx))
    reaches(switch, "spark-02", "10.98.200.1")
    assert int(out(switch, "spark-01", "cat", rx)) > before  # the other way is whole
    switch.oneway("spark-01", "spark-02", on=False)
    assert reaches(switch, "spark-01", "10.98.200.2")


def test_blackhole_eats_jumbo_frames_only(switch):
    address_fabric(switch)
    switch.blackhole("spark-02", P1)
    assert reaches(switch, "spark-01", "10.98.200.2", 1400)
    assert not reaches(switch, "spark-01", "10.98.200.2", 8972)
    switch.blackhole("spark-02", P1, on=False)
    assert reaches(switch, "spark-01", "10.98.200.2", 8972)


@pytest.mark.parametrize("reverse", [[], ["-R"]], ids=["to the host", "from the host"])
def test_rate(switch, reverse):
    address_fabric(switch)
    out(switch, "spark-02", "iperf3", "-s", "-D", "-1")
    switch.rate("spark-02", [P1], 200)
    try:
        done = switch.exec("spark-01", ["iperf3", "-c", "10.98.200.2", "-t", "3", "-J", *reverse])
    finally:
        switch.rate("spark-02", [P1], None)
    mbit = json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6
    assert 160 < mbit < 210


def test_power_loss_is_silent_and_the_disk_survives(switch):
    out(switch, "spark-02", "sh", "-c", "echo kept >/etc/kept; sysctl -w vm.swappiness=3")
    listener = [
        "python3",
        "-c",
        "import socket,time; s=socket.create_server(('', 7777)); c,_=s.accept(); time.sleep(99)",
    ]
    switch.exec("spark-02", ["systemd-run", "-q", *listener])
    address = switch.plan.host("spark-02").address
    watch = (
        f"import socket,select; s=socket.create_connection(('{address}', 7777), 5); print('in', flush=True);"
        "r,_,_=select.select([s],[],[],4); print('heard' if r else 'silence')"
    )
    time.sleep(0.5)
    watcher = subprocess.Popen(
        switch.enter_command("spark-01", ["python3", "-c", watch]), stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout.readline() == "in\n"
    start = time.monotonic()
    switch.off("spark-02")
    assert time.monotonic() - start < 30  # a shutdown waits for each unit
    assert watcher.communicate(timeout=10)[0] == "silence\n"
    assert switch.status("spark-02")[0]["power"] == "off"
    switch.boot("spark-02")
    switch.wait("spark-02")
    assert out(switch, "spark-02", "cat", "/etc/kept") == "kept\n"
    assert out(switch, "spark-02", "cat", "/proc/sys/vm/swappiness") == "60\n"


def test_a_cut_survives_a_power_cycle(switch):
    switch.cut("spark-03", P1)
    switch.cycle("spark-03")
    switch.wait("spark-03")
    out(switch, "spark-03", "ip", "link", "set", "dev", P1, "up")
    assert not carrier(switch, "spark-03", P1)
    switch.fix("spark-03", P1)
    assert soon(lambda: carrier(switch, "spark-03", P1))


def test_reboot_and_shutdown(switch):
    before = switch.boot_id("spark-03")
    switch.reboot("spark-03")
    switch.wait("spark-03")
    assert switch.boot_id("spark-03") != before
    switch.shutdown("spark-03")
    assert switch.status("spark-03")[0]["power"] == "off"
    switch.boot()
    switch.wait()


def test_a_killed_supervisor_is_cleared_away(switch):
    pid = next(
        int(entry)
        for entry in os.listdir("/proc")
        if entry.isdigit() and f"sparklab.machine\0{switch.folder}\0spark-03" in _cmdline(entry)
    )
    os.kill(pid, 9)
    assert soon(lambda: switch.status("spark-03")[0]["power"] == "off")
    switch.boot("spark-03")
    switch.wait("spark-03")
    assert out(switch, "spark-03", "hostname") == "spark-03\n"


def _cmdline(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_disk_is_limited(switch):
    done = switch.exec("spark-03", ["dd", "if=/dev/zero", "of=/root/big", "bs=1M", "count=2000"], check=False)
    assert "No space left" in done.stderr
    out(switch, "spark-03", "rm", "/root/big")


def test_create_again_changes_nothing(switch):
    leaders = [row["pid1"] for row in switch.status()]
    again = Lab.create([switch.home.parent / "sw/hosts.yml"], home=switch.home, name="sw")
    assert [row["pid1"] for row in again.status()] == leaders


def test_other_wiring_is_refused(switch):
    other = inventory(switch.home.parent / "other", "lan")
    with pytest.raises(LabError, match="destroy it first"):
        Lab.create([other], home=switch.home, name="sw")


def test_same_subnet_is_refused(switch):
    with pytest.raises(LabError, match="subnet"):
        Lab.create([switch.home.parent / "sw/hosts.yml"], home=switch.home, name="second")
    assert not (switch.home / "second").exists()


def test_a_lab_that_is_off_lends_its_subnet(switch):
    """Runs that were killed leave a lab whose hosts are dead; the next lab must not fail by it."""
    switch.off()
    second = Lab.create([switch.home.parent / "sw/hosts.yml"], home=switch.home, name="second")
    try:
        assert [row["power"] for row in switch.status()] == ["off"] * 3
        with pytest.raises(LabError, match="is used by the lab in"):
            switch.boot()
        with pytest.raises(LabError, match="is used by the lab in"):
            Lab.create([switch.home.parent / "sw/hosts.yml"], home=switch.home, name="sw")
    finally:
        second.destroy()
    switch.boot()
    switch.wait()
    assert reaches(switch, "spark-01", switch.plan.host("spark-02").address)


def test_ansible_reaches_the_hosts(switch):
    done = subprocess.run(
        ["ansible", "all", "-i", switch.folder / "inventory.yml", "-m", "ansible.builtin.ping", "-b"],
        env={**os.environ, "PATH": f"{Path(os.sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == 3


def test_ring_carriers_follow_the_far_end(tmp_path):
    subnet = SUBNET.replace(".7.", ".8.")
    lab = Lab.create([inventory(tmp_path / "ring", "ring")], home=tmp_path / "home", name="ring", subnet=subnet)
    try:
        for host in HOSTS:
            out(lab, host, "ip", "link", "set", "dev", P0, "up")
        assert not carrier(lab, "spark-01", P0)  # its far end, p1 of spark-02, is still down
        out(lab, "spark-02", "ip", "link", "set", "dev", P1, "up")
        assert soon(lambda: carrier(lab, "spark-01", P0))
        assert carrier(lab, "spark-02", P1)
        lab.off("spark-02")
        assert soon(lambda: not carrier(lab, "spark-01", P0))
        lab.boot("spark-02")
        lab.wait("spark-02")
        assert not carrier(lab, "spark-01", P0)
        out(lab, "spark-02", "ip", "link", "set", "dev", P1, "up")
        assert soon(lambda: carrier(lab, "spark-01", P0))
        lab.cut("spark-01", P0)
        assert soon(lambda: not carrier(lab, "spark-02", P1))
        lab.fix("spark-02", P1)
        assert soon(lambda: carrier(lab, "spark-02", P1))
    finally:
        lab.destroy()
    assert traces(lab.plan.tag) == []


def test_mixed_lab_with_a_thor(tmp_path):
    subnet = SUBNET.replace(".7.", ".9.")
    path = inventory(tmp_path / "mixed", "lan", ("spark-01", "thor-01"), ("thor-01",))
    lab = Lab.create([path], home=tmp_path / "home", name="mixed", subnet=subnet)
    try:
        text = out(
            lab,
            "thor-01",
            "sh",
            "-c",
            "cat /etc/nv_tegra_release; ls /sys/class/infiniband 2>&1 | wc -l; ls /sys/class/net",
        )
        assert text.startswith("# R38 ")
        assert {"enP2p1s0", "mgbe0_0"} <= set(text.split())
        assert "enp1s0f0np0" not in text
        assert lab.exec("thor-01", ["ibdev2netdev"], check=False).returncode != 0
        assert "NVIDIA Thor" in out(lab, "thor-01", "nvidia-smi", "-L")
        out(lab, "thor-01", "sh", "-c", "nvpmodel -m 0 && nvpmodel -q | grep MAXN && jetson_clocks")
        assert reaches(lab, "spark-01", lab.plan.host("thor-01").address)
    finally:
        lab.destroy()
    assert traces(lab.plan.tag) == []
