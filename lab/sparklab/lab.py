# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab as an object: what the command line does, tests can do with `from sparklab import Lab`.

lab = Lab.create(["inventories/lab"])
lab.off("spark-02"); lab.boot("spark-02"); lab.wait("spark-02")
lab.cut("spark-03", "enp1s0f1np1"); lab.fix("spark-03")
lab.exec("spark-01", ["systemctl", "is-active", "ssh"]).stdout
lab.destroy()
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from . import base, checks, gpu, identity, inventory, own
from .machine import Machine, cgroup_root, enter
from .net import Network
from .plan import Host, Plan, allot, check_lab_name, disk_bytes, lab_tag, parse_subnet, rewire, wire
from .system import LabError, locked, mounts_below, run, say, wait_until, write

DEFAULT_SUBNET = "10.77.0.0/24"
DEFAULT_SUITE = "bookworm"
DEFAULT_DISK = "12G"

# What all labs of the machine share: who is there, and the limits that the first one raised
REGISTRY = Path("/run/sparklab")
SYSTEMD_RUN = Path("/run/systemd")
#: Real hosts have a kernel each; these share one. 128 inotify instances are used up by some 18 hosts, which all run as
#: one user; 1,024 neighbours (one table for all name spaces) by some 23 hosts that each know all others on two links.
LIMITS = {
    "fs/inotify/max_user_instances": 4096,
    "net/ipv4/neigh/default/gc_thresh3": 16384,
    "net/ipv4/neigh/default/gc_thresh2": 8192,
    "net/ipv6/neigh/default/gc_thresh3": 16384,
    "net/ipv6/neigh/default/gc_thresh2": 8192,
}
PROC_SYS = Path("/proc/sys")


def default_home() -> Path:
    """.lab in the checkout: beside the folder lab/ that this package lies in, else in the working directory."""
    if os.environ.get("SPARKLAB_HOME"):
        return Path(os.environ["SPARKLAB_HOME"]).resolve()
    checkout = Path(__file__).resolve().parents[2]
    return (checkout if (checkout / "galaxy.yml").exists() else Path.cwd()) / ".lab"


