# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a playbook through ansible-runner: progress while it runs, seconds by stage, artifacts kept on failure."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner

TOP = Path(__file__).resolve().parent.parent
RUNS = TOP / ".lab" / "runs"
#: a task that takes longer gets a line of its own, so that a long step is not silence
SLOW_TASK_SECONDS = 10.0
#: of a run that ended without a failed task, which say why
LAST_LINES = 6
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Outcome:
    """What a run came to.  ``stages`` maps a role (or play) to its wall seconds, in order of first appearance."""

    rc: int
    status: str
    seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    stats: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    artifacts: Path | None = None
    output: str = ""

    @property
    def changed(self) -> dict[str, int]:
        """Changed tasks by host, for every host of the run; the controller is one where something changed on it."""
        hosts = {host for counts in self.stats.values() for host in counts}
        found = {host: self.stats.get("changed", {}).get(host, 0) for host in sorted(hosts)}
        return {host: count for host, count in found.items() if count or host != "localhost"}


class _Progress:
    """Turns runner events into lines and stage times."""

    def __init__(self, say: Callable[[str], None], news: Callable[[str], None] | None = None) -> None:
        self._say = say
        self._news = news or (lambda line: say("           " + line))
        self._start = time.monotonic()
        self._stage = ""
        self._since = self._start
        self._task = ""
        self._task_since = self._start
        self.stages: dict[str, float] = {}
        self.failures: list[str] = []
        self.changes: list[str] = []
        self.stats: dict[str, dict[str, int]] = {}

    def _close(self, now: float) -> None:
        if self._task and now - self._task_since > SLOW_TASK_SECONDS:
            self._say(f"           {now - self._task_since:5.0f} s  {self._task}")
        if self._stage:
            self.stages[self._stage] = self.stages.get(self._stage, 0.0) + now - self._since
        self._since = now

    def handle(self, event: dict[str, Any]) -> bool:
        kind = event.get("event", "")
        data = event.get("event_data") or {}
        now = time.monotonic()
        if kind in ("playbook_on_task_start", "playbook_on_handler_task_start"):
            stage = (data.get("role") or data.get("play") or "playbook").rpartition(".")[2]
            self._close(now)
            if stage != self._stage:
                self._say(f"[{now - self._start:6.0f} s] {stage}")
                self._stage = stage
            self._task, self._task_since = str(data.get("name") or data.get("task") or ""), now
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            result = data.get("res") or {}
            if not (kind == "runner_on_unreachable" and result.get("skip_reason")):
                message = str(result.get("msg") or result)
                self.failures.append(f"{data.get('host')}: {message}")
        elif kind == "runner_on_ok" and (data.get("res") or {}).get("changed"):
            self.changes.append(f"{data.get('host')}: {data.get('task')}")
        elif kind == "playbook_on_stats":
            self._close(now)
            self._stage = ""
            self.stats = {
                name: data.get(name) or {} for name in ("ok", "changed", "failures", "dark", "skipped", "processed")
            }
        elif kind == "verbose":
            for line in (event.get("stdout") or "").splitlines():
                if line.startswith("sparkthor: "):
                    self._news(line.removeprefix("sparkthor: "))
        return True


def _unexplained(rc: int, status: str, output: str) -> list[str]:
    """Why a run ended in which no task failed: an inventory that cannot be read, a controller that was killed."""
    if rc == 0:
        return []
    last = [line.strip() for line in output.splitlines() if line.strip()][-LAST_LINES:]
    return [f"no task failed, and the run ended with {rc} ({status}): {' | '.join(last) or 'it said nothing'}"]


def run_playbook(
    playbook: str,
    inventories: Sequence[str | Path],
    *,
    extra_vars: dict[str, Any] | None = None,
    arguments: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    name: str = "run",
    say: Callable[[str], None] | None = None,
    news: Callable[[str], None] | None = None,
) -> Outcome:
    """Run ``playbook`` (a path in the checkout) and return its :class:`Outcome`; never raises for a failed play.

    ``say`` takes each line of the run's course, ``news`` those about something that takes long (default: ``say``).

    Artifacts (events, stdout) stay under ``.lab/runs/<name>-<time>`` when the run failed and go when it did not.
    """
    talk = say if say is not None else (lambda line: print(line, flush=True))
    folder = RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    progress = _Progress(talk, news)
    begun = time.monotonic()
    binaries = str(Path(sys.executable).parent)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    result = ansible_runner.run(
        private_data_dir=str(folder),
        project_dir=str(TOP),
        playbook=str(TOP / playbook),
        inventory=[str(Path(item).resolve()) for item in inventories],
        extravars=extra_vars or None,
        cmdline=shlex.join(arguments) or None,
        envvars={
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "PATH": f"{binaries}:{os.environ.get('PATH', '')}",
            "ANSIBLE_NOCOLOR": "1",
            **(environment or {}),
        },
        event_handler=progress.handle,
        quiet=True,
        suppress_env_files=True,
    )
    # the runner leaves its own behind, and nobody could end us from then on
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)
    # each line has colours of its own, also where Ansible has folded one
    output = _COLOUR.sub("", result.stdout.read() if result.stdout else "")
    # a program that a signal ended has no exit status
    rc = int(result.rc if result.rc is not None else 1)
    outcome = Outcome(
        rc=rc,
        status=str(result.status),
        seconds=time.monotonic() - begun,
        stages=progress.stages,
        stats=progress.stats,
        failures=progress.failures or _unexplained(rc, str(result.status), output),
        changes=progress.changes,
        artifacts=folder,
        output=output,
    )
    if outcome.rc == 0:
        shutil.rmtree(folder, ignore_errors=True)
        outcome.artifacts = None
    return outcome
