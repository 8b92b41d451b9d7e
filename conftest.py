# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of every pytest run here."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.plugins.loader import init_plugin_loader
from hypothesis import HealthCheck, settings

# before the first import of the collection: templates find its filters and lookups as in a run of Ansible
init_plugin_loader()

# How long one example takes says something about the machine's other work only; benchmarks measure time.
settings.register_profile("anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("anywhere")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skipped test fails the run: what cannot run here must be said, not passed over."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter else 0
    if skipped and session.exitstatus == 0:
        reporter.write_line(f"{skipped} test(s) skipped: a skipped test fails the run", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


#: seconds in which what a test has already told to stop may end; only a test that fails waits that long
ENDING_SECONDS = 5.0
#: helpers that Python itself keeps until the process ends, and a simulated host that a test booted for the next ones
PYTHONS_OWN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "-m sparklab.machine")


def child_processes() -> dict[int, str]:
    """Process id -> command line of every living child of this process."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return {}  # the usual answer, a hundred times quicker than reading /proc
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # after the name, which may hold anything: state, parent
            parent = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()[1]
            if int(parent) == os.getpid():
                # a child that has ended has no command line, whether or not anybody has asked how it ended
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if words and not any(own in words for own in PYTHONS_OWN):
                    found[int(folder.name)] = words
    return found


@contextlib.contextmanager
def nothing_left_behind(who: str) -> Iterator[None]:
    """Fail where a thread or child process that was not there before is still there after."""
    threads, children = set(threading.enumerate()), set(child_processes())
    yield
    give_up = time.monotonic() + ENDING_SECONDS
    while True:
        left = [f"thread {thread.name!r}" for thread in threading.enumerate() if thread not in threads]
        left += [f"process {pid}: {words}" for pid, words in child_processes().items() if pid not in children]
        if not left or time.monotonic() > give_up:
            break
        time.sleep(0.01)
    if left:
        pytest.fail(f"{who} leaves behind {'; '.join(left)}: stop and wait for it before the test ends", pytrace=False)


@pytest.fixture(autouse=True)
def _test_cleans_up(request: pytest.FixtureRequest) -> Iterator[None]:
    with nothing_left_behind(request.node.nodeid):
        yield


@pytest.fixture(scope="module", autouse=True)
def _module_cleans_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a fixture of the whole file started has to end with it."""
    with nothing_left_behind(request.node.nodeid):
        yield
