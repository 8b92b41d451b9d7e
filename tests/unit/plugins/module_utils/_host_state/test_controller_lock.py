# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds the lock, when it falls, and what a shell on the head does for its holder."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import controller_lock as lock

ADA = lock.Holder("ada.1", "ada@laptop (process 1)", "Prepare the hosts")
BOB = lock.Holder("bob.2", "bob@desk (process 2)", "Stop the serving group")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock.json")


def shell(command: str) -> None:
    subprocess.run(["sh", "-c", command], check=True, timeout=20)


def aged(path: str, seconds: float) -> float:
    """A time so long after the last sign of life."""
    return os.stat(path).st_mtime + seconds


def test_the_second_one_is_told_who_and_since_when(path: str) -> None:
    assert lock.take(ADA, path, now=0.0) == (None, None, 0.0)
    holder, former, age = lock.take(BOB, path, aged(path, 30))
    assert holder is not None
    assert (holder.owner, holder.since, former, round(age)) == (ADA.owner, "1970-01-01 00:00:00Z", None, 30)
    text = lock.refusal(holder, age)
    assert text.startswith(
        'ada@laptop (process 1) is changing this cluster: "Prepare the hosts" since 1970-01-01 00:00:00Z'
    )
    assert "last sign of life 30 s ago" in text


def test_one_run_may_ask_twice_and_keeps_its_time(path: str) -> None:
    lock.take(ADA, path, now=0.0)
    assert lock.take(ADA, path, now=5000.0)[0] is None
    found = lock.read(path)[0]
    assert found is not None
    assert found.since == "1970-01-01 00:00:00Z"


def test_a_dead_holder_is_taken_over_and_named(path: str) -> None:
    lock.take(ADA, path)
    assert lock.take(BOB, path, aged(path, lock.PATIENCE - 1))[0] is not None
    holder, former, _age = lock.take(BOB, path, aged(path, lock.PATIENCE))
    assert holder is None
    assert former is not None
    assert former.owner == ADA.owner
    found = lock.read(path)[0]
    assert found is not None
    assert found.token == BOB.token


def test_of_many_at_once_one_gets_it(path: str) -> None:
    wishes = [lock.Holder(f"run.{number}", f"user {number}", "site.yml") for number in range(16)]
    got: list[str] = []
    begin = threading.Barrier(len(wishes))

    def ask(wish: lock.Holder) -> None:
        begin.wait()
        if lock.take(wish, path)[0] is None:
            got.append(wish.token)

    threads = [threading.Thread(target=ask, args=(wish,)) for wish in wishes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_a_sign_of_life_and_the_end(path: str) -> None:
    lock.take(ADA, path)
    held = lock.read(path)[0]
    assert held is not None
    os.utime(path, (0, 0))
    shell(lock.beat_command(held, path))
    assert lock.read(path)[1] < 60
    os.utime(path, (0, 0))
    shell(lock.beat_command(BOB, path))
    shell(lock.release_command(BOB, path))
    assert lock.read(path)[1] > 60, "another's lock is left alone"
    shell(lock.release_command(held, path))
    assert lock.read(path) == (None, 0.0)


def test_after_a_reboot_of_the_head_it_is_taken_again(path: str) -> None:
    lock.take(lock.Holder("it's", "o'neil@x", "a b.yml"), path)
    held = lock.read(path)[0]
    assert held is not None
    os.unlink(path)
    shell(lock.beat_command(held, path))
    assert lock.read(path)[0] == held
    assert sorted(os.listdir(os.path.dirname(path))) == ["lock.json", "lock.json.guard"]


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_a_torn_lock_is_none(path: str, content: str) -> None:
    Path(path).write_text(content)
    assert lock.take(ADA, path)[0] is None
