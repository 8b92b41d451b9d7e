# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One unit without systemd: enough of systemctl and journalctl for the watchdog, on a machine that has neither.

The watchdog itself is the one that the role installs, unchanged; it finds these two programs on its PATH.

    python tools/faults/unit.py prove --folder /tmp/g --socket /tmp/g/vllm.sock --model NAME --kill 'VLLM::Worker' \
        -- vllm serve --config /tmp/g/vllm.yaml

starts the command (which has to listen on the UNIX socket, `uds:` in the configuration), starts the watchdog over it,
waits until it serves, kills a process of the group whose title matches, waits until it serves again without anybody's
help, and prints what happened as JSON.  ``run`` only supervises; ``bin/systemctl`` and ``bin/journalctl`` in the folder
then move and read it.  Standard library only, any Python from 3.9 on.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent.parent
RESTART_AFTER = 5.0
STOP_SECONDS = 30.0
PR_SET_CHILD_SUBREAPER = 36


def descendants(root: int) -> list[int]:
    """Every process below this one, from /proc: what a control group would hold."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat") as stream:
                parents[int(name)] = int(stream.read().rpartition(")")[2].split()[1])
    found: list[int] = []
    fresh = {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        found += fresh
    return found


def title(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as stream:
        return stream.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return ""


class Unit:
    """The command, started again whenever it ends, and stopped as a whole."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.folder = folder
        self.command = list(command)
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.properties = {
            "LoadState": "loaded",
            "ActiveState": "inactive",
            "SubState": "dead",
            "InvocationID": "",
            "MainPID": "0",
            "Result": "success",
            "NRestarts": "0",
        }
        self.lock = threading.RLock()
        self.start_at: float | None = None
        self.log_begins = 0
        self.over = False
        # orphans of the command come to us, as those of a unit stay in its control group
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self) -> None:
        with self.lock:
            self.start_at = None
            stream = self.log.open("ab")
            self.log_begins = self.log.stat().st_size
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )
            stream.close()
            self.properties.update(
                ActiveState="active",
                SubState="running",
                InvocationID=uuid.uuid4().hex,
                MainPID=str(self.process.pid),
                Result="success",
            )

    def kill(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def ended(self) -> None:
        """What is left of a unit whose main process is gone dies at once, as with KillMode=mixed."""
        end = time.monotonic() + STOP_SECONDS
        while descendants(os.getpid()) and time.monotonic() < end:
            self.kill(signal.SIGKILL)
            self.reap()
            time.sleep(0.1)

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                pid, _status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return

    def restart(self) -> None:
        with self.lock:
            if self.process is not None and self.process.poll() is None:
                self.properties.update(ActiveState="deactivating", SubState="stop-sigterm")
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(STOP_SECONDS)
            self.ended()
            # as with systemd, an order by hand begins the count anew
            self.properties["NRestarts"] = "0"
            self.start()

    def watch(self) -> None:
        while not self.over:
            time.sleep(0.2)
            with self.lock:
                now = time.monotonic()
                if self.process is not None and self.process.poll() is not None and self.start_at is None:
                    self.ended()
                    self.start_at = now + RESTART_AFTER
                    self.properties.update(
                        ActiveState="activating",
                        SubState="auto-restart",
                        MainPID="0",
                        Result="success" if self.process.returncode == 0 else "exit-code",
                        NRestarts=str(int(self.properties["NRestarts"]) + 1),
                    )
                if self.start_at is not None and now >= self.start_at:
                    self.start()

    def journal(self, count: int) -> str:
        with self.log.open("rb") as stream:
            stream.seek(self.log_begins)
            lines = stream.read().decode("utf-8", "replace").splitlines()
        return "".join(json.dumps({"MESSAGE": line}) + "\n" for line in lines[-count:])

    def answer(self, argv: Sequence[str]) -> tuple[int, str]:
        """What systemctl (or journalctl) says to these words."""
        program, words = os.path.basename(argv[0]), list(argv[1:])
        if program == "journalctl":
            counts = [word.partition("=")[2] for word in words if word.startswith("--lines=")]
            return 0, self.journal(int(counts[0]) if counts else 100)
        verbs = [word for word in words if not word.startswith("-")]
        verb = verbs[0] if verbs else ""
        if verb == "show":
            with self.lock:
                return 0, "".join(f"{key}={value}\n" for key, value in self.properties.items())
        if verb == "kill":
            self.kill(signal.SIGKILL)
        elif verb == "restart":
            threading.Thread(target=self.restart).start()
        elif verb == "is-enabled":
            return 0, "enabled\n"
        elif verb != "reset-failed":
            return 1, f"this stand-in knows no {verb!r}\n"
        return 0, ""

    def serve(self) -> None:
        path = self.folder / "control.sock"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door.bind(str(path))
        door.listen(16)
        while not self.over:
            connection, _address = door.accept()
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            words = json.loads(connection.makefile("rb").readline())
            status, text = self.answer(words)
            connection.sendall(json.dumps([status, text]).encode() + b"\n")


def install(folder: Path) -> Path:
    """``systemctl`` and ``journalctl`` for the PATH of whoever is to see this unit."""
    tools = folder / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    for name in ("systemctl", "journalctl"):
        path = tools / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} ask {folder} {name} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return tools