class Lab:
    def __init__(self, name: str, home: Path | str | None = None) -> None:
        self.home = Path(home).resolve() if home else default_home()
        self.name = check_lab_name(name)
        self.folder = self.home / name
        try:
            data = json.loads((self.folder / "lab.json").read_text())
        except FileNotFoundError as exc:
            raise LabError(f"no lab {name!r} in {self.home}") from exc
        self.plan = Plan.from_data(data)
        self.network = Network(self.plan, self.folder)

    # --- making ------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        inventories: Sequence[str | Path],
        *,
        home: Path | str | None = None,
        name: str | None = None,
        subnet: str | None = None,
        suite: str | None = None,
        disk: str | None = None,
        layers: Sequence[str] = (),
        wiring: Mapping[str, Any] | None = None,
        boot: bool = True,
    ) -> Lab:
        """Make what is lacking of a lab, boot it and wait for ssh. Can be repeated at any time."""
        os.umask(0o022)
        checks.require()
        paths = [str(path) for path in inventories]
        request = inventory.interpret(inventory.read(paths))
        root = Path(home).resolve() if home else default_home()
        name = check_lab_name(name) if name else inventory.default_name(request, paths)
        subnet = str(parse_subnet(subnet or request.subnet or DEFAULT_SUBNET))
        hosts = allot(request.wishes, subnet)
        segments = wire(hosts, request.topology, request.cage, request.cages)
        if request.topology in ("direct", "switch") and request.other_cage:
            segments = rewire(hosts, segments, {"cage": dict.fromkeys(request.other_cage, 1 - request.cage)})
        plan = Plan(
            name=name,
            tag=lab_tag(str(root), name),
            subnet=subnet,
            suite=suite or request.suite or (own.SUITE if request.gpu else DEFAULT_SUITE),
            disk=disk or request.disk or DEFAULT_DISK,
            layers=tuple(layers) or request.layers,
            hosts=hosts,
            segments=rewire(hosts, segments, wiring) if wiring else segments,
            gpus=gpu.of_lab(root / name, REGISTRY, len(hosts), request.gpu) if request.gpu else (),
        )
        size = disk_bytes(plan.disk)
        lowers = [*(base.layer(layer, plan.suite) for layer in plan.layers), *own.trees(plan)]
        base.tools(bootstrap=plan.suite != own.SUITE)
        folder = root / name
        with _alone(root, name):
            known = folder / "lab.json"
            if known.exists() and Plan.from_data(json.loads(known.read_text())) != plan:
                raise LabError(f"lab {name} is there with other hosts, wiring or base: destroy it first, or use --name")
            if not known.exists():
                _clear_orphans(plan)
            _claim_subnet(plan)
            if not known.exists():
                write(known, json.dumps(plan.to_data(), indent=1) + "\n")
            lab = cls(name, root)
            lab._register()
            link = folder / "base"
            if not link.is_symlink():
                link.symlink_to(lowers[-1])
            write(folder / "lowers", "".join(f"{path}\n" for path in lowers))
            lab._keys()
            lab._each(plan.hosts, lambda host: lab._make_host(host, size))
            lab.network.switch_up()
            lab._write_overlay()
            if boot:
                lab.boot()
                lab.wait()
            say(f"lab {name} is ready: {', '.join(f'{host.name} {host.address}' for host in plan.hosts)}")
        return lab

    def _keys(self) -> None:
        (self.folder / "ssh").mkdir(exist_ok=True)
        key = self.folder / "ssh/id_ed25519"
        if not key.with_suffix(".pub").exists():
            key.unlink(missing_ok=True)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"sparklab {self.name}", "-f", key])

    def _make_host(self, host: Host, size: int) -> None:
        folder = self.folder / "hosts" / host.name
        folder.mkdir(parents=True, exist_ok=True)
        key = folder / "ssh_host_ed25519_key"
        if not key.with_suffix(".pub").exists():
            key.unlink(missing_ok=True)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{host.name}", "-f", key])
        image = folder / "disk.img"
        if image.exists():
            return
        say(f"{host.name}: making its disk ({self.plan.disk}, {host.kind})")
        staging = folder / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        for part in ("upper", "work", "docker"):
            (staging / part).mkdir(parents=True)
        public = (self.folder / "ssh/id_ed25519.pub").read_text()
        if self.plan.suite == own.SUITE:
            own.stage(staging / "upper")
        identity.stage(staging / "upper", host, self.plan, public, key)
        identity.make_disk(image, size, staging)
        shutil.rmtree(staging)

    def _write_overlay(self) -> None:
        """The inventory that is given after the user's own: how to reach the hosts, where their secrets are kept."""
        known = []
        for host in self.plan.hosts:
            words = (self.folder / "hosts" / host.name / "ssh_host_ed25519_key.pub").read_text().split()
            known.append(f"{host.address} {words[0]} {words[1]}\n")
        write(self.folder / "ssh/known_hosts", "".join(known))
        write(self.folder / "inventory.yml", overlay(self.plan, self.folder, self._sockets()))

    def _sockets(self) -> Path:
        """ssh's control sockets: a short path (their length is limited), cleared at each power-on."""
        return REGISTRY / f"{self.plan.tag}.ssh"

    # --- the machine-wide register -----------------------------------------------------------------------------------

    def _register(self) -> None:
        with locked(REGISTRY / "lock"):
            saved = REGISTRY / "limits.json"
            if not saved.exists():
                before = {key: int((PROC_SYS / key).read_text()) for key in LIMITS if (PROC_SYS / key).exists()}
                low = {key: value for key, value in before.items() if value < LIMITS[key]}
                write(saved, json.dumps(low) + "\n")
                for key in low:
                    (PROC_SYS / key).write_text(str(LIMITS[key]))
            if not SYSTEMD_RUN.exists():
                # nspawn wants it; each host gets a file system of its own there
                SYSTEMD_RUN.mkdir()
                (REGISTRY / "systemd").touch()
            entry = {"folder": str(self.folder), "subnet": self.plan.subnet}
            write(REGISTRY / f"{self.plan.tag}.lab", json.dumps(entry) + "\n")

    def _unregister(self) -> None:
        with locked(REGISTRY / "lock"):
            (REGISTRY / f"{self.plan.tag}.lab").unlink(missing_ok=True)
            shutil.rmtree(self._sockets(), ignore_errors=True)
            if not list(REGISTRY.glob("*.lab")):
                saved = REGISTRY / "limits.json"
                if saved.exists():
                    for key, value in json.loads(saved.read_text()).items():
                        (PROC_SYS / key).write_text(str(value))
                if (REGISTRY / "systemd").exists():
                    with contextlib.suppress(OSError):
                        SYSTEMD_RUN.rmdir()
                shutil.rmtree(REGISTRY, ignore_errors=True)

    # --- reaching ----------------------------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        lowers = [Path(line) for line in (self.folder / "lowers").read_text().splitlines()]
        return Machine(self.network, self.plan.host(name), lowers)

    def _hosts(self, names: Iterable[str]) -> list[Host]:
        chosen = [self.plan.host(name) for name in names]
        return chosen or list(self.plan.hosts)

    @staticmethod
    def _each(hosts: Sequence[Host], work: Callable[[Host], object]) -> None:
        """The same for several hosts at once; the first error is raised after all have ended."""
        with ThreadPoolExecutor(max_workers=min(8, len(hosts))) as pool:
            for future in [pool.submit(work, host) for host in hosts]:
                future.result()

    def status(self, *names: str) -> list[dict[str, Any]]:
        rows = []
        for host in self._hosts(names):
            machine = self.machine(host.name)
            leader = machine.leader() if machine.is_on() else None
            rows.append(
                {
                    "host": host.name,
                    "kind": host.kind,
                    "address": host.address,
                    "power": "on" if machine.is_on() else "off",
                    "pid1": leader,
                    "ssh": machine.is_on() and _greets(host.address),
                }
            )
        return rows

    def exec(
        self,
        name: str,
        command: Sequence[str],
        *,
        check: bool = True,
        stdin: str | None = None,
        timeout: float | None = 120,
    ) -> subprocess.CompletedProcess[str]:
        """A command inside a host, without ssh and without its network."""
        return run(self.enter_command(name, command), check=check, stdin=stdin, timeout=timeout)

    def enter_command(self, name: str, command: Sequence[str]) -> list[str]:
        return enter(self._leader(name), list(command), mknod=not self.plan.gpus)

    def _leader(self, name: str) -> int:
        leader = self.machine(name).leader()
        if leader is None:
            raise LabError(f"{name} is off")
        return leader

    def ssh_options(self) -> list[str]:
        return ["-i", str(self.folder / "ssh/id_ed25519"), *ssh_arguments(self.folder)]

    def ssh_command(self, name: str, command: Sequence[str] = ()) -> list[str]:
        host = self.plan.host(name)
        return ["ssh", *self.ssh_options(), f"{base.USER}@{host.address}", *command]

    def cp_command(self, paths: Sequence[str]) -> list[str]:
        """scp, in which HOST:PATH stands for a path on a host."""
        words = []
        for path in paths:
            name, colon, rest = path.partition(":")
            there = colon and name in {host.name for host in self.plan.hosts}
            words.append(f"{base.USER}@{self.plan.host(name).address}:{rest}" if there else path)
        return ["scp", "-q", "-r", *self.ssh_options(), *words]

    def wait(self, *names: str, seconds: float = 90) -> None:
        """Until sshd answers on the management address of all of them."""
        end = time.monotonic() + seconds
        for host in self._hosts(names):
            machine = self.machine(host.name)
            while not (_greets(host.address) and machine.takes_logins()):
                if not machine.is_on():
                    raise LabError(f"{host.name} is off: {machine.console_tail()}")
                if time.monotonic() > end:
                    what = f"{host.name}: no ssh on {host.address} after {seconds:.0f} s"
                    raise LabError(f"{what}: {machine.console_tail()}")
                time.sleep(0.1)

    # --- power -------------------------------------------------------------------------------------------------------

    def boot(self, *names: str) -> None:
        # a restart of the machine forgets /run, and a lab that was off may have lent its network
        _claim_subnet(self.plan)
        self._register()
        self.network.switch_up()
        off = [host for host in self._hosts(names) if not self.machine(host.name).is_on()]
        if not off:
            return
        say(f"booting {', '.join(host.name for host in off)}")

        def work(host: Host) -> None:
            self._drop_sockets(host)
            self.machine(host.name).power_on()

        self._each(off, work)

    def off(self, *names: str) -> None:
        """Power loss."""
        self._each(self._hosts(names), lambda host: self.machine(host.name).power_off())

    def shutdown(self, *names: str) -> None:
        """Orderly power-off."""
        self._each(self._hosts(names), lambda host: self.machine(host.name).shut_down())

    def rest(self) -> bool:
        """Give the network back where all hosts are off and nobody works on the lab; the next boot makes it anew."""
        with (self.home / f".{self.name}.lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if any(self.machine(host.name).is_on() for host in self.plan.hosts):
                return False
            say(f"lab {self.name} in {self.home} is off: its network gives way")
            for host in self.plan.hosts:
                self.machine(host.name).sweep()
            self.network.switch_down()
            self._unregister()
            return True

    def cycle(self, *names: str) -> None:
        """Power loss and power-on again."""
        self.off(*names)
        self.boot(*names)

    def reboot(self, *names: str) -> None:
        """An orderly reboot, asked for inside."""

        def work(host: Host) -> None:
            before = self.boot_id(host.name)
            self._drop_sockets(host)
            self.exec(host.name, ["systemctl", "reboot"], check=False)
            if not wait_until(lambda: self._rebooted(host.name, before), 90, 0.1):
                raise LabError(f"{host.name} does not come up again: {self.machine(host.name).console_tail()}")

        self._each(self._hosts(names), work)

    def boot_id(self, name: str) -> str:
        """Changes with every boot. The kernel's own boot id is the machine's, so PID 1's start time stands in."""
        leader = self._leader(name)
        return Path(f"/proc/{leader}/stat").read_text().rsplit(")", 1)[1].split()[19]

    def _rebooted(self, name: str, before: str) -> bool:
        try:
            return self.boot_id(name) != before
        except (LabError, OSError):
            return False

    def _drop_sockets(self, host: Host) -> None:
        """ssh masters of a former life of this host would only hang."""
        folder = self._sockets() / host.name
        for path in folder.glob("*"):
            run(["ssh", "-o", f"ControlPath={path}", "-O", "exit", "none"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)

    # --- faults ------------------------------------------------------------------------------------------------------

    def _ends(self, name: str, nics: Sequence[str], *, data_only: bool = True) -> list[str]:
        host = self.plan.host(name)
        chosen = list(nics) or [nic for nic in host.nics if not data_only or nic != host.management]
        for nic in chosen:
            host.port(nic)  # raises for a NIC that is not there
        return [f"{name}:{nic}" for nic in chosen]

    def cut(self, name: str, *nics: str, silent: bool = False) -> None:
        """No carrier (or, silent: carrier, but nothing passes). Without NICs: all but the management NIC."""
        ends = self._ends(name, nics)

        def change(state: dict[str, Any]) -> None:
            if silent:
                state["silent"] = sorted({*state["silent"], *ends})
            else:
                have = {tuple(entry) for entry in state["cut"]} | {tuple(end.split(":")) for end in ends}
                state["cut"] = sorted(list(entry) for entry in have)

        self.network.change_faults(change)

    def fix(self, name: str, *nics: str) -> None:
        """Undo cut, loss, one-way and black hole (not rate). Without NICs: everything of this host."""
        ends = set(self._ends(name, nics, data_only=False))
        peers = set()
        for end in ends:
            peer = self.plan.cable_peer(*end.split(":"))
            if peer:
                peers.add(":".join(peer))  # a cable is whole when both its ends are

        def change(state: dict[str, Any]) -> None:
            state["cut"] = [entry for entry in state["cut"] if ":".join(entry) not in ends | peers]
            state["silent"] = [end for end in state["silent"] if end not in ends | peers]
            state["blackhole"] = [end for end in state["blackhole"] if end not in ends | peers]
            state["loss"] = {end: share for end, share in state["loss"].items() if end not in ends | peers}
            if not nics:
                state["oneway"] = [pair for pair in state["oneway"] if name not in pair]

        self.network.change_faults(change)

    def loss(self, name: str, percent: float, *nics: str) -> None:
        """Lose this share of packets in each direction; 0 ends it."""
        if not 0 <= percent <= 100:
            raise LabError(f"loss {percent}: a percentage from 0 to 100")
        ends = self._ends(name, nics)

        def change(state: dict[str, Any]) -> None:
            for end in ends:
                state["loss"].pop(end, None)
                if percent:
                    state["loss"][end] = percent

        self.network.change_faults(change)

    def oneway(self, source: str, target: str, *, on: bool = True) -> None:
        """A partition in one direction: nothing from source reaches target, on any NIC; the other way is whole."""
        pair = [self.plan.host(source).name, self.plan.host(target).name]

        def change(state: dict[str, Any]) -> None:
            state["oneway"] = [entry for entry in state["oneway"] if entry != pair] + ([pair] if on else [])

        self.network.change_faults(change)

    def rate(self, name: str, nics: Sequence[str], mbit: float | None) -> None:
        """Limit each of these NICs to this many Mbit/s in each direction; None ends it. No NICs: all data NICs."""
        if mbit is not None and not 0.1 <= mbit <= 100000:
            raise LabError(f"rate {mbit}: Mbit/s from 0.1 to 100000, or none")
        ends = self._ends(name, nics)

        def change(state: dict[str, Any]) -> None:
            for end in ends:
                state["rate"].pop(end, None)
                if mbit is not None:
                    state["rate"][end] = mbit

        self.network.change_faults(change)

    def blackhole(self, name: str, *nics: str, on: bool = True) -> None:
        """Frames above 1500 bytes vanish without a word."""
        ends = set(self._ends(name, nics))

        def change(state: dict[str, Any]) -> None:
            state["blackhole"] = sorted(set(state["blackhole"]) - ends | (ends if on else set()))

        self.network.change_faults(change)

    def memory(self, name: str, available_mb: int) -> None:
        """What /proc/meminfo of a running host says is available, until its next boot."""
        if not 0 <= available_mb <= identity.MEMORY_MB:
            raise LabError(f"memory {available_mb}: from 0 to {identity.MEMORY_MB} MB")
        # in place: the host has this very file mounted
        (self.folder / "hosts" / name / "sys/meminfo").write_text(identity.meminfo(available_mb))

    # --- the end -----------------------------------------------------------------------------------------------------

    def destroy(self) -> None:
        """Remove every trace."""
        with _alone(self.home, self.name):
            if (self.folder / "lowers").exists():

                def work(host: Host) -> None:
                    self.machine(host.name).power_off()
                    self._drop_sockets(host)

                self._each(self.plan.hosts, work)
            self.network.switch_down()
            for point in mounts_below(self.folder):
                run(["umount", "--lazy", point], check=False)
            with contextlib.suppress(OSError):
                os.rmdir(cgroup_root() / f"sparklab-{self.plan.tag}")
            self._unregister()
            # lab.json goes last, so that a destroy that dies can be repeated
            record = self.folder / "lab.json"
            for entry in self.folder.iterdir():
                if entry != record:
                    run(["rm", "-rf", "--one-file-system", entry], timeout=600)
            shutil.rmtree(self.folder)


def labs(home: Path | str | None = None) -> list[str]:
    root = Path(home).resolve() if home else default_home()
    return sorted(path.parent.name for path in root.glob("*/lab.json"))


def only_lab(home: Path | str | None = None) -> Lab:
    """The lab that is meant when none is named."""
    named = os.environ.get("SPARKLAB_NAME")
    found = labs(home)
    if named:
        return Lab(named, home)
    if len(found) != 1:
        root = Path(home).resolve() if home else default_home()
        raise LabError(f"several labs ({', '.join(found)}): say which with --name" if found else f"no lab in {root}")
    return Lab(found[0], home)


def ssh_arguments(folder: Path) -> list[str]:
    """The hosts' real keys are known, so nothing is accepted blindly; the user's own ssh settings stay out of it."""
    options = {
        "UserKnownHostsFile": str(folder / "ssh/known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "ConnectTimeout": "10",
    }
    return ["-F", "/dev/null", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]


def overlay(plan: Plan, folder: Path, sockets: Path) -> str:
    hosts = {
        host.name: {
            "ansible_host": host.address,
            "ansible_user": base.USER,
            "ansible_ssh_private_key_file": str(folder / "ssh/id_ed25519"),
            "ansible_ssh_common_args": " ".join(ssh_arguments(folder)),
            "ansible_control_path_dir": str(sockets / host.name),
            # an inventory that finds its files by the name its lab usually has
            "lab_name": plan.name,
        }
        for host in plan.hosts
    }
    head = "# Written by sparklab: give it after your own inventory, ansible-playbook -i INVENTORY -i THIS\n"
    # Secrets of simulated hosts live and go with them; beside the inventory, real hosts would be given the same.
    variables = {"sparkthor_secrets_dir": str(folder / "secrets")}
    return head + yaml.safe_dump({"all": {"vars": variables, "hosts": hosts}}, sort_keys=False, width=1000)


@contextlib.contextmanager
def _alone(home: Path, name: str) -> Iterator[None]:
    """Only one run at a time makes or removes a lab; where there is no lab in the end, nothing of it stays either."""
    lock = home / f".{name}.lock"
    try:
        with locked(lock, waiting=f"waiting for another run that works on lab {name}"):
            yield
    finally:
        if not (home / name).exists():
            lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                home.rmdir()


def _clear_orphans(plan: Plan) -> None:
    """Hosts of a lab whose folder was removed under them: nobody but a new lab of that name and place can know them."""
    group = cgroup_root() / f"sparklab-{plan.tag}"
    if group.exists():
        say(f"clearing away what is left of an earlier lab {plan.name}")
        (group / "cgroup.kill").write_text("1")
        wait_until(lambda: "populated 0" in (group / "cgroup.events").read_text(), 10)
    for path in Path("/run/netns").glob(f"sl{plan.tag}[-_]*"):
        run(["ip", "netns", "del", path.name], check=False)
    run(["ip", "link", "del", f"sl{plan.tag}ctl"], check=False)


def _claim_subnet(plan: Plan) -> None:
    """Raise unless nobody uses the subnet.  A lab that is off altogether, as after its runs were killed, gives way."""
    if (REGISTRY / f"{plan.tag}.lab").exists():
        return
    wanted = ipaddress.ip_network(plan.subnet)
    for path in REGISTRY.glob("*.lab"):
        entry = json.loads(path.read_text())
        if path.stem != plan.tag and wanted.overlaps(ipaddress.ip_network(entry["subnet"])):
            folder = Path(entry["folder"])
            # only a lab that was made to its end is known well enough to be put to rest
            made = (folder / "lab.json").exists() and (folder / "lowers").exists()
            if not made or not Lab(folder.name, folder.parent).rest():
                what = f"subnet {plan.subnet} is used by the lab in {folder}"
                raise LabError(f"{what}: destroy that lab, or give another --subnet")
    for nic in json.loads(run(["ip", "-j", "-4", "address", "show"]).stdout or "[]"):
        if nic.get("ifname") == f"sl{plan.tag}ctl":
            continue
        for address in nic.get("addr_info", ()):
            network = ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}").network
            if wanted.overlaps(network):
                where = f"{network} on this machine's {nic['ifname']}"
                raise LabError(f"subnet {plan.subnet} overlaps {where}: give another --subnet")


def _greets(address: str) -> bool:
    """Whether an ssh server says hello."""
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def call(argv: Sequence[str]) -> int:
    """A command that the user talks to."""
    return subprocess.call(list(argv))
