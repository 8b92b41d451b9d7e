# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One simulated host's life on this machine: power on, power loss, orderly power-off, reaching into it.

Each running host has a supervisor process (this module's main), which owns the host's name spaces, boots it again when
it asks for a reboot, keeps its /sys/class/infiniband current and couples the carriers of its cables. A lock that the
supervisor holds says whether the host is on; a supervisor that was killed leaves no wrong mark behind. Disk, overlay
and cgroup file system are mounted in the host's own mount name space, so the kernel cleans them up whatever happens.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from . import gpu, own
from .base import Tools, tools
from .identity import fake_sysctls, meminfo
from .infiniband import tree
from .net import Network
from .plan import Host
from .system import LabError, locked, wait_until, write

REBOOT = 133  # nspawn's exit status when the guest asked for a reboot
ORDERLY = signal.SIGRTMIN + 4  # systemd: power off
#: lies on the host's disk itself, and not on the overlay over it
DISK = "/var/lib/docker"
FREEZE, THAW = 0xC0045877, 0xC0045878  # FIFREEZE and FITHAW of linux/fs.h
CAPABILITIES = "CAP_NET_ADMIN,CAP_IPC_LOCK,CAP_BPF,CAP_PERFMON,CAP_SYSLOG"  # never all: a guest would set the clock

# $1 cgroup, $2 lower layers, $3 host folder; the rest is nspawn. The cgroup is entered first, so that one write to its
# cgroup.kill ends everything; mounts are private to this shell and what it becomes.
LAUNCH = """
set -e
echo $$ >"$1/cgroup.procs"
mount -t tmpfs -o mode=755 none /run/systemd
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -o loop "$3/disk.img" "$3/disk"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3/disk/upper,workdir=$3/disk/work" "$3/root"
shift 3
exec "$@"
"""


def cgroup_root() -> Path:
    """The cgroup2 tree: all of /sys/fs/cgroup, or the part of a hybrid set-up."""
    unified = Path("/sys/fs/cgroup/unified")
    return unified if unified.is_dir() else Path("/sys/fs/cgroup")


class Machine:
    def __init__(self, network: Network, host: Host, lowers: list[Path]) -> None:
        self.network = network
        self.host = host
        self.lowers = lowers
        self.folder = network.folder / "hosts" / host.name
        self.cgroup = cgroup_root() / f"sparklab-{network.plan.tag}" / host.name
        self.console = self.folder / "console.log"

    # --- state -------------------------------------------------------------------------------------------------------

    def is_on(self) -> bool:
        try:
            with (self.folder / "on.lock").open("a") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def leader(self) -> int | None:
        """PID of the host's PID 1, seen from outside."""
        try:
            pids = (self.cgroup / "payload/init.scope/cgroup.procs").read_text().split()
        except OSError:
            pids = []
        if not pids:
            # PID 1 has not moved into its scope yet, or never will
            with contextlib.suppress(OSError):
                pids = (self.cgroup / "payload/cgroup.procs").read_text().split()
        for pid in pids:
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{pid}/status").read_text()
                if status.split("NSpid:", 1)[1].split("\n", 1)[0].split()[-1] == "1":
                    return int(pid)
        return None

    def takes_logins(self) -> bool:
        """Whether the boot has come far enough that ordinary users may log in."""
        leader = self.leader()
        return leader is not None and not Path(f"/proc/{leader}/root/run/nologin").exists()

    def block_writes(self, on: bool = True) -> None:
        """Whoever writes to the host's disk waits in the kernel, where no signal reaches it, until this is undone."""
        leader = self.leader()
        if leader is None:
            if on:
                raise LabError(f"{self.host.name} is off")
            return
        try:
            disk = os.open(f"/proc/{leader}/root{DISK}", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError as error:
            if on:
                raise LabError(f"{self.host.name} is not up yet, or on its way down") from error
            return
        try:
            fcntl.ioctl(disk, FREEZE if on else THAW, 0)
        except OSError as error:
            # as it was wanted already
            if error.errno != (errno.EBUSY if on else errno.EINVAL):
                raise LabError(f"{self.host.name}: its disk: {error.strerror}") from error
        finally:
            os.close(disk)

    # --- power -------------------------------------------------------------------------------------------------------

    def power_on(self) -> None:
        with locked(self.folder / "power.lock"):
            self._power_on()

    def _power_on(self) -> None:
        if self.is_on():
            return
        if not (self.folder / "disk.img").exists():
            raise LabError(f"{self.host.name} has no disk: run create again")
        self.sweep()
        package = Path(__file__).resolve().parent.parent
        search = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
        with self.console.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "sparklab.machine", str(self.network.folder), self.host.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, "PYTHONPATH": search},
                start_new_session=True,
            )
        if not wait_until(lambda: self.is_on() or process.poll() is not None, 20, 0.02) or not self.is_on():
            raise LabError(f"{self.host.name} does not start: {self.console_tail()}")

    def power_off(self) -> None:
        """Power loss: first all cables, so that peers see silence and no farewell, then the end of all at once."""
        if not self.folder.exists():
            return  # creating it died before it got this far
        with locked(self.folder / "power.lock"):
            self._power_off()

    def _power_off(self) -> None:
        if self.network.exists(self.network.switch):
            self.network.darken(self.host)
        self.block_writes(False)
        leader = self.leader()
        if leader is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)
        if not wait_until(lambda: not self.is_on(), 3):
            # PID 1 was not up yet, or something outlived it
            self._kill_group()
        if not wait_until(lambda: not self.is_on(), 10):
            raise LabError(f"{self.host.name} does not die: {self.console_tail()}")
        self.sweep()

    def shut_down(self, seconds: float = 90) -> None:
        if not self.is_on():
            return
        if not wait_until(self.leader, 10):
            raise LabError(f"{self.host.name} has no PID 1: {self.console_tail()}")
        self.block_writes(False)
        leader = self.leader()
        if leader is not None:
            os.kill(leader, ORDERLY)
        if not wait_until(lambda: not self.is_on(), seconds):
            raise LabError(f"{self.host.name} still runs {seconds:.0f} s after it was asked to power off")

    def sweep(self) -> None:
        """Clear away what a killed supervisor may have left: processes, cgroup, NICs."""
        if self.is_on():
            return
        self._kill_group()
        self.network.unplug(self.host)
        self._remove_cgroup()

    def _kill_group(self) -> None:
        with contextlib.suppress(OSError):
            (self.cgroup / "cgroup.kill").write_text("1")

    def _remove_cgroup(self) -> None:
        def gone() -> bool:
            for folder, _unused, _unused in os.walk(self.cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            return not self.cgroup.exists()

        if not wait_until(gone, 5):
            raise LabError(f"{self.cgroup} does not become empty")

    def console_tail(self) -> str:
        try:
            lines = self.console.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return " | ".join(lines[-3:]) or "its console is empty"

    # --- the supervisor's side ---------------------------------------------------------------------------------------

    def supervise(self) -> None:
        with (self.folder / "on.lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            kit = tools(bootstrap=False)
            try:
                while self._one_boot(kit) == REBOOT:
                    self._log("reboot")
            finally:
                self.network.sync_carrier([self.host], dead=self.host.name)
                self.network.unplug(self.host)

    def _log(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {self.host.name}: {text}", flush=True)

    def _one_boot(self, kit: Tools) -> int:
        for folder in ("disk", "root", "infiniband"):
            (self.folder / folder).mkdir(exist_ok=True)
        overlays = fake_sysctls(self.folder / "sys")
        write(self.folder / "sys/meminfo", meminfo())
        self._remove_cgroup()
        self.cgroup.mkdir(parents=True)
        self.network.plug_in(self.host)
        watch = self.network.watch(self.host)
        shown: dict[str, str] = {}
        self._refresh(shown)
        inner = "/var/lib/sparklab/sys"
        nspawn = [
            kit.nspawn,
            "--quiet",
            f"--directory={self.folder}/root",
            f"--machine={self.host.name}",
            "--register=no",
            "--keep-unit",
            "--boot",
            f"--network-namespace-path=/run/netns/{self.network.namespace(self.host)}",
            f"--capability={CAPABILITIES}",
            "--console=read-only",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            f"--bind={self.folder}/sys:{inner}",
            f"--bind={self.folder}/disk/docker:{DISK}",
            *self._infiniband_bind(),
            # sources of mounts below /proc are looked up inside the host
            *(f"--bind={inner}/{path}:/proc/sys/{path}" for path in overlays),
            *self._hardware_binds(f"{inner}/meminfo"),
        ]
        lower = ":".join(str(path) for path in self.lowers)
        launch = [
            "bash",
            "-c",
            LAUNCH,
            f"sparklab-{self.host.name}",
            str(self.cgroup),
            lower,
            str(self.folder),
            *nspawn,
        ]
        environment = {
            **os.environ,
            **kit.env,
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
            "SYSTEMD_SECCOMP": "0",
        }
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", *launch],
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        self._follow(process, watch, shown)
        watch.close()
        self.network.sync_carrier([self.host], dead=self.host.name)
        self._log(f"nspawn ended with {process.returncode}")
        self._kill_group()
        self._remove_cgroup()
        return process.returncode

    def _hardware_binds(self, memory: str) -> list[str]:
        """A real GPU with the machine's real memory, or the memory of the machine that is simulated."""
        points = own.bound() if self.network.plan.suite == own.SUITE else []
        words = [f"--bind-ro={point}" for point in points]
        number = self.network.plan.gpu(self.host)
        return [*words, *([f"--bind={memory}:/proc/meminfo"] if number is None else gpu.binds(number))]

    def _infiniband_bind(self) -> list[str]:
        target = "/var/lib/sparklab/class/infiniband"
        return [f"--bind={self.folder}/infiniband:{target}"] if self.host.kind == "spark" else []

    def _follow(self, process: subprocess.Popen[bytes], watch: socket.socket, shown: dict[str, str]) -> None:
        """Wait for the end of the host; meanwhile pass on what happens to its NICs."""
        ended = os.pidfd_open(process.pid)
        try:
            while True:
                select.select([ended, watch.fileno()], [], [])
                if process.poll() is not None:
                    return
                time.sleep(0.05)  # changes come in bursts
                with contextlib.suppress(OSError):
                    while watch.recv(65536):
                        pass
                try:
                    self._refresh(shown)
                except (LabError, OSError) as exc:
                    # a failed read of the NICs must not cost the host its supervisor
                    self._log(f"NICs: {exc}")
        finally:
            os.close(ended)

    def _refresh(self, shown: dict[str, str]) -> None:
        """Bring /sys/class/infiniband and the far ends of cables up to date."""
        if any(self.network.plan.cable_peer(self.host.name, nic) for nic in self.host.nics):
            self.network.sync_carrier([self.host])
        if self.host.kind != "spark":
            return
        wanted = tree(self.network.nic_state(self.host))
        top = self.folder / "infiniband"
        if not shown:
            for entry in top.iterdir():
                shutil.rmtree(entry)
        for path in shown.keys() - wanted.keys():
            (top / path).unlink(missing_ok=True)
        for path, text in wanted.items():
            if shown.get(path) != text:
                # made elsewhere and moved in, so that a reader never finds half a file or a stray name
                scratch = self.folder / ".infiniband"
                scratch.write_text(text + "\n")
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                scratch.rename(top / path)
        shown.clear()
        shown.update(wanted)


def enter(leader: int, command: list[str], *, mknod: bool = True) -> list[str]:
    """A command line that runs a command inside a host, in all its name spaces and with a clean environment.

    nsenter brings this machine's capabilities along; what a host must not do (mknod, see gpu.py) is taken away again.
    """
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    clean = ["env", "-i", path, "HOME=/root", "LANG=C.UTF-8", f"TERM={os.environ.get('TERM', 'dumb')}"]
    less = [] if mknod else ["setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod"]
    return ["nsenter", "--target", str(leader), "--all", "--", *clean, *less, *command]


def main(argv: list[str]) -> None:
    from .lab import Lab

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = Path(argv[0])
    Lab(folder.name, home=folder.parent).machine(argv[1]).supervise()


if __name__ == "__main__":
    os.umask(0o022)
    main(sys.argv[1:])