def ask(folder: str, words: Sequence[str]) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.connect(f"{folder}/control.sock")
        door.sendall(json.dumps(list(words)).encode() + b"\n")
        status, text = json.loads(door.makefile("rb").readline())
    sys.stdout.write(text)
    return int(status)


def supervise(folder: Path, command: Sequence[str]) -> Unit:
    folder.mkdir(parents=True, exist_ok=True)
    install(folder)
    unit = Unit(folder, command)
    unit.start()
    for work in (unit.watch, unit.serve):
        threading.Thread(target=work, daemon=True).start()
    return unit


def watchdog(folder: Path, config: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The program that the watchdog's unit runs, from this checkout."""
    path = folder / "serving.json"
    path.write_text(json.dumps(config, indent=1) + "\n")
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(TOP / "plugins"),
    }
    log = (folder / "watchdog.log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-B", "-m", "module_utils._onhost", "watchdog", str(path)],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def state(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}


def prove(options: argparse.Namespace, command: Sequence[str]) -> int:
    """A process of the group is killed; nobody but the watchdog helps."""
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "state.json"
    for path in (told, folder / "control.sock"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    config = {
        "unit": "group.service",
        "socket": options.socket,
        "model": options.model,
        "health_socket": str(folder / "health.sock"),
        "state": str(told),
        "metrics": str(folder / "metrics.prom"),
        "ray": False,
        "settings": {"interval": options.interval, "deadline": options.deadline},
    }
    begun = time.monotonic()
    unit = subprocess.Popen([sys.executable, __file__, "run", "--folder", str(folder), "--", *command])
    while not (folder / "control.sock").exists() and unit.poll() is None:
        time.sleep(0.05)
    guard = watchdog(folder, config)
    story: list[str] = []
    result: dict[str, Any] = {"story": story}
    zero = begun

    def until(wanted: bool, seconds: float) -> float | None:
        """When the state became (or left) serving."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = state(told)
            line = str(seen.get("line", ""))
            if line and (not story or not story[-1].endswith(f"s  {line}")):
                story.append(f"{time.monotonic() - zero:7.1f} s  {line}")
            if line and (seen.get("state") == "serving") is wanted:
                return time.monotonic()
            time.sleep(0.1)
        return None

    try:
        served = until(True, options.timeout)
        result["clean_start"] = None if served is None else round(served - begun, 1)
        if served is None:
            return 1
        pids = [pid for pid in descendants(unit.pid) if re.search(options.kill, title(pid))]
        if not pids:
            # executor ray: the ranks are Ray's children, not ours
            own = {os.getpid(), unit.pid, guard.pid}
            everybody = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in own]
            pids = [pid for pid in everybody if re.search(options.kill, title(pid))]
        if not pids:
            result["trouble"] = f"no process matches {options.kill}"
            return 1
        victim = max(pids)
        result["killed"] = f"{victim} {title(victim)}"[:200]
        zero = time.monotonic()
        os.kill(victim, signal.SIGSTOP if options.stop else signal.SIGKILL)
        gone = until(False, 120)
        result["noticed"] = None if gone is None else round(gone - zero, 1)
        back = until(True, options.timeout) if gone else None
        result["serving_again"] = None if back is None else round(back - zero, 1)
        result["restarts"] = state(told).get("restarts")
        result["left_over"] = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        return 0 if back is not None and not result["left_over"] else 1
    finally:
        guard.terminate()
        guard.wait(10)
        unit.terminate()
        unit.wait(60)
        print(json.dumps(result, indent=1), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["ask"]:
        return ask(words[1], words[2:])
    settings, command = words, []
    if "--" in words:
        cut = words.index("--")
        settings, command = words[:cut], words[cut + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("run", "prove"))
    parser.add_argument("--folder", required=True, help="for the log, the control socket and bin/")
    parser.add_argument("--socket", help="UNIX socket of the engine")
    parser.add_argument("--model", help="name it is served under")
    parser.add_argument("--kill", default="VLLM::Worker", help="pattern of the title of the process to kill")
    parser.add_argument("--stop", action="store_true", help="SIGSTOP instead of SIGKILL: a rank that hangs")
    parser.add_argument("--interval", type=float, default=10.0)
    parser.add_argument("--deadline", type=float, default=20.0)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for a start")
    options = parser.parse_args(settings)
    if not command:
        parser.error("which command? Give it after --")
    if options.verb == "prove":
        if not (options.socket and options.model):
            parser.error("prove needs --socket and --model")
        return prove(options, command)
    unit = supervise(Path(options.folder).resolve(), command)
    # a shell that runs us in the background has switched SIGINT off
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)
    unit.over = True
    with unit.lock:
        unit.ended()
    return 0


if __name__ == "__main__":
    sys.exit(main())
