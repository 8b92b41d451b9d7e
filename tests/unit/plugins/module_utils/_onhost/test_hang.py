# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host keeps of a hung engine.  The processes are real ones of this machine; RAS is a server on loopback."""

from __future__ import annotations

import os
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import hangs
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import hang

from tests.unit import servers

#: two threads that wait for ever
RANK = """
import threading, time
for _ in range(2):
    threading.Thread(target=time.sleep, args=(600,)).start()
print("ready", flush=True)
"""


@pytest.fixture
def rank() -> Iterator[int]:
    """A process whose title is that of a rank."""
    argv = ["VLLM::Worker_TP1", "-c", RANK]
    with subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def nothing(_argv: Sequence[str], _seconds: float) -> tuple[int, str, str]:
    return 127, "", "not installed"


def test_a_rank_is_kept_with_what_its_threads_wait_for(rank: int) -> None:
    found = hang.Reader(nothing, ask_nccl=lambda _seconds: "").processes()
    mine = next(entry for entry in found if entry["pid"] == rank)
    assert mine["title"] == "VLLM::Worker_TP1"
    assert sum(one["count"] for one in mine["threads"]) == 3
    assert {one["state"] for one in mine["threads"]} <= {"S", "R"}


def test_no_part_that_hangs_costs_more_than_the_budget(rank: int) -> None:
    released = threading.Event()

    def slow(argv: Sequence[str], _seconds: float) -> tuple[int, str, str]:
        if argv[0] == "py-spy":
            released.wait(60)
        return 0, "0x0", ""

    begun = time.monotonic()
    record = hang.Reader(slow, py_spy="py-spy", budget=0.5, ask_nccl=lambda _seconds: "ranks 0-1").read()
    assert time.monotonic() - begun < 30
    assert f"stack of {rank}" in record["late"]
    assert (record["nccl"], record["log"]) == ("ranks 0-1", "0x0")
    released.set()
    for thread in threading.enumerate():
        if thread.name.endswith("(answer)"):
            thread.join(10)


def test_stacks_stand_with_their_process(rank: int) -> None:
    def run(argv: Sequence[str], _seconds: float) -> tuple[int, str, str]:
        if argv[0] == "/usr/bin/py-spy":
            assert "--nonblocking" in argv
            return 0, f"Thread {argv[-1]} (idle): MainThread\n    all_reduce (pynccl.py:149)\n", ""
        return 127, "", ""

    record = hang.Reader(run, py_spy="/usr/bin/py-spy", ask_nccl=lambda _seconds: "").read()
    mine = next(entry for entry in record["processes"] if entry["pid"] == rank)
    assert "all_reduce" in mine["stack"]
    assert not record["late"]


class Ras(socketserver.StreamRequestHandler):
    """As NCCL's RAS service answers, by its user guide."""

    def handle(self) -> None:
        assert self.rfile.readline() == b"client protocol 2\n"
        self.wfile.write(b"SERVER PROTOCOL 2\n")
        assert self.rfile.readline().startswith(b"timeout ")
        self.wfile.write(b"OK\n")
        assert self.rfile.readline() == b"verbose status\n"
        self.wfile.write(b"Job summary\nErrors\n  Communicator 0x1 rank 3: no answer\n")


class Silent(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.read()


@pytest.mark.parametrize(("handler", "expected"), [(Ras, "rank 3: no answer"), (Silent, "")])
def test_nccl_is_asked_about_all_ranks(handler: Any, expected: str) -> None:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    with servers.serving(server):
        found = hang.ras(0.5 if handler is Silent else 10.0, ("127.0.0.1", server.server_address[1]))
    assert (expected in found) if expected else found == ""
    assert hang.ras(0.2, ("127.0.0.1", 9)) == ""


def test_only_the_newest_records_stay_and_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "hangs"
    for number in range(hang.KEPT + 2):
        hang.keep({"taken": 1764126720.0 + number, "processes": [], "log": "x"}, str(folder))
    names = sorted(os.listdir(folder))
    assert (len(names), names[-1]) == (hang.KEPT, "20251126T031206Z.json")
    assert (folder.stat().st_mode & 0o777, (folder / names[0]).stat().st_mode & 0o777) == (0o700, 0o600)


def test_the_program_keeps_a_record_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    paths = hang.Paths(*(str(tmp_path / name) for name in ("wanted", "request", "taken", "others", "folder")))
    Path(paths.wanted).write_text("sparkthor-vllm.service: completion timed out after 6 s\n")

    def run(argv: Sequence[str], _seconds: float) -> tuple[int, str, str]:
        return (0, "HF_TOKEN=hf_0123456789abcdef0123 loads\n", "") if argv[0] == "journalctl" else (127, "", "")

    monkeypatch.setattr(hang.Reader.__init__, "__defaults__", (run, "/proc", "", 4.0, lambda _seconds: ""))
    assert hang.main([], paths) == 0
    assert hang.stamp(paths.taken)
    (name,) = os.listdir(paths.folder)
    text = (Path(paths.folder) / name).read_text()
    assert "hf_0123456789" not in text
    (told,) = hangs.read(paths.folder)
    assert told["reason"].endswith("completion timed out after 6 s")
    assert any(one["title"] == "VLLM::Worker_TP1" for one in told["processes"])


def test_a_request_that_leads_elsewhere_tells_nothing_and_blocks_nobody(tmp_path: Path) -> None:
    request, own = tmp_path / "hang", tmp_path / "own"
    own.write_text("root:$y$j9T$secret\n")
    os.mkfifo(request)
    assert hang.why(str(request)) == ""
    request.unlink()
    os.link(own, request)
    assert hang.why(str(request)) == "root:$y$j9T$secret"
    if os.geteuid() == 0:
        # as in /run/sparkthor/requests, where that user cannot read what he names
        own.chmod(0o600)
        os.chown(tmp_path, 65534, 65534)
        assert hang.why(str(request)) == ""
        request.unlink()
        request.symlink_to(own)
        os.lchown(request, 65534, 65534)
        assert hang.why(str(request)) == ""


def test_root_runs_nothing_that_others_may_write(tmp_path: Path) -> None:
    own = tmp_path / "py-spy"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o777)
    assert hang.found_py_spy([str(own), ""]) == ""
    assert hang.trusted("/bin/sh")


def test_who_waits_goes_on_with_the_first_change_or_the_time(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    later = threading.Timer(0.2, taken.write_text, ("1",))
    later.start()
    assert hang.wait({str(taken): 0}, 30.0) == []
    later.join()
    assert hang.wait({str(taken): hang.stamp(str(taken))}, 0.2) == [str(taken)]
